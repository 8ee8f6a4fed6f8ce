"""A kernel's five stable ports on this machine, in front of wherever the kernel runs now.

Jupyter is told the relay's ports once. While no kernel serves, the relay holds connections: it accepts them and reads no
more than the greeting that zmq sends before it waits for an answer. When the kernel serves again, perhaps on another
node, waiting connections are joined to it. At ``detach`` all connections are aborted, and zmq sockets connect again by
themselves, so nothing above TCP ever notices a move.

Everything here runs on one event loop (``io_thread``) with raw non-blocking sockets: transports of asyncio would copy
each piece of output twice and queue it without bound, and a relay may carry gigabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any

from gpufair.core.errors import GpufairError

log = logging.getLogger(__name__)

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
HOST = "127.0.0.1"
RETRY_S = 0.025  # a kernel that has just reported its ports binds them within a few of these
CHUNK = 1 << 20  # measured: from 256 kB up the throughput no longer grows; see tests/bench/relay
ROUNDS = 16  # chunks moved per wake-up before others have their turn
GREETING_LIMIT = 4096  # zmq sends 10 bytes (at most 64) before it waits for the other side
MAX_LINKS = 1000  # per kernel, over all channels: 200 clients


class RelayError(GpufairError):
    """A relay cannot be opened."""


class _Pump:
    """Moves bytes from ``source`` to ``target``, and stops reading while the target cannot take more."""

    def __init__(self, relay: Relay, source: socket.socket, target: socket.socket, over: Callable[[], None]) -> None:
        self._loop, self._chunk = relay.loop, relay.chunk
        self._source, self._target, self._over = source, target, over
        self._rest = b""
        self._stopped = False

    def start(self, first: bytes = b"") -> None:
        if not first or self._give(memoryview(first)):
            self._loop.add_reader(self._source, self._readable)

    def stop(self) -> None:
        self._stopped = True
        self._loop.remove_reader(self._source)
        self._loop.remove_writer(self._target)

    def _readable(self) -> None:
        for _ in range(ROUNDS):
            try:
                count = self._source.recv_into(self._chunk)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                count = 0
            if count == 0:
                self._over()
                return
            if not self._give(self._chunk[:count]):
                if not self._stopped:
                    self._loop.remove_reader(self._source)
                return
            if count < len(self._chunk) // 4:
                return  # most likely all there was: spare the call that says so

    def _give(self, data: memoryview) -> bool:
        """Send all of ``data`` now; False if some had to be kept for later (or the connection is over)."""
        while data:
            try:
                sent = self._target.send(data)
            except (BlockingIOError, InterruptedError):
                self._rest = bytes(data)  # the chunk is shared by all pumps
                self._loop.add_writer(self._target, self._writable)
                return False
            except OSError:
                self._over()
                return False
            data = data[sent:]
        return True

    def _writable(self) -> None:
        self._loop.remove_writer(self._target)
        rest, self._rest = self._rest, b""
        if self._give(memoryview(rest)):
            self._loop.add_reader(self._source, self._readable)


class _Link:
    """One client connection, held or joined to the kernel."""

    def __init__(self, relay: Relay, channel: str, client: socket.socket) -> None:
        self._relay, self._channel, self._client = relay, channel, client
        self._upstream: socket.socket | None = None
        self._pumps: tuple[_Pump, ...] = ()
        self._greeting = b""
        self._joining: asyncio.Task[None] | None = None
        relay.loop.add_reader(client, self._greeted)

    @property
    def joined(self) -> bool:
        return bool(self._pumps)

    def _greeted(self) -> None:
        """Keep what a held client says first, and notice when it goes away."""
        try:
            data = self._client.recv(GREETING_LIMIT)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._greeting += data
        if not data or len(self._greeting) > GREETING_LIMIT:
            self.close()

    def join(self, address: tuple[str, int]) -> None:
        """Connect to the kernel, again and again until it listens, and let the bytes flow."""
        self._joining = self._relay.loop.create_task(self._join(address))

    async def _join(self, address: tuple[str, int]) -> None:
        while True:
            upstream = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM)
            upstream.setblocking(False)
            try:
                await self._relay.loop.sock_connect(upstream, address)
                break
            except OSError:
                upstream.close()
                await asyncio.sleep(RETRY_S)
            except BaseException:
                upstream.close()
                raise
        _quick(upstream)
        self._upstream = upstream
        self._relay.loop.remove_reader(self._client)
        inward = _Pump(self._relay, self._client, upstream, self.close)
        outward = _Pump(self._relay, upstream, self._client, self.close)
        self._pumps = (inward, outward)
        outward.start()
        inward.start(self._greeting)
        self._greeting = b""

    def close(self) -> None:
        """Abort the connection; a zmq client comes again by itself."""
        if self not in self._relay.links:
            return
        self._relay.links.discard(self)
        if self._joining is not None and not self._joining.done():
            self._joining.cancel()
        for pump in self._pumps:
            pump.stop()
        self._relay.loop.remove_reader(self._client)
        # A reset, not a polite end: what the kernel can no longer take must not linger in the client's socket.
        with contextlib.suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._client.close()
        if self._upstream is not None:
            self._upstream.close()


class Relay:
    """Five listening ports and what is connected to them. All methods but ``__init__`` run on ``loop``.

    Attributes:
        ports: Port of each channel, the same for the relay's whole life.
        generation: Which kernel is attached; None while detached.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str = HOST) -> None:
        self.loop, self.host = loop, host
        self.chunk = _chunk_of(loop)
        self.links: set[_Link] = set()
        self.generation: tuple[int, int] | None = None
        self._upstream: Mapping[str, tuple[str, int]] | None = None
        self._listeners: dict[str, socket.socket] = {}
        try:
            for channel in CHANNELS:
                self._listeners[channel] = _listener(host)
        except OSError as err:
            self._close_listeners()
            raise RelayError(f"opening five ports on {host} for a kernel failed: {err}; are too many files open?") from err
        self.ports = {channel: int(listener.getsockname()[1]) for channel, listener in self._listeners.items()}

    def start(self) -> None:
        """Accept connections from now on; they are held until ``attach``."""
        for channel, listener in self._listeners.items():
            self.loop.add_reader(listener, self._accept, channel, listener)

    def attach(self, connection: Mapping[str, Any], generation: tuple[int, int]) -> None:
        """Join all connections, present and coming, to this kernel. The same generation again changes nothing.

        Args:
            connection: ``ip`` and ``shell_port``… as in a connection file.
            generation: (incarnation, generation) of the kernel.
        """
        if generation == self.generation:
            return
        self.detach()
        ip = str(connection["ip"])
        self._upstream = {channel: (ip, int(connection[f"{channel}_port"])) for channel in CHANNELS}
        self.generation = generation
        for link in tuple(self.links):
            link.join(self._upstream[link._channel])  # noqa: SLF001 - a link is a part of the relay

    def detach(self) -> None:
        """Abort the connections to the kernel; hold what comes from now on."""
        was, self._upstream, self.generation = self._upstream, None, None
        if was is not None:
            for link in tuple(self.links):
                link.close()

    def close(self) -> None:
        """Abort all and listen no more."""
        self.detach()
        for link in tuple(self.links):
            link.close()
        self._close_listeners()

    @property
    def attached(self) -> bool:
        """Whether connections reach a kernel."""
        return self._upstream is not None

    def _accept(self, channel: str, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as err:  # out of file descriptors: listening goes on, the client tries again
                log.warning("a kernel's relay could not accept a connection: %s", err)
                return
            client.setblocking(False)
            if len(self.links) >= MAX_LINKS:
                log.warning("a kernel's relay has %d connections; another one was refused", MAX_LINKS)
                client.close()
                continue
            _quick(client)
            link = _Link(self, channel, client)
            self.links.add(link)
            if self._upstream is not None:
                link.join(self._upstream[channel])

    def _close_listeners(self) -> None:
        for listener in self._listeners.values():
            if listener.fileno() >= 0:
                self.loop.remove_reader(listener)
                listener.close()


_chunks: dict[int, memoryview] = {}


def _chunk_of(loop: asyncio.AbstractEventLoop) -> memoryview:
    """One buffer for all pumps of a loop: they use it in turn, never across an await."""
    return _chunks.setdefault(id(loop), memoryview(bytearray(CHUNK)))


def _listener(host: str) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind((host, 0))
        listener.listen(128)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _quick(connection: socket.socket) -> None:
    # Without this each small message may wait 40 ms for the acknowledgement of the one before.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
