"""The extension in Notebook 7, which has no status bar and no launcher: the session stands beside the menus."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from gpufair.client import Client
from tests.e2e.axe import needs_axe, violations
from tests.e2e.conftest import Look
from tests.e2e.lab import Lab, complaints
from tests.e2e.real_lab import ITEM, end_all, shared_lab, state_of

PICTURES = Path(__file__).parents[2] / "docs" / "images"

pytestmark = pytest.mark.skipif(
    find_spec("notebook") is None and os.environ.get("GPUFAIR_REQUIRE_ALL") != "1",
    reason="no Notebook 7: `pip install notebook`",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with shared_lab(tmp_path_factory) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _ended(lab: Lab) -> Iterator[None]:
    yield
    end_all(lab)


@needs_axe
def test_a_notebook_shows_its_session_and_the_lab(lab: Lab, ui: Look) -> None:
    """Seen while it runs, parked with the menu that the state opens; the side panel has the session too."""
    lab.write_notebook("mine.ipynb", "gpufair-1gpu", {"a": "x = 1"})

    def look(page: Page) -> None:
        wrong = complaints(page)
        page.goto(f"{lab.url}tree?token={lab.token}")
        expect(page.get_by_text("mine.ipynb")).to_be_visible(timeout=60_000)
        page.goto(f"{lab.url}notebooks/mine.ipynb?token={lab.token}")
        state = page.locator(ITEM)
        expect(state).to_have_text(re.compile("1 GPU · running"), timeout=60_000)
        assert violations(page, ".jp-gpufair-status") == []
        page.get_by_role("menuitem", name="View", exact=True).click()
        page.locator(".lm-Menu-item", has_text="Left Sidebar").hover()
        page.locator(".lm-Menu-item", has_text="GPU Fair Share").click()
        card = page.locator("#gpufair-lab .jp-gpufair-card")
        expect(card).to_contain_text("mine.ipynb")
        if os.environ.get("GPUFAIR_SCREENSHOTS") == "1":
            page.screenshot(path=PICTURES / "notebook7.png", clip={"x": 0, "y": 0, "width": 1280, "height": 400})
        state.click()
        page.locator(".lm-Menu-item", has_text="Park").click()
        expect(state).to_have_text(re.compile("parked"), timeout=60_000)
        expect(card).to_contain_text("parked")
        assert wrong == []

    ui(look)


def test_the_dialog_makes_a_notebook_with_what_it_asks_for(lab: Lab, ui: Look) -> None:
    """From the file browser's page, where there is no launcher: it opens in a page of its own, as every notebook does."""

    def look(page: Page) -> None:
        page.goto(f"{lab.url}tree?token={lab.token}")
        page.get_by_role("menuitem", name="File", exact=True).click()
        page.locator(".lm-Menu-item", has_text="New").first.hover()
        page.locator(".lm-Menu-item", has_text="New GPU Notebook…").click()
        form = page.locator(".jp-Dialog .jp-gpufair-wish")
        form.get_by_role("combobox", name="Profile").select_option("vision")
        choices = form.locator("fieldset label")
        expect(choices.filter(has_text="2 s:")).to_be_visible()  # it is this profile's answer
        choice = choices.filter(has_text="15 min:")
        expect(choice).to_contain_text("starts now")
        choice.locator("input").check()
        with page.context.expect_page() as opened:
            page.locator(".jp-Dialog").get_by_role("button", name="Create").click()
        made = opened.value
        expect(made.locator(ITEM)).to_have_text(re.compile(r"running, protected 1\d:\d\d"), timeout=60_000)

    ui(look)
    [notebook] = [nbformat.read(path, as_version=4) for path in lab.root.glob("Untitled*.ipynb")]
    assert notebook.metadata["gpufair_request"]["min_runtime_s"] == 900
    with Client(state_dir=state_of(lab)) as client:
        [session] = [one for one in client.workloads() if one.live]
        assert (session.allocation, session.min_runtime_s) == ("vision", 900)
