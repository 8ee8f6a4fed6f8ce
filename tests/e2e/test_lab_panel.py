"""The side panel in a real JupyterLab over the real scheduler: own sessions, the queue with its reasons, budgets, nodes."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from gpufair.client import Client
from tests.e2e.axe import needs_axe, violations
from tests.e2e.conftest import Look
from tests.e2e.lab import CURRENT_KERNEL, Lab, complaints
from tests.e2e.real_lab import ITEM, end_all, shared_lab, state_of

PICTURES = Path(__file__).parents[2] / "docs" / "images"
CHANGE = "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})"
SLEEP = {"type": "command", "argv": ["sleep", "600"], "cwd": "/"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with shared_lab(tmp_path_factory) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _ended(lab: Lab) -> Iterator[None]:
    yield
    end_all(lab)


def show(page: Page) -> None:
    page.evaluate("window.jupyterapp.commands.execute('gpufair:open-lab')")
    for title in ("Queue", "Budgets", "Cluster"):
        section = page.locator("#gpufair-lab .lm-AccordionPanel-title", has_text=title)
        if section.get_attribute("aria-expanded") != "true":
            section.click()


@needs_axe
def test_the_panel_shows_who_waits_why_and_what_is_mine(lab: Lab, ui: Look) -> None:
    """One GPU: my notebook holds it, and a program of mine waits for it, until I end it with the panel's button."""
    lab.write_notebook("mine.ipynb", "gpufair-1gpu", {"a": "x = 1"})

    def look(page: Page) -> None:
        requests, wrong = list[str](), complaints(page)
        page.on("request", lambda request: requests.append(request.url))
        lab.open(page, "mine.ipynb")
        expect(page.locator(ITEM)).to_have_text(re.compile("running"))
        with Client(state_dir=state_of(lab)) as client:
            # Of the same budget, so that it takes nothing from the notebook while the panel is looked at.
            waiting = client.submit(SLEEP, gpus=1, allocation="language", name="training")
            show(page)
            panel = page.locator("#gpufair-lab")
            queued = panel.locator(".jp-gpufair-queue details")
            expect(queued).to_contain_text("1. training")
            queued.locator("summary").press("Enter")
            expect(queued.locator(".jp-gpufair-why")).to_contain_text(client.why(waiting.id).sentence[:20])
            mine = panel.locator(".jp-gpufair-card")
            expect(mine).to_have_count(2)
            expect(mine.filter(has_text="mine.ipynb")).to_contain_text("1 GPU")
            nodes = panel.locator(".jp-gpufair-node")
            expect(nodes).to_have_count(2)
            nodes.first.focus()
            page.keyboard.press("ArrowRight")
            expect(nodes.nth(1)).to_be_focused()
            page.keyboard.press("Enter")
            expect(panel.locator(".jp-gpufair-cluster > .jp-gpufair-why")).to_contain_text("GPU")
            budgets = panel.locator(".jp-gpufair-budget")
            expect(budgets).to_have_count(2)
            expect(budgets.filter(has_text="vision")).to_contain_text("0 of 0.5 GPUs")
            client.announce("The storage is slow.", "warning")
            board = panel.get_by_role("region", name="Announcements")
            expect(board).to_contain_text("Warning The storage is slow.")
            for theme in ("light", "dark"):
                page.evaluate(CHANGE, f"JupyterLab {theme.title()}")
                page.wait_for_function(f"document.body.dataset.jpThemeLight === '{str(theme == 'light').lower()}'")
                assert violations(page, "#gpufair-lab .jp-gpufair-section") == []
                assert violations(page, ".jp-gpufair-board") == []
                if os.environ.get("GPUFAIR_SCREENSHOTS") == "1":
                    page.screenshot(
                        path=PICTURES / f"panel-{theme}.png", clip={"x": 0, "y": 0, "width": 640, "height": 800}
                    )
            board.get_by_role("button", name="Put aside: The storage is slow.").click()
            expect(board).to_be_hidden()
            panel.get_by_role("button", name="What if…").click()
            dialog = page.locator(".jp-Dialog")
            dialog.get_by_role("spinbutton", name="vision").fill("150")
            expect(dialog.get_by_role("button", name="Apply")).to_be_disabled()
            dialog.get_by_role("button", name="Try").click()
            line = dialog.locator("tbody tr").filter(has_text="vision")
            expect(line).to_contain_text("50.0 % → 75.0 %", timeout=60_000)
            assert violations(page, ".jp-gpufair-whatif") == []
            if os.environ.get("GPUFAIR_SCREENSHOTS") == "1":
                dialog.locator(".jp-Dialog-content").screenshot(path=PICTURES / "what-if.png")
            dialog.get_by_role("button", name="Apply").click()
            expect(dialog.get_by_text("In force from now on")).to_be_visible()
            dialog.get_by_role("button", name="Close").click()
            expect(budgets.filter(has_text="vision")).to_contain_text("0 of 0.8 GPUs")
            ended = mine.filter(has_text="training")
            ended.get_by_role("button", name="End: training").click()
            page.locator(".jp-Dialog").get_by_role("button", name="End").click()
            expect(mine).to_have_count(1)
            assert client.workload(waiting.id).state in {"ended", "stopping"}
        assert [url for url in requests if not url.startswith((lab.url, "data:", "blob:"))] == []
        assert wrong == []

    ui(look)


WIDGETS = """\
from jupyter_gpufair.widgets import BudgetPanel, ClusterMap, QueuePanel, SessionPanel
from IPython.display import display
budgets = BudgetPanel()
display(budgets, ClusterMap(), QueuePanel(), SessionPanel())"""


def test_widgets_live_on_while_their_kernel_is_parked(lab: Lab, ui: Look) -> None:
    """They ask the server, so they show that the GPU was given back; the variable is there after the restore."""
    lab.write_notebook("widgets.ipynb", "gpufair-1gpu", {"a": WIDGETS, "b": "type(budgets).__name__"})

    def look(page: Page) -> None:
        lab.open(page, "widgets.ipynb")
        expect(page.locator(ITEM)).to_have_text(re.compile("running"))
        page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
        outputs = page.locator(".jp-OutputArea-output")
        mine = outputs.locator(".jp-gpufair-budget").filter(has_text="language")
        expect(mine).to_contain_text("1 of 0.5 GPUs", timeout=60_000)
        expect(outputs.locator(".jp-gpufair-node")).to_have_count(2)
        expect(outputs.locator(".jp-gpufair-queue")).to_contain_text("Nobody waits.")
        expect(outputs.locator(".jp-gpufair-card")).to_contain_text("widgets.ipynb")
        outputs.locator(".jp-gpufair-card").get_by_role("button", name="Park: widgets.ipynb").click()
        expect(page.locator(ITEM)).to_have_text(re.compile("parked"), timeout=60_000)
        expect(mine).to_contain_text("0 of 0.5 GPUs")
        page.locator(".jp-CodeCell").nth(1).click()
        page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
        expect(page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")).to_contain_text(
            "BudgetPanel", timeout=60_000
        )
        page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")

    ui(look)
    notebook = nbformat.read(lab.root / "widgets.ipynb", as_version=4)
    [first, *_] = notebook.cells[0].outputs
    assert "<caption>Budgets</caption>" in first["data"]["text/html"], "who has no kernel sees a table"


def test_a_panel_is_a_picture_where_no_kernel_is(lab: Lab, ui: Look) -> None:
    """A notebook of last week is opened: nothing of its kernel is left, and yet what it showed is seen."""
    kept = "<table><caption>Budgets</caption><tr><td>language, as it was</td></tr></table>"
    gone = {"version_major": 2, "version_minor": 0, "model_id": "0" * 32}
    data = {"application/vnd.jupyter.widget-view+json": gone, "text/html": kept, "text/plain": "BudgetPanel()"}
    output = nbformat.v4.new_output("display_data", data)
    cell = nbformat.v4.new_code_cell("BudgetPanel()", outputs=[output], id="a")
    spec = {"name": "not-here", "display_name": "not here", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": spec}), lab.root / "old.ipynb")

    def look(page: Page) -> None:
        page.goto(f"{lab.url}lab/tree/old.ipynb?reset&token={lab.token}")
        page.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()
        expect(page.locator(".jp-OutputArea-output")).to_contain_text("language, as it was", timeout=60_000)

    ui(look)


def test_a_notebook_is_made_with_what_it_asks_for(lab: Lab, ui: Look) -> None:
    """The dialog says what each protection would mean; the session has what was chosen, and asks for it again later."""

    def look(page: Page) -> None:
        page.goto(f"{lab.url}lab?reset&token={lab.token}")
        card = page.locator(".jp-LauncherCard", has_text="GPU Notebook")
        card.click()
        dialog = page.locator(".jp-Dialog")
        form = dialog.locator(".jp-gpufair-wish")
        form.get_by_role("combobox", name="Profile").select_option("vision")
        choices = form.locator("fieldset label")
        expect(choices.filter(has_text="1 h: starts now")).to_contain_text("1.0 GPU-h")
        form.get_by_role("combobox", name="Budget").select_option("language")
        form.get_by_role("spinbutton", name="GPUs on each node").fill("7")
        expect(form.get_by_role("status")).to_contain_text("7 GPUs")
        form.get_by_role("spinbutton", name="GPUs on each node").fill("1")
        choices.filter(has_text="15 min:").locator("input").check()
        assert violations(page, ".jp-gpufair-wish") == []
        if os.environ.get("GPUFAIR_SCREENSHOTS") == "1":
            dialog.locator(".jp-Dialog-content").screenshot(path=PICTURES / "new-notebook.png")
        dialog.get_by_role("button", name="Create").click()
        expect(page.locator(ITEM)).to_have_text(re.compile(r"running, protected 1\d:\d\d"), timeout=60_000)
        with Client(state_dir=state_of(lab)) as client:
            [session] = [one for one in client.workloads() if one.live]
            assert (session.gpus, session.allocation, session.min_runtime_s) == (1, "language", 900)

    ui(look)
    notebook = nbformat.read(lab.root / "Untitled.ipynb", as_version=4)
    assert notebook.metadata["gpufair_request"] == {"allocation": "language", "min_runtime_s": 900}


def test_a_protection_is_extended_from_the_status_bar(lab: Lab, ui: Look) -> None:
    """8 s are over soon; nobody else wants the GPU, so the hour is granted."""
    lab.write_notebook("longer.ipynb", "gpufair-1gpu", {"a": "x = 1"})

    def look(page: Page) -> None:
        lab.open(page, "longer.ipynb")
        expect(page.locator(ITEM)).to_have_text(re.compile("running"))
        page.locator(ITEM).click()
        page.get_by_role("menuitem", name="Extend Protection…").click()
        dialog = page.locator(".jp-Dialog")
        dialog.locator("select").select_option(label="1 h")
        dialog.get_by_role("button", name="Extend").click()
        expect(page.locator(ITEM)).to_have_text(re.compile(r"protected (59:\d\d|1:00:00)"))

    ui(look)


def test_a_session_of_another_server_is_taken_up(lab: Lab, ui: Look) -> None:
    """Its notebook opens on the kernel that lives. Its checkpoints and its log are in the panel, and a restart of the server changes nothing."""
    path = lab.write_notebook("taken.ipynb", "gpufair-1gpu", {"a": "x = 1", "b": "print('x is', x)"})
    argv = [sys.executable, "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]
    launch = {"type": "kernel", "argv": argv, "cwd": str(lab.root), "kernel_name": "gpufair-1gpu", "notebook": str(path)}

    def look(page: Page) -> None:
        page.goto(f"{lab.url}lab?reset&token={lab.token}")
        with Client(state_dir=state_of(lab)) as client:
            kernel_id = client.submit(launch, id=str(uuid.uuid4()), gpus=1, allocation="language", min_runtime_s=600).id
        page.wait_for_function("window.jupyterapp?.commands.hasCommand('gpufair:open-lab')")
        page.evaluate("window.jupyterapp.restored.then(() => window.jupyterapp.commands.execute('gpufair:open-lab'))")
        card = page.locator("#gpufair-lab .jp-gpufair-card")
        expect(card).to_contain_text("running", timeout=60_000)
        expect(card).to_contain_text("not open on this server")
        card.get_by_role("button", name="Re-attach: taken.ipynb").click()
        page.wait_for_function(f"{CURRENT_KERNEL}?.connectionStatus === 'connected'")
        assert page.evaluate(f"{CURRENT_KERNEL}.id") == kernel_id
        cells, prompts = page.locator(".jp-CodeCell"), page.locator(".jp-CodeCell .jp-InputPrompt")

        def run(cell: int, count: int) -> None:
            cells.nth(cell).click()
            page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
            expect(prompts.nth(cell)).to_have_text(f"[{count}]:")

        run(0, 1)
        card.locator("summary", has_text="Checkpoints").click()
        saved = card.locator(".jp-gpufair-checkpoint")
        card.get_by_role("button", name="Save: taken.ipynb").click()
        expect(saved).not_to_have_count(0)
        expect(saved.first.get_by_role("button", name=re.compile("Restore the checkpoint of"))).to_be_visible()
        run(1, 2)
        card.locator("summary", has_text="Log").click()
        expect(card.locator(".jp-gpufair-log")).to_contain_text("x is 1")
        lab.again()
        assert lab.open(page, "taken.ipynb") == kernel_id
        expect(page.locator(ITEM)).to_have_text(re.compile("running, protected"))

    ui(look)
