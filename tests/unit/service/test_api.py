"""The HTTP edge: who gets in, what is refused before it is looked at, and what answers look like."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufair.client.machines import DrainView, NodeView
from gpufair.client.reading import read
from gpufair.client.reasons import AllocationExplanation, Explanation
from gpufair.client.types import Budgets, Queue, Status, Workload
from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.model import DEFAULT_POOL
from gpufair.core.units import SECOND, AllocationPath, Millis, WorkloadId
from gpufair.service.api import build_app
from gpufair.service.settings.config import ServiceOptions
from gpufair.service.web.context import Context
from gpufair.wire import MAX_BODY_BYTES
from tests.unit.service.rig import LAUNCH, POLICY, START, bearer, service_at

API = "/api/v1"


def every_route(it: Context) -> Iterator[tuple[str, str]]:
    """(method, path) of all routes, as the application itself lists them, with names filled in."""
    yield "GET", f"{API}/openapi.json"
    for path, methods in build_app(it).openapi()["paths"].items():
        for method in methods:
            yield method.upper(), re.sub(r"\{(\w+)\}", lambda match: "n1" if match[1] == "node" else "some-id", path)


async def test_no_route_but_those_of_health_answers_without_a_token(tmp_path: Path) -> None:
    """Walks every route there is, so that a new one cannot be forgotten."""
    async with service_at(tmp_path, service=ServiceOptions(wrong_tokens_per_minute=0)) as (it, client):
        walked = list(every_route(it))
        assert len(walked) >= 25, walked
        for token in (None, "", "x" * 64, it.secrets.operator_token()[:-1], "é"):
            for method, path in walked:
                headers = {} if token is None else {b"Authorization": f"Bearer {token}".encode()}
                client.headers.pop("Authorization", None)
                answer = await client.request(method, path, headers=headers)
                if path in ("/healthz", f"{API}/healthz"):
                    assert answer.json() == {"ok": True}
                elif path == "/readyz":
                    assert answer.json() == {"ready": True}
                else:
                    assert answer.status_code == 401, (method, path, answer.status_code)
                    assert answer.json()["error"] == "Unauthorized"
                    assert answer.headers["www-authenticate"] == "Bearer"
        # An address that isn't there is not told from one that is.
        assert (await client.get("/nowhere")).status_code == 401


async def test_agents_speak_for_their_own_node_only(tmp_path: Path) -> None:
    """A node's token opens its own routes and nothing else; no other token opens those."""
    async with service_at(tmp_path, service=ServiceOptions(wrong_tokens_per_minute=0)) as (it, client):
        agent = bearer(it.secrets.agent_token("n1"))
        for method, path in every_route(it):
            if "/agents/" in path:
                other = path.replace("/n1/", "/n2/")
                for headers in (bearer(it.secrets.operator_token()), bearer(it.secrets.user_token("ada"))):
                    assert (await client.request(method, path, headers=headers)).status_code == 403
                assert (await client.request(method, other, headers=agent)).status_code == 401
            elif not path.endswith(("/healthz", "/readyz")):
                assert (await client.request(method, path, headers=agent)).status_code == 401
        empty = {"boot": "b", "reports": []}
        answer = await client.post(f"{API}/agents/n1/reports", json=empty, headers=agent)
        assert (answer.status_code, answer.json()["error"]) == (409, "HelloFirst")


async def test_users_see_and_change_only_what_is_theirs(tmp_path: Path) -> None:
    """Whoever asks for somebody else's workload gets a refusal, and of the listing no private part."""
    async with service_at(tmp_path) as (it, client):
        ada, bo, olga = (bearer(it.secrets.user_token(user)) for user in ("ada", "bo", "olga"))
        body = {
            "id": "w1",
            "gpus": 1,
            "min_runtime_s": 60,
            "name": "secret plan",
            "launch": LAUNCH,
            "notebook": "/home/p.ipynb",
        }
        created = await client.post(f"{API}/workloads", json=body, headers=ada)
        assert created.status_code == 201, created.text
        assert (created.json()["user"], created.json()["allocation"]) == ("ada", "a")
        for verb in ("park", "resume", "restart", "checkpoint", "restore", "interrupt"):
            answer = await client.post(f"{API}/workloads/w1/{verb}", headers=bo)
            assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden"), verb
        for path in ("connection", "outputs", "checkpoints"):
            assert (await client.get(f"{API}/workloads/w1/{path}", headers=bo)).status_code == 403
        assert (await client.delete(f"{API}/workloads/w1", headers=bo)).status_code == 403
        for path in ("/workloads", "/workloads/w1", "/queue", "/timeline"):
            text = (await client.get(f"{API}{path}", headers=bo)).text
            assert "secret plan" not in text
            assert "p.ipynb" not in text
        assert (await client.get(f"{API}/workloads/w1", headers=ada)).json()["name"] == "secret plan"
        # Taken is taken, whoever asks.
        assert (await client.post(f"{API}/workloads", json=body, headers=bo)).status_code == 403
        again = await client.post(f"{API}/workloads", json=body, headers=ada)
        assert (again.status_code, again.json()["id"]) == (200, "w1")
        # For others only operators may submit, and only where those are members.
        other = body | {"id": "w2", "user": "ada"}
        assert (await client.post(f"{API}/workloads", json=other, headers=bo)).status_code == 403
        assert (await client.post(f"{API}/workloads", json=other, headers=olga)).status_code == 201
        wrong = body | {"id": "w3", "allocation": "a"}
        refused = await client.post(f"{API}/workloads", json=wrong, headers=bo)
        assert (refused.status_code, refused.json()["error"]) == (403, "NotAMember")
        for method, path in (("PUT", "/budgets"), ("POST", "/nodes/n1/cordon"), ("POST", "/nodes/n1/uncordon")):
            assert (await client.request(method, f"{API}{path}", headers=bo)).status_code == 403
        assert (await client.post(f"{API}/workloads/w1/park", headers=olga)).status_code == 202


async def test_what_is_too_large_or_too_deep_is_refused(tmp_path: Path) -> None:
    """Memory and stack are not for whoever has a token to spend."""
    async with service_at(tmp_path) as (_, client):
        big = b'{"launch": "' + b"x" * MAX_BODY_BYTES + b'"}'
        answer = await client.post(f"{API}/workloads", content=big)
        assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")

        async def chunks() -> Any:
            for _ in range(20):
                yield b"x" * 100_000

        answer = await client.post(f"{API}/workloads", content=chunks())
        assert (answer.status_code, answer.json()["error"]) == (413, "TooLarge")
        for path in ("/workloads", "/budgets"):
            deep = b'{"launch": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
            method = "POST" if path == "/workloads" else "PUT"
            headers = {"Content-Type": "application/json"}
            answer = await client.request(method, f"{API}{path}", content=deep, headers=headers)
            assert answer.status_code in (400, 422), answer.text
            assert answer.headers["content-type"] == "application/problem+json"


async def test_malformed_submissions_name_the_field(tmp_path: Path) -> None:
    """Nothing is guessed, converted or ignored."""
    good: dict[str, Any] = {"id": "ok", "gpus": 1, "min_runtime_s": 60, "launch": LAUNCH}
    bad: list[tuple[dict[str, Any], int, str]] = [
        ({"launch": None}, 422, "launch"),
        ({"launch": {**LAUNCH, "argv": []}}, 422, "launch.argv"),
        ({"launch": {**LAUNCH, "argv": "rm"}}, 422, "launch.argv"),
        ({"launch": {**LAUNCH, "shell": True}}, 422, "launch.shell"),
        ({"launch": {**LAUNCH, "type": "magic"}}, 422, "launch.type"),
        ({"launch": {**LAUNCH, "env": {"A": 1}}}, 422, "launch.env.A"),
        ({"gpus": -1}, 422, "gpus"),
        ({"gpus": "1"}, 422, "gpus"),
        ({"gpus": 1.5}, 422, "gpus"),
        ({"gpus": True}, 422, "gpus"),
        ({"nodes": 0}, 422, "nodes"),
        ({"min_runtime_s": -1}, 422, "min_runtime_s"),
        ({"min_runtime_s": "8h"}, 422, "min_runtime_s"),
        ({"min_runtime_s": 86_400.0}, 422, "max_min_runtime is 28800 s"),
        ({"gpu": 1}, 422, "gpu"),
        ({"id": "../../etc/passwd"}, 422, "id"),
        ({"id": "a/b"}, 422, "id"),
        ({"id": ".hidden"}, 422, "id"),
        ({"id": "x" * 129}, 422, "id"),
        ({"id": "new\nline"}, 422, "id"),
        ({"user": "../x"}, 422, "user"),
        ({"kind": "cron"}, 422, "kind"),
        ({"name": "a\x00b"}, 422, "name"),
        ({"profile": "1gpus"}, 422, "did you mean '1gpu'"),
        ({"allocation": "c"}, 422, "choose one of: a, b"),
        ({"gpus": 64}, 422, "largest that fits"),
        ({"cpus": -1}, 422, "cpus"),
        ({"cpus": 1.5}, 422, "cpus"),
        ({"memory_bytes": "64GiB"}, 422, "memory_bytes"),
        ({"exclude": ["../x"]}, 422, "exclude"),
        ({"exclude": ["n1"]}, 422, "n1"),
        ({"where": {"rack": 1}}, 422, "where"),
        ({"where": {"rack": "r9"}}, 422, "rack"),
        ({"cpus": 9}, 422, "9 CPUs"),
        ({"memory_bytes": 1 << 40}, 422, "1 TiB"),
    ]
    async with service_at(tmp_path) as (it, client):
        for change, status, word in bad:
            answer = await client.post(f"{API}/workloads", json=good | {"user": "ada"} | change)
            assert answer.status_code == status, (change, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert word in answer.json()["detail"], (change, answer.text)
        for text in (b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"min_runtime_s": NaN}'):
            headers = {"Content-Type": "application/json"}
            assert (await client.post(f"{API}/workloads", content=text, headers=headers)).status_code in (400, 422)
        assert await it.runtime.views() == []


async def test_what_is_taken_beside_gpus_is_shown(tmp_path: Path) -> None:
    """Who asks for CPUs and memory has them, and others can see what is left for them."""
    async with service_at(tmp_path) as (_, client):
        demands = {"cpus": 6, "memory_bytes": 1 << 30, "where": {"rack": "r1"}, "exclude": ["n2"]}
        body = {"gpus": 1, "min_runtime_s": 60, "user": "ada", "launch": LAUNCH} | demands
        first = read(Workload, (await client.post(f"{API}/workloads", json=body)).json())
        assert (first.state, first.cpus, first.memory_bytes, first.where) == ("starting", 6, 1 << 30, {"rack": "r1"})
        assert (first.exclude, first.within) == (("n2",), "")
        second = read(Workload, (await client.post(f"{API}/workloads", json=body)).json())
        assert (second.state, "CPU" in second.waits_for) == ("queued", True), second.waits_for
        why = read(Explanation, (await client.get(f"{API}/workloads/{second.id}/why")).json())
        assert why.change is not None
        assert why.change.fields["cpus"] <= 2
        node = read(NodeView, (await client.get(f"{API}/nodes")).json()["nodes"][0])
        assert (node.cpus, node.memory_bytes, node.labels) == (8, 64 << 30, {"rack": "r1"})


async def test_a_landing_is_told_as_a_promise(tmp_path: Path) -> None:
    """By the workload, by its explanation and by its nodes, with one and the same time."""
    async with service_at(tmp_path) as (_, client):
        body = {"min_runtime_s": 3600, "user": "ada", "allocation": "a", "launch": LAUNCH}
        for name in ("w1", "w2"):
            await client.post(f"{API}/workloads", json=body | {"id": name, "gpus": 1})
        wide = read(Workload, (await client.post(f"{API}/workloads", json=body | {"id": "wide", "gpus": 2})).json())
        assert (wide.state, wide.start_by_s is not None) == ("queued", True)
        assert wide.start_by_s is not None
        assert START / 1000 + 3600 <= wide.start_by_s <= START / 1000 + 8 * 3600 + 20
        node = read(NodeView, (await client.get(f"{API}/nodes")).json()["nodes"][0])
        assert [(one.workload, one.gpus, one.start_by_s) for one in node.landings] == [("wide", 2, wide.start_by_s)]
        why = read(Explanation, (await client.get(f"{API}/workloads/wide/why")).json())
        assert why.start is not None
        assert (why.start.kind, why.start.at_s) == ("start_by", wide.start_by_s)
        narrow = read(Workload, (await client.post(f"{API}/workloads", json=body | {"id": "one", "gpus": 1})).json())
        assert (narrow.state, narrow.start_by_s) == ("queued", None)


@pytest.mark.parametrize(("as_owner", "reason"), [(True, "cancelled before it held any GPUs"), (False, "cancelled by an operator")])
async def test_whoever_ended_it_is_named(tmp_path: Path, as_owner: bool, reason: str) -> None:
    """Its owner would look for his own mistake."""
    async with service_at(tmp_path) as (it, client):
        body = {"min_runtime_s": 60, "gpus": 2, "launch": LAUNCH, "allocation": "a", "user": "ada"}
        for name in ("w1", "w2"):
            await client.post(f"{API}/workloads", json=body | {"id": name})
        headers = bearer(it.secrets.user_token("ada")) if as_owner else None
        ended = read(Workload, (await client.delete(f"{API}/workloads/w2", headers=headers)).json())
        assert (ended.state, ended.reason) == ("ended", reason)


async def test_what_runs_may_be_protected_longer_while_nobody_comes_first(tmp_path: Path) -> None:
    """Only by its owner; refused with who comes first."""
    async with service_at(tmp_path) as (it, client):
        body = {"min_runtime_s": 60, "gpus": 2, "launch": LAUNCH, "allocation": "a"}
        await client.post(f"{API}/workloads", json=body | {"id": "w1", "user": "ada"})
        extend, bo = f"{API}/workloads/w1/extend", bearer(it.secrets.user_token("bo"))
        assert (await client.post(extend, json={"min_runtime_s": 3600}, headers=bo)).status_code == 403
        longer = read(Workload, (await client.post(extend, json={"min_runtime_s": 3600})).json())
        assert longer.protected_until_s == START / 1000 + 3600
        for bad in ({}, {"min_runtime_s": 0}, {"min_runtime_s": "1h"}, {"min_runtime_s": 60, "force": True}):
            assert (await client.post(extend, json=bad)).status_code == 422, bad
        assert (await client.post(extend, json={"min_runtime_s": 86_400})).json()["error"] == "MinRuntimeTooLong"
        await client.post(f"{API}/workloads", json=body | {"id": "w2", "user": "bo", "allocation": "b", "gpus": 1})
        answer = await client.post(extend, json={"min_runtime_s": 7200})
        assert (answer.status_code, answer.json()["error"]) == (409, "ExtensionRefused")
        assert "comes first" in answer.json()["detail"]
        waits = await client.post(f"{API}/workloads/w2/extend", json={"min_runtime_s": 60})
        assert (waits.status_code, waits.json()["error"]) == (409, "WrongPhase")


async def test_a_node_is_drained_by_operators(tmp_path: Path) -> None:
    """With or without a deadline; only force cuts what is protected beyond it, and that is shown before it happens."""
    async with service_at(tmp_path) as (it, client):
        body = {"id": "w1", "min_runtime_s": 3600, "gpus": 1, "launch": LAUNCH, "user": "ada"}
        await client.post(f"{API}/workloads", json=body)
        drain = f"{API}/nodes/n1/drain"
        assert (await client.post(drain, headers=bearer(it.secrets.user_token("ada")))).status_code == 403
        seen = read(NodeView, (await client.post(drain, json={"within_s": 60})).json())
        assert (seen.state, seen.drain) == ("cordoned", DrainView(START / 1000 + 60, False))
        assert [(one.workload, one.until_s) for one in seen.protected] == [("w1", START / 1000 + 3600)]
        assert seen.empty_by_s == START / 1000 + 3600 + 10
        for bad in ({"within_s": -1}, {"within_s": "1h"}, {"force": 1}, {"deadline": 5}):
            assert (await client.post(drain, json=bad)).status_code == 422, bad
        assert (await client.post(drain, json={"force": True})).json()["error"] == "InvalidSpec"
        assert (await client.post(f"{API}/nodes/n9/drain")).json()["error"] == "UnknownNode"
        forced = read(NodeView, (await client.post(drain, json={"within_s": 0, "force": True})).json())
        assert forced.drain == DrainView(START / 1000, True)
        assert read(Workload, (await client.get(f"{API}/workloads/w1")).json()).state in ("checkpointing", "stopping")
        records = (await client.get(f"{API}/timeline")).json()["records"]
        assert [one["reason"] for one in records if one["kind"] == "BeginCheckpoint"] == ["forced"]
        back = read(NodeView, (await client.post(f"{API}/nodes/n1/uncordon")).json())
        assert (back.state, back.drain, back.empty_by_s) == ("ready", None, None)


async def test_a_part_of_the_timeline_is_read(tmp_path: Path) -> None:
    """Only what is asked for, page by page, from a time on: a reader of the last day need not read a year."""
    async with service_at(tmp_path) as (it, client):
        for name in ("w1", "w2"):
            await client.post(f"{API}/workloads", json={"id": name, "gpus": 1, "user": "ada", "launch": LAUNCH})
        await it.runtime._clock.advance(Millis(5000))  # type: ignore[attr-defined]  # the rig's is a virtual one
        await client.post(f"{API}/workloads", json={"id": "w3", "gpus": 1, "user": "ada", "launch": LAUNCH})

        async def page(**which: object) -> dict[str, Any]:
            answer = await client.get(f"{API}/timeline", params={key: str(value) for key, value in which.items()})
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found

        everything = await page()
        assert (everything["last"], everything["more"]) == (it.journal.seq, False)
        submitted = await page(kinds="Submitted,End")
        assert [one["workload"] for one in submitted["records"]] == ["w1", "w2", "w3"]
        late = await page(kinds="Submitted", since_s=START / 1000 + 1)
        assert [one["workload"] for one in late["records"]] == ["w3"]
        assert (await page(since_s=START / 1000 + 60))["records"] == []
        found, last, more = [], 0, True
        while more:
            part = await page(after=last, limit=2)
            found += part["records"]
            last, more = part["last"], part["more"]
        assert found == everything["records"]
        for wrong in ({"since_s": "-1"}, {"since_s": "nan"}, {"limit": "0"}, {"kinds": "x" * 2001}):
            assert (await client.get(f"{API}/timeline", params=wrong)).status_code == 422


async def test_maintenance_is_planned_by_operators_and_known_to_all(tmp_path: Path) -> None:
    """What is done by then starts, what is not waits; it is cordoned when the time has come."""
    async with service_at(tmp_path) as (it, client):
        ada = bearer(it.secrets.user_token("ada"))
        route, at_s = f"{API}/maintenance", START / 1000 + 1800
        plan = {"nodes": ["n1"], "at_s": at_s, "id": "disks"}
        assert (await client.post(route, json=plan, headers=ada)).status_code == 403
        assert (await client.post(route, json=plan)).json() == {"plans": [plan]}
        assert (await client.get(route, headers=ada)).json() == {"plans": [plan]}
        assert (await client.post(route, json=plan)).json()["error"] == "InvalidSpec"
        past = await client.post(route, json=plan | {"id": "p2", "at_s": START / 1000 - 1})
        assert (past.status_code, past.json()["error"]) == (400, "BadRequest")
        wrong: tuple[dict[str, Any], ...] = (
            {"nodes": []}, {"nodes": ["../x"]}, {"at_s": "08:00"}, {"id": "a/b"}, {"force": True},
        )  # fmt: skip
        for bad in wrong:
            assert (await client.post(route, json=plan | {"id": "p2"} | bad)).status_code == 422, bad
        assert (await client.post(route, json=plan | {"id": "p2", "nodes": ["n9"]})).json()["error"] == "UnknownNode"
        body = {"gpus": 1, "user": "ada", "allocation": "a", "launch": LAUNCH}
        long = read(Workload, (await client.post(f"{API}/workloads", json=body | {"min_runtime_s": 3600})).json())
        short = read(Workload, (await client.post(f"{API}/workloads", json=body | {"min_runtime_s": 900})).json())
        assert (long.state, short.state) == ("queued", "starting")
        node = read(NodeView, (await client.get(f"{API}/nodes")).json()["nodes"][0])
        assert (node.state, node.closes_at_s, node.free_gpus, node.guest_gpus) == ("ready", at_s, 0, 1)
        assert (await client.delete(f"{route}/disks", headers=ada)).status_code == 403
        assert (await client.delete(f"{route}/disk")).status_code == 404
        assert (await client.delete(f"{route}/disks")).json() == {"plans": []}
        assert read(Workload, (await client.get(f"{API}/workloads/{long.id}")).json()).state == "starting"


async def test_bad_ids_in_paths(tmp_path: Path) -> None:
    """A name from a path becomes a folder: it must be one."""
    async with service_at(tmp_path) as (_, client):
        for name in ("..%2F..%2Fetc", "%2e%2e", ".x", "a%00b", "x" * 200):
            for path in ("", "/why", "/outputs", "/checkpoints", "/connection"):
                answer = await client.get(f"{API}/workloads/{name}{path}")
                assert answer.status_code in (404, 422), (name, path, answer.text)
        assert (await client.get(f"{API}/workloads/unknown")).json()["error"] == "UnknownWorkload"
        assert (await client.post(f"{API}/nodes/unknown/cordon")).json()["error"] == "UnknownNode"


async def test_foreign_names_and_pages_stay_out(tmp_path: Path) -> None:
    """DNS rebinding: a page of somebody else's, resolved to loopback, cannot even ask. And no CORS header ever."""
    async with service_at(tmp_path) as (_, client):
        for host in ("evil.example", "127.0.0.1.evil.example:80", "", "localhost.evil.example"):
            assert (await client.get("/healthz", headers={"Host": host})).status_code == 421
        for host in ("localhost", "127.0.0.1:8888", "[::1]:8888", "LOCALHOST:1"):
            assert (await client.get("/healthz", headers={"Host": host})).status_code == 200
        answer = await client.options(
            f"{API}/workloads", headers={"Origin": "http://x.example", "Access-Control-Request-Method": "POST"}
        )
        assert answer.status_code == 405
        answer = await client.get(f"{API}/status", headers={"Origin": "http://x.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert answer.headers["cache-control"] == "no-store"


async def test_answers_are_what_the_client_reads(tmp_path: Path) -> None:
    """The client's own readers take every answer; figures are in the units that their names say."""
    async with service_at(tmp_path) as (_, client):
        for name, allocation in (("w1", "a"), ("w2", "a"), ("w3", "b")):
            body = {
                "id": name,
                "gpus": 1,
                "min_runtime_s": 60,
                "user": "ada",
                "allocation": allocation,
                "launch": LAUNCH,
            }
            created = read(Workload, (await client.post(f"{API}/workloads", json=body)).json())
            assert (created.id, created.min_runtime_s, created.gpus) == (name, 60.0, 1)
        queue = read(Queue, (await client.get(f"{API}/queue")).json())
        assert [(w.id, w.position) for w in queue.workloads] == [("w3", 1)] or queue.workloads[0].position == 1
        assert queue.workloads[0].waits_for.startswith(
            "waiting for 1 GPU: 0 of 2 GPUs are free, the first protection ends"
        )
        status = read(Status, (await client.get(f"{API}/status")).json())
        assert (status.mode, status.gpus.total, status.gpus.free, status.counts) == (
            "embedded",
            2,
            0,
            {"starting": 2, "queued": 1},
        )
        budgets = read(Budgets, (await client.get(f"{API}/budgets")).json())
        assert budgets.capacity_gpu_s == 2 * budgets.window_s == 2 * 7 * 86_400
        assert [(one.path, one.entitlement, one.budget_gpu_s) for one in budgets.allocations] == [
            ("a", 0.5, 7 * 86_400),
            ("b", 0.5, 7 * 86_400),
        ]
        waiting = queue.workloads[0].id
        why = read(Explanation, (await client.get(f"{API}/workloads/{waiting}/why")).json())
        assert why.position == 1
        assert why.queued == 1
        assert {holder.workload for holder in why.holders} == {"w1", "w2", "w3"} - {waiting}
        holders = (await client.get(f"{API}/workloads?holding=true&fields=id,gpus,nothing")).json()["workloads"]
        assert holders == [{"id": name, "gpus": 1} for name in ("w1", "w2", "w3") if name != waiting]
        brief = (await client.get(f"{API}/queue?fields=id,position")).json()["workloads"]
        assert brief == [{"id": waiting, "position": 1}]
        node = read(NodeView, (await client.post(f"{API}/nodes/n1/cordon")).json())
        assert (node.state, node.gpus, node.free_gpus, len(node.workloads)) == ("cordoned", 2, 0, 2)
        books = (await client.get(f"{API}/conservation")).json()
        assert books["error_gpu_ms"] == 0
        ended = read(Workload, (await client.delete(f"{API}/workloads/{waiting}")).json())
        assert (ended.state, ended.outcome) == ("ended", "cancelled")
        assert (await client.delete(f"{API}/workloads/{waiting}")).status_code == 200
        assert (await client.get(f"{API}/workloads?state=ended")).json()["workloads"][0]["id"] == waiting
        assert (await client.get(f"{API}/workloads?state=nonsense")).status_code == 400
        openapi = (await client.get(f"{API}/openapi.json")).json()
        assert f"{API}/workloads/{{workload}}/park" in openapi["paths"]


async def test_a_metric_can_be_worked_out_from_its_parts(tmp_path: Path) -> None:
    """What is shown is what is compared: by the scheduler, in the budgets and in every explanation."""
    async with service_at(tmp_path) as (it, client):
        for name, user, allocation, gpus in (("w1", "ada", "a", 1), ("w2", "bo", "b", 2)):
            body = {"id": name, "gpus": gpus, "min_runtime_s": 3600, "user": user, "allocation": allocation}
            assert (await client.post(f"{API}/workloads", json=body | {"launch": LAUNCH})).status_code == 201
        clock = it.runtime._clock
        assert isinstance(clock, VirtualClock)
        await clock.advance(Millis(1800 * SECOND))
        await it.runtime.do(lambda turn: turn.handle(ev.TimePassed(turn.now, turn.cause())))
        seen = read(Budgets, (await client.get(f"{API}/budgets")).json())
        a, b = seen.allocations
        assert (a.occupancy_gpu_s, a.commitment_gpu_s, a.gpus_held, a.gpus_wanted) == (1800, 1800, 1, 1)
        assert (b.occupancy_gpu_s, b.gpus_queued, b.gpus_wanted) == (0, 2, 2)
        # Each was owed at most its half of the two GPUs, and at most what it asked for.
        assert (a.owed_gpu_s, b.owed_gpu_s) == (1800, 1800)
        part = seen.banking
        newcomer = POLICY.newcomer / 1000
        for one in (a, b):
            due = 0.5 * part * 2 * 1800 + (1 - part) * one.owed_gpu_s + 0.5 * 2 * newcomer
            assert one.due_gpu_s == pytest.approx(due, abs=0.001)
            assert one.metric == pytest.approx((one.occupancy_gpu_s + one.commitment_gpu_s) / due, rel=1e-6)
        shares = await it.runtime.read(lambda state: state.facts.shares(DEFAULT_POOL))
        assert a.metric == pytest.approx(shares.metric(AllocationPath("a")), rel=1e-9)
        why = read(Explanation, (await client.get(f"{API}/workloads/w2/why")).json())
        assert why.other is not None
        assert why.other.owed_gpu_s == a.owed_gpu_s
        assert why.other.due_gpu_s == pytest.approx(a.due_gpu_s)
        standing = read(AllocationExplanation, (await client.get(f"{API}/budgets/why?allocation=a")).json())
        level = standing.pools[0].levels[0]
        assert [side.allocation for side in level.siblings] == ["b", "a"]
        assert (level.parent, level.path, level.place) == ("", "a", 2)
        assert level.siblings[1].metric == pytest.approx(a.metric)
        absent = await client.get(f"{API}/budgets/why?allocation=c")
        assert (absent.status_code, absent.json()["error"]) == (404, "NotFound")


async def test_budgets_are_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    """TOML and JSON; a refusal has the line; a tree that drops a live allocation is refused."""
    async with service_at(tmp_path) as (it, client):
        body = {"id": "w1", "gpus": 1, "min_runtime_s": 60, "user": "bo", "launch": LAUNCH}
        assert (await client.post(f"{API}/workloads", json=body)).json()["allocation"] == "b"
        before = (await client.get(f"{API}/budgets")).json()
        bad = "[[allocation]]\npath = 'x'\nmembers = ['adda']\n"
        answer = await client.put(f"{API}/budgets", content=bad, headers={"Content-Type": "application/toml"})
        assert answer.status_code == 422
        assert answer.json()["line"] == 3
        assert "did you mean 'ada'" in answer.json()["detail"]
        answer = await client.put(f"{API}/budgets", content="[[allocation]]\npath = 'x'\n")
        assert "workload 'w1' still lives in it" in answer.json()["detail"]
        assert (await client.get(f"{API}/budgets")).json() == before
        good = {"allocation": [{"path": "b", "share": 3}, {"path": "c/d", "share": "1"}]}
        answer = await client.put(f"{API}/budgets", json=good)
        assert answer.status_code == 200, answer.text
        assert [(one["path"], one["entitlement"]) for one in answer.json()["allocations"]] == [
            ("b", 0.75),
            ("c", 0.25),
            ("c/d", 0.25),
        ]
        assert await it.journal.meta("budgets-file") is not None


async def test_no_secret_is_ever_journalled_or_told(tmp_path: Path) -> None:
    """Keys and tokens are derived, so the database and the timeline have none; a launch's variables are not told."""
    async with service_at(tmp_path) as (it, client):
        launch = LAUNCH | {"env": {"PATH": "/bin", "HF_HOME": "/private/place"}}
        body = {"id": "w1", "gpus": 1, "min_runtime_s": 60, "user": "ada", "launch": launch}
        await client.post(f"{API}/workloads", json=body)
        connection = (await client.get(f"{API}/workloads/w1/connection")).json()
        assert connection["key"] == it.secrets.kernel_key("w1")
        timeline = (await client.get(f"{API}/timeline")).text
        assert "/private/place" not in timeline
        assert "connection_file" not in timeline
        start = next(one for one in json.loads(timeline)["records"] if one["kind"] == "Start")
        assert (start["type"], start["workload"], start["checkpoint"]) == ("action", "w1", None)
        assert start["held"]["leases"] == [{"type": "Lease", "node": "n1", "gpus": 1}]
        stored = await asyncio.to_thread(
            lambda: b"".join(path.read_bytes() for path in tmp_path.glob("journal.sqlite*"))
        )
        for secret in (
            it.secrets.kernel_key("w1"),
            it.secrets.checkpoint_key("ada"),
            it.secrets.operator_token(),
            it.secrets.user_token("ada"),
            it.secrets.agent_token("n1"),
        ):
            assert secret.encode() not in stored
        assert (await it.runtime.view(WorkloadId("w1")))["state"] == "starting"


async def test_a_full_disk_is_a_503_and_reading_goes_on(tmp_path: Path) -> None:
    """Nothing is acknowledged that is not durable; once there is room everything works again."""
    async with service_at(tmp_path) as (it, client):
        body = {"gpus": 1, "min_runtime_s": 60, "user": "ada", "launch": LAUNCH}
        with it.journal._store._engine.begin() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        for number in range(200):
            answer = await client.post(f"{API}/workloads", json=body | {"id": f"w{number}"})
            if answer.status_code != 201:
                break
        assert (answer.status_code, answer.json()["error"]) == (503, "StoreUnavailable")
        assert "nothing was changed" in answer.json()["detail"]
        assert len((await client.get(f"{API}/workloads")).json()["workloads"]) == number
        assert (await client.get(f"{API}/workloads/w{number}")).status_code == 404
        assert (await client.get(f"{API}/conservation")).json()["error_gpu_ms"] == 0
        with it.journal._store._engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        assert (await client.post(f"{API}/workloads", json=body | {"id": f"w{number}"})).status_code == 201
