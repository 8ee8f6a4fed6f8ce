"""The way from other machines to a kernel that listens on loopback only: one TLS port beside each kernel.

Kernels speak plain ZMQ: their messages are signed, but anybody on the way could read them. So whoever wants to reach
one from elsewhere connects here, knows the certificate by its fingerprint (which the service passed on), and proves
with the kernel's key that it may. What follows is passed on, unchanged, to the channel it named.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.wire import tunnel_proof

CHANNELS: Final = frozenset({"shell", "iopub", "stdin", "control", "hb"})
MAX_CONNECTIONS: Final = 256
HANDSHAKE_S: Final = 10.0
LINE_LIMIT: Final = 1024
CHUNK: Final = 1 << 16
_log = logging.getLogger(__name__)


class TunnelFailed(GpufairError):
    """The port for other machines cannot be opened."""


@dataclass(frozen=True, slots=True)
class TunnelOptions:
    """``listen``: the address bound. ``host``: what others call it. ``ports``: first and last that may be used."""

    listen: str
    host: str
    certificate: str
    key: str
    ports: tuple[int, int] = (0, 0)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> TunnelOptions:
        """Of a JSON object. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
        first, last = data.get("ports", (0, 0))
        return cls(
            str(data["listen"]), str(data["host"]), str(data["certificate"]), str(data["key"]), (int(first), int(last))
        )


def fingerprint(certificate: Path) -> str:
    """SHA-256 of a certificate in PEM, in hex."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text(encoding="ascii"))).hexdigest()


class Connections:
    """Those that are open, each in the task that serves it. They end with that task, whatever ends it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        """Whether there are as many as there may be."""
        return len(self._tasks) >= MAX_CONNECTIONS

    @contextmanager
    def one(self, writer: asyncio.StreamWriter) -> Iterator[list[asyncio.StreamWriter]]:
        """One more, as long as this block; yields its ends, to which the far one is to be added."""
        task = asyncio.current_task()
        assert task is not None
        ends = [writer]
        self._tasks.add(task)
        try:
            yield ends
        except asyncio.CancelledError:
            pass  # closed
        finally:
            self._tasks.discard(task)
            for each in ends:
                each.transport.abort()

    def close(self) -> list[asyncio.Task[None]]:
        """End them all. Returns the tasks, which are ending."""
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)


class Tunnel:
    """Passes connections on to the kernel that ``connection`` names at that moment.

    Args:
        key: The kernel's, in hex.
        connection: ``shell_port``… as in a connection file.
    """

    def __init__(self, options: TunnelOptions, key: str, connection: Callable[[], Mapping[str, Any]]) -> None:
        self._options, self._key, self._connection = options, key, connection
        self._fingerprint = ""
        self._server: asyncio.Server | None = None
        self._open = Connections()

    async def start(self) -> dict[str, Any]:
        """Listen; returns what others need to come here: ``host``, ``port``, ``fingerprint``.

        Raises:
            TunnelFailed: The certificate can't be used, or no port is free.
        """
        options = self._options
        try:
            self._fingerprint = await asyncio.to_thread(fingerprint, Path(options.certificate))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.load_cert_chain(options.certificate, options.key)
            self._server = await self._listen(context)
        except (OSError, ValueError) as err:
            raise TunnelFailed(f"no port for other machines can be opened on {options.listen}: {err}") from err
        port = int(self._server.sockets[0].getsockname()[1])
        return {"host": options.host, "port": port, "fingerprint": self._fingerprint}

    async def _listen(self, context: ssl.SSLContext) -> asyncio.Server:
        first, last = self._options.ports
        problem: OSError | None = None
        for port in range(first, last + 1):
            try:
                return await asyncio.start_server(
                    self._serve,
                    self._options.listen,
                    port,
                    ssl=context,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    limit=CHUNK,
                )
            except OSError as err:
                problem = err
        raise problem or OSError(f"{first} to {last} holds no port")

    async def close(self) -> None:
        """Listen no more, and end what is open."""
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*self._open.close(), return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open.full:
            writer.transport.abort()
            return
        with self._open.one(writer) as ends:
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    channel = self._admitted(await reader.readuntil(b"\n"))
                    if channel is None:
                        return
                    port = int(self._connection()[f"{channel}_port"])
                    inner_reader, inner = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK)
                    ends.append(inner)
                await join((reader, writer), (inner_reader, inner))
            except (OSError, EOFError, ValueError, KeyError, TimeoutError, asyncio.LimitOverrunError) as err:
                _log.info("a connection from another machine ended: %s", type(err).__name__)

    def _admitted(self, line: bytes) -> str | None:
        """The channel that was asked for by somebody who knows the kernel's key; None: nobody is let in."""
        if len(line) > LINE_LIMIT:
            return None
        asked = json.loads(line)
        channel, proof = asked["channel"], asked["proof"]
        if not (isinstance(channel, str) and isinstance(proof, str) and channel in CHANNELS):
            return None
        good = tunnel_proof(self._key, channel, self._fingerprint)
        return channel if hmac.compare_digest(proof.encode(), good.encode()) else None


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def join(one: Ends, other: Ends) -> None:
    """Pass bytes on in both directions until either side is done. Errors of either side are raised."""
    pumps = {asyncio.create_task(_pump(one[0], other[1])), asyncio.create_task(_pump(other[0], one[1]))}
    try:
        done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in done:
            pump.result()
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
