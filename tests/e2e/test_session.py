"""A notebook with a GPU in a real JupyterLab: the scheduler, the node and the kernel are the real ones."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Look
from tests.e2e.lab import CURRENT_KERNEL, Lab
from tests.e2e.real_lab import ITEM, end_all, real_lab, run_all, shared_lab

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "status-bar.png"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with shared_lab(tmp_path_factory) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _ended(lab: Lab) -> Iterator[None]:
    yield
    end_all(lab)


TRAIN = """\
from dataclasses import dataclass

from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier


@dataclass
class Run:
    best: float


digits = load_digits()
model = RidgeClassifier().fit(digits.data[:1200], digits.target[:1200])
run = Run(best=round(model.score(digits.data[1200:], digits.target[1200:]), 3))
print(f"{len(digits.data)} images, accuracy {run.best}")"""


def test_a_notebook_gets_its_gpu_and_shows_it(tmp_path: Path, ui: Look) -> None:
    """The first thing a person sees: the kernel is in the launcher's list, and the status bar says what it has. When
    the server is stopped, everything that it started ends."""
    with real_lab(tmp_path, ends_by_itself=True) as lab:
        _gets_its_gpu(lab, ui)


def _gets_its_gpu(lab: Lab, ui: Look) -> None:
    lab.write_notebook("first.ipynb", "gpufair-1gpu", {"a": "import os; print('GPUs:', os.environ['GPUFAIR_GPUS'])"})

    def look(page: Page) -> None:
        lab.open(page, "first.ipynb")
        expect(page.locator(ITEM)).to_have_text(re.compile(r"^1 (GPU|× .+) · running, protected 0:0\d$"))
        run_all(page)
        expect(page.locator(".jp-OutputArea-output")).to_contain_text("GPUs:")

    ui(look)


def test_a_preempted_notebook_says_so_and_its_cell_waits(lab: Lab, ui: Look) -> None:
    """The main promise, seen by the person it is made to: no lost tab, no lost variable, no lost cell."""
    lab.write_notebook("digits.ipynb", "gpufair-1gpu", {"a": TRAIN, "b": "print('still here:', model, run.best)"})

    def look(page: Page) -> None:
        kernel_id = lab.open(page, "digits.ipynb")
        expect(page.locator(ITEM)).to_have_text(re.compile("running, protected"))
        page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
        expect(page.locator(".jp-InputPrompt").nth(0)).to_have_text("[1]:")

        body = {"kernel": {"name": "gpufair-vision"}, "name": "", "path": "other.ipynb", "type": "notebook"}
        other = lab.request("POST", "api/sessions", body)
        expect(page.locator(ITEM)).to_have_text(re.compile("queued|parked"), timeout=60_000)
        page.locator(".jp-CodeCell").nth(1).click()
        page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
        expect(page.locator(ITEM)).to_have_text(re.compile("1 cell held"))
        if os.environ.get("GPUFAIR_SCREENSHOTS") == "1":
            PICTURE.parent.mkdir(parents=True, exist_ok=True)
            page.wait_for_timeout(1_000)  # the notification slides in
            page.screenshot(path=PICTURE)

        lab.request("DELETE", f"api/sessions/{other['id']}")
        last = page.locator(".jp-CodeCell").nth(1).locator(".jp-OutputArea-output")
        expect(last).to_have_text("still here: RidgeClassifier() 0.874\n", timeout=60_000)
        assert page.evaluate(f"{CURRENT_KERNEL}.id") == kernel_id
        expect(page.locator(ITEM)).to_have_text(re.compile("running"))

    ui(look)


def test_output_of_a_cell_that_ran_unwatched_is_there_later(lab: Lab, ui: Look) -> None:
    """One closes the laptop on a long cell, and finds its output in the morning."""
    source = "import time\nfor step in range(4):\n    time.sleep(1)\n    print('step', step)"
    lab.write_notebook("long.ipynb", "gpufair-1gpu", {"long": source})

    def start(page: Page) -> None:
        lab.open(page, "long.ipynb")
        run_all(page)
        expect(page.locator(".jp-OutputArea-output")).to_contain_text("step 0")

    def later(page: Page) -> None:
        lab.open(page, "long.ipynb")
        expect(page.locator(".jp-OutputArea-output")).to_have_text("step 0\nstep 1\nstep 2\nstep 3\n")
        expect(page.locator(".jp-InputPrompt")).to_have_text("[1]:")

    ui(start)
    time.sleep(5)
    ui(later)
