"""The gallery of runs in a real browser, opened as the file that it is."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from jupyter_gpufair.batch.gallery import make
from tests.e2e.conftest import Look
from tests.output_notebooks import PNG, code, failed, shown, text, write

OWNED = "try { parent.document.title = 'owned' } catch {} document.body.textContent = 'owned'"
EVIL = (
    f'<script>{OWNED}</script><img src="x" onerror="{OWNED}"><img src="URL/seen"><link rel="stylesheet" href="URL/style">'
    '<meta http-equiv="refresh" content="0; url=URL/left">'
)


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A server that nobody may call."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


@pytest.fixture
def gallery(tmp_path: Path, stranger: socket.socket) -> Path:
    for lr in (0.1, 10, 2):
        write(tmp_path / f"run-{lr}.ipynb", code("fit()", text("fitted\n"), shown(image_png=PNG)), parameters={"lr": lr})
    evil = EVIL.replace("URL", f"http://127.0.0.1:{stranger.getsockname()[1]}")
    write(tmp_path / "evil.ipynb", code("x", shown(text_html=evil), text("harmless\n")), parameters={"lr": "x"})
    write(tmp_path / "bad.ipynb", failed("1 / 0", "ZeroDivisionError", "by zero"), parameters={}, state="failed")
    page = tmp_path / "gallery.html"
    make(tmp_path, page, 10_000_000)
    return page


def test_runs_are_sorted_and_opened(ui: Look, gallery: Path) -> None:
    """Figures sort as numbers, rows without a value stay last, and each run opens its own cells."""

    def look(page: Page) -> None:
        page.goto(gallery.as_uri())
        names = page.locator("tbody tr:first-child td:first-child")
        page.get_by_role("button", name="lr").click()
        expect(names).to_have_text(["run-0.1.ipynb", "run-2.ipynb", "run-10.ipynb", "evil.ipynb", "bad.ipynb"])
        page.get_by_role("button", name="lr").click()
        assert names.all_text_contents()[-2:] == ["run-0.1.ipynb", "bad.ipynb"]
        expect(page.get_by_role("columnheader", name="lr")).to_have_attribute("aria-sort", "descending")
        page.get_by_role("button", name="run-2.ipynb").click()
        frame = page.frame_locator("iframe[title='run-2.ipynb']")
        expect(frame.locator("body")).to_contain_text("fitted")
        assert frame.locator("img").evaluate("(one) => one.decode().then(() => one.naturalWidth)") == 1
        page.get_by_role("button", name="run-2.ipynb").click()
        expect(page.locator("iframe[title='run-2.ipynb']")).to_be_hidden()
        expect(page.locator("tbody", has_text="bad.ipynb").locator("tr").first).to_contain_text("1: ZeroDivisionError: by zero")

    ui(look)


def test_what_a_notebook_brings_does_nothing(ui: Look, gallery: Path, stranger: socket.socket) -> None:
    """No script of it runs, neither in the page nor in its frame, and it fetches nothing."""

    def look(page: Page) -> None:
        page.goto(gallery.as_uri())
        title = page.title()
        page.get_by_role("button", name="evil.ipynb").click()
        body = page.frame_locator("iframe[title='evil.ipynb']").locator("body")
        expect(body).to_contain_text("harmless")
        page.wait_for_timeout(500)  # for what would be fetched or left for
        expect(body).to_contain_text("harmless")
        assert page.title() == title
        with pytest.raises(BlockingIOError):
            stranger.accept()

    ui(look)
