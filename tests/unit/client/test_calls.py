"""Both clients send the same requests, repeat what may be repeated, and tell failures apart."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.client import (
    AsyncClient,
    BadAnswer,
    Client,
    Endpoint,
    NotFound,
    Patience,
    Refused,
    ServiceError,
    Unauthorized,
    Unavailable,
)
from gpufair.client.endpoint import discover
from gpufair.client.reading import read
from gpufair.client.types import LIVE_STATES, CheckpointView, LeaseView, Workload
from gpufair.core.model import Phase
from tests.unit.client.fake_service import FakeService, Reply, problem, workload

QUICK = Patience(timeout_s=2.0, tries=4, first_pause_s=0.01, longest_pause_s=0.02, total_s=5.0)
ID = workload()["id"]
ONE = f"/api/v1/workloads/{ID}"

Use = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, fake: FakeService) -> Use:
    """Call a method of a client by name: every test here holds for both."""

    def use(name: str, *args: Any, endpoint: Endpoint | None = None, patience: Patience = QUICK, **named: Any) -> Any:
        where = endpoint or fake.endpoint
        if request.param == "sync":
            with Client(where, patience=patience) as client:
                return getattr(client, name)(*args, **named)

        async def go() -> Any:
            async with AsyncClient(where, patience=patience) as client:
                return await getattr(client, name)(*args, **named)

        return asyncio.run(go())

    return use


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str, object, object]] = [
    ("status", (), {}, "GET /api/v1/status", None, {"version": "1", "gpus": {"total": 4, "free": 1}}),
    ("submit", ({"type": "command"},), {"id": "a", "gpus": 1}, "POST /api/v1/workloads", {"id": "a", "gpus": 1, "launch": {"type": "command"}}, workload()),
    ("workloads", ("queued", "ria"), {}, "GET /api/v1/workloads", None, {"workloads": [workload()]}),
    ("workload", (ID,), {}, f"GET {ONE}", None, workload()),
    ("stop", (ID,), {}, f"DELETE {ONE}", None, workload(state="ended")),
    ("checkpoint", (ID,), {}, f"POST {ONE}/checkpoint", {}, workload()),
    ("park", (ID,), {}, f"POST {ONE}/park", {}, workload()),
    ("resume", (ID,), {"from_checkpoint": False}, f"POST {ONE}/resume", {"from_checkpoint": False}, workload()),
    ("open_on_cpu", (ID,), {}, f"POST {ONE}/resume", {"on_cpu": True}, workload(on_cpu=True)),
    ("dismiss", (ID,), {}, f"POST {ONE}/dismiss", {}, workload()),
    ("amend", (ID,), {"gpus": 1, "nodes": None}, f"PATCH {ONE}", {"gpus": 1}, workload()),
    ("tour", (), {"user": "ada"}, "GET /api/v1/tour", None, {"about": "x", "steps": [{"kind": "own", "title": "t", "workload": ID, "lines": [{"at_s": 1.0}]}]}),
    ("extend", (ID, 3600.0), {}, f"POST {ONE}/extend", {"min_runtime_s": 3600.0}, workload()),
    ("drain", ("n/1",), {"within_s": 60.0, "force": True}, "POST /api/v1/nodes/n%2F1/drain", {"within_s": 60.0, "force": True}, {"name": "n/1", "drain": {"deadline_s": 5, "force": True}}),
    ("maintenance", (), {}, "GET /api/v1/maintenance", None, {"plans": [{"id": "p", "nodes": ["n"], "at_s": 5}]}),
    ("plan_maintenance", (["n"], 5.0), {"id": "p"}, "POST /api/v1/maintenance", {"nodes": ["n"], "at_s": 5.0, "id": "p"}, {"plans": []}),
    ("cancel_maintenance", ("p/1",), {}, "DELETE /api/v1/maintenance/p%2F1", None, {"plans": []}),
    ("announcements", (), {"every": True, "before": 9}, "GET /api/v1/announcements", None, {"announcements": [{"id": 8, "state": "over", "severity": "info", "text": "x"}], "maintenance": [{"id": "p", "at_s": 5}], "more": False}),
    ("announce", ("slow",), {"until_s": 5.0, "key": "k"}, "POST /api/v1/announcements", {"text": "slow", "severity": "info", "until_s": 5.0, "key": "k"}, {"id": 1, "state": "current", "severity": "info"}),
    ("withdraw_announcement", (3,), {}, "DELETE /api/v1/announcements/3", None, {"id": 3, "state": "withdrawn", "severity": "info"}),
    ("pools", (), {}, "GET /api/v1/pools", None, {"pools": [{"name": "h200", "gpu_types": ["H200"]}]}),
    ("cordon_pool", ("h200",), {}, "POST /api/v1/pools/h200/cordon", None, {"name": "h200"}),
    ("uncordon_pool", ("h/2",), {}, "POST /api/v1/pools/h%2F2/uncordon", None, {"name": "h/2"}),
    ("drain_pool", ("h200",), {"within_s": 60.0}, "POST /api/v1/pools/h200/drain", {"within_s": 60.0, "force": False}, {"name": "h200"}),
    ("restart", (ID,), {}, f"POST {ONE}/restart", {}, workload()),
    ("restore", (ID,), {}, f"POST {ONE}/restore", {}, workload()),
    ("ask_preflight", (ID,), {}, f"POST {ONE}/preflight", {}, workload()),
    ("preflight", (ID,), {}, f"GET {ONE}/preflight", None, {"preflight": {"at_s": 1.0, "parkable": True, "variables": []}}),
    ("log", (ID, 7), {"rank": 1}, f"GET {ONE}/log", None, {"text": "step 1\n", "after": 14, "size_bytes": 14, "ranks": [0, 1]}),
    ("interrupt", (ID,), {}, f"POST {ONE}/interrupt", {}, workload()),
    ("why", (ID,), {}, f"GET {ONE}/why", None, {"workload": ID, "sentence": "because"}),
    ("connection", (ID,), {}, f"GET {ONE}/connection", None, {"key": "k", "generation": 1, "serving": True, "connection": {"ip": "127.0.0.1"}}),
    ("outputs", (ID,), {}, f"GET {ONE}/outputs", None, {"executions": [{"msg_id": "1"}]}),
    ("checkpoints", (ID,), {}, f"GET {ONE}/checkpoints", None, {"checkpoints": [{"id": "c", "sequence": 1, "at_s": 2}]}),
    ("verify_checkpoints", (ID,), {}, f"POST {ONE}/checkpoints/verify", None, {"checkpoints": [{"id": "c", "ok": True}]}),
    ("prune_checkpoints", (ID, 3), {"keep_s": 60.0}, f"POST {ONE}/checkpoints/prune", {"keep": 3, "keep_s": 60.0}, {"removed": ["c1"]}),
    ("queue", (), {}, "GET /api/v1/queue", None, {"now_s": 1, "workloads": [workload()]}),
    ("budgets", (), {}, "GET /api/v1/budgets", None, {"window_s": 1, "capacity_gpu_s": 2, "allocations": [{"path": "a"}]}),
    ("budgets_why", ("a/b",), {}, "GET /api/v1/budgets/why", None, {"allocation": "a/b", "pools": [{"pool": "default", "levels": [{"parent": "", "path": "a", "place": 1, "siblings": [{"allocation": "a"}]}]}]}),
    ("budget_requests", (("open", "accepted"),), {}, "GET /api/v1/budgets/requests", None, {"user": "ada", "owner": True, "requests": [{"id": 1, "state": "open"}], "more": False}),
    ("budget_request", (7,), {}, "GET /api/v1/budgets/requests/7", None, {"id": 7, "state": "in_force", "wished": {"a": "2"}, "gpus": 1, "decision": {"by": "uma", "accepted": True}, "preview": {"by": "uma", "found": {"x": 1}}}),
    ("ask_budget", ({"a": "2"}, "more work"), {"until_s": 5.0, "from_s": None, "key": "k"}, "POST /api/v1/budgets/requests", {"shares": {"a": "2"}, "why": "more work", "until_s": 5.0, "key": "k"}, {"id": 1, "state": "open"}),
    ("plan_budget", ({"a": 2}, "x"), {"from_s": 5.0}, "POST /api/v1/budgets/changes", {"shares": {"a": 2}, "why": "x", "from_s": 5.0}, {"id": 1, "state": "accepted"}),
    ("decide_budget", (7, "accept", "yes"), {"gpus": 2.0}, "POST /api/v1/budgets/requests/7/accept", {"words": "yes", "gpus": 2.0}, {"id": 7, "state": "in_force"}),
    ("budget_history", (9,), {}, "GET /api/v1/budgets/history", None, {"changes": [{"number": 8, "by": "uma", "request": 7, "allocations": [{"path": "a", "change": "added", "before": {}, "after": {"share": "2", "entitlement": 0.5, "members": ["ada"]}}]}], "more": False}),
    ("apply_budgets", (b"x = 1",), {}, "PUT /api/v1/budgets", b"x = 1", {"allocations": []}),
    ("nodes", (), {}, "GET /api/v1/nodes", None, {"nodes": [{"name": "n"}]}),
    ("cordon", ("n/1",), {}, "POST /api/v1/nodes/n%2F1/cordon", None, {"name": "n/1"}),
    ("uncordon", ("n",), {}, "POST /api/v1/nodes/n/uncordon", None, {"name": "n"}),
    ("remove_node", ("n/1",), {}, "DELETE /api/v1/nodes/n%2F1", None, {"name": "n/1", "state": "lost"}),
    ("resume", (ID,), {"slice_s": 900.0}, f"POST {ONE}/resume", {"from_checkpoint": True, "slice_s": 900.0}, workload()),
    ("preview", (2,), {}, "GET /api/v1/preview", None, {"now_s": 1, "until_s": 2, "steps": [{"at_s": 1, "what": "starts", "workload": ID}], "starts": [{"workload": ID, "at_s": 1}]}),
    ("coach", (), {"gpus": 2, "profile": None, "min_runtimes_s": [60.0]}, "POST /api/v1/coach", {"gpus": 2, "min_runtimes_s": [60.0]}, {"asked": {"outlook": "now"}, "choices": [{"outlook": "estimated", "at_s": 5}], "advice": "ask for less"}),
    ("pyramid", (5.5,), {}, "GET /api/v1/pyramid", None, {"pools": [{"pool": "default", "occupancy": {"ratio": 0.5, "losses": [{"cause": "idle", "gpu_s": 1}]}, "worst": None}]}),
    ("delivered", (), {"until_s": 7.0}, "GET /api/v1/budgets/delivered", None, {"pools": [{"pool": "default", "worst": {"path": "a", "ratio": 0.9}, "allocations": [{"path": "a", "researchers": [{"user": "ada"}]}]}]}),
    ("budgets_over_time", ("a",), {"bins": 3}, "GET /api/v1/budgets/over-time", None, {"pools": [{"pool": "default", "bin_s": 3600, "allocations": [{"path": "a", "owed_gpu_s": [1, 2.5], "charged_gpu_s": []}]}]}),
    ("history", (1.5,), {"node": "n"}, "GET /api/v1/history", None, {"now_s": 9, "nodes": [{"name": "n", "gpus": 1, "stays": [{"workload": ID, "rows": [0], "protected": [[1, 2.5]], "to_s": None}]}]}),
    ("profiles", (), {}, "GET /api/v1/profiles", None, {"profiles": [{"name": "p"}]}),
    ("reload", (), {}, "POST /api/v1/reload", None, {"file": "/f.toml", "changed": ["users"], "needs_restart": []}),
    ("conservation", (), {}, "GET /api/v1/conservation", None, {"error_gpu_ms": 0}),
    ("timeline", (), {}, "GET /api/v1/timeline", None, {"records": [{"seq": 1}]}),
    ("timeline_page", (5,), {"kinds": ("End", "Start")}, "GET /api/v1/timeline", None, {"records": [], "last": 5, "more": False}),
    ("cpu_pool", (), {}, "GET /api/v1/cpu-pool", None, {"state": "stopped", "kept": True}),
    ("join_cpu_pool", ("w",), {}, "POST /api/v1/cpu-pool/join", {"workload": "w"}, {"state": "running", "address": "tls://h:1", "key": "PEM"}),
    ("snapshot", (), {}, "GET /api/v1/snapshot", None, {"seq": 1, "at_s": 5.0, "version": "0.1.0", "state": {}}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args", "named", "route", "body", "answer"), CALLS, ids=[c[0] for c in CALLS])
def test_each_call_is_the_documented_request(
    call: Use, fake: FakeService, name: str, args: Any, named: Any, route: str, body: object, answer: object
) -> None:
    """Route, body and token as docs/architecture.md has them."""
    fake.routes[route] = Reply(body=answer)
    assert call(name, *args, **named) is not None
    (asked,) = fake.calls(route)
    assert asked.token == fake.token
    if isinstance(body, bytes):
        assert (asked.body, asked.content_type) == (body, "application/toml")
    else:
        assert (asked.json if asked.body else None) == body


def test_both_clients_have_the_same_methods_and_all_are_tested() -> None:
    """A route added to one only would be found by the first user of the other."""

    def public(cls: type) -> dict[str, list[str]]:
        found = inspect.getmembers(cls, inspect.isfunction)
        return {name: list(inspect.signature(f).parameters) for name, f in found if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)
    assert set(public(Client)) - {"close", "endpoint", "send", "events", "export_checkpoint"} == {c[0] for c in CALLS}


def test_a_workload_is_read_whole() -> None:
    """Each documented field arrives with its type; what a newer service adds is left out."""
    seen = read(
        Workload,
        workload(
            leases=[{"node": "a", "gpus": 1}],
            devices=[["a", "virtual-0"]],
            protected_until_s=5,
            checkpoint={
                "id": "c",
                "sequence": 2,
                "at_s": 1.5,
                "size_bytes": 3,
                "duration_s": 1,
                "lost": [["x", "socket"]],
            },
            progress={"step": "restoring", "fraction": 0.5},
            later_invention=1,
        ),
    )
    assert seen.leases == (LeaseView("a", 1),)
    assert seen.devices == (("a", "virtual-0"),)
    assert seen.checkpoint == CheckpointView("c", 2, 1.5, 3, 1.0, (("x", "socket"),))
    assert (seen.live, seen.total_gpus, seen.label) == (True, 1, "train")
    assert set(workload()) <= set(Workload.__dataclass_fields__)
    assert {*LIVE_STATES, "ended"} == {phase.value for phase in Phase}


@pytest.mark.parametrize(
    ("data", "names"),
    [([], "object"), ({"state": "queued"}, "'id'"), (workload(gpus="1"), "gpus"), (workload(gpus=True), "gpus"),
     (workload(devices=[["a"]]), r"devices\[0\]"), (workload(lost="abc"), "lost"), (workload(checkpoint=[]), "checkpoint")],
)  # fmt: skip
def test_nonsense_names_the_field(data: object, names: str) -> None:
    """So that a mismatch of versions is found at once."""
    with pytest.raises(BadAnswer, match=names):
        read(Workload, data)


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (problem(404, "UnknownWorkload", "there is no workload"), NotFound, "there is no workload"),
        (problem(422, "MinRuntimeTooLong", "ask for at most 8 h"), Refused, "ask for at most 8 h"),
        (problem(403, "Forbidden", "not yours"), Unauthorized, "not yours"),
        (problem(500, "Inconsistent", "a bug"), ServiceError, "a bug"),
        (Reply(400, b"plain words"), Refused, "HTTP 400: plain words"),
        (Reply(422, {"detail": [{"loc": ["body"]}]}), Refused, "HTTP 422: .*loc"),
        (Reply(200, b"<html>"), BadAnswer, "not answered in JSON"),
        (Reply(302, None, {"Location": "http://evil"}), BadAnswer, "HTTP 302"),
        (problem(503, "Starting", "not yet"), Unavailable, "not yet; try again"),
    ],
)
def test_each_failure_has_its_class(
    call: Use, fake: FakeService, reply: Reply, kind: type[Exception], text: str
) -> None:
    """A caller handles classes; a user reads the service's own sentence."""
    fake.routes["GET /api/v1/status"] = reply
    with pytest.raises(kind, match=text) as caught:
        call("status")
    assert type(caught.value) is kind


def test_an_error_keeps_its_facts(call: Use, fake: FakeService) -> None:
    """The line of a wrong budgets file, say."""
    fake.routes["PUT /api/v1/budgets"] = problem(422, "BudgetError", "line 3: no", line=3)
    with pytest.raises(Refused) as caught:
        call("apply_budgets", b"")
    assert (caught.value.status, caught.value.error, caught.value.body["line"]) == (422, "BudgetError", 3)


def test_what_may_be_repeated_is(call: Use, fake: FakeService) -> None:
    """A look, and a submission with an id, survive a hang-up and a busy service."""
    ok = Reply(201, workload())
    for route, use in ((f"GET {ONE}", ("workload", ID)), ("POST /api/v1/workloads", ("submit", {}))):
        fake.routes[route] = [Reply(drop=True), Reply(503, None, {"Retry-After": "0.05"}), ok]
        named = {"id": ID} if use[0] == "submit" else {}
        assert call(*use, **named).id == ID
        assert len(fake.calls(route)) == 3


def test_what_may_not_be_repeated_is_not(call: Use, fake: FakeService) -> None:
    """A submission without an id might be there twice; the error says that it is not known."""
    for reply, text in ((Reply(drop=True), "whether it was done is not known"), (Reply(503), "cannot serve now")):
        for route, use in (("POST /api/v1/workloads", ("submit", {})), (f"POST {ONE}/restart", ("restart", ID))):
            fake.asked.clear()
            fake.routes[route] = reply
            with pytest.raises(Unavailable, match=text):
                call(*use)
            assert len(fake.calls(route)) == 1


def test_tries_are_bounded(call: Use, fake: FakeService) -> None:
    """A service that keeps failing is given up."""
    fake.routes["GET /api/v1/status"] = Reply(drop=True)
    with pytest.raises(Unavailable, match="broke"):
        call("status")
    assert len(fake.calls("GET /api/v1/status")) == QUICK.tries


def test_no_answer_is_waited_for_only_so_long(call: Use, fake: FakeService) -> None:
    """A hung service must not hang its callers."""
    stuck = threading.Event()

    def hang(_: object) -> Reply:
        stuck.wait(5)
        return Reply()

    fake.routes["GET /api/v1/status"] = hang
    with pytest.raises(Unavailable, match=r"did not answer within 0.1 s"):
        call("status", patience=Patience(timeout_s=0.1, tries=2, first_pause_s=0.01))
    stuck.set()


def test_nobody_there_says_what_to_do(call: Use) -> None:
    """Connection refused; even a submission without id was tried again, as nothing had been sent."""
    with pytest.raises(Unavailable, match=r"nothing answers at .*gpufair serve"):
        call("submit", {}, endpoint=Endpoint("http://127.0.0.1:9"))


def test_a_proxy_is_not_asked_for_loopback(call: Use, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """A company's http_proxy knows nothing of this machine, and should see no token."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    fake.routes["GET /api/v1/status"] = Reply(body={"version": "1"})
    assert call("status").version == "1"


def test_a_restarted_service_is_found_on_its_new_port(tmp_path: Path) -> None:
    """It has another port and another token; a client that lives on must follow."""
    first, second = FakeService(), FakeService()
    second.token = "another"
    second.routes["GET /api/v1/status"] = Reply(body={"version": "2"})
    try:
        first.routes["GET /api/v1/status"] = Reply(body={"version": "1"})
        first.announce(tmp_path)
        with Client(state_dir=tmp_path, patience=QUICK) as client:
            assert client.status().version == "1"
            first.stop()
            second.announce(tmp_path)
            assert client.status().version == "2"
            assert client.endpoint().url == second.url
    finally:
        second.stop()


def test_of_several_services_the_one_that_leads_is_found(call: Use, fake: FakeService) -> None:
    """One is away, one stands by; what is not repeatable is asked again all the same, for nothing was done there."""
    standing_by = FakeService()
    try:
        refusal = problem(503, "StandingBy", "another service leads")
        refusal.headers.update({"Gpufair-Standby": "1", "Retry-After": "1"})
        standing_by.routes["POST /api/v1/workloads"] = refusal
        fake.routes["POST /api/v1/workloads"] = Reply(201, workload())
        away = "http://127.0.0.1:9"
        several = discover(url=f"{away}, {standing_by.url},{fake.url}", token=fake.token)
        assert several == Endpoint(away, fake.token, others=(standing_by.url, fake.url))
        assert call("submit", {}, endpoint=several).id == ID
        assert len(fake.calls("POST /api/v1/workloads")) == 1
        # Nobody leads: asked as long as patience lasts, and no longer.
        fake.routes["POST /api/v1/workloads"] = refusal
        with pytest.raises(Unavailable, match="another service leads"):
            call("submit", {}, endpoint=several, patience=Patience(total_s=1.0))
    finally:
        standing_by.stop()


def test_nothing_leaks_into_an_address() -> None:
    """Addresses are logged, so tokens travel in a header."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"version": "1"})

    with Client(url="https://far.example", token="sesame", transport=httpx.MockTransport(answer)) as client:
        client.status()
    assert "sesame" not in str(seen[0].url)
    assert seen[0].headers["Authorization"] == "Bearer sesame"
