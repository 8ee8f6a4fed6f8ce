"""The dashboard of this machine's CPU pool, under ``/gpufair/cpu-pool/dashboard/``, for whom this server knows.

The pool serves it at a socket that only its owner's processes can open. Nothing of the browser's goes there that is not
needed: no cookie, and no token.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, WebSocketHandler, websocket_connect

from gpufair.cpu import resident

PLACE = "/gpufair/cpu-pool/dashboard"
_PASSED_ON = ("Accept", "Accept-Language", "If-Modified-Since", "If-None-Match")
_PASSED_BACK = ("Cache-Control", "Content-Type", "Etag", "Last-Modified")
_ANSWER_S = 20.0
_MESSAGE_BYTES = 64 << 20
_NONE = "no CPU pool with a dashboard runs here; `gpufair cpu start --dashboard` starts one (after `gpufair cpu stop`, where one runs without)"


class _Socket(Resolver):
    """Every host is the pool's socket."""

    def initialize(self, path: str) -> None:
        self._path = path

    async def resolve(self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[tuple[int, Any]]:
        return [(socket.AF_UNIX, self._path)]


class _OfThePool(JupyterHandler):
    """Whoever may run kernels may see what the pool runs."""

    auth_resource = "kernels"

    def _socket(self) -> Resolver:
        living = resident.found()
        if living is None or not living.dashboard:
            raise web.HTTPError(404, _NONE)
        found: Resolver = _Socket(path=living.dashboard)
        return found

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Called for errors: the sentence, where Jupyter's page for a 404 has one of its own."""
        err = kwargs.get("exc_info", (None, None))[1]
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(err.log_message if isinstance(err, web.HTTPError) and err.log_message else self._reason)

    def _request(self, scheme: str, path: str, names: tuple[str, ...]) -> HTTPRequest:
        query = f"?{self.request.query}" if self.request.query else ""
        headers = {name: self.request.headers[name] for name in names if name in self.request.headers}
        return HTTPRequest(
            f"{scheme}://pool/{path}{query}", headers=headers, follow_redirects=False,
            connect_timeout=_ANSWER_S, request_timeout=_ANSWER_S,
        )


class PageHandler(_OfThePool):
    """``GET``: a page, or what one is made of."""

    @web.authenticated
    @authorized
    async def get(self, path: str) -> None:
        if not path:
            self.redirect(f"{self.base_url.rstrip('/')}{PLACE}/status")
            return
        client = SimpleAsyncHTTPClient(force_instance=True, resolver=self._socket(), max_body_size=_MESSAGE_BYTES)
        try:
            answer = await client.fetch(self._request("http", path, _PASSED_ON), raise_error=False)
        except OSError as err:
            raise web.HTTPError(502, f"the dashboard of the CPU pool gives no answer ({type(err).__name__})") from None
        finally:
            client.close()
        if answer.code == 599:
            raise web.HTTPError(502, f"the dashboard of the CPU pool gives no answer ({answer.error})")
        self.set_status(answer.code, answer.reason)
        for name in _PASSED_BACK:
            if name in answer.headers:
                self.set_header(name, answer.headers[name])
        if (target := answer.headers.get("Location", "")).startswith("/"):
            self.set_header("Location", f"{self.base_url.rstrip('/')}{PLACE}{target}")
        if answer.code != 304:
            self.finish(answer.body)


class ChannelHandler(WebSocketMixin, WebSocketHandler, _OfThePool):
    """The websocket of a page, by which it stays alive."""

    _pool: WebSocketClientConnection | None = None
    _pump: asyncio.Task[None] | None = None

    @ws_authenticated
    @authorized
    async def get(self, path: str) -> None:
        """Connected to the pool first: where there is none the page is told so in HTTP."""
        protocols = [each.strip() for each in self.request.headers.get("Sec-WebSocket-Protocol", "").split(",") if each.strip()]
        asked = self._request("ws", path, ())
        try:
            self._pool = await websocket_connect(
                asked, resolver=self._socket(), subprotocols=protocols, max_message_size=_MESSAGE_BYTES
            )
        except (OSError, HTTPClientError) as err:
            raise web.HTTPError(502, f"the dashboard of the CPU pool gives no answer ({err})") from None
        await super().get(path)

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """What the pool has chosen."""
        return self._pool.selected_subprotocol if self._pool is not None else None

    def open(self, path: str) -> None:
        """Called when the browser's side is there."""
        super().open(path)
        self._pump = asyncio.get_running_loop().create_task(self._hand_over())

    async def _hand_over(self) -> None:
        assert self._pool is not None
        while (message := await self._pool.read_message()) is not None:
            await self.write_message(message, binary=isinstance(message, bytes))
        self.close()

    async def on_message(self, message: str | bytes) -> None:
        """Called with what the page says."""
        assert self._pool is not None
        await self._pool.write_message(message, binary=isinstance(message, bytes))

    def on_close(self) -> None:
        """Called when either side is gone."""
        if self._pump is not None:
            self._pump.cancel()
        if self._pool is not None:
            self._pool.close()
        super().on_close()


PAGES: list[tuple[str, type[_OfThePool]]] = [
    (rf"{PLACE}/(?P<path>(?:[^/]+/)*ws)", ChannelHandler),
    (rf"{PLACE}/?(?P<path>.*)", PageHandler),
]
