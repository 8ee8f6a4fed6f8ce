"""The service's own pages in a real browser: what they show, who sees it, and that nothing else leaves the machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from gpufair.client import Client
from tests.e2e.axe import needs_axe, violations
from tests.e2e.conftest import Look
from tests.integration.service.rig import Rig

PICTURES = Path(__file__).parents[2] / "docs" / "images"
SLEEP = {"type": "command", "argv": ["sleep", "600"], "cwd": "/"}
TOKEN = "Token"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("dashboard"))
    rig.config.write_text(f'users = ["ada"]\n{rig.config.read_text()}')
    try:
        rig.start()
        yield rig
    finally:
        rig.clean()


def address(rig: Rig) -> str:
    assert rig.http is not None
    return str(rig.http.base_url).removesuffix("/api/v1/")


@needs_axe
def test_a_token_opens_the_lab_which_stays_live_until_logged_out(rig: Rig, ui: Look) -> None:
    """The queue, the budgets and the nodes of a lab that changes while one looks; light and dark; nothing before the login."""
    ada = (rig.state / "tokens" / "ada.token").read_text().strip()

    def look(page: Page) -> None:
        requests: list[str] = []
        said: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.goto(address(rig))
        token = page.get_by_label(TOKEN)
        expect(token).to_be_focused()
        assert violations(page) == []
        token.fill(ada[:-1] + "!")
        token.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("no token of this service")
        expect(page.get_by_role("heading", name="Queue")).to_have_count(0)
        # A wrong one is not kept, in no field and in no storage.
        expect(token).to_have_value("")
        token.fill(ada)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Queue")).to_be_visible()
        expect(page.locator(".gpufair-head")).to_contain_text("ada")
        expect(page.locator(".jp-gpufair-budget")).to_have_count(2)
        expect(page.locator(".jp-gpufair-node")).to_have_count(2)
        said.clear()  # a wrong token is an error of the network to the console
        with Client(state_dir=rig.state) as client:
            holds = client.submit(SLEEP, gpus=1, allocation="a", name="training", user="ada")
            waits = client.submit(SLEEP, gpus=1, allocation="a", name="waits", user="ada")
            queued = page.locator(".jp-gpufair-queue details")
            expect(queued).to_contain_text("1. waits")
            expect(page.locator(".jp-gpufair-budget").first).to_contain_text("1 of")
            cards = page.locator(".jp-gpufair-card")
            expect(cards).to_have_count(2)
            expect(cards.get_by_role("button")).to_have_count(0)
            queued.locator("summary").press("Enter")
            expect(queued.locator(".jp-gpufair-why")).to_contain_text(client.why(waits.id).sentence[:20])
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.wait_for_function(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
                assert violations(page) == []
                if os.environ.get("GPUFAIR_SCREENSHOTS") == "1":
                    page.screenshot(path=PICTURES / f"dashboard-{scheme}.png")
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert colour == "rgb(17, 17, 17)"
            page.reload()
            expect(queued).to_contain_text("1. waits")
            client.stop(holds.id)
            client.stop(waits.id)
            expect(cards).to_have_count(0)
        cookie = page.context.cookies()[0]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 0]
        board = page.get_by_role("region", name="Announcements")
        expect(board).to_be_hidden()
        with Client(state_dir=rig.state) as client:
            client.announce("The storage is slow.", "critical", "https://status.example.org/")
            expect(board).to_contain_text("Important The storage is slow.")
            expect(board.get_by_role("link", name="Read more")).to_have_attribute("rel", "noopener noreferrer")
            client.announce("Another one.")
            expect(board.get_by_role("listitem")).to_have_count(2)
            assert violations(page) == []
            aside = board.get_by_role("button", name="Put aside: The storage is slow.")
            aside.press("Enter")
            expect(board.get_by_role("button", name="Put aside: Another one.")).to_be_focused()
            page.reload()
            expect(board.get_by_role("listitem")).to_have_count(1)
            expect(board).to_contain_text("Another one.")
            client.withdraw_announcement(2)
            expect(board).to_be_hidden()
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label(TOKEN)).to_be_visible()
        # What a copy of the cookie opened is over as well.
        page.context.add_cookies([{"name": cookie["name"], "value": cookie["value"], "url": address(rig)}])
        page.reload()
        expect(page.get_by_label(TOKEN)).to_be_visible()
        assert [url for url in requests if not url.startswith((address(rig), "data:"))] == []
        assert [url for url in requests if ada[:16] in url] == []
        assert [text for text in said if "Content Security Policy" in text] == []

    ui(look)


def test_a_printed_link_opens_it_once(rig: Rig, ui: Look) -> None:
    """For who is at a terminal. What was opened is worth nothing to who finds it in a history."""
    command = [sys.executable, "-m", "gpufair.cli", "dashboard", "--state-dir", str(rig.state)]
    url = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/dashboard/#code=[\w-]{40,}", url), url

    def look(page: Page) -> None:
        page.goto(url)
        expect(page.get_by_role("heading", name="Queue")).to_be_visible()
        assert page.url == url.partition("#")[0]
        page.context.clear_cookies()
        page.goto("about:blank")
        page.goto(url)
        expect(page.get_by_role("alert")).to_contain_text("used already")

    ui(look)
