"""The front end against a server that answers as the contract says: each state, each notice, recorded outputs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.conftest import Look
from tests.e2e.lab import Lab, running_lab

ROOT = Path(__file__).parents[2]
ITEM = ".jp-gpufair-status-button"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    chosen = "{'jupyter_gpufair': False, 'tests.e2e.fake_sessions': True}"
    options = [f"--ServerApp.jpserver_extensions={chosen}"]
    with running_lab(tmp_path_factory.mktemp("lab"), options, {"PYTHONPATH": str(ROOT)}) as lab:
        yield lab


def tell(
    lab: Lab,
    kernel_id: str,
    executions: list[dict[str, Any]] | None = None,
    cells: list[dict[str, Any]] | None = None,
    **session: Any,
) -> None:
    """Set what the server says of a kernel; the event goes out at once."""
    body: dict[str, Any] = {"session": session}
    body |= {} if executions is None else {"executions": executions}
    body |= {} if cells is None else {"cells": cells}
    lab.request("PUT", f"gpufair/fake/{kernel_id}", body)


def keep_in(late: list[Route]) -> Callable[[Route], None]:
    """A handler of requests that leaves them without an answer for now."""

    def keep(route: Route) -> None:  # of the list's own method Playwright can't make one
        late.append(route)

    return keep


def asked(lab: Lab, kernel_id: str) -> list[str]:
    """Actions that the browser asked for, once there is one."""
    deadline = time.monotonic() + 10
    while True:
        actions: list[str] = lab.request("GET", f"gpufair/fake/{kernel_id}")["actions"]
        if actions or time.monotonic() > deadline:
            return actions
        time.sleep(0.05)


def run(msg_id: str, cell_id: str, text: str, *, done: bool = True) -> dict[str, Any]:
    """A recorded execution that printed ``text``."""
    return {
        "msg_id": msg_id,
        "cell_id": cell_id,
        "execution_count": 7 if done else None,
        "state": "done" if done else "running",
        "status": "ok" if done else None,
        "started_s": time.time() - 2,
        "ended_s": time.time() - 1 if done else None,
        "outputs": [{"output_type": "stream", "name": "stdout", "text": text}],
    }


def test_an_ordinary_kernel_shows_nothing(lab: Lab, ui: Look) -> None:
    """Who does not use the scheduler is not bothered by it."""
    lab.write_notebook("plain.ipynb", "python3", {"a": "1"})

    def look(page: Page) -> None:
        lab.open(page, "plain.ipynb")
        expect(page.locator(ITEM)).to_have_count(1)
        expect(page.locator(ITEM)).to_be_hidden()

    ui(look)


def test_the_item_follows_the_session_through_its_states(lab: Lab, ui: Look) -> None:
    """The words change with each event, without a reload."""
    lab.write_notebook("states.ipynb", "python3", {"a": "1"})
    now = time.time()
    expected: dict[str, dict[str, Any]] = {
        "1 GPU · queued, place 2": {"state": "queued", "position": 2, "node": None},
        "1 GPU · starting": {"state": "starting"},
        "1 GPU · running, may be preempted": {"protected_until_s": now - 5},
        "2 × H200 · running": {"gpus": 2, "gpu_type": "H200"},
        "1 GPU · saving": {"state": "checkpointing"},
        "1 GPU · parked · 3 cells held": {"state": "parked", "held_cells": 3, "node": None},
        "1 GPU · waiting for 2 others to end": {"state": "parked", "withheld": "waiting for 2 others to end", "node": None},
        "1 GPU · restoring": {"state": "restoring"},
        "CPU · running": {"gpus": 0},
        "1 GPU · stopping": {"state": "stopping"},
        "1 GPU · ended": {"state": "ended", "node": None},
    }

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "states.ipynb")
        for words, session in expected.items():
            tell(lab, kernel_id, **session)
            expect(page.locator(ITEM)).to_have_text(words)

    ui(look)


def test_the_protection_counts_down_by_itself(lab: Lab, ui: Look) -> None:
    """No message comes while the clock runs, so the page must do it."""
    lab.write_notebook("countdown.ipynb", "python3", {"a": "1"})

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "countdown.ipynb")
        tell(lab, kernel_id, protected_until_s=time.time() + 5)
        expect(page.locator(ITEM)).to_have_text(re.compile(r"protected 0:0[45]"))
        expect(page.locator(ITEM)).to_have_text(re.compile(r"protected 0:02"))
        expect(page.locator(ITEM)).to_have_text("1 GPU · running, may be preempted")
        # A screen reader hears changes of state, not seconds.
        expect(page.locator(".jp-gpufair-spoken")).to_have_text("1 GPU: running, may be preempted")

    ui(look)


def test_the_menu_works_from_the_keyboard(lab: Lab, ui: Look) -> None:
    """What the mouse can do, the keyboard can; only actions that make sense are there."""
    lab.write_notebook("menu.ipynb", "python3", {"a": "1"})

    def look(page: Page) -> str:
        kernel_id = lab.open(page, "menu.ipynb")
        tell(lab, kernel_id)
        page.locator(ITEM).focus()
        page.keyboard.press("Enter")
        items = page.locator(".jp-gpufair-menu .lm-Menu-item")
        actions = ["Save Session Now", "Park and Release GPUs", "Move to a CPU Node", "Extend Protection…"]
        offered = [*actions, "Show Session Details"]
        expect(items).to_have_text(offered)
        page.keyboard.press("Escape")
        expect(items).to_have_count(0)
        expect(page.locator(ITEM)).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(items).to_have_count(0)
        return kernel_id

    assert asked(lab, ui(look)) == ["park"]


def test_who_waits_can_read_why(lab: Lab, ui: Look) -> None:
    """A tooltip needs a mouse, and a session that waits allows nothing else: its menu must not be empty."""
    lab.write_notebook("details.ipynb", "python3", {"a": "1"})

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "details.ipynb")
        tell(lab, kernel_id, state="queued", position=1, reason="waiting for 1 GPU: 0 of 2 GPUs are free")
        expect(page.locator(ITEM)).to_have_text(re.compile("queued, place 1"))
        page.locator(ITEM).click()
        items = page.locator(".jp-gpufair-menu .lm-Menu-item")
        expect(items).to_have_text(["Why Does It Wait?", "Show Session Details"])
        items.filter(has_text="Details").click()
        expect(page.locator(".jp-Dialog")).to_contain_text("waiting for 1 GPU: 0 of 2 GPUs are free")
        expect(page.locator(".jp-Dialog")).to_contain_text("gpufair why ")
        page.keyboard.press("Escape")
        expect(page.locator(".jp-Dialog")).to_have_count(0)

    ui(look)


def test_unused_gpus_are_offered_a_cpu_node_and_a_no_is_taken(lab: Lab, ui: Look) -> None:
    """Both answers are one click or one key away, and the question goes when it has no point any more."""
    lab.write_notebook("unused.ipynb", "python3", {"a": "1"})
    text = "This notebook has not used its GPU for 2 h: move it to a CPU node, and keep all variables?"
    suggestion = {"kind": "move_to_cpu", "since_s": time.time() - 7200, "text": text}

    def look(page: Page) -> str:
        kernel_id = lab.open(page, "unused.ipynb")
        tell(lab, kernel_id, suggestion=suggestion)
        question = page.get_by_text(text)
        expect(question).to_be_visible()
        expect(page.locator(ITEM)).to_have_text("1 GPU · running, GPUs not used")
        tell(lab, kernel_id)
        expect(question).to_have_count(0)
        tell(lab, kernel_id, suggestion=suggestion)
        page.get_by_role("button", name="Not now").click()
        assert asked(lab, kernel_id) == ["dismiss"]
        tell(lab, kernel_id)
        expect(question).to_have_count(0)  # a notice that goes fades out, and its buttons are there meanwhile
        tell(lab, kernel_id, suggestion=suggestion)
        page.get_by_role("button", name="Move to CPU").focus()
        page.keyboard.press("Enter")
        tell(lab, kernel_id, moving=True)
        expect(page.locator(ITEM)).to_have_text("1 GPU · running, moving to a CPU node")
        expect(question).to_have_count(0)
        tell(lab, kernel_id, not_moved="gen (a generator) cannot be saved")
        expect(page.get_by_text("stays on its GPUs: gen (a generator) cannot be saved")).to_be_visible()
        return kernel_id

    assert asked(lab, ui(look)) == ["dismiss", "open"]


def test_a_restore_is_offered_once_and_done_on_request(lab: Lab, ui: Look) -> None:
    """After a kernel's death one click brings the variables back."""
    lab.write_notebook("restore.ipynb", "python3", {"a": "1"})
    checkpoint = {"id": "c-1", "at_s": time.time() - 60, "size_bytes": 1000, "duration_s": 0.2}

    def look(page: Page) -> str:
        kernel_id = lab.open(page, "restore.ipynb")
        tell(lab, kernel_id, checkpoint=checkpoint)
        expect(page.locator(ITEM)).to_be_visible()
        for _ in range(2):
            tell(lab, kernel_id, checkpoint=checkpoint, restore_offered=True)
        toast = page.locator(".Toastify__toast", has_text="The kernel died. Restore the state saved at")
        expect(toast).to_have_count(1)
        toast.get_by_role("button", name="Restore").click()
        return kernel_id

    assert asked(lab, ui(look)) == ["restore"]


def test_preemption_and_return_are_told(lab: Lab, ui: Look) -> None:
    """One learns why the GPUs went, and what did not come back."""
    lab.write_notebook("move.ipynb", "python3", {"a": "1"})
    lost = [{"name": "reader", "reason": "an open file"}]

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "move.ipynb")
        tell(lab, kernel_id)
        expect(page.locator(ITEM)).to_be_visible()
        tell(lab, kernel_id, state="checkpointing")
        tell(lab, kernel_id, state="parked", node=None, reason="bob waits and is under his share.")
        toasts = page.locator(".Toastify__toast")
        expect(toasts).to_contain_text(["bob waits and is under his share."])
        tell(lab, kernel_id, state="restoring", node="node-b", lost=lost)
        tell(lab, kernel_id, node="node-b", lost=lost)
        expect(toasts).to_contain_text(["The session is back on node-b, with its variables. Not saved: reader."])

    ui(look)


OURS, JUPYTERS = "@gpufair/labextension:session-status", "@jupyterlab/apputils-extension:notification"


def test_news_are_told_as_their_reader_wants_them(lab: Lab, ui: Look) -> None:
    """What has to leave says until when; with Do Not Disturb, ours or JupyterLab's own, all is listed and nothing pops up."""
    lab.write_notebook("quiet.ipynb", "python3", {"a": "1"})
    leaving: dict[str, Any] = {"state": "checkpointing", "leaving": "rank", "reason": "ben is under his share."}
    lost = [{"name": "reader", "reason": "an open file"}]

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "quiet.ipynb")
        toasts, item = page.locator(".Toastify__toast"), page.locator(ITEM)

        def preempted() -> None:
            tell(lab, kernel_id)
            expect(item).to_have_text("1 GPU · running")
            tell(lab, kernel_id, deadline_s=time.time() + 119, **leaving)
            expect(item).to_have_text(re.compile(r"saving, has to leave by \d\d:\d\d"))

        preempted()
        expect(toasts).to_contain_text(["gives its GPUs back within 2 minutes"])
        expect(toasts).to_contain_text(["ben is under his share."])
        tell(lab, kernel_id, state="restoring", lost=lost)
        tell(lab, kernel_id, lost=lost)
        toasts.get_by_role("button", name="What is missing").click()
        expect(page.locator(".jp-Dialog")).to_contain_text("Not saved: reader (an open file)")
        page.keyboard.press("Escape")
        expect(toasts).to_have_count(0)
        for plugin, name in (OURS, "doNotDisturb"), (JUPYTERS, "doNotDisturbMode"):
            lab.request("PUT", f"lab/api/settings/{plugin}", {"raw": json.dumps({name: True})})
            assert lab.open(page, "quiet.ipynb") == kernel_id
            preempted()
            bell = page.locator(".jp-Notification-Status")
            expect(bell).to_contain_text("1")
            expect(toasts).to_have_count(0)
            lab.request("PUT", f"lab/api/settings/{plugin}", {"raw": "{}"})

    ui(look)


def test_recorded_output_stands_under_its_cell_when_the_notebook_is_opened(lab: Lab, ui: Look) -> None:
    """Output that came while no browser looked is not lost, and a cell that still runs goes on filling."""
    cells = {"finished": "print('x')", "going": "print('y')", "untouched": "print('z')"}
    lab.write_notebook("outputs.ipynb", "python3", cells)

    def first(page: Page) -> str:
        return lab.open(page, "outputs.ipynb")

    kernel_id = ui(first)
    record = [run("m-1", "finished", "old\n"), run("m-2", "finished", "new\n"), run("m-3", "going", "1\n", done=False)]
    tell(lab, kernel_id, record)

    def second(page: Page) -> None:
        assert lab.open(page, "outputs.ipynb") == kernel_id
        shown = page.locator(".jp-CodeCell")
        expect(shown.nth(0).locator(".jp-OutputArea-output")).to_have_text("new\n")
        expect(shown.nth(0).locator(".jp-InputPrompt")).to_have_text("[7]:")
        expect(shown.nth(1).locator(".jp-OutputArea-output")).to_have_text("1\n")
        tell(lab, kernel_id, [*record[:2], run("m-3", "going", "1\n2\n")])
        expect(shown.nth(1).locator(".jp-OutputArea-output")).to_have_text("1\n2\n")
        expect(shown.nth(2).locator(".jp-OutputArea-output")).to_have_count(0)

    ui(second)


def test_an_answer_that_comes_late_unmarks_no_cell_that_waits_since(lab: Lab, ui: Look) -> None:
    """Which cells wait is asked together with the record, and again when they become more: the newest answer counts."""
    lab.write_notebook("late.ipynb", "python3", {"done": "print('x')", "waits": "print('y')"})

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "late.ipynb")
        tell(lab, kernel_id, state="queued")
        expect(page.locator(ITEM)).to_be_visible()
        page.wait_for_load_state("networkidle")

        late: list[Route] = []
        page.route(re.compile(r"/gpufair/sessions/.*/outputs"), keep_in(late))
        with page.expect_response(re.compile(r"/gpufair/sessions/.*/cells")):
            tell(lab, kernel_id, [run("m-1", "done", "recorded\n")], [], state="running")
        waiting = {"msg_id": "m-2", "cell_id": "waits", "state": "held"}
        tell(lab, kernel_id, cells=[waiting], state="running", held_cells=1)
        cell = page.locator(".jp-CodeCell").nth(1)
        expect(cell).to_have_attribute("data-gpufair", "held")
        for route in late:
            route.continue_()
        page.unroute_all()
        # Drawn right before the marks are, from the same answers.
        expect(page.locator(".jp-CodeCell .jp-OutputArea-output").first).to_have_text("recorded\n")
        expect(cell).to_have_attribute("data-gpufair", "held")
        expect(cell.locator(".jp-InputPrompt")).to_have_text("[*]:")

    ui(look)


def test_an_event_is_newer_than_an_answer_that_comes_after_it(lab: Lab, ui: Look) -> None:
    lab.write_notebook("news.ipynb", "python3", {"one": "print('x')"})

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "news.ipynb")
        tell(lab, kernel_id, state="queued")
        expect(page.locator(ITEM)).to_contain_text("queued")
        late: list[Route] = []
        session = re.compile(rf"/gpufair/sessions/{kernel_id}(\?|$)")
        page.route(session, keep_in(late))
        # Looked at again when another notebook was in front.
        with page.expect_request(session):
            page.evaluate("void window.jupyterapp.commands.execute('application:activate-previous-tab')")
            page.evaluate("void window.jupyterapp.commands.execute('application:activate-next-tab')")
        old = lab.request("GET", f"gpufair/sessions/{kernel_id}")
        tell(lab, kernel_id, state="running")
        expect(page.locator(ITEM)).not_to_contain_text("queued")
        with page.expect_response(session):
            late[0].fulfill(json=old)
        page.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        expect(page.locator(ITEM)).not_to_contain_text("queued")

    ui(look)


def test_a_cell_that_runs_in_this_page_is_left_alone(lab: Lab, ui: Look) -> None:
    """JupyterLab draws what it runs itself; the record must not draw it a second time."""
    lab.write_notebook("live.ipynb", "python3", {"live": "import time\nprint('live')\ntime.sleep(2)\nprint('end')"})

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "live.ipynb")
        tell(lab, kernel_id)
        expect(page.locator(ITEM)).to_be_visible()
        page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
        output = page.locator(".jp-CodeCell .jp-OutputArea-output")
        expect(output).to_have_text("live\n")
        # The state changes while the cell runs, so the record is read.
        tell(lab, kernel_id, [run("m-0", "live", "recorded\n")], state="checkpointing")
        expect(page.locator(ITEM)).to_have_text("1 GPU · saving")
        expect(output).to_have_text("live\nend\n")

    ui(look)
