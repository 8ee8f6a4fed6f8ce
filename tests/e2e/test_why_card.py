"""Why things are as they are: the change that a why-card names, made with its button, and the tour of the last week."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from gpufair.client import Client
from tests.e2e.axe import needs_axe, violations
from tests.e2e.conftest import Look
from tests.e2e.lab import Lab
from tests.e2e.real_lab import CONFIG, ITEM, end_all, real_lab, state_of

SLEEP = {"type": "command", "argv": ["sleep", "600"], "cwd": "/"}
# Two GPUs on the node, and a notebook that wants both.
TWO = CONFIG.replace("gpus = 1\n\n[[node]]", "gpus = 2\n\n[[node]]") + """
[[profile]]
name = "2gpus"
display_name = "GPU fair share (2 GPUs)"
gpus = 2
allocation = "language"
min_runtime = "10m"
"""
CHANGE = "1 GPU instead of 2 GPUs would start now"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with real_lab(tmp_path_factory.mktemp("lab"), config=TWO) as lab:
        yield lab


@pytest.fixture(autouse=True)
def _ended(lab: Lab) -> Iterator[None]:
    yield
    end_all(lab)


def queue_up(page: Page, lab: Lab, client: Client, name: str) -> str:
    """A program holds one GPU for an hour; the notebook waits for two. Its kernel's id."""
    lab.write_notebook(name, "gpufair-2gpus", {"a": "print(6 * 7)"})
    client.submit(SLEEP, gpus=1, allocation="language", min_runtime_s=3600, name="training")
    kernel = lab.open(page, name)
    expect(page.locator(ITEM)).to_have_text(re.compile("queued"), timeout=30_000)
    return kernel


def runs_with_one(page: Page, client: Client, kernel: str) -> None:
    """Under its own id, with what it asks for now."""
    expect(page.locator(ITEM)).to_have_text(re.compile("1 GPU · running"), timeout=60_000)
    workload = client.workload(kernel)
    assert (workload.state, workload.gpus, [lease.gpus for lease in workload.leases]) == ("running", 1, [1])
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    expect(page.locator(".jp-OutputArea-output")).to_have_text("42\n", timeout=30_000)


@needs_axe
def test_why_card_applied(lab: Lab, ui: Look) -> None:
    """Queued, opened, applied after it was told what that costs, and it runs. Others' work has no such button."""

    def look(page: Page) -> None:
        with Client(state_dir=state_of(lab)) as client:
            kernel = queue_up(page, lab, client, "card.ipynb")
            other = client.submit(SLEEP, gpus=2, allocation="vision", user="somebody-else", min_runtime_s=3600)
            page.evaluate("window.jupyterapp.commands.execute('gpufair:open-lab')")
            section = page.locator("#gpufair-lab .lm-AccordionPanel-title", has_text="Queue")
            if section.get_attribute("aria-expanded") != "true":
                section.click()
            cards = page.locator("#gpufair-lab .jp-gpufair-queue details")
            theirs = cards.filter(has_text="somebody-else")
            theirs.locator("summary").press("Enter")
            expect(theirs.locator(".jp-gpufair-why")).to_contain_text("It ")
            mine = cards.filter(has_text="card.ipynb")
            mine.locator("summary").press("Enter")
            expect(mine.locator(".jp-gpufair-why")).to_contain_text(f"Smallest change that would start it now: {CHANGE}")
            button = mine.get_by_role("button", name=f"Apply: {CHANGE}")
            expect(button).to_be_visible()
            assert theirs.get_by_role("button").count() == 0
            assert violations(page, "#gpufair-lab") == []
            button.press("Enter")
            dialog = page.locator(".jp-Dialog")
            expect(dialog).to_contain_text(CHANGE)
            expect(dialog).to_contain_text("it gives up its landing")
            dialog.get_by_role("button", name="Cancel").click()
            assert client.workload(kernel).gpus == 2, "nothing happens without a yes"
            button.press("Enter")
            dialog.get_by_role("button", name="Apply").click()
            runs_with_one(page, client, kernel)
            expect(cards.filter(has_text="card.ipynb")).to_have_count(0)
            assert client.workload(other.id).gpus == 2

    ui(look)


def test_the_session_says_why_it_waits_and_applies_the_change(lab: Lab, ui: Look) -> None:
    """From the menu of the status bar's item, where one who waits looks first."""

    def look(page: Page) -> None:
        with Client(state_dir=state_of(lab)) as client:
            kernel = queue_up(page, lab, client, "bar.ipynb")
            page.locator(ITEM).click()
            page.get_by_role("menuitem", name="Why Does It Wait?").click()
            dialog = page.locator(".jp-Dialog")
            expect(dialog).to_contain_text(f"Smallest change that would start it now: {CHANGE}")
            dialog.get_by_role("button", name="Apply").click()
            expect(dialog).to_contain_text("it gives up its landing")
            dialog.get_by_role("button", name="Apply").click()
            runs_with_one(page, client, kernel)

    ui(look)


@needs_axe
def test_the_tour_walks_through_what_was_recorded(lab: Lab, ui: Look) -> None:
    """By keyboard, from the queue's button; it says that there is no week yet, and Escape ends it."""

    def look(page: Page) -> None:
        with Client(state_dir=state_of(lab)) as client:
            client.submit(SLEEP, gpus=2, allocation="language", min_runtime_s=3600, name="mine-first")
            client.submit(SLEEP, gpus=1, allocation="vision", user="somebody-else", name="secret-name")
        lab.write_notebook("tour.ipynb", "python3", {"a": "1"})
        lab.open(page, "tour.ipynb")
        page.evaluate("window.jupyterapp.commands.execute('gpufair:open-lab')")
        section = page.locator("#gpufair-lab .lm-AccordionPanel-title", has_text="Queue")
        if section.get_attribute("aria-expanded") != "true":
            section.click()
        page.locator("#gpufair-lab").get_by_role("button", name="Tour of the last week").press("Enter")
        tour = page.locator(".jp-Dialog .jp-gpufair-tour")
        expect(tour).to_contain_text("This lab has no week yet")
        expect(tour).to_contain_text(re.compile(r"Step 1 of [2-5]"))
        expect(tour.locator("h3")).to_have_text(re.compile("^Yours: it "))
        expect(tour.locator("li").first).to_contain_text("asked for")
        expect(tour.get_by_role("button", name="Next")).to_be_focused()
        assert violations(page, ".jp-Dialog") == []
        page.keyboard.press("ArrowRight")
        expect(tour).to_contain_text(re.compile(r"Step 2 of [2-5]"))
        expect(tour.locator("dl")).to_contain_text("docs/policy.md")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")
        expect(tour).to_contain_text(re.compile(r"Step 1 of [2-5]"))
        page.keyboard.press("Enter")
        expect(tour).to_contain_text(re.compile(r"Step 2 of [2-5]"))
        for _ in range(4):
            assert "secret-name" not in tour.inner_text()
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Escape")
        expect(tour).to_have_count(0)

    ui(look)
