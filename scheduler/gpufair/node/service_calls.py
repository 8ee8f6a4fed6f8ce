"""HTTP calls of an agent to the service: JSON over one kept connection, cancellable, on the standard library."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

from gpufair.core.errors import GpufairError
from gpufair.node.files import read_json
from gpufair.paths import SERVICE_FILE

_HEADER_LIMIT = 1 << 16
_BODY_LIMIT = 16 << 20
_CONNECT_S = 5.0
_ANSWER_S = 15.0


class ServiceUnreachable(GpufairError):
    """No service answers there now."""


class Refused(GpufairError):
    """The service answered with an error status."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(status, detail)
        self.status, self.detail = status, detail

    def __str__(self) -> str:
        return f"the service answered {self.status}: {self.detail}"


class WrongService(GpufairError):
    """Whoever answers at the service's address is not the service of this node."""


class OldLeader(GpufairError):
    """What answered was the service once, and does not know yet that another one leads."""

    def __init__(self, epoch: int, known: int) -> None:
        super().__init__(epoch, known)
        self.epoch, self.known = epoch, known

    def __str__(self) -> str:
        return f"the service of epoch {self.epoch} is obeyed no more: one of epoch {self.known} has spoken"


class ServiceCalls:
    """One kept connection for one sequence of calls. The address is read anew for each new connection."""

    def __init__(self, state_dir: Path, node: str, token: str, kind: str = "agents") -> None:
        """``node``, ``kind``: as whom it speaks: "agents" of nodes, or those in "pods"."""
        self._place: Callable[[], Mapping[str, Any] | None] = lambda: read_json(state_dir / SERVICE_FILE)
        self._path = f"/api/v1/{kind}/{quote(node, safe='')}"
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._host = ""

    @classmethod
    def at(cls, place: Mapping[str, Any], node: str, token: str) -> Self:
        """To the service at ``place``, as the service's file would say it: ``url`` and, for TLS, ``ca``, ``certificate``."""
        self = cls(Path(), node, token)
        self._place = lambda: place
        return self

    async def call(self, method: str, path: str, body: object = None, *, wait_s: float = 0.0) -> dict[str, Any]:
        """The answer's JSON object.

        Args:
            path: Below ``/api/v1/agents/NODE`` (or ``pods/POD``).
            wait_s: How long the service may take beyond the usual.

        Raises:
            ServiceUnreachable: Whether it was carried out is unknown.
            Refused: It was not.
        """
        data = b"" if body is None else json.dumps(body).encode()
        try:
            return await self._exchange(method, path, data, _ANSWER_S + wait_s)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError) as err:
            self.close()
            raise ServiceUnreachable(f"{type(err).__name__}: {err}") from err
        except asyncio.CancelledError:
            self.close()  # the answer would be taken for that of the next call
            raise

    async def _exchange(self, method: str, path: str, data: bytes, timeout_s: float) -> dict[str, Any]:
        if self._streams is None:
            await self._connect()
        assert self._streams is not None
        reader, writer = self._streams
        head = [
            f"{method} {self._path}{path} HTTP/1.1",
            f"Host: {self._host}",
            f"Authorization: Bearer {self._token}",
            "Accept: application/json",
            "Content-Type: application/json",
            f"Content-Length: {len(data)}",
        ]
        writer.write("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + data)
        async with asyncio.timeout(timeout_s):
            await writer.drain()
            status, headers = await _read_head(reader)
            answer = await _read_body(reader, headers)
        if headers.get("connection", "").lower() == "close":
            self.close()
        value = json.loads(answer) if answer else {}
        if status >= 400:
            detail = value.get("detail", "") if isinstance(value, dict) else ""
            raise Refused(status, str(detail)[:500])
        if not isinstance(value, dict):
            raise ValueError("the answer is no JSON object")
        return value

    async def _connect(self) -> None:
        info = self._place()
        if info is None:
            raise ConnectionError("there is no service file")
        url = urlsplit(str(info.get("url", "")))
        secure = url.scheme == "https"
        if url.hostname is None or url.scheme not in {"http", "https"}:
            raise ConnectionError("the service file names no URL")
        self._host = url.netloc
        async with asyncio.timeout(_CONNECT_S):
            self._streams = await asyncio.open_connection(
                url.hostname,
                url.port or (443 if secure else 80),
                ssl=_context(info) if secure else None,
                limit=_HEADER_LIMIT,
            )

    def close(self) -> None:
        """Drop the connection."""
        if self._streams is not None:
            with suppress(OSError):
                self._streams[1].transport.abort()
            self._streams = None


def _context(info: Mapping[str, Any]) -> ssl.SSLContext:
    # A lab's own authority, where the certificate is not signed by one that everybody knows.
    context = ssl.create_default_context(cafile=info.get("ca") or None)
    if certificate := info.get("certificate"):
        context.load_cert_chain(certificate, password=lambda: "")
    return context


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1."):
        raise ValueError("the answer is not HTTP/1")
    headers: dict[str, str] = {}
    for text in lines[1:]:
        name, _, value = text.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(parts[1]), headers


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        length = int(headers.get("content-length", "0"))
        if not 0 <= length <= _BODY_LIMIT:
            raise ValueError(f"the answer has {length} bytes")
        return await reader.readexactly(length)
    chunks: list[bytes] = []
    total = 0
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        total += size
        if total > _BODY_LIMIT:
            raise ValueError("the answer is too large")
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers
        pass
    return b"".join(chunks)
