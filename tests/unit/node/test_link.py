"""A supervisor's port answers its own agent only: whoever else runs on the machine can reach it, too."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpufair.node.link import LINE_LIMIT, Link
from gpufair.node.reports import ReportLog

TOKEN = "t" * 32


@asynccontextmanager
async def link(folder: Path) -> AsyncIterator[tuple[int, list[str]]]:
    """The port of a link, and what it was commanded."""
    reports, taken = ReportLog(folder), list[str]()

    def command(kind: str, args: dict[str, Any]) -> None:
        taken.append(kind)

    served = Link(TOKEN, reports, command)
    listener = socket.create_server(("127.0.0.1", 0))
    await served.open(listener)
    reports.add("serving", {"connection": {"key": "the kernel's key"}})
    try:
        yield listener.getsockname()[1], taken
    finally:
        await served.close()
        reports.close()


async def said(port: int, first: bytes) -> bytes:
    """All that it answers to somebody who says this, and then gives a command."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(first + b"\n" + json.dumps({"id": "c1", "kind": "stop", "args": {}}).encode() + b"\n")
        await writer.drain()
        for _ in range(2):
            answer += await asyncio.wait_for(reader.readline(), 30)
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer


@pytest.mark.parametrize(
    "first",
    [
        b"{}",
        b'{"token": ""}',
        b'{"token": null}',
        b'{"token": ["' + TOKEN.encode() + b'"]}',
        b'{"token": "' + TOKEN[:-1].encode() + b'"}',
        b'{"token": "' + TOKEN.encode() + b'x"}',
        b"[]",
        b"no JSON",
        b"[" * 100_000,
        b"x" * (LINE_LIMIT + 1),
    ],
    ids=["none", "empty", "null", "list", "short", "long", "array", "text", "nested", "endless"],
)
async def test_another_workload_commands_nothing_and_hears_nothing(first: bytes, tmp_path: Path) -> None:
    """The token is in a file that others cannot read. Afterwards its agent is served as ever."""
    async with link(tmp_path) as (port, taken):
        assert await said(port, first) == b""
        assert taken == []
        answer = await said(port, json.dumps({"token": TOKEN, "after": 0}).encode())
        assert b"the kernel's key" in answer
        assert b'"taken": "c1"' in answer
        assert taken == ["stop"]
