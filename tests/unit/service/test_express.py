"""The short way answers what the long one would, and takes nothing that the long one refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.core.units import WorkloadId
from gpufair.service import api
from gpufair.service.web import express
from gpufair.service.web.context import Context
from gpufair.wire import API_VERSION, MAX_BODY_BYTES, AgentHello, NodeInventory, to_json
from tests.unit.service.rig import LAUNCH, bearer, service_at

BODY = {"gpus": 1, "min_runtime_s": 60, "launch": LAUNCH}
SUBMIT, REPORTS, COMMANDS = "/api/v1/workloads", "/api/v1/agents/n1/reports", "/api/v1/agents/n1/commands"
POD_HELLO = "/api/v1/pods/gpufair-w-1-0/hello"
POD_REPORTS, POD_COMMANDS = "/api/v1/pods/gpufair-w-1-0/reports", "/api/v1/pods/gpufair-w-1-0/commands"


@asynccontextmanager
async def two_ways(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Context, httpx.AsyncClient, httpx.AsyncClient, list[str]]]:
    """The short way to a service, the long one, and what was answered on the short one."""
    answered: list[str] = []
    plain = express._Short.answer

    async def noted(self: express._Short, *args: Any) -> tuple[int, bytes]:
        found = await plain(self, *args)
        answered.append(self.method)
        return found

    monkeypatch.setattr(express._Short, "answer", noted)
    async with service_at(folder) as (it, short):
        monkeypatch.setattr(api, "OFTEN", frozenset())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api.build_app(it)), base_url=short.base_url) as long:
            short.headers.pop("authorization")
            yield it, short, long, answered


WRONG: dict[str, tuple[str, str, dict[str, Any]]] = {
    "no JSON": ("POST", SUBMIT, {"content": b"{"}),
    "no text": ("POST", SUBMIT, {"content": b'{"name": "\xff"}'}),
    "half a character": ("POST", SUBMIT, {"content": json.dumps(BODY | {"name": "\ud800"}).encode()}),
    "nothing": ("POST", SUBMIT, {"content": b""}),
    "a list": ("POST", SUBMIT, {"json": []}),
    "an unknown field": ("POST", SUBMIT, {"json": BODY | {"gpu": 1}}),
    "another type": ("POST", SUBMIT, {"json": BODY | {"gpus": "1"}}),
    "out of range": ("POST", SUBMIT, {"json": BODY | {"gpus": -1}}),
    "no number": ("POST", SUBMIT, {"content": b'{"min_runtime_s": NaN, "launch": {"type": "kernel", "argv": ["x"]}}'}),
    "a bad id": ("POST", SUBMIT, {"json": BODY | {"id": "../x"}}),
    "deep": ("POST", SUBMIT, {"content": b"[" * 100_000}),
    "large": ("POST", SUBMIT, {"content": b" " * (MAX_BODY_BYTES + 1)}),
    "no JSON by its type": ("POST", SUBMIT, {"content": json.dumps(BODY), "headers": {"content-type": "text/plain"}}),
    "another leaf": ("POST", SUBMIT, {"json": BODY | {"allocation": "b", "user": "bo"}}),
    "an unknown one": ("POST", SUBMIT, {"json": BODY | {"allocation": "c"}}),
    "another's": ("POST", SUBMIT, {"json": BODY | {"user": "bo"}}),
    "another method": ("PUT", SUBMIT, {"json": BODY}),
    "nobody": ("POST", SUBMIT, {"json": BODY, "headers": {"authorization": "Bearer x"}}),
    "who only looks": ("POST", SUBMIT, {"json": BODY, "headers": {"authorization": "abe"}}),
    "not the agent": ("POST", REPORTS, {"json": {"boot": "b", "reports": []}}),
    "no hello": ("POST", REPORTS, {"json": {"boot": "b", "reports": []}, "headers": {"authorization": "n1"}}),
    "no report": ("POST", REPORTS, {"json": {"boot": "b", "reports": [1]}, "headers": {"authorization": "n1"}}),
    "half a report": ("POST", REPORTS, {"json": {"boot": "b", "reports": [{}]}, "headers": {"authorization": "n1"}}),
    "no boot": ("GET", COMMANDS, {"headers": {"authorization": "n1"}}),
    "a wait without end": ("GET", f"{COMMANDS}?boot=b&wait_s=inf", {"headers": {"authorization": "n1"}}),
    "no count": ("GET", f"{COMMANDS}?boot=b&after=x", {"headers": {"authorization": "n1"}}),
    "unknown boot": ("GET", f"{COMMANDS}?boot=b&after=1&unknown=2", {"headers": {"authorization": "n1"}}),
    "not the pod": ("POST", POD_REPORTS, {"json": {"boot": "b", "reports": []}, "headers": {"authorization": "n1"}}),
    "a pod that is none": ("GET", "/api/v1/pods/X/commands?boot=b", {"headers": {"authorization": "pod"}}),
    "a pod that is not expected": ("POST", POD_REPORTS, {"json": {"boot": "b", "reports": []}, "headers": {"authorization": "pod"}}),
    "half a report of a pod": ("POST", POD_REPORTS, {"json": {"boot": "b", "reports": [{}]}, "headers": {"authorization": "pod"}}),
    "a pod without a boot": ("GET", POD_COMMANDS, {"headers": {"authorization": "pod"}}),
    "no hello of a pod": ("POST", POD_HELLO, {"json": [], "headers": {"authorization": "pod"}}),
    "half a hello of a pod": ("POST", POD_HELLO, {"json": {"boot": "b"}, "headers": {"authorization": "pod"}}),
    "no JSON of a pod": ("POST", POD_HELLO, {"content": b"{", "headers": {"authorization": "pod"}}),
    "twice": ("GET", f"{COMMANDS}?boot=b&boot=c&after=1", {"headers": {"authorization": "n1"}}),
}


async def test_what_is_refused_is_refused_in_the_same_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_ways(tmp_path, monkeypatch) as (it, short, long, answered):
        known = {
            "abe": it.secrets.user_token("abe"),
            "n1": it.secrets.agent_token("n1"),
            "pod": it.secrets.pod_token("gpufair-w-1-0"),
        }
        for name, (method, path, sent) in WRONG.items():
            given = {"authorization": bearer(it.secrets.user_token("ada"))["Authorization"], **sent.get("headers", {})}
            if given["authorization"] in known:
                given["authorization"] = f"Bearer {known[given['authorization']]}"
            told = [
                await client.request(method, path, **{**sent, "headers": {"content-type": "application/json", **given}})
                for client in (short, long)
            ]
            assert told[0].status_code == told[1].status_code, name
            assert told[0].status_code >= 400, name
            assert told[0].json() == told[1].json(), name
            assert dict(told[0].headers) == dict(told[1].headers), name
        assert not answered
        assert not (await long.get(SUBMIT, headers=bearer(known["abe"]))).json()["workloads"]


async def test_what_is_as_declared_is_answered_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_ways(tmp_path, monkeypatch) as (it, short, long, answered):
        ada, agent = bearer(it.secrets.user_token("ada")), bearer(it.secrets.agent_token("n1"))
        again = [await client.post(SUBMIT, json=BODY | {"id": "w"}, headers=ada) for client in (short, short, long)]
        assert [one.status_code for one in again] == [201, 200, 200]
        assert again[1].json() == again[2].json()
        assert dict(again[1].headers) == dict(again[2].headers)
        new = [await client.post(SUBMIT, json=BODY | {"name": "é"}, headers=ada) for client in (short, long)]
        assert [one.status_code for one in new] == [201, 201]
        assert new[0].json().keys() == new[1].json().keys()
        assert new[0].json()["name"] == "é"
        # Who did it is noted on both ways.
        abe = bearer(it.secrets.user_token("abe"))
        lines = (await long.get("/api/v1/audit", headers=abe)).json()["changes"]
        assert [(line["user"], line["request"]) for line in lines[:3]] == [("ada", f"POST {SUBMIT}")] * 3
        hello = to_json(AgentHello(API_VERSION, "b", NodeInventory("n1", ("virtual-0", "virtual-1"))))
        assert (await long.post("/api/v1/agents/n1/hello", json=hello, headers=agent)).status_code == 200
        beats = [
            await client.post(REPORTS, json={"boot": "b", "reports": []}, headers=agent) for client in (short, long)
        ]
        polls = [
            await client.get(f"{COMMANDS}?boot=b&after=0&wait_s=0&other=%20", headers=agent) for client in (short, long)
        ]
        it.pods.adopt("gpufair-w-1-0", WorkloadId("w"), 1)
        pod = bearer(it.secrets.pod_token("gpufair-w-1-0"))
        runs = to_json(AgentHello(API_VERSION, "b", NodeInventory("gpufair-w-1-0"), (("w", 1),)))
        hellos = [await client.post(POD_HELLO, json=runs, headers=pod) for client in (short, long)]
        signs = [await client.post(POD_REPORTS, json={"boot": "b", "reports": []}, headers=pod) for client in (short, long)]
        looks = [await client.get(f"{POD_COMMANDS}?boot=b&after=0&wait_s=0", headers=pod) for client in (short, long)]
        for one, other in (beats, polls, hellos, signs, looks):
            assert (one.status_code, one.json(), dict(one.headers)) == (200, other.json(), dict(other.headers))
        assert answered == ["POST", "POST", "POST", "POST", "GET", "POST", "POST", "GET"]
