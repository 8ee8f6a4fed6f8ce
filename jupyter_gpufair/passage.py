"""The way to a kernel on another machine: loopback ports here that lead, through TLS, to the tunnel beside the kernel.

The relay then has nothing to know of it: it is given these ports in the place of the kernel's.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import ssl
from collections.abc import Mapping
from typing import Any

from gpufair.core.errors import GpufairError
from gpufair.node.tunnel import CHUNK, HANDSHAKE_S, Connections, join
from gpufair.wire import tunnel_proof
from jupyter_gpufair.relay import CHANNELS, HOST

log = logging.getLogger(__name__)


class WrongMachine(GpufairError):
    """Whoever answered at the kernel's address is not who the service said it would be."""


class Passage:
    """Leads from this machine to one kernel. ``open`` it, and ``close`` it when the kernel is gone.

    Args:
        workload: Whose kernel that is.
        key: The kernel's, in hex.
        via: ``host``, ``port`` and ``fingerprint``, as the service has them.
    """

    def __init__(self, workload: str, key: str, via: Mapping[str, Any]) -> None:
        self._workload, self._key = workload, key
        self._host, self._port, self._fingerprint = str(via["host"]), int(via["port"]), str(via["fingerprint"])
        self._servers: list[asyncio.Server] = []
        self._open = Connections()
        self._told = ""  # what is wrong: sockets of ZMQ try again many times a second, and it is said once
        # The certificate is the node's own: what makes it good is its fingerprint, looked at before anything is said.
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE

    async def open(self) -> dict[str, Any]:
        """A connection as of a kernel on this machine: ``ip``, ``shell_port``…

        Raises:
            OSError: No ports are left here.
        """
        connection: dict[str, Any] = {"ip": HOST}
        for channel in CHANNELS:

            async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channel: str = channel) -> None:
                await self._lead(channel, reader, writer)

            server = await asyncio.start_server(lead, HOST, 0, limit=CHUNK)
            self._servers.append(server)
            connection[f"{channel}_port"] = int(server.sockets[0].getsockname()[1])
        return connection

    def close(self) -> None:
        """Lead nowhere from now on."""
        for server in self._servers:
            server.close()
        self._open.close()

    async def _lead(self, channel: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open.full:
            writer.transport.abort()
            return
        with self._open.one(writer) as ends:
            try:
                async with asyncio.timeout(HANDSHAKE_S):
                    far_reader, far = await asyncio.open_connection(self._host, self._port, ssl=self._context, limit=CHUNK)
                    ends.append(far)
                    self._check(far)
                    proof = tunnel_proof(self._key, channel, self._fingerprint)
                    far.write(json.dumps({"channel": channel, "proof": proof}).encode() + b"\n")
                    await far.drain()
                self._told = ""
                await join((reader, writer), (far_reader, far))
            except WrongMachine as err:
                self._tell(logging.ERROR, str(err))
            except (OSError, EOFError, TimeoutError) as err:
                self._tell(logging.INFO, f"the way to its kernel broke: {type(err).__name__}")

    def _tell(self, level: int, what: str) -> None:
        if what != self._told:
            self._told = what
            log.log(level, "session %s: %s", self._workload, what)

    def _check(self, far: asyncio.StreamWriter) -> None:
        found = far.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
        if not hmac.compare_digest(hashlib.sha256(found).hexdigest(), self._fingerprint):
            raise WrongMachine(
                f"{self._host}:{self._port} shows another certificate than its node has told the service; nothing was "
                "sent there. Is the address that of another machine, or did somebody place himself in between?"
            )
