"""REST under ``/gpufair/lab/``: budgets as people discuss them. The service decides who may do what; here it is asked.

A server that submits for its user asks for that user: its own token may do more than they may.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from gpufair.client.calls import API, Call
from jupyter_gpufair.handlers import GpufairHandler
from jupyter_gpufair.sessions import sessions

MOST_BYTES = 128 << 10
_LISTED = ("state", "before", "limit")


class _DebateHandler(GpufairHandler):
    """Base: asks the service as the user of this server."""

    async def _get(self, path: str, names: tuple[str, ...], more: dict[str, str]) -> None:
        given = {name: value for name in names if (value := self.get_query_argument(name, None)) is not None}
        call: Call[Any] = Call("GET", f"{API}/budgets/{path}", lambda data: data, given | more)
        self._json(await self._ask(sessions().link.client.send(call)))

    async def _post(self, path: str) -> None:
        body = self.get_json_body()
        if not isinstance(body, dict) or len(self.request.body) > MOST_BYTES:
            raise web.HTTPError(400, f"give a JSON object of at most {MOST_BYTES:,} bytes")
        self._json(await self._ask(sessions().link.client.send(as_user(path, body))))


class RequestsHandler(_DebateHandler):
    """``GET lab/requests``: what is asked for and was decided; ``POST``: ask for something."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """With ``state``, ``before`` and ``limit`` as the service has them."""
        await self._get("requests", _LISTED, _acting())

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """The body is the service's."""
        await self._post("requests")


class RequestHandler(_DebateHandler):
    """``GET lab/requests/{number}``: with the preview that was looked at."""

    @web.authenticated
    @authorized
    async def get(self, number: str) -> None:
        """One of them."""
        await self._get(f"requests/{number}", (), _acting())


class DecisionHandler(_DebateHandler):
    """``POST lab/requests/{number}/{accept|refuse|withdraw}``."""

    @web.authenticated
    @authorized
    async def post(self, number: str, verb: str) -> None:
        """The body is the service's."""
        await self._post(f"requests/{number}/{verb}")


class HistoryHandler(_DebateHandler):
    """``GET lab/budget-history``: who changed the budgets when and why."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """With ``before`` and ``limit``."""
        await self._get("history", _LISTED[1:], {})


def as_user(path: str, body: dict[str, Any]) -> Call[Any]:
    """A ``POST`` to the budgets' routes; whoever the page says it is for, it is for the user of this server."""
    user = sessions().link.user
    asked = {name: value for name, value in body.items() if name != "user"} | ({"user": user} if user else {})
    return Call("POST", f"{API}/budgets/{path}", lambda data: data, json=asked, repeatable=False)


def _acting() -> dict[str, str]:
    user = sessions().link.user
    return {"acting": user} if user else {}


HANDLERS: list[tuple[str, type[GpufairHandler]]] = [
    (r"/gpufair/lab/requests", RequestsHandler),
    (r"/gpufair/lab/requests/(?P<number>[0-9]{1,9})", RequestHandler),
    (r"/gpufair/lab/requests/(?P<number>[0-9]{1,9})/(?P<verb>accept|refuse|withdraw)", DecisionHandler),
    (r"/gpufair/lab/budget-history", HistoryHandler),
]
