"""Pictures over time in a real JupyterLab: who held the GPU, budgets over time, where GPU time went."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gpufair.client import Client
from gpufair.core.model import Node
from gpufair.core.units import NodeName
from tests.e2e.axe import needs_axe, violations
from tests.e2e.conftest import Look
from tests.e2e.lab import Lab
from tests.e2e.past import write_past
from tests.e2e.real_lab import BUDGETS, CONFIG, ITEM, end_all, real_lab, state_of
from tests.e2e.test_lab_panel import CHANGE, PICTURES, SLEEP

SECTIONS = {"My Sessions": False, "Queue": False, "Budgets": True, "Cluster": True, "Where GPU Time Went": True}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two nodes of 4 GPUs, with a day behind them."""
    place = tmp_path_factory.mktemp("lab")
    nodes = [Node(NodeName(name), 4) for name in ("node-a", "node-b")]
    write_past(place / "state", BUDGETS, nodes, (("ria", "language"), ("ben", "vision")), hours=24)
    more = 'name = "node-a"\ngpus = 4\n\n[[node]]\nname = "node-b"\ngpus = 4'
    with real_lab(place, config=CONFIG.replace('name = "node-a"\ngpus = 1', more)) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _ended(lab: Lab) -> Iterator[None]:
    yield
    end_all(lab)


def wider(page: Page) -> None:
    """As people do who want to see more of the panel: its edge is dragged."""
    edge = page.locator("#gpufair-lab").bounding_box()
    assert edge is not None
    x, y = edge["x"] + edge["width"] + 1, edge["y"] + 300
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 90, y, steps=2)
    page.mouse.move(x + 180, y, steps=2)
    page.mouse.up()


def picture(page: Page, path: Path) -> None:
    """The panel as far down as there is something to see."""
    panel, last = (page.locator(what).bounding_box() for what in ("#gpufair-lab", ".jp-gpufair-pyramid"))
    assert panel is not None
    assert last is not None
    page.screenshot(path=path, clip={**panel, "height": last["y"] + last["height"] + 8 - panel["y"]})


@needs_axe
def test_pictures_of_the_past_open_in_the_panel(lab: Lab, ui: Look) -> None:
    """Each is asked for when it is opened, has a name and a table or sentences for those who do not see it."""
    with Client(state_dir=state_of(lab)) as client:
        last = client.submit(SLEEP, gpus=2, allocation="vision", min_runtime_s=600, name="last")
        deadline = time.monotonic() + 60
        while client.workload(last.id).state != "running":
            assert time.monotonic() < deadline, "it did not start"
            time.sleep(0.1)

    def look(page: Page) -> None:
        page.set_viewport_size({"width": 1280, "height": 1500})
        page.goto(f"{lab.url}lab?reset&token={lab.token}")
        page.wait_for_function("window.jupyterapp?.commands.hasCommand('gpufair:open-lab')")
        page.evaluate("window.jupyterapp.restored.then(() => undefined)")  # which shows what was shown before
        page.evaluate("window.jupyterapp.commands.execute('gpufair:open-lab')")
        for name, wanted in SECTIONS.items():
            title = page.locator("#gpufair-lab .lm-AccordionPanel-title", has_text=name)
            if title.get_attribute("aria-expanded") != str(wanted).lower():
                title.click()
        panel = page.locator("#gpufair-lab")
        wider(page)

        past = panel.locator(".jp-gpufair-past")
        past.locator("summary").press("Enter")
        tracks = past.locator(".jp-gpufair-track")
        expect(tracks).to_have_count(2)
        expect(tracks.first).to_have_attribute("aria-label", re.compile(r"node-a: 4 GPUs, held for .* %.*, \d+ preemption"))
        for kind in ("stay", "exposed", "gone"):
            expect(past.locator(f".jp-gpufair-{kind}").nth(5)).to_be_attached()
        tracks.first.focus()
        page.keyboard.press("ArrowDown")
        expect(tracks.nth(1)).to_be_focused()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        about = past.get_by_role("status")
        expect(about).to_contain_text("preempted at")
        expect(about).to_contain_text("2 GPUs: root (vision), since")
        past.get_by_role("combobox", name="How far back").select_option("1")
        expect(about).not_to_contain_text("earlier ones")
        past.get_by_role("combobox", name="How far back").select_option("6")

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
                picture(page, PICTURES / f"over-time-{theme}.png")

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
