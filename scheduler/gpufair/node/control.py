"""The control channel of one kernel: questions with awaited answers."""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import suppress
from typing import Any

import zmq
import zmq.asyncio

from gpufair.core.errors import GpufairError
from gpufair.node.messages import Signer, request


class KernelGone(GpufairError):
    """The kernel ended before it answered."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        if self.code is None:
            return "the kernel was ended"
        how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"the kernel died ({how})"


class Control:
    """Sends requests and hands each reply to who asked. Lives on the supervisor's event loop."""

    def __init__(self, context: zmq.asyncio.Context, address: str, key: str) -> None:
        self._signer = Signer(key)
        self._session = uuid.uuid4().hex
        self._waiting: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._gone: KernelGone | None = None
        self._socket = context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.reconnect_ivl = 10
        self._socket.connect(address)
        self._reader = asyncio.create_task(self._read(), name="control")

    def ask(self, kind: str, content: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        """Send a request now; the future gets the reply's content, or ``KernelGone``.

        Requests are queued until the kernel listens, and the kernel takes them one after the other.
        """
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if self._gone is not None:
            future.set_exception(self._gone)
            future.exception()  # an answer that nobody waits for is no news
            return future
        message_id, frames = request(self._signer, self._session, kind, content)
        self._waiting[message_id] = future
        future.add_done_callback(lambda _: self._waiting.pop(message_id, None))
        # The pipe takes a message at once; the returned future only matters at a high-water mark.
        self._socket.send_multipart(frames)
        return future

    async def _read(self) -> None:
        while True:
            body = self._signer.split(await self._socket.recv_multipart())
            if body is None:
                continue
            with suppress(ValueError, AttributeError):
                future = self._waiting.get(json.loads(body[1]).get("msg_id", ""))
                content = json.loads(body[3])
                if future is not None and not future.done() and isinstance(content, dict):
                    future.set_result(content)

    def close(self, code: int | None) -> None:
        """The kernel is gone: tell all who wait."""
        self._gone = KernelGone(code)
        self._reader.cancel()
        self._socket.close(0)
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(self._gone)
                future.exception()
