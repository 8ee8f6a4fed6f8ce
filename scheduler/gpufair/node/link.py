"""The supervisor's end of its connection with the agent: JSON lines over loopback TCP.

The agent sends ``{"token", "after"}`` first, then commands ``{"id", "kind", "args"}`` and ``{"acknowledged": n}``.
The supervisor answers each command by ``{"taken": id}`` and sends ``{"report": {...}}``. A command whose answer got
lost is sent again with the same id and then changes nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gpufair.node.reports import ReportLog

LINE_LIMIT = 1 << 20
_log = logging.getLogger(__name__)


class Link:
    """Serves agents (one at a time, normally) on a socket that the first agent has opened for it."""

    def __init__(self, token: str, reports: ReportLog, on_command: Callable[[str, dict[str, Any]], None]) -> None:
        self._token = token
        self._reports = reports
        self._on_command = on_command
        self._taken: set[str] = set()
        self._writers: dict[asyncio.StreamWriter, int] = {}  # and the last report each was sent
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.alone_since: float | None = time.monotonic()  # monotonic; None while an agent is connected
        reports.listeners.append(self._send_all)

    async def open(self, listener: socket.socket) -> None:
        """Begin to accept agents."""
        self._server = await asyncio.start_server(self._accept, sock=listener, limit=LINE_LIMIT)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def close(self) -> None:
        """Send what is left and close."""
        self._reports.listeners.remove(self._send_all)
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.drain(), 2.0)
            writer.close()
        for task in self._serving:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = json.loads(await asyncio.wait_for(reader.readline(), 10.0))
            if not hmac.compare_digest(str(hello.get("token", "")).encode(), self._token.encode()):
                return
            self._writers[writer] = int(hello.get("after", 0))
            self.alone_since = None
            self._send(writer)
            while text := await reader.readline():
                self._take(json.loads(text), writer)
        except (OSError, ValueError, TypeError, AttributeError, TimeoutError) as err:
            _log.info("the agent's connection broke: %s", err)
        finally:
            self._writers.pop(writer, None)
            if not self._writers:
                self.alone_since = time.monotonic()
            writer.close()

    def _take(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if "acknowledged" in message:
            self._reports.acknowledged(int(message["acknowledged"]))
            return
        command = str(message["id"])
        if command not in self._taken:
            self._taken.add(command)
            try:
                self._on_command(str(message["kind"]), dict(message.get("args") or {}))
            except (KeyError, ValueError, TypeError) as err:
                # Not taken, it would be sent again for ever.
                _log.error("command %s makes no sense: %s: %s", message.get("kind"), type(err).__name__, err)
        writer.write(json.dumps({"taken": command}).encode() + b"\n")

    def _send_all(self) -> None:
        for writer in self._writers:
            self._send(writer)

    def _send(self, writer: asyncio.StreamWriter) -> None:
        for report in self._reports.after(self._writers[writer]):
            writer.write(json.dumps({"report": report}).encode() + b"\n")
            self._writers[writer] = report["n"]
