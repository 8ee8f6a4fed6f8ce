"""Pictures over time in a real JupyterLab: who held the GPU, budgets over time, where GPU time went."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gpufair.client import Client
from tests.e2e.axe import needs_axe, violations
from tests.e2e.conftest import Look
from tests.e2e.lab import Lab
from tests.e2e.real_lab import ITEM, end_all, shared_lab, state_of
from tests.e2e.test_lab_panel import CHANGE, PICTURES, SLEEP

SECTIONS = {"My Sessions": False, "Queue": False, "Budgets": True, "Cluster": True, "Where GPU Time Went": True}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with shared_lab(tmp_path_factory) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _ended(lab: Lab) -> Iterator[None]:
    yield
    end_all(lab)


def one_made_room(state: Path) -> None:
    """Unallocated work of one team has had the GPU until the other one wanted it."""
    with Client(state_dir=state) as client:
        first = client.submit(SLEEP, gpus=1, allocation="vision", min_runtime_s=0, name="first")
        until(lambda: client.workload(first.id).state == "running")
        second = client.submit(SLEEP, gpus=1, allocation="language", min_runtime_s=1, name="second")
        until(lambda: client.workload(second.id).state == "running")
        until(lambda: (client.workload(second.id).protected_until_s or 0) < time.time())


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.1)


@needs_axe
def test_pictures_of_the_past_open_in_the_panel(lab: Lab, ui: Look) -> None:
    """Each is asked for when it is opened, has a name and a table or sentences for those who do not see it."""
    one_made_room(state_of(lab))

    def look(page: Page) -> None:
        page.set_viewport_size({"width": 1280, "height": 1400})
        page.goto(f"{lab.url}lab?reset&token={lab.token}")
        page.wait_for_function("window.jupyterapp?.commands.hasCommand('gpufair:open-lab')")
        page.evaluate("window.jupyterapp.restored.then(() => undefined)")  # which shows what was shown before
        page.evaluate("window.jupyterapp.commands.execute('gpufair:open-lab')")
        for name, wanted in SECTIONS.items():
            title = page.locator("#gpufair-lab .lm-AccordionPanel-title", has_text=name)
            if title.get_attribute("aria-expanded") != str(wanted).lower():
                title.click()
        panel = page.locator("#gpufair-lab")

        past = panel.locator(".jp-gpufair-history")
        past.locator("summary").press("Enter")
        track = past.locator(".jp-gpufair-track")
        expect(track).to_have_count(1)
        expect(track).to_have_attribute("aria-label", re.compile(r"node-a: 1 GPU, held for .* %.*, 1 preemption"))
        expect(track.locator(".jp-gpufair-stay")).to_have_count(2)
        expect(track.locator(".jp-gpufair-gone")).to_have_count(1)
        expect(track.locator(".jp-gpufair-exposed")).to_have_count(2)
        past.get_by_role("combobox", name="How far back").select_option("1")
        track.press("Enter")
        expect(past.get_by_role("status")).to_contain_text("(vision)")
        expect(past.get_by_role("status")).to_contain_text("preempted at")

        mine = panel.locator(".jp-gpufair-budget").filter(has_text="language")
        mine.locator("summary", has_text="Over time").press("Enter")
        expect(mine.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"charged, .* owed"))
        expect(mine.get_by_role("status")).to_contain_text("metric")
        mine.locator("summary", has_text="As a table").press("Enter")
        expect(mine.get_by_role("table").locator("tbody tr").first).to_contain_text("GPU-")
        mine.locator("summary", has_text="As a table").press("Enter")

        levels = panel.locator(".jp-gpufair-level")
        expect(levels).to_have_count(4)
        expect(levels.filter(has_text="Utilization")).to_contain_text("unknown")  # virtual GPUs: not 0
        occupancy = levels.filter(has_text="Occupancy")
        expect(occupancy).to_contain_text("%")
        occupancy.press("Enter")
        expect(occupancy).to_have_attribute("aria-expanded", "true")
        expect(panel.locator(".jp-gpufair-pyramid").get_by_role("status")).to_contain_text("started, saved or restored")
        for theme in ("light", "dark"):
            page.evaluate(CHANGE, f"JupyterLab {theme.title()}")
            page.wait_for_function(f"document.body.dataset.jpThemeLight === '{str(theme == 'light').lower()}'")
            assert violations(page, "#gpufair-lab .jp-gpufair-section") == []
            if os.environ.get("GPUFAIR_SCREENSHOTS") == "1":
                panel.screenshot(path=PICTURES / f"over-time-{theme}.png")

    ui(look)


def test_the_pyramid_is_a_widget_too(lab: Lab, ui: Look) -> None:
    """In a cell it asks the server as the panel does."""
    cell = "from jupyter_gpufair.widgets import Pyramid\nPyramid()"
    lab.write_notebook("where.ipynb", "gpufair-1gpu", {"a": cell})

    def look(page: Page) -> None:
        lab.open(page, "where.ipynb")
        expect(page.locator(ITEM)).to_have_text(re.compile("running"))
        page.evaluate("void window.jupyterapp.commands.execute('notebook:run-cell')")
        levels = page.locator(".jp-OutputArea-output .jp-gpufair-level")
        expect(levels).to_have_count(4, timeout=60_000)
        expect(levels.nth(0)).to_contain_text("100.0 %")

    ui(look)
