"""Calls of an API server: what is sent, what becomes of odd answers, and that nothing waits for a server that hangs."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest

from gpufair.service.backends.kubernetes.api import MERGE_PATCH, RETRY_S, Api, Limits
from gpufair.service.backends.kubernetes.problems import (
    Forbidden,
    KubernetesProblem,
    Throttled,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from tests.unit.kubernetes.raw_server import (
    TOKEN,
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
OK = says({"ok": True})


async def test_what_is_asked_is_what_is_sent(tmp_path: Path) -> None:
    """Method, path, query, body, kind of body, and who asks."""
    async with raw_server(OK) as server, api_of(server, tmp_path) as api:
        query = {"watch": True, "limit": 5, "continue": None, "labelSelector": "a=b,c"}
        assert await api.call("GET", PODS, query=query) == {"ok": True}
        await api.call("PATCH", f"{PODS}/p", {"metadata": {"labels": {"x": "ü"}}}, content_type=MERGE_PATCH)
    asked, patched = server.requests
    assert (asked.method, asked.path, asked.body) == ("GET", PODS, b"")
    assert asked.query == {"watch": "true", "limit": "5", "labelSelector": "a=b,c"}
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert patched.headers["content-type"] == MERGE_PATCH
    assert json.loads(patched.body) == {"metadata": {"labels": {"x": "ü"}}}


async def test_connections_are_kept(tmp_path: Path) -> None:
    """A handshake for each of 150 calls a second would cost more than the calls."""
    async with raw_server(OK) as server, api_of(server, tmp_path, Limits(threads=4)) as api:
        for _ in range(10):
            await asyncio.gather(*(api.call("GET", PODS) for _ in range(8)))
    assert len(server.requests) == 80
    assert server.connections <= 4


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"", b"[1,2]", b'{"half": ', b"\xff"])
async def test_an_answer_that_is_no_object_is_a_problem(tmp_path: Path, body: bytes) -> None:
    """Some proxies say 200 to everything."""
    async with raw_server(says(body, Content_Type="text/html")) as server, api_of(server, tmp_path) as api:
        with pytest.raises(Unavailable, match=r"no JSON object.*text/html"):
            await api.call("GET", PODS)


async def test_an_answer_has_a_size_limit(tmp_path: Path) -> None:
    """A list of everything must not fill the memory of the service."""
    limits = Limits(answer_bytes=1000)
    async with raw_server(says({"x": "y" * 2000})) as server, api_of(server, tmp_path, limits) as api:
        with pytest.raises(TooLarge, match=r"larger than 1,000 bytes.*selector"):
            await api.call("GET", PODS)


async def test_silence_is_a_problem_in_time(tmp_path: Path) -> None:
    """Before the head of an answer, and within its body."""
    async with raw_server(silence) as server, api_of(server, tmp_path) as api:
        with pytest.raises(Unavailable, match=r"in time|within") as caught:
            await api.call("POST", PODS, {}, timeout_s=0.2)
        assert caught.value.perhaps_done
    drip = streams(*(piece for _ in range(400) for piece in (b"{", 0.02)))
    async with raw_server(drip) as server, api_of(server, tmp_path) as api:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="within"):
            await api.call("GET", PODS, timeout_s=0.3)
        assert time.monotonic() - began < 5


async def test_a_broken_connection_says_whether_the_call_may_have_gone_through(tmp_path: Path) -> None:
    """What was never sent has not happened."""
    async with raw_server(hang_up) as server, api_of(server, tmp_path) as api:
        with pytest.raises(Unavailable, match="connection failed") as caught:
            await api.call("POST", PODS, {})
        assert caught.value.perhaps_done
    async with api_of(server, tmp_path) as api:  # nobody listens there any more
        with pytest.raises(Unavailable, match="connection failed") as caught:
            await api.call("POST", PODS, {})
        assert not caught.value.perhaps_done


async def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    """The token would go along."""
    elsewhere = says({}, 302, Location="http://127.0.0.1:1/")
    async with raw_server(elsewhere) as server, api_of(server, tmp_path) as api:
        with pytest.raises(Unavailable, match="sends elsewhere"):
            await api.call("GET", PODS)
        assert len(server.requests) == 1


# -- tries ----------------------------------------------------------------------------------------------------------


async def test_what_passes_by_itself_is_asked_again(tmp_path: Path) -> None:
    """Throttling, a server that restarts, a broken connection, a token being renewed."""
    passes = [
        says(status(429, "slow down", "TooManyRequests"), 429),
        says(status(503, "not ready"), 503),
        hang_up,
        says(b"<html>", 200),
        says(status(401, "Unauthorized"), 401),
    ]
    async with raw_server(*passes, OK) as server, api_of(server, tmp_path) as api:
        async with asyncio.timeout(30):
            assert await api.call("POST", PODS, {"metadata": {"name": "p"}}, retry_s=RETRY_S) == {"ok": True}
        assert len(server.requests) == 6
        assert {request.body for request in server.requests} == {b'{"metadata":{"name":"p"}}'}


async def test_what_does_not_pass_is_asked_once(tmp_path: Path) -> None:
    """Repeating it is no use, and hides what an administrator has to do."""
    refusal = says(status(403, 'User "u" cannot create resource "pods"', "Forbidden"), 403)
    async with raw_server(refusal) as server, api_of(server, tmp_path) as api:
        with pytest.raises(Forbidden):
            await api.call("POST", PODS, {}, retry_s=RETRY_S)
        assert len(server.requests) == 1


async def test_the_server_says_how_long_to_wait(tmp_path: Path) -> None:
    """Its word goes before our own backoff."""
    async with (
        raw_server(says(status(429, "slow"), 429, Retry_After="1"), OK) as server,
        api_of(server, tmp_path) as api,
    ):
        began = time.monotonic()
        await api.call("GET", PODS, retry_s=RETRY_S)
        assert time.monotonic() - began >= 1.0


async def test_at_the_deadline_the_last_problem_is_told(tmp_path: Path) -> None:
    """Also when the server wants more patience than there is."""
    async with raw_server(says(status(503, "down"), 503)) as server, api_of(server, tmp_path) as api:
        with pytest.raises(Unavailable, match="down"):
            await api.call("GET", PODS, retry_s=0.5)
        assert len(server.requests) >= 2
    async with (
        raw_server(says(status(429, "slow"), 429, Retry_After="3600")) as server,
        api_of(server, tmp_path) as api,
    ):
        began = time.monotonic()
        with pytest.raises(Throttled):
            await api.call("GET", PODS, retry_s=5)
        assert time.monotonic() - began < 4


# -- a server that hangs ----------------------------------------------------------------------------------------------


async def test_urgent_calls_pass_by_a_crowd_that_hangs(tmp_path: Path) -> None:
    """A Lease must be renewed while all threads wait for pods, and the event loop goes on."""
    limits = Limits(threads=2, per_s=1, burst=1)

    async def lease_only(request, writer) -> None:
        await (OK if "leases" in request.path else silence)(request, writer)

    async with raw_server(lease_only) as server, api_of(server, tmp_path, limits) as api:
        crowd = [asyncio.create_task(api.call("GET", PODS, timeout_s=60)) for _ in range(6)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            assert await api.call("GET", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", urgent=True) == {
                "ok": True
            }
        for task in crowd:
            task.cancel()
        assert all(
            isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*crowd, return_exceptions=True)
        )


async def test_a_closed_api_is_a_problem_like_others(tmp_path: Path) -> None:
    """Whoever still asks at shutdown is told, and not broken."""
    async with raw_server(OK) as server, api_of(server, tmp_path) as api:
        await api.close()
        with pytest.raises(Unavailable, match="has been closed"):
            await api.call("GET", PODS)


async def test_the_token_is_in_no_log_and_no_message(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Logs are read by more people than tokens."""
    caplog.set_level(logging.DEBUG)
    told = []
    answers = [says(status(403, "no"), 403), hang_up, says(status(401, "who?"), 401), says(b"<html>"), OK]
    async with raw_server(*answers) as server, api_of(server, tmp_path) as api:
        for _ in range(5):
            try:
                await api.call("GET", PODS)
            except KubernetesProblem as problem:
                told.append(f"{problem!s} {problem!r} {problem.__cause__!r}")
    assert len(told) == 4
    assert all(request.headers["authorization"].endswith(TOKEN) for request in server.requests)
    assert TOKEN not in caplog.text + " ".join(told)


async def test_the_rate_holds_for_calls(tmp_path: Path) -> None:
    """200 calls a second, after the first five."""
    async with raw_server(OK) as server, api_of(server, tmp_path, Limits(per_s=50, burst=5)) as api:
        began = time.monotonic()
        await asyncio.gather(*(api.call("GET", PODS) for _ in range(15)))
        assert time.monotonic() - began >= 10 / 50 * 0.95


async def test_unauthorized_says_what_to_look_at(tmp_path: Path) -> None:
    """It is not a matter of roles."""
    async with (
        raw_server(says(status(401, "Unauthorized", "Unauthorized"), 401)) as server,
        api_of(server, tmp_path) as api,
    ):
        with pytest.raises(Unauthorized, match="token or the certificate"):
            await api.call("GET", PODS)


async def test_many_calls_keep_the_loop_free(tmp_path: Path) -> None:
    """Answers of some megabytes are read and parsed elsewhere."""
    page = says({"items": [{"metadata": {"name": f"p{n}", "annotations": {"x": "y" * 500}}} for n in range(2000)]})
    async with raw_server(page) as server, api_of(server, tmp_path) as api:
        assert isinstance(server, RawServer)
        answers = await asyncio.gather(*(api.call("GET", PODS) for _ in range(4)))
    assert [len(answer["items"]) for answer in answers] == [2000] * 4


async def test_an_api_server_that_is_away_is_no_error_before_it_is_asked(tmp_path: Path) -> None:
    """A service may start before its cluster."""
    async with raw_server(OK) as server:
        pass
    async with api_of(server, tmp_path) as api:
        assert isinstance(api, Api)
        assert api.namespace == "default"
