"""Pages of sessions that wait or are cut, in a real JupyterLab; a fake service holds each state as long as needed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Look
from tests.e2e.lab import CURRENT_KERNEL, Lab, running_lab
from tests.integration.jupyter.fake_service import FakeService, until

ITEM = ".jp-gpufair-status-button"
PROMPT = ".jp-CodeCell .jp-InputPrompt"
OUTPUT = ".jp-OutputArea-output"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeService, Lab]]:
    home = tmp_path_factory.mktemp("lab")
    with FakeService(home / "gpufair") as fake, running_lab(home, environment={"GPUFAIR_STATE_DIR": str(fake.folder)}) as lab:
        until(lambda: "gpufair-digits" in lab.request("GET", "api/kernelspecs")["kernelspecs"], 30)
        yield fake, lab


def run_all(page: Page) -> None:
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")


def status(page: Page) -> str:
    return str(page.evaluate(f"{CURRENT_KERNEL}.status"))


def test_a_queued_notebook_can_be_used(shared: tuple[FakeService, Lab], ui: Look) -> None:
    """No "Connecting": the page is complete, cells wait as [*], a reload is quick, and all run in the end."""
    fake, lab = shared
    fake.queueing = True
    lab.write_notebook("queued.ipynb", "gpufair-digits", {"a": "x = 20", "b": "print('sum', x + 22)"})

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "queued.ipynb")
        expect(page.locator(ITEM)).to_have_text(re.compile("queued"))
        assert status(page) == "starting"
        run_all(page)
        expect(page.locator(PROMPT).nth(1)).to_have_text("[*]:")
        expect(page.locator(ITEM)).to_have_text(re.compile("2 cells held"))
        fake.start(kernel_id)
        expect(page.locator(OUTPUT)).to_have_text("sum 42\n")
        expect(page.locator(PROMPT).nth(1)).to_have_text("[2]:")
        page.wait_for_function(f"{CURRENT_KERNEL}.status === 'idle'")

    ui(look)


def test_a_reload_while_queued(shared: tuple[FakeService, Lab], ui: Look) -> None:
    """The stock way does not finish loading until the kernel is there."""
    fake, lab = shared
    fake.queueing = True
    lab.write_notebook("reload.ipynb", "gpufair-digits", {"a": "print('once')"})

    def look(page: Page) -> None:
        first = lab.open(page, "reload.ipynb")
        assert lab.open(page, "reload.ipynb") == first
        expect(page.locator(ITEM)).to_have_text(re.compile("queued"))
        run_all(page)
        expect(page.locator(PROMPT)).to_have_text("[*]:")
        fake.start(first)
        expect(page.locator(OUTPUT)).to_have_text("once\n")

    ui(look)


def test_a_cut_cell_shows_why_and_the_next_ones_wait(shared: tuple[FakeService, Lab], ui: Look) -> None:
    """Nothing stays [*] for ever; running it again is all there is to do; no dialog, no lost tab."""
    fake, lab = shared
    fake.queueing = False
    lab.write_notebook("cut.ipynb", "gpufair-digits", {"a": "import time\nprint('on')\ntime.sleep(60)", "b": "print('b')"})

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "cut.ipynb")
        expect(page.locator(ITEM)).to_have_text(re.compile("running"))
        run_all(page)
        expect(page.locator(OUTPUT)).to_have_text("on\n")
        fake.park(kernel_id)
        expect(page.locator(OUTPUT).nth(1)).to_contain_text("SessionPreempted: This cell was cut at")
        expect(page.locator(PROMPT).nth(0)).to_have_text("[ ]:")
        expect(page.locator(PROMPT).nth(1)).to_have_text("[ ]:")
        page.locator(".jp-CodeCell").nth(1).click()
        page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
        expect(page.locator(".jp-CodeCell").nth(1).locator(OUTPUT)).to_have_text("b\n")
        assert page.locator(".jp-Dialog").count() == 0
        assert page.evaluate(f"{CURRENT_KERNEL}.id") == kernel_id

    ui(look)


def test_restart_from_the_menu_while_queued(shared: tuple[FakeService, Lab], ui: Look) -> None:
    """JupyterLab waits for a fresh kernel's answer; it gets one, keeps its place, and cells run later."""
    fake, lab = shared
    fake.queueing = True
    lab.write_notebook("again.ipynb", "gpufair-digits", {"a": "print('fresh')"})

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "again.ipynb")
        page.evaluate(f"{CURRENT_KERNEL}.restart()")
        page.wait_for_function(f"{CURRENT_KERNEL}.connectionStatus === 'connected'")
        assert fake.runs[kernel_id].calls == ["submit"]
        run_all(page)
        expect(page.locator(PROMPT)).to_have_text("[*]:")
        fake.start(kernel_id)
        expect(page.locator(OUTPUT)).to_have_text("fresh\n")

    ui(look)
