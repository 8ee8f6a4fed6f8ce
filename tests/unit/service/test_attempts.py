"""Wrong tokens: who shows too many is told to wait, and nobody else."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from gpufair.service.identity import attempts
from gpufair.service.identity.attempts import SPAN_S, Attempts
from gpufair.service.lifecycle.standby import options
from gpufair.service.problems import TooManyAttempts
from gpufair.service.settings.config import ServiceOptions, parse_config
from gpufair.service.settings.tables import ConfigError
from gpufair.service.storage.tokens import Scope
from tests.unit.service.rig import bearer, service_at
from tests.unit.service.test_hub import Played

API = "/api/v1"
THREE = ServiceOptions(wrong_tokens_per_minute=3)


def test_a_minute_after_the_first_all_begins_anew() -> None:
    """How long to wait is said."""
    now = [0.0]
    counted = Attempts(2, lambda: now[0])
    counted.wrong("192.0.2.1", "a")
    now[0] = 10.0
    counted.wrong("192.0.2.1", "a")
    for _ in range(3):
        with pytest.raises(TooManyAttempts) as told:
            counted.wrong("192.0.2.1", "a")
        assert told.value.wait_s == SPAN_S - 10.0
    counted.wrong("192.0.2.2", "a")
    now[0] = SPAN_S
    counted.wrong("192.0.2.1", "a")


def test_a_forgotten_script_does_not_use_up_what_others_may_try() -> None:
    """It shows the same token again and again; who guesses shows others."""
    counted = Attempts(3)
    for _ in range(3):
        counted.wrong("192.0.2.1", "stale")
    assert not counted.worth_asking("192.0.2.1", "stale")
    assert counted.worth_asking("192.0.2.1", "new")
    for guess in "xyz":
        with pytest.raises(TooManyAttempts):
            counted.wrong("192.0.2.1", guess)
    assert not counted.worth_asking("192.0.2.1", "new")
    assert counted.worth_asking("192.0.2.2", "new")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many addresses and tokens somebody has; a machine has a whole range of IPv6 addresses."""
    monkeypatch.setattr(attempts, "MOST", 5)
    counted = Attempts(2)
    for number in range(20):
        counted.wrong(f"192.0.2.{number}", "a")
    assert list(counted._seen) == [f"192.0.2.{number}" for number in range(15, 20)]
    counted = Attempts(2)
    for number in range(2):
        counted.wrong(f"2001:db8::{number}", f"guess-{number}")
    for number in range(2, 50):
        with pytest.raises(TooManyAttempts):
            counted.wrong(f"2001:db8::{number}", f"guess-{number}")
    counted.wrong("2001:db8:0:1::1", "guess")
    assert [len(seen.shown) for seen in counted._seen.values()] == [2, 1]


async def test_wrong_tokens_are_answered_429_and_right_ones_as_ever(tmp_path: Path) -> None:
    """At every door: as a token of a person or an agent, as a cookie, at the pages' login by token or by code."""
    async with service_at(tmp_path, service=THREE) as (it, client):
        del client.headers["authorization"]
        page = {"Origin": "http://127.0.0.1:1"}
        ada = bearer(it.secrets.user_token("ada"))

        async def shown(door: str, number: int) -> httpx.Response:
            guess = f"wrong-{number}"
            if door == "login":
                return await client.post("/dashboard/login", json={"token": guess}, headers=page)
            if door == "code":
                return await client.post("/dashboard/login", json={"code": guess * 5}, headers=page)
            if door == "cookie":
                return await client.get(f"{API}/status", headers={"Cookie": f"gpufair-1={guess}"})
            path = "agents/n1/commands?boot=b" if door == "agent" else "status"
            return await client.get(f"{API}/{path}", headers=bearer(guess))

        for door in ("person", "agent", "cookie", "login", "code"):
            it.authenticator.attempts._seen.clear()
            statuses = [(await shown(door, number)).status_code for number in range(5)]
            assert statuses == [401, 401, 401, 429, 429], door
            last = await shown(door, 9)
            assert last.json()["error"] == "TooManyAttempts"
            assert 50 <= int(last.headers["retry-after"]) <= 60
            assert (await client.get(f"{API}/status", headers=ada)).status_code == 200
            assert (await client.post("/dashboard/login", json={"token": ada["Authorization"][7:]}, headers=page)).status_code == 204
            client.cookies.clear()
            assert (await client.get(f"{API}/status")).status_code == 401  # who shows nothing guesses nothing
        elsewhere = httpx.ASGITransport(client._transport.app, client=("192.0.2.9", 1))  # type: ignore[attr-defined]
        async with httpx.AsyncClient(transport=elsewhere, base_url="http://127.0.0.1:1") as other:
            assert (await other.get(f"{API}/status", headers=bearer("wrong"))).status_code == 401
        # One that was good and is over counts like any other.
        made, token = await it.tokens.create("ada", Scope.READ, "ada")
        await it.tokens.revoke(made)
        assert (await client.get(f"{API}/status", headers=bearer(token))).status_code == 429


async def test_guesses_do_not_reach_the_hub(tmp_path: Path) -> None:
    """But for the first few; who was good there before is asked about all the same."""
    async with service_at(tmp_path, service=THREE) as (it, client):
        played = Played()
        it.authenticator._hub = played.hub
        assert (await client.get(f"{API}/status", headers=bearer("good"))).status_code == 200
        for number in range(20):
            await client.get(f"{API}/status", headers=bearer(f"guess-{number}"))
        assert played.asked == ["good", "guess-0", "guess-1", "guess-2"]
        played.now = 60.0
        assert (await client.get(f"{API}/status", headers=bearer("good"))).status_code == 200
        assert played.asked[-1] == "good"


def test_only_named_proxies_are_believed() -> None:
    """Else anybody could say that he is somebody else."""
    assert not options(object()).proxy_headers
    told = options(object(), None, ["10.0.0.5"])
    assert (told.proxy_headers, told.forwarded_allow_ips) == (True, ["10.0.0.5"])
    assert parse_config('[service]\nproxies = ["10.0.0.0/24"]\n', "f").service.proxies == ("10.0.0.0/24",)
    with pytest.raises(ConfigError, match="is no address"):
        parse_config('[service]\nproxies = ["my-proxy"]\n', "f")
