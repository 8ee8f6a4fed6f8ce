"""The event stream tells what is, survives a restart of the service, and says when it is blind."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gpufair.client import (
    AsyncClient,
    Client,
    Disconnected,
    Endpoint,
    Event,
    Refused,
    Resync,
    Synced,
    Unauthorized,
    WorkloadEvent,
)
from gpufair.client import follow as follow_module
from gpufair.client.exchange import Source
from tests.unit.client.fake_service import FakeService, Reply, problem, workload

EVENTS = "GET /api/v1/events"
Watch = Callable[..., list[Event]]


def message(event: str, data: object, id: str = "") -> bytes:  # noqa: A002  # as the stream calls it
    named = f"id: {id}\n" if id else ""
    return f"{named}event: {event}\ndata: {json.dumps(data)}\n\n".encode()


def stream(*messages: bytes, hang_up: threading.Event | None = None) -> Reply:
    return Reply(chunks=messages, hang_up=hang_up)


def short(events: Iterable[Event]) -> list[str]:
    """One word per event, for comparing."""
    return [
        f"{e.workload.id}:{e.workload.state}"
        if isinstance(e, WorkloadEvent)
        else f"synced {','.join(sorted(e.live))}"
        if isinstance(e, Synced)
        else type(e).__name__
        for e in events
    ]


@pytest.fixture(params=["sync", "async"])
def watch(request: pytest.FixtureRequest) -> Watch:
    """The first ``count`` events; ``between`` is called with each."""

    def use(
        count: int, between: Callable[[Event], None] = lambda _: None, *, holder: bool = False, **client: Any
    ) -> list[Event]:
        seen: list[Event] = []
        if request.param == "sync":
            with Client(**client) as service:
                for event in service.events(holder=holder):
                    seen.append(event)
                    between(event)
                    if len(seen) == count:
                        return seen

        async def go() -> None:
            async with AsyncClient(**client) as service, aclosing(service.events(holder=holder)) as events:
                async for event in events:
                    seen.append(event)
                    between(event)
                    if len(seen) == count:
                        return

        asyncio.run(asyncio.wait_for(go(), 20))
        return seen

    return use


def test_a_listing_then_changes(fake: FakeService, watch: Watch) -> None:
    """``Synced`` names all that live, so whoever knew others learns that they are over."""
    fake.routes[EVENTS] = stream(
        b": hello\n\n",
        message("workload", workload("a")),
        message("workload", workload("b")) + message("workload", workload("b", state="ended")),
        message("synced", {"at_s": 1}),
        message("later", {}),
        message("workload", workload("a", state="running")),
        hang_up=fake.ending,
    )
    seen = watch(6, endpoint=fake.endpoint, holder=True)
    assert short(seen) == ["Resync", "a:queued", "b:queued", "b:ended", "synced a", "a:running"]
    (asked,) = fake.calls(EVENTS)
    assert (asked.query, asked.token) == ({"holder": ["1"]}, fake.token)


def test_a_broken_stream_is_announced_and_opened_again(fake: FakeService, watch: Watch) -> None:
    """A consumer must know that it was blind, and start from a fresh listing."""
    fake.routes[EVENTS] = [
        stream(message("workload", workload("a")), b"event: workload\ndata: {cut"),
        Reply(503),
        stream(message("synced", {})),
    ]
    seen = watch(7, endpoint=fake.endpoint)
    assert short(seen[:5]) == ["Resync", "a:queued", "Disconnected", "Disconnected", "Resync"]
    assert isinstance(seen[2], Disconnected)
    assert "closed" in seen[2].reason
    assert isinstance(seen[3], Disconnected)
    assert "cannot serve now" in seen[3].reason
    assert short(seen[5:]) == ["synced ", "Disconnected"]
    assert fake.calls(EVENTS)[0].query == {"holder": ["0"]}


def test_a_broken_stream_goes_on_where_it_broke(fake: FakeService, watch: Watch) -> None:
    """A proxy that cuts streams off costs no listing; where too much was missed, one comes."""
    fake.routes[EVENTS] = [
        stream(message("workload", workload("a")), message("synced", {}, "x-0"), message("workload", workload("b"), "x-1")),
        Reply(chunks=(message("workload", workload("a", state="running"), "x-2"),), headers={"gpufair-resumed": "1"}),
        Reply(chunks=(message("workload", workload("c")),), headers={"gpufair-resumed": "0"}),
        stream(message("synced", {})),
    ]
    assert short(watch(10, endpoint=fake.endpoint)) == [
        *("Resync", "a:queued", "synced a", "b:queued", "Disconnected"),
        *("a:running", "Disconnected"),
        *("Resync", "c:queued", "Disconnected"),
    ]
    # After the last one nothing whole is known: it asks for all.
    assert [asked.last_event_id for asked in fake.calls(EVENTS)][:3] == ["", "x-1", "x-2"]
    assert all(not asked.last_event_id for asked in fake.calls(EVENTS)[3:])


def test_the_service_may_ask_for_a_fresh_listing(fake: FakeService, watch: Watch) -> None:
    """A reader that was too slow lost changes; the stream goes on with all anew."""
    fake.routes[EVENTS] = stream(
        message("workload", workload("a")),
        message("synced", {}),
        message("resync", {}),
        message("workload", workload("b")),
        message("synced", {}),
        hang_up=fake.ending,
    )
    assert short(watch(6, endpoint=fake.endpoint)) == [
        "Resync",
        "a:queued",
        "synced a",
        "Resync",
        "b:queued",
        "synced b",
    ]


def test_a_restarted_service_is_followed(tmp_path: Path, watch: Watch) -> None:
    """Another port, another token, no help from the caller."""
    first, second = FakeService(), FakeService()
    second.token = "another"
    first.routes[EVENTS] = stream(message("workload", workload("a")), hang_up=first.ending)
    second.routes[EVENTS] = stream(message("workload", workload("a", state="running")), hang_up=second.ending)
    first.announce(tmp_path)

    def restart(event: Event) -> None:
        if isinstance(event, WorkloadEvent) and event.workload.state == "queued":
            first.stop()
        if isinstance(event, Disconnected):
            second.announce(tmp_path)

    try:
        seen = short(watch(5, restart, state_dir=tmp_path))
        assert seen[:3] == ["Resync", "a:queued", "Disconnected"]
        assert seen[-2:] == ["Resync", "a:running"]
    finally:
        second.stop()


def test_no_service_yet_is_a_break_like_any_other(tmp_path: Path, fake: FakeService, watch: Watch) -> None:
    """Jupyter may be up before the service is."""
    fake.routes[EVENTS] = stream(message("synced", {}), hang_up=fake.ending)
    seen = watch(
        3, lambda event: fake.announce(tmp_path) if isinstance(event, Disconnected) else None, state_dir=tmp_path
    )
    assert short(seen) == ["Disconnected", "Resync", "synced "]
    assert isinstance(seen[0], Disconnected)
    assert "gpufair serve" in seen[0].reason


def test_a_refused_token_is_an_error(fake: FakeService, watch: Watch) -> None:
    """Trying for ever would hide it: a fixed address keeps its token."""
    with pytest.raises(Unauthorized, match="opens nothing"):
        watch(1, endpoint=Endpoint(fake.url, "wrong"))


def test_a_refused_request_is_an_error(tmp_path: Path, fake: FakeService, watch: Watch) -> None:
    """However the service was found: a 403 or 422 stays one, and a stale token is looked up once, not for ever."""
    fake.announce(tmp_path)
    fake.routes[EVENTS] = problem(422, "InvalidRequest", "holder: no")
    with pytest.raises(Refused, match="holder: no"):
        watch(1, state_dir=tmp_path)
    assert len(fake.calls(EVENTS)) == 1
    fake.token = "changed, and service.json does not say so"
    with pytest.raises(Unauthorized):
        watch(2, state_dir=tmp_path)
    assert len(fake.calls(EVENTS)) == 3


def test_a_new_token_is_looked_up(tmp_path: Path, fake: FakeService, watch: Watch) -> None:
    """A restarted service has another one; its old one opens nothing."""
    fake.announce(tmp_path)
    fake.token = "new"
    fake.routes[EVENTS] = stream(message("synced", {}), hang_up=fake.ending)
    seen = watch(
        3, lambda event: fake.announce(tmp_path) if isinstance(event, Disconnected) else None, state_dir=tmp_path
    )
    assert short(seen) == ["Disconnected", "Resync", "synced "]


def test_nonsense_is_left_out(fake: FakeService, watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """One workload that cannot be read must not blind us for all others."""
    fake.routes[EVENTS] = stream(
        message("workload", {"id": 1}),
        b"event: workload\ndata: {\n\n",
        message("workload", workload("b")),
        hang_up=fake.ending,
    )
    assert short(watch(2, endpoint=fake.endpoint)) == ["Resync", "b:queued"]
    assert len([r for r in caplog.records if r.name == "gpufair.client.follow"]) == 2


def test_silence_is_a_break(fake: FakeService, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection can die without closing; the missing keep-alive tells."""
    monkeypatch.setattr(follow_module, "SILENCE_S", 0.2)
    fake.routes[EVENTS] = stream(message("synced", {}), hang_up=fake.ending)
    assert short(watch(3, endpoint=fake.endpoint)) == ["Resync", "synced ", "Disconnected"]


def test_pauses_grow_and_start_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that is down is not hammered; one that worked is sought quickly."""
    monkeypatch.setattr(random, "uniform", lambda low, high: 1.0)
    follower = follow_module.Follower(Source(lambda: Endpoint("http://127.0.0.1:9")))
    pauses = [follower.lost(None, None).retry_in_s for _ in range(8)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    follower.opened({})
    follower.received(message("synced", {}))
    assert follower.lost(None, None).retry_in_s == 0.1
    assert isinstance(follower.opened({})[0], Resync)
