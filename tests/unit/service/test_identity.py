"""Who may do what: every route, every role, every scope; tokens that people make; and who is said to have changed what."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from gpufair.client.exchange import Patience
from gpufair.client.sync import Client
from gpufair.clock import VirtualClock
from gpufair.core.units import HOUR, Millis
from gpufair.service.identity.auth import Principal, Role
from gpufair.service.identity.pace import HELD_S, Pace
from gpufair.service.problems import AsksTooOften
from gpufair.service.settings.config import ServiceOptions
from gpufair.service.storage.tokens import MOST_OF_ONE, Scope
from gpufair.service.web import rights
from gpufair.service.web.context import Context
from gpufair.service.web.rights import Right, UndeclaredRight, declared
from tests.unit.service.rig import LAUNCH, bearer, service_at

API = "/api/v1"
# Written by hand, beside the table: who is let in by each right.
LET_IN = {
    Right.READ: {"ada", "uma", "abe", "olga"},
    Right.PLAN: {"uma", "abe", "olga"},
    Right.AUDIT: {"abe", "olga"},
    Right.ACT: {"ada", "uma", "olga"},
    Right.DIVIDE: {"uma", "olga"},
    Right.OPERATE: {"olga"},
}
SCOPES = {Right.ACT: {"act", "manage"}, Right.DIVIDE: {"manage"}, Right.OPERATE: {"manage"}}
NAMES = {"node": "n1", "number": "1", "token": "0", "file": "page.js"}
OPEN = {"/", "/healthz", "/readyz", "/dashboard", "/dashboard/", "/dashboard/{file}", "/dashboard/login", "/dashboard/logout"}


def every_route() -> Iterator[tuple[str, str, Right]]:
    """(method, path, right) of the whole table, with names filled in. (No application starts with a route beside it.)"""
    for key, right in rights.RIGHTS.items():
        method, path = key.split(" ")
        outside = path in {"/", "/healthz", "/readyz", "/metrics"} or (path.startswith("/dashboard") and path != "/dashboard/links")
        filled = re.sub(r"\{(\w+)\}", lambda match: NAMES.get(match[1], "some-id"), path)
        yield method, filled if outside else f"{API}{filled}", right


async def refused(client: httpx.AsyncClient, method: str, path: str, token: str) -> bool:
    """Whether a caller is turned away at the door: 401, or 403 in the words of the table."""
    if path.endswith("/events"):
        path += "?holder=x"  # a stream would never end; what is wrong with the question is said after the door
    answer = await client.request(method, path, headers=bearer(token))
    if answer.status_code == 401:
        return True
    said = answer.json()["detail"] if answer.status_code == 403 else ""
    return "may do this, and" in said or "has the scope" in said


async def test_every_route_lets_in_whom_its_right_says(tmp_path: Path) -> None:
    """Each role at each route. What is let in may still be refused for what it asks: there is no such workload."""
    async with service_at(tmp_path) as (it, client):
        walked = list(every_route())
        assert len(walked) >= 70
        for method, path, right in walked:
            if right in {Right.OPEN, Right.AGENT}:
                continue
            let_in = {
                user
                for user in ("ada", "uma", "abe", "olga")
                if not await refused(client, method, path, it.secrets.user_token(user))
            }
            assert let_in == LET_IN[right], (method, path, right)


async def test_every_scope_of_an_operators_token_is_kept(tmp_path: Path) -> None:
    """One that is for looking looks at everything; one for work works as its user; only the whole one operates."""
    async with service_at(tmp_path) as (it, client):
        made = {scope: (await it.tokens.create("olga", scope, "olga"))[1] for scope in Scope}
        for method, path, right in every_route():
            if right in {Right.OPEN, Right.AGENT, Right.PLAN, Right.AUDIT}:
                continue
            let_in = {str(scope) for scope, token in made.items() if not await refused(client, method, path, token)}
            assert let_in == SCOPES.get(right, {"read", "act", "manage"}), (method, path, right)
        for path in ("audit", "snapshot"):
            answers = [(await client.get(f"{API}/{path}", headers=bearer(made[scope]))).status_code for scope in Scope]
            assert answers == [200, 403, 200]


async def test_nothing_but_what_is_open_answers_without_a_token(tmp_path: Path) -> None:
    """A walk through the table, which has every route."""
    async with service_at(tmp_path, service=ServiceOptions(wrong_tokens_per_minute=0)) as (_, client):
        client.headers.pop("Authorization")
        for method, path, right in every_route():
            for token in (None, "", "x" * 64, "gpf_" + "x" * 43):
                headers = {} if token is None else bearer(token)
                status = (await client.request(method, path, headers=headers)).status_code
                assert (status != 401) == (right is Right.OPEN) or path.endswith("/login"), (method, path)
    assert {key.split(" ")[1] for key, right in rights.RIGHTS.items() if right is Right.OPEN} == OPEN


def test_a_route_without_a_right_is_a_bug() -> None:
    """The application does not start with it, so nobody can forget."""

    async def new() -> None: ...

    with pytest.raises(UndeclaredRight, match="GET /new"):
        declared([APIRoute("/new", new)])
    assert not rights.has(Principal(Role.AGENT, "n1"), Right.READ)


async def test_an_auditor_sees_what_is_everybodys_and_no_key(tmp_path: Path) -> None:
    """What belongs to others too, for that is what an auditor is for."""
    async with service_at(tmp_path) as (it, client):
        body = {"id": "w1", "gpus": 1, "launch": LAUNCH, "name": "secret plan"}
        await client.post(f"{API}/workloads", json=body, headers=bearer(it.secrets.user_token("ada")))
        abe = bearer(it.secrets.user_token("abe"))
        assert (await client.get(f"{API}/workloads/w1", headers=abe)).json()["name"] == "secret plan"
        for path in ("outputs", "checkpoints", "why"):
            assert (await client.get(f"{API}/workloads/w1/{path}", headers=abe)).status_code == 200
        assert (await client.get(f"{API}/workloads/w1/connection", headers=abe)).status_code == 403
        assert (await client.post(f"{API}/workloads/w1/park", headers=abe)).status_code == 403


async def test_a_token_is_told_once_ends_and_can_be_revoked(tmp_path: Path) -> None:
    """Its digest alone is kept; it can do no more than what made it, and ends with it."""
    async with service_at(tmp_path) as (it, client):
        ada, bo = bearer(it.secrets.user_token("ada")), bearer(it.secrets.user_token("bo"))
        wish = {"scope": "act", "label": "robot", "lasts_s": 7200.0}
        made = (await client.post(f"{API}/tokens", json=wish, headers=ada)).json()
        robot = bearer(made["token"])
        assert (await client.get(f"{API}/status", headers=robot)).json()["user"] == "ada"
        assert made["token"] not in (await client.get(f"{API}/tokens", headers=ada)).text
        # No more than itself, in what and for how long.
        assert (await client.post(f"{API}/tokens", json={"scope": "manage"}, headers=robot)).status_code == 403
        child = (await client.post(f"{API}/tokens", json={"scope": "read"}, headers=robot)).json()
        assert child["expires_s"] == made["expires_s"]
        # For others only by operators, and only where those are known.
        assert (await client.post(f"{API}/tokens", json={"user": "bo"}, headers=ada)).status_code == 403
        assert (await client.post(f"{API}/tokens", json={"user": "nobody"})).status_code == 404
        bos = (await client.post(f"{API}/tokens", json={"user": "bo"})).json()
        assert (await client.get(f"{API}/status", headers=bearer(bos["token"]))).json()["user"] == "bo"
        # Whose it is revokes it, and operators; with it goes what it made.
        assert (await client.delete(f"{API}/tokens/{made['id']}", headers=bo)).status_code == 404
        small = bearer(child["token"])
        assert (await client.delete(f"{API}/tokens/{made['id']}", headers=small)).status_code == 403
        assert (await client.delete(f"{API}/tokens/{made['id']}", headers=ada)).json()["revoked_s"] is not None
        for gone in (robot, small):
            assert (await client.get(f"{API}/status", headers=gone)).status_code == 401
        assert {one["user"] for one in (await client.get(f"{API}/tokens")).json()["tokens"]} == {"ada", "bo"}
        short = (await client.post(f"{API}/tokens", json={"lasts_s": 3600.0}, headers=ada)).json()["token"]
        await _clock(it).advance(Millis(HOUR))
        assert (await client.get(f"{API}/status", headers=bearer(short))).status_code == 401


async def test_tokens_outlive_the_service_as_digests(tmp_path: Path) -> None:
    """Whoever reads the database cannot use them; and what was revoked stays so."""
    async with service_at(tmp_path) as (_, client):
        kept, gone = [(await client.post(f"{API}/tokens", json={"user": "ada"})).json() for _ in range(2)]
        assert (await client.delete(f"{API}/tokens/{gone['id']}")).status_code == 200
    stored = _stored(tmp_path)
    assert kept["id"].encode() in stored
    assert kept["token"].encode() not in stored
    async with service_at(tmp_path) as (_, client):
        assert (await client.get(f"{API}/status", headers=bearer(kept["token"]))).json()["user"] == "ada"
        assert (await client.get(f"{API}/status", headers=bearer(gone["token"]))).status_code == 401


async def test_a_user_has_so_many_tokens(tmp_path: Path) -> None:
    """Browsers make room for each other; a script that makes them without end is told."""
    async with service_at(tmp_path) as (it, client):
        for _ in range(MOST_OF_ONE - 1):
            await it.tokens.create("ada", Scope.READ, "ada")
        first, _ = await it.tokens.create("ada", Scope.READ, "ada", page=True)
        second, _ = await it.tokens.create("ada", Scope.READ, "ada", page=True)
        assert (it.tokens.over(first), it.tokens.over(second)) == (True, False)
        answer = await client.post(f"{API}/tokens", json={"user": "ada"})
        assert (answer.status_code, answer.json()["error"]) == (422, "TooManyTokens")


async def test_the_audit_says_who_changed_what(tmp_path: Path) -> None:
    """A line for each request that changed something, with the journal's entries; none for those that did not; kept for good."""
    async with service_at(tmp_path) as (it, client):
        ada = bearer(it.secrets.user_token("ada"))
        body = {"id": "w1", "gpus": 1, "launch": LAUNCH}
        for _ in range(2):  # the second changes nothing
            await client.post(f"{API}/workloads", json=body, headers=ada)
        await client.get(f"{API}/workloads/w1", headers=ada)
        assert (await client.post(f"{API}/nodes/n1/cordon", headers=ada)).status_code == 403
        await client.post(f"{API}/nodes/n1/cordon", headers=bearer(it.secrets.user_token("olga")))
        made = (await client.post(f"{API}/tokens", json={"scope": "act"}, headers=ada)).json()
        await client.delete(f"{API}/workloads/w1", headers=bearer(made["token"]))
    async with service_at(tmp_path) as (it, client):
        abe = bearer(it.secrets.user_token("abe"))
        found = (await client.get(f"{API}/audit", headers=abe)).json()["changes"]
        assert [(one["user"], one["role"], one["token"], one["request"]) for one in found] == [
            ("ada", "user", made["id"], f"DELETE {API}/workloads/w1"),
            ("ada", "user", "", f"POST {API}/tokens"),
            ("olga", "operator", "", f"POST {API}/nodes/n1/cordon"),
            ("ada", "user", "", f"POST {API}/workloads"),
        ]
        assert found[1]["entries"] is None
        first, last = found[2]["entries"]
        answer = await client.get(f"{API}/timeline", params={"after": first - 1, "limit": last - first + 1}, headers=abe)
        assert "NodeCordoned" in {record["kind"] for record in answer.json()["records"]}
        older = (await client.get(f"{API}/audit", params={"before": found[1]["number"], "user": "ada"}, headers=abe)).json()
        assert [one["request"] for one in older["changes"]] == [f"POST {API}/workloads"]


async def test_who_asks_too_often_waits(tmp_path: Path) -> None:
    """One script must not keep the others from being answered; operators' Jupyter servers ask for many."""
    async with service_at(tmp_path, service=ServiceOptions(requests_per_s=1)) as (it, client):
        ada, bo = bearer(it.secrets.user_token("ada")), bearer(it.secrets.user_token("bo"))
        answers = [await client.get(f"{API}/profiles", headers=ada) for _ in range(30)]
        slow = next(answer for answer in answers if answer.status_code == 429)
        assert (slow.json()["error"], slow.headers["retry-after"]) == ("AsksTooOften", "1")
        assert (await client.get(f"{API}/profiles", headers=bo)).status_code == 200
        assert {(await client.get(f"{API}/profiles")).status_code for _ in range(30)} == {200}


def test_a_bucket_fills_again() -> None:
    """At the rate that was agreed, up to what may come at once."""
    now = [0.0]
    pace = Pace(2, lambda: now[0])
    for _ in range(int(2 * HELD_S)):
        pace.take("t")
    with pytest.raises(AsksTooOften) as told:
        pace.take("t")
    assert told.value.wait_s == 0.5
    now[0] = 0.5
    pace.take("t")
    with pytest.raises(AsksTooOften):
        pace.take("t")


def test_the_client_asks_again_when_it_may() -> None:
    """Also for what it must not send twice: a request that was refused so has not happened."""
    asked: list[str] = []

    def serve(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if len(asked) == 1:
            return httpx.Response(429, headers={"Retry-After": "0"}, json={"error": "AsksTooOften", "detail": "wait"})
        return httpx.Response(201, json={"plans": []})

    patience = Patience(first_pause_s=0.01)
    with Client(url="http://127.0.0.1:1", token="t", patience=patience, transport=httpx.MockTransport(serve)) as client:
        assert client.plan_maintenance(["n1"], 0.0) == ()
    assert len(asked) == 2


async def test_no_token_gets_into_a_log_or_an_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Right ones, wrong ones, and those that somebody put where they do not belong."""
    caplog.set_level(logging.DEBUG)
    async with service_at(tmp_path) as (it, client):
        ada = it.secrets.user_token("ada")
        made = (await client.post(f"{API}/tokens", json={"user": "ada"})).json()["token"]
        wrong = "gpf_" + "w" * 43
        texts: list[str] = []
        for token in (ada, made, wrong):
            answers = (
                await client.get(f"{API}/status", headers=bearer(token)),
                await client.get(f"{API}/status", headers=bearer(token + "x")),
                await client.post(f"{API}/workloads", json={"launch": token}, headers=bearer(token)),
                await client.post("/dashboard/login", json={"token": token}),
                await client.post("/dashboard/login", json={"token": [token]}),
                await client.post("/dashboard/login", json={"token": token * 20}),
            )
            texts += [answer.text for answer in answers]
        logged = [record.getMessage() for record in caplog.records if record.name.startswith(("gpufair", "uvicorn"))]
        texts += [*logged, repr(it.tokens.of(None)), repr(it.authenticator.person(f"Bearer {made}")), repr(it.secrets)]
        for token in (ada, made, wrong):
            assert [text for text in texts if token in text] == []


def _stored(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("journal.sqlite*"))


def _clock(it: Context) -> VirtualClock:
    clock = it.lifetime._clock
    assert isinstance(clock, VirtualClock)
    return clock
