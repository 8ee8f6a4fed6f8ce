"""An HTTP server that says byte by byte what a test wants said: halves, garbage, silence. (Whole answers: ``tests.kube``.)"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from gpufair.service.backends.kubernetes.api import Api, Limits
from tests.kube.kubeconfig import write_kubeconfig

TOKEN = "a-token-that-nobody-may-read"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawServer:
    """Each request gets the next of ``answers``; the last one stays for all that follow."""

    answers: list[Answer]
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                request = await _read(reader)
                self.requests.append(request)
                await (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])(request, writer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def raw_server(*answers: Answer) -> AsyncIterator[RawServer]:
    """It ends with the block, and hangs up on whoever still waits."""
    server = RawServer(list(answers))
    talks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            await server.serve(reader, writer)
        finally:
            talks.discard(task)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await listening.wait_closed()


@asynccontextmanager
async def api_of(server: RawServer, folder: Path, limits: Limits | None = None) -> AsyncIterator[Api]:
    """Our side of it."""
    api = await Api.open(write_kubeconfig(folder / "kubeconfig", server.url, TOKEN), limits=limits or Limits())
    try:
        yield api
    finally:
        await api.close()


def says(body: Any, status: int = 200, **headers: str) -> Answer:
    """A whole answer. ``body`` is JSON, or bytes to be sent as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{more}\r\n".encode() + data)

    return answer


def streams(*pieces: bytes | float, ends: str = "in order") -> Answer:
    """A chunked answer: bytes are sent as a chunk, a number is a pause in seconds. ``ends``: in order, cut or never."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            if isinstance(piece, bytes):
                writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                await writer.drain()
            else:
                await asyncio.sleep(piece)
        if ends == "cut":
            raise ConnectionError
        if ends == "never":
            await asyncio.Event().wait()
        writer.write(b"0\r\n\r\n")

    return answer


async def silence(request: Request, writer: asyncio.StreamWriter) -> None:
    """The request is read, and that is all."""
    await asyncio.Event().wait()


async def hang_up(request: Request, writer: asyncio.StreamWriter) -> None:
    """The request is read, and the connection ends."""
    raise ConnectionError


def status(code: int, message: str, reason: str = "", **details: Any) -> dict[str, Any]:
    """What an API server says instead of an object."""
    told = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code}
    return told | ({"reason": reason} if reason else {}) | ({"details": details} if details else {})


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    return Request(method, parts.path, dict(parse_qsl(parts.query)), headers, body)
