"""A budget as people discuss it, in the panel: asked for with reasons, tried, decided, in force, remembered."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gpufair.client import Client
from tests.e2e.axe import needs_axe, violations
from tests.e2e.conftest import Look
from tests.e2e.lab import Lab
from tests.e2e.real_lab import CONFIG, real_lab

PICTURES = Path(__file__).parents[2] / "docs" / "images"
DEBATE = "#gpufair-lab .jp-gpufair-debate"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with real_lab(tmp_path, config='budget_owners = ["uma"]\nusers = ["ria"]\n' + CONFIG) as lab:
        yield lab


@needs_axe
def test_from_the_request_to_the_history(lab: Lab, ui: Look, tmp_path: Path) -> None:
    """The reader of the page owns this laptop's budgets; what others do is done with the service's own client."""

    def look(page: Page) -> None:
        page.goto(f"{lab.url}lab?reset&token={lab.token}")
        page.locator(".jp-LauncherCard", has_text="GPU Notebook").wait_for(timeout=60_000)
        page.evaluate("window.jupyterapp.restored.then(() => window.jupyterapp.commands.execute('gpufair:open-lab'))")
        section = page.locator("#gpufair-lab .lm-AccordionPanel-title", has_text="Budgets")
        if section.get_attribute("aria-expanded") != "true":
            section.click()
        debate = page.locator(DEBATE)
        cards = debate.get_by_role("listitem")
        expect(debate).to_contain_text("Nobody asks for anything.", timeout=60_000)

        debate.get_by_text("Ask for a change…").press("Enter")
        debate.get_by_role("combobox", name="Allocation").select_option("vision")
        expect(debate.get_by_role("spinbutton", name="Wished")).to_have_value("50")
        debate.get_by_role("spinbutton", name="Wished").fill("150")
        debate.get_by_role("textbox", name="Why").fill("a deadline in March")
        debate.get_by_role("button", name="Ask", exact=True).click()
        card = cards.filter(has_text="a deadline in March")
        expect(card).to_contain_text("vision: 50 → 150")
        expect(card).to_contain_text("open")

        card.get_by_text("Decide…").press("Enter")
        card.get_by_role("spinbutton", name="vision").fill("100")
        card.get_by_role("button", name="Try request 1").click()
        line = card.locator("tbody tr").filter(has_text="vision")
        expect(line).to_contain_text("50.0 % → 66.7 %", timeout=60_000)
        assert violations(page, DEBATE) == []
        if os.environ.get("GPUFAIR_SCREENSHOTS") == "1":
            _picture(page)
        card.get_by_role("textbox", name="Words").fill("half of it")
        card.get_by_role("button", name="Accept request 1").click()
        expect(card).to_contain_text(re.compile(r"vision: 50 → 100.*in force since"))
        expect(card).to_contain_text("half of it")
        card.get_by_text("What").press("Enter")
        expect(line).to_contain_text("50.0 % → 66.7 %")
        expect(page.locator(".jp-gpufair-budget").filter(has_text="vision")).to_contain_text("of 0.7 GPUs")

        with Client(state_dir=tmp_path / "state") as client:
            asked = client.ask_budget({"language": 80}, "so do we", user="ria")
            coming = client.plan_budget({"language": 60}, "as agreed", from_s=time.time() + 5, user="uma")
            others = cards.filter(has_text="so do we")
            expect(others).to_contain_text("ria: open", timeout=30_000)
            others.get_by_text("Decide…").press("Enter")
            others.get_by_role("button", name=f"Refuse request {asked.id}").click()
            expect(others).to_contain_text("Say why not.")
            others.get_by_role("textbox", name="Words").fill("not this month")
            others.get_by_role("button", name=f"Refuse request {asked.id}").click()
            expect(others).to_contain_text("refused by")
            expect(cards.filter(has_text="as agreed")).to_contain_text("in force since", timeout=30_000)
            assert client.budget_request(coming.id).in_force_s == pytest.approx(coming.from_s, abs=0.001)

            # The reader asks, and somebody else decides: that is told.
            debate.get_by_role("textbox", name="Why").fill("one more")
            debate.get_by_role("spinbutton", name="Wished").fill("400")
            debate.get_by_role("button", name="Ask", exact=True).click()
            mine = cards.filter(has_text="one more")
            expect(mine).to_contain_text("open")
            client.decide_budget(coming.id + 1, "refuse", "enough now", user="uma")
            told = page.locator(".jp-toast-message, .Toastify__toast").filter(has_text="enough now")
            expect(told.first).to_be_visible(timeout=30_000)
            expect(mine).to_contain_text("uma: enough now")

        history = debate.locator(".jp-gpufair-history")
        history.locator("summary").press("Enter")
        entries = history.get_by_role("listitem")
        expect(entries.first).to_contain_text("language: 50 → 60")
        expect(entries.nth(1)).to_contain_text("a deadline in March")
        expect(entries.nth(1)).to_contain_text("vision: 50 → 100")
        expect(entries).to_have_count(3)
        assert violations(page, DEBATE) == []

    ui(look)


def _picture(page: Page) -> None:
    """The section alone, as wide as somebody would draw it to read the table."""
    page.set_viewport_size({"width": 1280, "height": 1400})
    for title in page.locator("#gpufair-lab .lm-AccordionPanel-title").all():
        if title.get_attribute("aria-expanded") == "true" and "Budgets" not in (title.text_content() or ""):
            title.click()
    handle = page.locator("#jp-main-split-panel > .lm-SplitPanel-handle:not(.lm-mod-hidden)").first
    box = handle.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, 700)
    page.mouse.down()
    page.mouse.move(760, 700, steps=5)
    page.mouse.up()
    page.locator("#gpufair-budgets").screenshot(path=PICTURES / "budget-request.png")
    page.set_viewport_size({"width": 1280, "height": 800})
