"""A gate's own sockets to its kernel, through the relay: one set for each kernel that is attached."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import zmq
from jupyter_client.session import Session as JupyterSession

from jupyter_gpufair.clients import Clients

AWAKE_S = 3.0  # a kernel whose main thread is free answers in milliseconds
WAKE_S = 0.05

# Does nothing, but only after what came before it, and the supervisor's record shows it. Any kernel knows it.
QUESTION: Mapping[str, Any] = {
    "code": "",
    "silent": True,
    "store_history": False,
    "user_expressions": {},
    "allow_stdin": False,
    "stop_on_error": False,
}
# A kernel's socket takes one message from each client in turn. When the second question is answered, one message of
# another client that was there before the first was taken as well, and a gate sends no more than one at a time.
QUESTIONS = 2

Told = Callable[[str, str, list[bytes], dict[str, Any]], None]  # channel, message id of the request, frames, content


class KernelLine:
    """See the module. It lives on the server's loop.

    Attributes:
        open: Cells may be sent: every client hears this kernel.
    """

    def __init__(self, kernel_manager: Any, own: JupyterSession, clients: Clients, told: Told) -> None:
        self._km, self._own, self._clients, self._tell = kernel_manager, own, clients, told
        self._streams: dict[str, Any] = {}
        self._questions: dict[str, asyncio.Future[str | None]] = {}
        self.open = False

    async def knock(self) -> bool:
        """Open, once every client hears the kernel; False if that kernel went away before."""
        if not self._streams:
            self._connect()
        streams = self._streams
        until = time.monotonic() + AWAKE_S
        # What a kernel says before a client's subscription has reached it is lost to that client, so no cell may
        # run before. Control, not shell: it answers also while a cell runs.
        while time.monotonic() < until and any(not page.hears for page in self._clients.open):
            self._own.send(streams["control"], "kernel_info_request")
            await asyncio.sleep(WAKE_S)
            if self._streams is not streams:
                return False
        self.open = True
        return True

    def send(self, parts: list[bytes]) -> None:
        """Send a request on the shell channel."""
        self._own.send_raw(self._streams["shell"], parts)

    async def settled(self) -> str | None:
        """Wait until the kernel has begun all that any client had sent to it before.

        Returns: The message id of what was last asked, which its record shows; None if it went away.
        """
        msg_id = None
        answers = 0
        while answers < QUESTIONS:
            if not self._streams:
                return None
            message = self._own.msg("execute_request", dict(QUESTION))
            msg_id = str(message["header"]["msg_id"])
            future = self._questions[msg_id] = asyncio.get_running_loop().create_future()
            self._own.send(self._streams["shell"], message)
            try:
                status = await future
            finally:
                self._questions.pop(msg_id, None)
            answers += status == "ok"  # "aborted" where an interrupt ended what ran before it
        return msg_id

    def flush(self) -> None:
        """Take what has arrived already."""
        if self._streams:
            self._streams["shell"].flush(zmq.POLLIN)

    def shut(self) -> None:
        """Forget the kernel: its sockets, with all that they have not sent."""
        self.open = False
        for stream in self._streams.values():
            if not stream.closed():
                stream.close(linger=0)
        self._streams = {}
        for future in self._questions.values():
            if not future.done():
                future.set_result(None)
        for page in self._clients.open:
            page.hears = False

    def _connect(self) -> None:
        identity = f"gpufair-{uuid.uuid4().hex}".encode()  # one for all, so that input requests find us
        for channel in ("shell", "stdin", "control"):
            stream = getattr(self._km, f"connect_{channel}")(identity=identity)
            stream.socket.linger = 0  # what was not sent when we close must never run
            self._streams[channel] = stream
        self._streams["shell"].on_recv(lambda parts: self._received("shell", parts))
        self._streams["stdin"].on_recv(lambda parts: self._received("stdin", parts))
        self._streams["control"].on_recv(lambda _: None)

    def _received(self, channel: str, parts: list[bytes]) -> None:
        _, fed = self._own.feed_identities(parts)
        msg_id = str(self._own.unpack(fed[2]).get("msg_id", ""))
        content = self._own.unpack(fed[4])
        future = self._questions.get(msg_id)
        if future is None:
            self._tell(channel, msg_id, parts, content)
        elif not future.done():
            future.set_result(str(content.get("status")))
