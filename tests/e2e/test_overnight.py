"""A notebook whose cells run on while browsers go, servers are killed, and nobody looks."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Look
from tests.e2e.lab import CURRENT_KERNEL, Lab
from tests.e2e.real_lab import ITEM, real_lab, run_all

RICH = """\
import sys, time
from IPython.display import HTML, clear_output, display
print("to be cleared")
clear_output()
bar = display(HTML("<i>0 %</i>"), display_id=True)
for step in range(8):
    print("step", step)
    time.sleep(0.5)
print("careful", file=sys.stderr)
bar.update(HTML("<i>100 %</i>"))
x += 1
x"""
CELLS = {
    "before": "x = 1\nprint('evening')",
    "rich": RICH,
    "next": "x += 1\nprint('x is', x)",
    "fails": "print('so far')\n1 / 0",
    "never": "print('never')",
    "late": "bar.update(HTML('<i>200 %</i>'))",
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with real_lab(tmp_path) as lab:
        yield lab


def wait_until(true: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (value := true()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.1)
    return value


def recorded(lab: Lab, kernel_id: str) -> dict[str, dict[str, Any]]:
    """The latest execution of each cell."""
    found = lab.request("GET", f"gpufair/sessions/{kernel_id}/outputs")["executions"]
    return {run["cell_id"]: run for run in found}


def state_of(lab: Lab, kernel_id: str) -> str:
    return str(lab.request("GET", f"gpufair/sessions/{kernel_id}")["state"])


def cell(page: Page, name: str) -> Locator:
    return page.locator(".jp-CodeCell").nth(list(CELLS).index(name))


def prompt(page: Page, name: str) -> Locator:
    return cell(page, name).locator(".jp-InputPrompt")


def command(page: Page, name: str) -> None:
    page.evaluate(f"void window.jupyterapp.commands.execute('{name}')")


def test_everything_is_there_in_the_morning(lab: Lab, ui: Look, tmp_path: Path) -> None:
    """Held cells run once after all is killed, with no browser, and each output stands under its cell."""
    lab.write_notebook("night.ipynb", "gpufair-1gpu", CELLS)
    other: dict[str, Any] = {}

    def evening(page: Page) -> str:
        kernel_id = lab.open(page, "night.ipynb")
        expect(page.locator(ITEM)).to_have_text(re.compile("running, protected"))
        command(page, "notebook:run-cell")
        expect(prompt(page, "before")).to_have_text("[1]:")
        lab.request("POST", f"gpufair/sessions/{kernel_id}/park")
        expect(page.locator(ITEM)).to_have_text(re.compile("parked"), timeout=60_000)
        # A colleague of the same team takes the GPU, whom the returning session does not preempt.
        body = {"kernel": {"name": "gpufair-1gpu"}, "name": "other.ipynb", "path": "other.ipynb", "type": "notebook"}
        other.update(lab.request("POST", "api/sessions", body))
        wait_until(lambda: state_of(lab, other["kernel"]["id"]) == "running", "the colleague has the GPU")

        # A second browser on the same notebook sees what waits, and that it does not any more.
        assert page.context.browser is not None
        second = page.context.browser.new_page()
        second.set_default_timeout(20_000)
        lab.open(second, "night.ipynb")
        cell(page, "never").click()
        command(page, "notebook:run-cell")
        expect(second.locator(ITEM)).to_have_text(re.compile("1 cell held"))
        expect(prompt(second, "never")).to_have_text("[*]:")
        second.evaluate(f"void {CURRENT_KERNEL}.interrupt()")
        for each in (page, second):
            expect(each.locator(ITEM)).not_to_have_text(re.compile("held"))
            expect(prompt(each, "never")).to_have_text("[ ]:")

        cell(page, "rich").click()
        command(page, "notebook:run-all-below")
        expect(page.locator(ITEM)).to_have_text(re.compile("5 cells held"))
        # After a reload they wait as before.
        lab.open(second, "night.ipynb")
        expect(second.locator(ITEM)).to_have_text(re.compile("5 cells held"))
        for name in ("rich", "next", "fails", "never", "late"):
            expect(prompt(second, name)).to_have_text("[*]:")
        return kernel_id

    kernel_id = ui(evening)
    assert all(not one.outputs for one in nbformat.read(lab.root / "night.ipynb", 4).cells), "the document knows nothing"

    os.kill(json.loads((tmp_path / "state" / "service.json").read_text())["pid"], signal.SIGKILL)
    lab.again()
    wait_until(lambda: len(lab.request("GET", "api/sessions")) == 2, "both sessions are there")
    assert lab.request("GET", f"gpufair/sessions/{kernel_id}")["held_cells"] == 5
    lab.request("DELETE", f"api/kernels/{other['kernel']['id']}")
    wait_until(lambda: "step 2" in str(recorded(lab, kernel_id).get("rich")), "the cell runs")
    lab.again()
    wait_until(lambda: lab.request("GET", "api/sessions"), "the session is there")
    wait_until(lambda: recorded(lab, kernel_id).get("late"), "all is over")

    def morning(page: Page) -> None:
        assert lab.open(page, "night.ipynb") == kernel_id
        output = ".jp-OutputArea-output"
        expect(cell(page, "before").locator(output)).to_have_text("evening\n")
        steps = "".join(f"step {i}\n" for i in range(8))
        expect(cell(page, "rich").locator(output)).to_have_text(["100 %", steps, "careful\n", "2"])
        expect(cell(page, "next").locator(output)).to_have_text("x is 3\n")
        expect(cell(page, "fails").locator(output)).to_have_text(["so far\n", re.compile("ZeroDivisionError")])
        expect(cell(page, "never").locator(output)).to_have_text(re.compile("NotRun.*the one before it, which failed"))
        for name, count in (("before", "1"), ("rich", "2"), ("next", "3"), ("fails", "4"), ("never", " ")):
            expect(prompt(page, name)).to_have_text(f"[{count}]:")
        expect(page.locator(ITEM)).not_to_have_text(re.compile("held"))

        # A display that was drawn from the record follows a cell that runs now.
        cell(page, "late").click()
        command(page, "notebook:run-cell")
        expect(cell(page, "rich").locator(output).nth(0)).to_have_text("200 %")
        expect(cell(page, "late").locator(output)).to_have_count(0)
        expect(prompt(page, "late")).to_have_text("[5]:")

        # What the user clears stays cleared, in the document and for whoever opens it next.
        cell(page, "next").locator(".jp-InputPrompt").click()
        command(page, "notebook:clear-cell-output")
        expect(cell(page, "next").locator(output)).to_have_count(0)
        page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
        lab.open(page, "night.ipynb")
        expect(prompt(page, "fails")).to_have_text("[4]:")
        expect(cell(page, "rich").locator(output).nth(0)).to_have_text("200 %")
        expect(cell(page, "before").locator(output)).to_have_text("evening\n")
        page.wait_for_timeout(1_000)  # the record has been read for all cells at once
        expect(cell(page, "next").locator(output)).to_have_count(0)

    ui(morning)


def test_an_open_page_outlives_its_server(lab: Lab, ui: Look) -> None:
    """Killed and started again under a running cell: the page gets what it missed, and the cell its end."""
    source = "import time\nfor step in range(60):\n    print(step)\n    time.sleep(0.25)"
    lab.write_notebook("open.ipynb", "gpufair-1gpu", {"long": source, "after": "print('after')"})

    def look(page: Page) -> None:
        lab.open(page, "open.ipynb")
        run_all(page)
        output = page.locator(".jp-CodeCell").nth(0).locator(".jp-OutputArea-output")
        expect(output).to_have_text(re.compile(r"^0\s1\s"))
        lab.again()
        prompts = page.locator(".jp-InputPrompt")
        expect(prompts.nth(1)).to_have_text("[2]:", timeout=90_000)
        expect(prompts.nth(0)).to_have_text("[1]:", timeout=40_000)
        expect(output).to_have_text("".join(f"{i}\n" for i in range(60)))
        expect(page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")).to_have_text("after\n")

    ui(look)
