"""Logging a browser in: what its cookie opens, for how long, and who may have one made."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from gpufair.clock import VirtualClock
from gpufair.core.units import HOUR, Millis
from gpufair.service.identity.auth import Principal, Role
from gpufair.service.identity.links import LASTS_S, Links
from gpufair.service.routes import dashboard
from gpufair.service.web.context import Context
from tests.unit.service.rig import LAUNCH, bearer, service_at

API = "/api/v1"
OURS = {"Sec-Fetch-Site": "same-origin"}


async def log_in(client: httpx.AsyncClient, token: str) -> httpx.Response:
    client.headers.pop("Authorization", None)
    return await client.post("/dashboard/login", json={"token": token}, headers=OURS)


async def test_a_cookie_opens_questions_only(tmp_path: Path) -> None:
    """Browsers send it by themselves, so it must change nothing and give no key away."""
    async with service_at(tmp_path) as (it, client):
        ada = it.secrets.user_token("ada")
        body = {"id": "w1", "gpus": 1, "launch": LAUNCH, "name": "mine"}
        assert (await client.post(f"{API}/workloads", json=body, headers=bearer(ada))).status_code == 201
        answer = await log_in(client, ada)
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("gpufair-1=gpf_")
        for word in ("HttpOnly", "SameSite=strict", "Max-Age=43200", "Path=/"):
            assert word in cookie, cookie
        assert "Secure" not in cookie
        assert (await client.get(f"{API}/mine")).json()["sessions"][0]["name"] == "mine"
        assert (await client.get(f"{API}/status")).json()["user"] == "ada"
        refused = await client.get(f"{API}/workloads/w1/connection")
        assert (refused.status_code, refused.json()["error"]) == (403, "Forbidden")
        for method, path in (("POST", "workloads/w1/park"), ("DELETE", "workloads/w1"), ("POST", "dashboard/links")):
            assert (await client.request(method, f"{API}/{path}", headers=OURS)).status_code == 401
        # Neither does it by another's page, nor as a token.
        assert (await client.get(f"{API}/mine", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 401
        assert (await client.get(f"{API}/mine", headers={"Origin": "http://evil.example"})).status_code == 401
        token = cookie.partition("=")[2].partition(";")[0]
        assert (await client.get(f"{API}/mine", headers=bearer(token))).status_code == 401
        # Another service at another port of this host has a cookie of its own.
        other = await client.get(f"{API}/mine", headers={"Host": "127.0.0.1:2"})
        assert other.status_code == 401


async def test_an_operators_browser_sees_all_and_operates_nothing(tmp_path: Path) -> None:
    """What is open on a screen is not what one works with."""
    async with service_at(tmp_path) as (it, client):
        body = {"id": "w1", "gpus": 1, "launch": LAUNCH, "name": "adas", "user": "ada"}
        assert (await client.post(f"{API}/workloads", json=body)).status_code == 201
        assert (await log_in(client, it.secrets.user_token("olga"))).status_code == 204
        assert (await client.get(f"{API}/workloads/w1")).json()["name"] == "adas"
        assert (await client.get(f"{API}/status")).json()["operator"] is False
        assert (await client.get(f"{API}/workloads/w1/connection")).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:2"},
    ],
)
async def test_no_other_page_logs_in_or_out(tmp_path: Path, headers: dict[str, str]) -> None:
    """Whoever could log a reader in as somebody else would have them look at the wrong sessions."""
    async with service_at(tmp_path) as (it, client):
        shown = {"token": it.secrets.user_token("ada")}
        client.headers.pop("Authorization")
        assert (await client.post("/dashboard/login", json=shown, headers=headers)).status_code == 403
        assert (await client.post("/dashboard/logout", headers=headers)).status_code == 403


async def test_an_old_browser_is_known_by_its_origin(tmp_path: Path) -> None:
    """And behind TLS the cookie is for TLS only."""
    async with service_at(tmp_path) as (it, client):
        shown = {"token": it.secrets.user_token("ada")}
        client.headers.pop("Authorization")
        for origin, secure in (("http://127.0.0.1:1", False), ("https://127.0.0.1:1", True)):
            answer = await client.post("/dashboard/login", json=shown, headers={"Origin": origin})
            assert answer.status_code == 204
            assert ("Secure" in answer.headers["set-cookie"]) is secure


async def test_a_login_ends_with_the_day_or_when_it_is_told_to(tmp_path: Path) -> None:
    """A copy of the cookie opens nothing either then."""
    async with service_at(tmp_path) as (it, client):
        ada = it.secrets.user_token("ada")
        await log_in(client, ada)
        kept = dict(client.cookies)
        assert (await client.post("/dashboard/logout", headers=OURS)).status_code == 204
        assert dict(client.cookies) == {}
        client.cookies.update(kept)
        assert (await client.get(f"{API}/mine")).status_code == 401
        client.cookies.clear()
        await log_in(client, ada)
        assert (await client.get(f"{API}/mine")).status_code == 200
        await _clock(it).advance(Millis(12 * HOUR))
        assert (await client.get(f"{API}/mine")).status_code == 401


async def test_a_login_outlives_the_service(tmp_path: Path) -> None:
    """A restart is no reason to ask everybody for their token; and no token is in the database."""
    async with service_at(tmp_path) as (it, client):
        await log_in(client, it.secrets.user_token("ada"))
        kept = dict(client.cookies)
    stored = _stored(tmp_path)
    assert b"browser" in stored
    assert kept["gpufair-1"].encode() not in stored
    async with service_at(tmp_path) as (_, client):
        client.headers.pop("Authorization")
        client.cookies.update(kept)
        assert (await client.get(f"{API}/status")).json()["user"] == "ada"
    async with service_at(tmp_path, users=("bo",)) as (_, client):
        client.headers.pop("Authorization")
        client.cookies.update(kept)
        assert (await client.get(f"{API}/status")).status_code == 401, "ada is gone from the configuration"


async def test_a_link_is_good_once(tmp_path: Path) -> None:
    """Its code is in the part of the address that no browser sends, and worth nothing afterwards."""
    async with service_at(tmp_path) as (it, client):
        answer = await client.post(f"{API}/dashboard/links", headers=bearer(it.secrets.user_token("bo")))
        path, code = answer.json()["path"].split("#code=")
        assert path == "/dashboard/"
        client.headers.pop("Authorization")
        for status in (204, 401):
            shown = await client.post("/dashboard/login", json={"code": code}, headers=OURS)
            assert shown.status_code == status
        assert (await client.get(f"{API}/status")).json()["user"] == "bo"


def test_a_link_is_good_for_a_minute() -> None:
    """Whoever finds it in a scrollback is too late."""
    now = [0.0]
    links = Links(lambda: now[0])
    who = Principal(Role.USER, "ada")
    early, late = links.make(who), links.make(who)
    now[0] = LASTS_S - 1
    assert links.redeem(early) is who
    now[0] = LASTS_S
    assert links.redeem(late) is None


async def test_the_page_lets_nothing_else_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No script but its own, nothing inline, in nobody's frame, and no file but its own."""
    static = tmp_path / "static"
    static.mkdir()
    (static / "index.html").write_text("the page")
    (static / "page.js").write_text("the script")
    (static / "secret").write_text("secret")
    monkeypatch.setattr(dashboard, "STATIC", static)
    async with service_at(tmp_path / "state") as (_, client):
        client.headers.pop("Authorization")
        answer = await client.get("/dashboard/")
        policy = answer.headers["content-security-policy"]
        assert (answer.text, answer.headers.get_list("content-security-policy")) == ("the page", [policy])
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert (await client.get("/dashboard/page.js")).text == "the script"
        for path in ("secret", "..%2fsecret", "index.html", "%2e%2e/static/secret"):
            assert (await client.get(f"/dashboard/{path}")).status_code in {401, 404}, path
        for path in ("/", "/dashboard"):
            assert (await client.get(path)).headers["location"] == "dashboard/"


async def test_an_installation_without_the_page_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout whose front end was not built."""
    monkeypatch.setattr(dashboard, "STATIC", tmp_path / "nowhere")
    async with service_at(tmp_path / "state") as (_, client):
        answer = await client.get("/dashboard/")
        assert answer.status_code == 503
        assert "make install" in answer.text
        assert "gpufair status" in answer.text


def _stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("journal.sqlite*"))


def _clock(it: Context) -> VirtualClock:
    clock = it.lifetime._clock
    assert isinstance(clock, VirtualClock)
    return clock
