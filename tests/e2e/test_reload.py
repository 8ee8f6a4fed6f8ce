"""Two browsers on one kernel, each reloaded in every state of the session: they say the same, and both get all output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Look
from tests.e2e.lab import CURRENT_KERNEL, LIMIT_MS, START_S, Lab
from tests.e2e.real_lab import CONFIG, ITEM, real_lab

# It is saved, and brought back, for as long as the test keeps a gate closed.
SLOW = """\
import os, time

def passed(gate):
    while not os.path.exists(gate):
        time.sleep(0.05)
    return Slow()

class Slow:
    def __reduce__(self):
        passed("{gates}/saved")
        return passed, ("{gates}/restored",)

slow = Slow()
print("begun")"""
LONG = 'print("half", flush=True); passed("{gates}/ran"); print("done")'


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    # One who leaves is waited for while the pages are reloaded; nothing is saved before.
    config = CONFIG.replace('session = "20s"', 'session = "120s"') + '\n[checkpoints]\nafter_cells = "off"\n'
    with real_lab(tmp_path, config=config) as lab:
        yield lab


def says(pages: list[Page], bar: str) -> None:
    """What the session's bar says on each page, before and after a reload of it."""
    for page in pages:
        expect(page.locator(ITEM)).to_have_text(re.compile(bar))
    for page in pages:
        page.reload(wait_until="commit")
    for page in pages:
        page.wait_for_function(f"{CURRENT_KERNEL}?.connectionStatus === 'connected'", timeout=START_S * 1000)
        expect(page.locator(ITEM)).to_have_text(re.compile(bar))


def cell(page: Page, name: str) -> Locator:
    return page.locator(".jp-CodeCell").nth(["slow", "long", "held"].index(name))


def shows(pages: list[Page], name: str, output: str, prompt: str) -> None:
    for page in pages:
        expect(cell(page, name).locator(".jp-OutputArea-output")).to_have_text(output)
        expect(cell(page, name).locator(".jp-InputPrompt")).to_have_text(prompt)


def waits(pages: list[Page], name: str) -> None:
    for page in pages:
        expect(cell(page, name)).to_have_attribute("data-gpufair", "held")
        expect(cell(page, name).locator(".jp-InputPrompt")).to_have_text("[*]:")


def run(page: Page, name: str) -> None:
    cell(page, name).click()
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")


def test_both_pages_tell_the_same_through_every_state(lab: Lab, ui: Look) -> None:
    gates = lab.root.parent
    sources = {"slow": SLOW, "long": LONG, "held": "print('still', type(slow).__name__)"}
    lab.write_notebook(
        "both.ipynb", "gpufair-1gpu", {name: source.replace("{gates}", str(gates)) for name, source in sources.items()}
    )

    def look(first: Page) -> None:
        # Of the same team: nobody of it preempts another.
        body = {"kernel": {"name": "gpufair-1gpu"}, "name": "", "path": "other.ipynb", "type": "notebook"}
        other = lab.request("POST", "api/sessions", body)
        kernel_id = lab.open(first, "both.ipynb")
        assert first.context.browser is not None
        second = first.context.browser.new_context().new_page()
        second.set_default_timeout(LIMIT_MS)
        assert lab.open(second, "both.ipynb") == kernel_id
        pages = [first, second]

        run(first, "slow")
        waits(pages, "slow")
        says(pages, "queued.*1 cell held")
        waits(pages, "slow")

        lab.request("DELETE", f"api/sessions/{other['id']}")
        shows(pages, "slow", "begun\n", "[1]:")
        run(second, "long")
        shows(pages, "long", "half\n", "[*]:")
        says(pages, "running")
        shows(pages, "long", "half\n", "[*]:")
        (gates / "ran").touch()
        shows(pages, "long", "half\ndone\n", "[2]:")

        lab.request("POST", f"gpufair/sessions/{kernel_id}/park")
        says(pages, "saving")
        (gates / "saved").touch()
        says(pages, "parked")
        run(first, "held")
        waits(pages, "held")
        says(pages, "restoring.*1 cell held")
        waits(pages, "held")
        (gates / "restored").touch()
        shows(pages, "held", "still Slow\n", "[3]:")
        for page in pages:
            expect(cell(page, "held")).not_to_have_attribute("data-gpufair", "held")
        shows(pages, "slow", "begun\n", "[1]:")
        shows(pages, "long", "half\ndone\n", "[2]:")
        assert all(page.evaluate(f"{CURRENT_KERNEL}.id") == kernel_id for page in pages)

    ui(look)
