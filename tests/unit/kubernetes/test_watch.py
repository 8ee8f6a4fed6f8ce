"""A reflector on streams that break in every place: halves, garbage, lies, silence. (Whole servers: integration tests.)"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpufair.service.backends.kubernetes.api import Pause
from gpufair.service.backends.kubernetes.watch import Change, Reflector
from tests.unit.kubernetes.raw_server import (
    Answer,
    RawServer,
    api_of,
    hang_up,
    raw_server,
    says,
    silence,
    status,
    streams,
)

PODS = "/api/v1/namespaces/a/pods"


def pod(name: str, version: int, uid: str | None = None, **labels: str) -> dict[str, Any]:
    about = {
        "name": name,
        "namespace": "a",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
        "labels": labels,
    }
    return {"kind": "Pod", "apiVersion": "v1", "metadata": about | {"managedFields": [{"manager": "x"}]}}


def listed(version: int, *items: dict[str, Any], token: str = "") -> Answer:
    bare = [{key: value for key, value in item.items() if key not in {"kind", "apiVersion"}} for item in items]
    about = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return says({"kind": "PodList", "apiVersion": "v1", "metadata": about, "items": bare})


def line(kind: str, item: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


class Followed:
    """A running reflector, and what it told."""

    def __init__(self, reflector: Reflector, changes: list[Change], server: RawServer) -> None:
        self.reflector, self.changes, self.server = reflector, changes, server

    @property
    def told(self) -> list[str]:
        return [
            f"{one.kind} {one.object['metadata']['name']} {one.object['metadata']['resourceVersion']}"
            + ("" if one.told else " unseen")
            for one in self.changes
        ]

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():  # the server has no event for it
                await asyncio.sleep(0.005)

    def lists(self) -> int:
        return sum("watch" not in request.query for request in self.server.requests)


@asynccontextmanager
async def followed(folder: Path, *answers: Answer, **options: Any) -> AsyncIterator[Followed]:
    changes: list[Change] = []
    async with raw_server(*answers) as server, api_of(server, folder) as api:
        options = {"changed": changes.append, "pause": Pause(0.01, 0.05), **options}
        reflector = Reflector(api, PODS, **options)
        task = asyncio.create_task(reflector.run())
        try:
            yield Followed(reflector, changes, server)
        finally:
            began = time.monotonic()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert time.monotonic() - began < 3, "it did not end in time"


STAYS = streams(ends="never")


async def test_a_list_and_what_comes_after_it(tmp_path: Path) -> None:
    """The usual case: everything once, in order, and the stream begins where the list ended."""
    events = [line("ADDED", pod("q", 11)), line("MODIFIED", pod("p", 12, mark="new")), line("DELETED", pod("q", 13))]
    async with followed(
        tmp_path, listed(10, pod("p", 3)), streams(*events, ends="never"), labels="x=y", fields="spec.nodeName=n"
    ) as one:
        await one.reflector.synced()
        await one.until(lambda: len(one.changes) == 4)
        assert one.told == ["added p 3", "added q 11", "modified p 12", "deleted q 13"]
        assert one.changes[2].before is one.changes[0].object
        assert [*one.reflector.objects] == [("a", "p")]
        kept = one.reflector.by_uid("uid-p")
        assert kept is not None
        assert (kept["kind"], kept["apiVersion"], kept["metadata"]["labels"]) == ("Pod", "v1", {"mark": "new"})
        assert "managedFields" not in kept["metadata"]
        assert one.reflector.by_uid("uid-q") is None
        assert one.reflector.stale_since is None
        first, watch = one.server.requests
        assert first.query == {"limit": "500", "labelSelector": "x=y", "fieldSelector": "spec.nodeName=n"}
        assert watch.query["resourceVersion"] == "10"
        assert watch.query["allowWatchBookmarks"] == "true"
        assert watch.query["labelSelector"] == "x=y"


async def test_items_of_a_list_are_told_what_they_are(tmp_path: Path) -> None:
    """A list says it once for all; whoever reads an object should not have to know where it came from."""
    async with followed(tmp_path, listed(10, pod("p", 3)), STAYS) as one:
        await one.reflector.synced()
        assert one.changes[0].object["kind"] == "Pod"
        assert one.changes[0].object["apiVersion"] == "v1"


async def test_lists_come_in_pages(tmp_path: Path) -> None:
    """10,000 pods in one answer would be 100 MB."""
    pages = [listed(10, pod("p", 3), token="next"), listed(10, pod("q", 4))]
    async with followed(tmp_path, *pages, STAYS, page=1) as one:
        await one.reflector.synced()
        assert one.told == ["added p 3", "added q 4"]
        assert [request.query.get("continue") for request in one.server.requests[:2]] == [None, "next"]


async def test_a_page_that_came_too_late_begins_the_list_anew_and_whole(tmp_path: Path) -> None:
    """Else a server that forgets quickly would never be listed."""
    answers = [
        listed(10, pod("p", 3), token="next"),
        says(status(410, "The provided continue parameter is too old", "Expired"), 410),
        listed(20, pod("p", 3), pod("q", 15)),
        STAYS,
    ]
    async with followed(tmp_path, *answers, page=1) as one:
        await one.reflector.synced()
        assert one.told == ["added p 3", "added q 15"]
        assert [request.query.get("limit") for request in one.server.requests[:3]] == ["1", "1", None]


@pytest.mark.parametrize("how", ["in order", "cut"])
async def test_a_stream_that_ends_goes_on_where_it_ended(tmp_path: Path, how: str) -> None:
    """In order after a while, or cut: nothing is lost and no list is needed."""
    answers = [
        listed(10),
        streams(line("ADDED", pod("p", 11)), ends=how),
        streams(line("ADDED", pod("q", 12)), ends="never"),
    ]
    async with followed(tmp_path, *answers) as one:
        await one.until(lambda: len(one.changes) == 2)
        assert one.told == ["added p 11", "added q 12"]
        assert [request.query["resourceVersion"] for request in one.server.requests[1:]] == ["10", "11"]
        assert one.lists() == 1


async def test_bookmarks_move_on_where_nothing_happens(tmp_path: Path) -> None:
    """A quiet namespace would else fall out of the server's memory."""
    mark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "99"}}
    async with followed(tmp_path, listed(10), streams(line("BOOKMARK", mark)), STAYS) as one:
        await one.until(lambda: len(one.server.requests) == 3)
        assert one.server.requests[2].query["resourceVersion"] == "99"
        assert one.changes == []


@pytest.mark.parametrize(
    "refusal",
    [
        says(status(410, "too old resource version", "Expired"), 410),
        streams(line("ERROR", status(410, "too old resource version: 10 (20)", "Expired"))),
        streams(line("ERROR", status(410, "too old resource version: 10 (20)", "Gone"))),
        streams(line("ERROR", status(504, "Timeout: Too large resource version: 10, current: 5", "Timeout"))),
    ],
)
async def test_a_version_that_the_server_does_not_know_means_a_new_list(tmp_path: Path, refusal: Answer) -> None:
    """What vanished meanwhile is told as deleted, though nobody saw how it ended; what stayed is not told again."""
    answers = [
        listed(10, pod("p", 3), pod("q", 4), pod("r", 5)),
        refusal,
        listed(30, pod("p", 3), pod("r", 21), pod("s", 22)),
        STAYS,
    ]
    async with followed(tmp_path, *answers) as one:
        await one.until(lambda: len(one.changes) == 6)
        assert one.told[3:] == ["deleted q 4 unseen", "modified r 21", "added s 22"]


async def test_an_object_made_anew_is_another_object(tmp_path: Path) -> None:
    """Same name, other uid: the first one is gone, whether the stream or a list shows it."""
    again = [line("ADDED", pod("p", 11, "second"))]
    gone = says(status(410, "too old", "Expired"), 410)
    async with followed(
        tmp_path, listed(10, pod("p", 3, "first")), streams(*again), gone, listed(20, pod("p", 15, "third")), STAYS
    ) as one:
        await one.until(lambda: len(one.changes) == 5)
        assert one.told == ["added p 3", "deleted p 3 unseen", "added p 11", "deleted p 11 unseen", "added p 15"]
        assert one.reflector.by_uid("third") is one.changes[4].object
        assert one.reflector.by_uid("first") is None


async def test_what_is_said_twice_is_heard_once(tmp_path: Path) -> None:
    """After a reconnect to another server, say. An old event must not bring a deleted object back."""
    events = [
        line("ADDED", pod("p", 11)),
        line("DELETED", pod("p", 12)),
        line("ADDED", pod("p", 11)),
        line("ADDED", pod("q", 13)),
    ]
    async with followed(tmp_path, listed(10), streams(*events, ends="never")) as one:
        await one.until(lambda: len(one.changes) == 3)
        assert one.told == ["added p 11", "deleted p 12", "added q 13"]


HALVES = line("ADDED", pod("p", 11)) + line("ADDED", pod("q", 12))


@pytest.mark.parametrize("at", [1, 20, len(HALVES) // 2 - 1, len(HALVES) // 2, len(HALVES) - 1])
async def test_lines_may_come_in_pieces(tmp_path: Path, at: int) -> None:
    """The network knows no lines."""
    async with followed(tmp_path, listed(10), streams(HALVES[:at], 0.02, HALVES[at:], ends="never")) as one:
        await one.until(lambda: len(one.changes) == 2)
        assert one.told == ["added p 11", "added q 12"]


@pytest.mark.parametrize(
    "rubbish",
    [
        b"no JSON at all\n",
        b'"a string"\n',
        b'{"type": "ADDED"}\n',
        b'{"type": 5, "object": {}}\n',
        b'{"type": "ADDED", "object": {"metadata": {}}}\n',
        b'{"type": "ADDED", "object": {"metadata": 7}}\n',
        b'{"type": "RENAMED", "object": {"metadata": {"name": "x", "uid": "u", "resourceVersion": "12"}}}\n',
        b'{"type": "ERROR", "object": {"message": "who knows"}}\n',
        line("ADDED", pod("q", 12))[:-9],  # the stream ends within it
        b"\xff\xfe\n",
    ],
)
async def test_rubbish_ends_the_stream_and_nothing_is_lost(tmp_path: Path, rubbish: bytes) -> None:
    """What came before it counts, and the next stream begins there."""
    answers = [
        listed(10),
        streams(line("ADDED", pod("p", 11)) + rubbish),
        streams(line("ADDED", pod("q", 12)), ends="never"),
    ]
    async with followed(tmp_path, *answers) as one:
        await one.until(lambda: len(one.changes) == 2)
        assert one.told == ["added p 11", "added q 12"]
        assert one.server.requests[2].query["resourceVersion"] == "11"


@pytest.mark.parametrize(
    "bad",
    [
        says({"items": 5}),
        says({}),
        says({"metadata": {"resourceVersion": "3"}, "items": [{}]}),
        says(b"<html>"),
        hang_up,
    ],
)
async def test_a_list_that_is_none_is_asked_again(tmp_path: Path, bad: Answer) -> None:
    """Nothing of it is taken."""
    async with followed(tmp_path, bad, listed(10, pod("p", 3)), STAYS) as one:
        async with asyncio.timeout(20):
            await one.reflector.synced()
        assert one.told == ["added p 3"]


async def test_it_knows_since_when_it_is_stale_and_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is declared lost while nobody can look; and the log says it once, not once a try."""
    caplog.set_level(logging.INFO)
    now = [100.0]
    refused = says(status(403, 'User "u" cannot watch resource "pods" in API group ""', "Forbidden"), 403)
    async with followed(
        tmp_path, listed(10), refused, refused, refused, refused, streams(ends="never"), now=lambda: now[0]
    ) as one:
        assert one.reflector.stale_since == 100.0
        await one.until(lambda: len(one.server.requests) >= 3)
        assert one.reflector.stale_since == 100.0
        assert one.reflector.trouble is not None
        assert "grant the service's role 'watch' on 'pods'" in str(one.reflector.trouble)
        await one.until(lambda: one.reflector.stale_since is None)
        assert one.reflector.trouble is None
    assert caplog.text.count("could not watch pods") == 1
    assert "answers again: watch pods" in caplog.text


async def test_what_fails_at_a_change_fails_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The copy follows on."""
    seen = []

    def breaks(change: Change) -> None:
        seen.append(change)
        raise ZeroDivisionError

    async with followed(
        tmp_path, listed(10, pod("p", 3)), streams(line("ADDED", pod("q", 11)), ends="never"), changed=breaks
    ) as one:
        await one.until(lambda: len(seen) == 2)
        assert len(one.reflector.objects) == 2
    assert caplog.text.count("failed at a change") == 2


async def test_a_quiet_stream_ends_at_once_when_nobody_wants_it(tmp_path: Path) -> None:
    """A shutdown must not wait for a minute, and no thread stays behind."""
    async with followed(tmp_path, listed(10), STAYS) as one:
        await one.until(lambda: one.reflector.stale_since is None)
        began = time.monotonic()
    assert time.monotonic() - began < 0.9
    for thread in threading.enumerate():
        if thread.name == "gpufair-kube-watch":
            thread.join(2)
            assert not thread.is_alive()


async def test_a_server_that_does_not_begin_is_left(tmp_path: Path) -> None:
    """It accepts connections and says nothing: stopping does not wait for it."""
    async with followed(tmp_path, listed(10), silence) as one:
        await one.until(lambda: len(one.server.requests) == 2)


async def test_a_stream_that_ends_at_once_is_not_asked_for_in_a_hurry(tmp_path: Path) -> None:
    """A proxy that allows no streams must not get a thousand requests a second."""
    async with followed(tmp_path, listed(10), streams(), pause=Pause(0.2, 0.2)) as one:
        await one.reflector.synced()
        await asyncio.sleep(0.5)
        assert 2 <= len(one.server.requests) <= 6
        assert one.reflector.stale_since is not None
