"""A service that does not lead: it answers that it stands by, so that whoever asks tries again, or elsewhere."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import uvicorn

from gpufair.service.lifecycle.http_protocol import MAX_HEAD_BYTES, PROTOCOL
from gpufair.service.lifecycle.listening import Server, listen
from gpufair.service.problems import problem
from gpufair.service.storage.leadership import Leadership

AT_ONCE_S: Final = 1.0  # a leader is found that soon where there is none
_BODY = problem(
    HTTPStatus.SERVICE_UNAVAILABLE, "another service leads, and this one stands by; ask there, or again", "StandingBy"
)
_HEADERS = ((b"retry-after", b"1"), (b"gpufair-standby", b"1"), (b"cache-control", b"no-store"))
_log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]


async def stand_by(
    leadership: Leadership, host: str, port: int, stop: asyncio.Event, tls: ssl.SSLContext | None = None
) -> int:
    """Return when this service leads, or is to stop. Returns the port to listen on: the one that it stood by on.

    Raises:
        StoreError: The database cannot be used.
        ServeError: It can't listen there.
    """
    winning = asyncio.create_task(leadership.win(), name="leadership")
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({winning, stopping}, timeout=AT_ONCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not winning.done() and not stopping.done():
            with listen(host, port) as listener:
                port = listener.getsockname()[1]
                server = Server(options(_answer, tls))
                serving = asyncio.create_task(server.serve(sockets=[listener]), name="http-standby")
                await server.wait_listening(serving)
                _log.info("standing by on %s port %d", host, port)
                await asyncio.wait({winning, stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
                server.should_exit = True
                await serving
        if winning.done():
            winning.result()
        return port
    finally:
        for task in (winning, stopping):
            task.cancel()
        await asyncio.gather(winning, stopping, return_exceptions=True)


def options(app: Any, tls: ssl.SSLContext | None = None, proxies: Sequence[str] = ()) -> uvicorn.Config:
    """How HTTP is served. ``proxies``: whose word on the address of a caller counts."""
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,  # paths and users are nobody's business; the journal has what matters
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        lifespan="off",
        timeout_keep_alive=75,  # longer than agents and Jupyter are ever silent
        timeout_graceful_shutdown=3,
        http=PROTOCOL,
        ws="none",
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
    )
    config.load()
    # Ours, and no files: its certificate can be replaced while it is in use.
    config.ssl = tls
    return config


async def _answer(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    if scope["type"] != "http":
        return
    alive = scope["path"] in {"/healthz", "/api/v1/healthz"}
    body = {"ok": True} if alive else _BODY
    status = HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE
    kind = (b"content-type", b"application/json" if alive else b"application/problem+json")
    # The connection ends, for the next question may be for the leader that this one has become.
    headers = [kind, (b"connection", b"close"), *(() if alive else _HEADERS)]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})
