"""The simulator's report in a real browser, opened as the file that it is."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from gpufair.sim.report import write_report
from tests.drawn_stories import scenario, story
from tests.e2e.axe import needs_axe, violations
from tests.e2e.conftest import Look

# How many colours a canvas shows, and how many of its pixels are not those of its first corner.
PIXELS = """(canvas) => {
  const pixels = new Uint32Array(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return { colours: new Set(pixels).size, drawn: pixels.filter((one) => one !== pixels[0]).length, all: pixels.length };
}"""
# Comes with the front end's development dependencies, which `make install` puts there.
EVIL = "<img src=x onerror=\"document.title='owned'\">"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = scenario(4, 2, 300)
    path = tmp_path_factory.mktemp("report") / "report.html"
    stories = [story(world), story(world, "fifo", evict=False)]
    write_report(stories, path, f"Fair share against FIFO {EVIL}")
    return path


@contextmanager
def opened(page: Page, report: Path) -> Iterator[list[str]]:
    """The report, once it is drawn; whatever it asked for or complained about fails the test."""
    trouble: list[str] = []

    def note(happened: str, wrong: bool) -> None:
        if wrong:
            trouble.append(happened)

    page.on("console", lambda message: note(message.text, message.type == "error"))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: note(request.url, request.url != report.as_uri()))
    page.goto(report.as_uri())
    page.locator("body[data-ready=yes]").wait_for()
    yield trouble
    assert trouble == []


def looking(report: Path, look: Callable[[Page], Any]) -> Callable[[Page], Any]:
    def seen(page: Page) -> None:
        with opened(page, report):
            look(page)

    return seen


def painted(page: Page, place: int = 0) -> Locator:
    return page.locator("canvas.painted").nth(place)


def over(page: Page, place: int = 0) -> Locator:
    return page.locator("canvas.over").nth(place)


def shown_range(page: Page) -> str:
    return page.locator("#range").inner_text()


def test_pictures_and_charts_are_drawn(report: Path, ui: Look) -> None:
    def look(page: Page) -> None:
        for canvas in [painted(page), painted(page, 1), *page.locator(".panel canvas").all()]:
            canvas.scroll_into_view_if_needed()
            page.wait_for_function(f"(canvas) => ({PIXELS})(canvas).drawn > 100", arg=canvas.element_handle())
        counted = painted(page).evaluate(PIXELS)
        assert counted["colours"] > 20
        assert counted["drawn"] > counted["all"] / 2
        assert page.title().endswith(EVIL)
        assert page.locator("img").count() == 0

    ui(looking(report, look))


def test_zoom_is_shared_and_undone(report: Path, ui: Look) -> None:
    def look(page: Page) -> None:
        whole = shown_range(page)
        before = [painted(page, place).evaluate("(canvas) => canvas.toDataURL()") for place in (0, 1)]
        over(page).focus()
        page.keyboard.press("+")
        expect(page.locator("#range")).not_to_have_text(whole)
        for place in (0, 1):
            page.wait_for_function(
                "([canvas, before]) => canvas.toDataURL() !== before",
                arg=[painted(page, place).element_handle(), before[place]],
            )
        closer = shown_range(page)
        page.keyboard.press("Shift+ArrowRight")
        expect(page.locator("#range")).not_to_have_text(closer)
        page.keyboard.press("0")
        expect(page.locator("#range")).to_have_text(whole)
        box = over(page).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 400, box["y"] + 100)
        page.mouse.down()
        page.mouse.move(box["x"] + 700, box["y"] + 200, steps=4)
        page.mouse.up()
        expect(page.locator("#range")).to_have_text(re.compile(r"of 32 GPUs"))
        page.get_by_role("button", name="Show all").click()
        expect(page.locator("#range")).to_have_text(whole)

    ui(looking(report, look))


def test_the_wheel_scrolls_the_page_until_a_picture_is_chosen(report: Path, ui: Look) -> None:
    """A page of tall pictures could not be read otherwise."""
    turned = """(canvas, held) => !canvas.dispatchEvent(
      new WheelEvent('wheel', { deltaY: -200, bubbles: true, cancelable: true, ctrlKey: held }))"""

    def look(page: Page) -> None:
        whole = shown_range(page)
        assert over(page).evaluate(turned, False) is False
        assert shown_range(page) == whole
        assert over(page).evaluate(turned, True) is True
        expect(page.locator("#range")).not_to_have_text(whole)
        closer = shown_range(page)
        over(page).focus()
        assert over(page).evaluate(turned, False) is True
        expect(page.locator("#range")).not_to_have_text(closer)

    ui(looking(report, look))


def test_a_card_tells_who_holds_a_gpu(report: Path, ui: Look) -> None:
    """By pointer and by keys; the same words are spoken."""

    def look(page: Page) -> None:
        card = page.locator("#card")
        box = over(page).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 700, box["y"] + 30)
        expect(card).to_contain_text(re.compile(r"language\d+ GPUs, \d+ of them interruptible"))
        page.mouse.move(box["x"] + 700, box["y"] + 130)
        expect(card).to_contain_text("fair-share")
        expect(card).to_contain_text(re.compile(r"node-\d+, GPU \d"))
        page.mouse.move(5, 5)
        expect(card).to_be_hidden()
        over(page, 1).focus()
        page.keyboard.press("ArrowRight")
        expect(card).to_contain_text("fifo")
        said = set()
        for key in ("ArrowLeft", "ArrowLeft", "ArrowUp", "ArrowUp", "ArrowRight", "ArrowDown"):
            page.keyboard.press(key)
            said.add(page.locator("#spoken").inner_text())
        assert len(said) > 3
        assert any(re.search(r"Job: job-\d+\. User: user-\d+\. Allocation: \w+/\w+", one) for one in said)
        page.keyboard.press("Escape")
        expect(card).to_be_hidden()

    ui(looking(report, look))


def test_teams_and_signs_can_be_hidden(report: Path, ui: Look) -> None:
    def look(page: Page) -> None:
        for name in ("language", "preempted", "kept for a landing"):
            before = painted(page).evaluate("(canvas) => canvas.toDataURL()")
            button = page.get_by_role("button", name=name, exact=True)
            button.click()
            expect(button).to_have_attribute("aria-pressed", "false")
            assert painted(page).evaluate("(canvas) => canvas.toDataURL()") != before

    ui(looking(report, look))


def test_dark_and_light(report: Path, ui: Look) -> None:
    """As the system says, and as is chosen; pictures follow."""

    ground = "canvas.getContext('2d').getImageData(2, 2, 1, 1).data[0]"

    def becomes(page: Page, condition: str) -> None:
        page.wait_for_function(f"(canvas) => {ground} {condition}", arg=painted(page).element_handle())

    def look(page: Page) -> None:
        page.emulate_media(color_scheme="light")
        becomes(page, "> 200")
        page.emulate_media(color_scheme="dark")
        becomes(page, "< 60")
        page.get_by_label("Colours").select_option("light")
        becomes(page, "> 200")
        page.emulate_media(color_scheme="light")
        page.get_by_label("Colours").select_option("dark")
        becomes(page, "< 60")

    ui(looking(report, look))


def test_pngs_are_downloaded(report: Path, ui: Look) -> None:
    def size(button: Locator, page: Page) -> tuple[str, int, int]:
        with page.expect_download() as download:
            button.click()
        content = Path(download.value.path()).read_bytes()
        assert content.startswith(b"\x89PNG\r\n")
        width, height = struct.unpack(">II", content[16:24])
        return download.value.suggested_filename, width, height

    def look(page: Page) -> None:
        name, width, height = size(page.get_by_role("button", name="PNG of fifo"), page)
        assert name.endswith("fifo.png")
        _, both_width, both_height = size(page.get_by_role("button", name="All as PNG"), page)
        assert both_width == width > 800
        assert both_height > height + 150
        name, _, _ = size(page.locator("#waits .png"), page)
        assert name.endswith("Waits.png")

    ui(looking(report, look))


def test_tables_are_sorted_by_any_column(report: Path, ui: Look) -> None:
    """Numbers as numbers, whatever they are followed by; what is unknown comes last."""

    def look(page: Page) -> None:
        page.locator("summary", has_text="Budgets at the beginning").click()
        table = page.locator("table", has=page.locator("caption", has_text="Budgets"))
        head = table.get_by_role("button", name="of GPUs")
        cells = table.locator("tbody td:last-child")
        for direction in ("ascending", "descending"):
            head.click()
            expect(head.locator("xpath=..")).to_have_attribute("aria-sort", direction)
            values = [float(text.replace(",", "")) for text in cells.all_inner_texts()]
            assert values == sorted(values, reverse=direction == "descending")
        assert len(values) > 10

    ui(looking(report, look))


def test_a_thousand_gpus_for_a_month(tmp_path: Path, ui: Look) -> None:
    """Every GPU has a row, and what is drawn is what ran: idle ground is the exception on a full cluster."""
    world = scenario(128, 30, 5_000, length=5)
    large = tmp_path / "large.html"
    write_report([story(world), story(world, "fifo", evict=False)], large, "Large")

    def look(page: Page) -> None:
        page.wait_for_function(f"(canvas) => ({PIXELS})(canvas).drawn > 100", arg=painted(page).element_handle())
        counted = painted(page).evaluate(PIXELS)
        assert counted["drawn"] > 0.8 * counted["all"]
        over(page).focus()
        for _ in range(8):
            page.keyboard.press("PageUp")
        expect(page.locator("#range")).to_contain_text("of 1024 GPUs")

    ui(looking(large, look))


@needs_axe
def test_no_barrier_is_found(report: Path, ui: Look) -> None:
    """Names, roles, contrast and order, in light and dark, with everything unfolded."""

    def look(page: Page) -> None:
        browser = page.context.browser
        assert browser is not None
        for scheme in ("light", "dark"):
            # The page itself lets no foreign script run.
            looked = browser.new_page(bypass_csp=True, color_scheme=scheme)
            with opened(looked, report):
                looked.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
                assert violations(looked) == []
            looked.close()

    ui(look)
