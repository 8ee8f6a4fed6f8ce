"""Tokens of a real JupyterHub: whom they let in, what they open, and when they stop to."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gpufair.core.units import Millis
from gpufair.service.settings.hub_options import Admits, HubOptions, Mandate
from gpufair.service.web.context import Context
from tests.integration.service.rig import Rig, until
from tests.real_hub import RealHub, free_port, real_hub
from tests.unit.service.rig import LAUNCH, bearer, service_at

API = "/api/v1"
ROOT = Path(__file__).parents[3]
ROLES = {"group:gpu-ops": Mandate.OPERATOR, "scope:custom:gpufair:operate": Mandate.NAMED}
CONFIG = """\
users = ["ada"]
[service]
port = PORT
[hub]
url = "HUB"
cache = "1s"
[[node]]
name = "n1"
remote = true
"""


@pytest.fixture(scope="module")
def service_port() -> int:
    """Where the service of the spawned server is."""
    return free_port()


@pytest.fixture(scope="module")
def hub(service_port: int) -> Iterator[RealHub]:
    """One Hub for all: users ada and olga, gus (who is in the group gpu-ops), carl, and uma by another name."""
    environment = {
        "GPUFAIR_URL": f"http://127.0.0.1:{service_port}",
        "GPUFAIR_TOKEN_FROM": "jupyterhub",
        "JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp",  # no pages: it starts sooner
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scheduler")]),
    }
    with real_hub(environment) as hub:
        hub.add("ada", "olga", "carl", "uma@example.org")
        hub.add("gus", group="gpu-ops")
        yield hub


@asynccontextmanager
async def asked(folder: Path, hub: RealHub, **options: object) -> AsyncIterator[tuple[Context, httpx.AsyncClient]]:
    """A service that asks this Hub."""
    given = {"cache": Millis(300), "roles": ROLES, "names": {"uma@example.org": "uma"}} | options
    async with service_at(folder, hub=HubOptions(hub.url, **given)) as found:  # type: ignore[arg-type]  # by the caller's word
        yield found


async def soon(what: str, holds: Callable[[], Awaitable[bool]], wait_s: float = 30.0) -> None:
    """Ask until it holds."""
    end = asyncio.get_running_loop().time() + wait_s
    while not await holds():
        assert asyncio.get_running_loop().time() < end, f"waited in vain until {what}"
        await asyncio.sleep(0.05)


async def test_a_hubs_user_is_who_the_hub_says_and_may_what_is_mapped(hub: RealHub, tmp_path: Path) -> None:
    """The least by default: a notebook server's token works for its user; it operates nothing, and makes no token that stays."""
    async with asked(tmp_path, hub) as (it, client):

        async def answered(token: str, method: str, path: str, body: object = None) -> int:
            return (await client.request(method, f"{API}{path}", headers=bearer(token), json=body)).status_code

        tokens = {user: hub.token(user)[1] for user in ("ada", "olga", "gus", "carl", "uma@example.org")}
        told = await client.get(f"{API}/status", headers=bearer(tokens["ada"]))
        assert told.json()["user"] == "ada"
        assert await answered(tokens["ada"], "POST", "/workloads", {"id": "w1", "gpus": 1, "launch": LAUNCH}) == 201
        assert await answered(tokens["ada"], "POST", "/nodes/n1/cordon") == 403
        assert await answered(tokens["ada"], "POST", "/tokens", {}) == 403
        # A group may operate, whoever is in it.
        assert await answered(tokens["gus"], "POST", "/nodes/n1/cordon") == 200
        # Who is an operator here is none with just any token of the Hub's, but with one that was made for that.
        _, plain = hub.token("olga", "access:servers!user=olga")
        _, made = hub.token("olga", "access:servers!user=olga", "custom:gpufair:operate")
        assert [await answered(one, "POST", "/nodes/n1/uncordon") for one in (plain, made)] == [403, 200]
        # One that some other service was given says who that is, and opens nothing.
        _, elsewhere = hub.token("ada", "read:users:name!user=ada")
        answer = await client.get(f"{API}/status", headers=bearer(elsewhere))
        assert (answer.status_code, "was not made for this service" in answer.text) == (403, True)
        assert await answered(hub.robot, "GET", "/status") == 403
        # Nobody here knows carl; uma has another name there.
        assert await answered(tokens["carl"], "GET", "/status") == 403
        assert (await client.get(f"{API}/status", headers=bearer(tokens["uma@example.org"]))).json()["user"] == "uma"
        changes = (await client.get(f"{API}/audit")).json()["changes"]
        assert [(one["user"], one["role"]) for one in changes] == [("olga", "operator"), ("gus", "operator"), ("ada", "user")]
        assert all(one["token"].startswith("hub-") for one in changes)
        assert not any(token in repr(vars(it.authenticator._hub)) for token in [*tokens.values(), plain, made, elsewhere])
    async with asked(tmp_path, hub, admits=Admits.EVERYBODY) as (_, client):
        assert (await client.get(f"{API}/status", headers=bearer(tokens["carl"]))).json()["user"] == "carl"


async def test_a_token_that_is_revoked_at_the_hub_is_refused(hub: RealHub, tmp_path: Path) -> None:
    """After the time for which the Hub's word counts; a page that it logged in only looks."""
    async with asked(tmp_path, hub) as (_, client):
        name, token = hub.token("ada")
        page = {"Origin": "http://127.0.0.1:1"}
        login = await client.post("/dashboard/login", json={"token": token}, headers=page)
        assert login.status_code == 204
        cookie = {"Cookie": f"gpufair-1={login.cookies['gpufair-1']}"}
        async with httpx.AsyncClient(transport=client._transport, base_url="http://127.0.0.1:1") as browser:
            assert (await browser.get(f"{API}/mine", headers=cookie)).status_code == 200
        hub.revoke("ada", name)

        async def refused() -> bool:
            return (await client.get(f"{API}/status", headers=bearer(token))).status_code == 401

        await soon("the token is refused", refused)


async def test_while_the_hub_is_silent_its_tokens_wait_and_others_go_on(hub: RealHub, tmp_path: Path) -> None:
    """It is said that the Hub is to blame; when it speaks again all is well."""
    async with asked(tmp_path, hub, timeout=Millis(1000)) as (it, client):
        ada = bearer(hub.token("ada")[1])
        assert hub._process is not None
        os.kill(hub._process.pid, signal.SIGSTOP)
        try:
            answer = await client.get(f"{API}/status", headers=ada)
            assert (answer.status_code, answer.json()["error"], answer.headers["retry-after"]) == (503, "HubUnavailable", "1")
            assert (await client.get(f"{API}/status", headers=bearer(it.secrets.user_token("ada")))).status_code == 200
        finally:
            os.kill(hub._process.pid, signal.SIGCONT)

        async def served() -> bool:
            return (await client.get(f"{API}/status", headers=ada)).status_code == 200

        await soon("the Hub answers again", served)


@pytest.mark.slow
def test_a_server_that_the_hub_spawns_uses_its_own_token(hub: RealHub, service_port: int, tmp_path: Path) -> None:
    """A real service, and a real notebook server: nothing has to be handed to anybody."""
    rig = Rig(tmp_path, CONFIG.replace("PORT", str(service_port)).replace("HUB", hub.url), embedded=False)
    try:
        rig.start()
        hub.ask("POST", "/users/ada/server")
        token = hub.token("ada", "access:servers!user=ada")[1]
        base = f"http://127.0.0.1:{hub.server_port}/user/ada/gpufair"

        def seen() -> str:
            try:
                answer = httpx.get(f"{base}/status", headers={"Authorization": f"token {token}"}, timeout=20, trust_env=False)
            except httpx.HTTPError:
                return ""
            return str(answer.json().get("user") or "") if answer.status_code == 200 else ""

        try:
            assert until("the spawned server knows its user", seen, 90) == "ada"
        except AssertionError:
            print(hub.log.read_text()[-4000:])
            raise
        finally:
            hub.ask("DELETE", "/users/ada/server")
    finally:
        rig.clean()
