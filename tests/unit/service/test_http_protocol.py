"""What comes over a connection is bounded, whoever sends it and in however many pieces."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gpufair.service.lifecycle.http_protocol import MAX_HEAD_BYTES, PROTOCOL
from gpufair.service.lifecycle.listening import Server, listen
from gpufair.service.lifecycle.standby import options

HEAD = b"POST /echo HTTP/1.1\r\nHost: localhost\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(params=[PROTOCOL, "h11"], ids=["bounded", "h11"])
def protocol(request: pytest.FixtureRequest) -> Any:
    """That which the service uses, and that which it uses where there is no httptools."""
    return request.param


@contextlib.asynccontextmanager
async def served(protocol: Any) -> AsyncIterator[tuple[Streams, list[int]]]:
    """A connection, and how long the bodies were that arrived."""
    arrived: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            length, more = length + len(message.get("body", b"")), message.get("more_body", False)
        arrived.append(length)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    config = options(app)
    config.http = protocol
    with listen("127.0.0.1", 0) as listener:
        server = Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        await server.wait_listening(serving)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            async with asyncio.timeout(60):
                yield (reader, writer), arrived
        finally:
            writer.close()
            server.should_exit = True
            await serving


async def sent(writer: asyncio.StreamWriter, pieces: Iterator[bytes]) -> int:
    """How many bytes were sent until the other side had enough."""
    count = 0
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            count += len(piece)
            await asyncio.sleep(0)
    return count


async def status(reader: asyncio.StreamReader) -> bytes:
    """Of the next answer; "" if the connection was cut."""
    try:
        return (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1]
    except (ConnectionError, asyncio.IncompleteReadError):
        return b""


def endless(piece: bytes) -> Iterator[bytes]:
    for _ in range(64 * MAX_HEAD_BYTES // len(piece)):
        yield piece


@pytest.mark.parametrize("begin", [b"GET /", HEAD + b"X-Long: ", HEAD + b"X"], ids=["path", "value", "name"])
async def test_an_endless_head_is_refused(protocol: Any, begin: bytes) -> None:
    async with served(protocol) as ((reader, writer), arrived):
        writer.write(begin)
        await sent(writer, endless(b"a" * 4096))
        assert await status(reader) in {b"400", b""}
        assert not arrived


async def test_many_small_headers_are_refused(protocol: Any) -> None:
    async with served(protocol) as ((reader, writer), arrived):
        writer.write(HEAD)
        await sent(writer, endless(b"X-Small: 1\r\n" * 300))
        assert await status(reader) in {b"400", b""}
        assert not arrived


async def test_an_endless_trailer_is_refused(protocol: Any) -> None:
    """It comes after the body, where a count of headers has ended."""
    async with served(protocol) as ((reader, writer), arrived):
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Long: ")
        await sent(writer, endless(b"a" * 4096))
        assert await status(reader) in {b"400", b""}
        assert not arrived


async def test_large_bodies_and_one_request_after_the_other_are_fine(protocol: Any) -> None:
    chunk = b"a" * 5_000
    async with served(protocol) as ((reader, writer), arrived):
        long_head = HEAD + b"X-Long: " + b"a" * (MAX_HEAD_BYTES // 2) + b"\r\n"
        for _ in range(3):
            writer.write(long_head + b"Transfer-Encoding: chunked\r\n\r\n")
            await sent(writer, (b"%x\r\n%s\r\n" % (len(chunk), chunk) for _ in range(100)))
            writer.write(b"0\r\n\r\n")
            assert await status(reader) == b"200"
        writer.write((HEAD + b"Content-Length: 200000\r\n\r\n" + b"a" * 200_000) * 2)
        assert [await status(reader) for _ in range(2)] == [b"200", b"200"]
        assert arrived == [500_000] * 3 + [200_000] * 2
