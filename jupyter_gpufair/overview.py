"""REST under ``/gpufair/lab/``: what the panels show of the whole lab. (``mine`` has what is the user's own.)

The answers are the service's own, for the token of this server: panels work while kernels are parked or not there at all.
"""

from __future__ import annotations

from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from gpufair.client.calls import API, Call
from jupyter_gpufair import debate, divide, mine, traces
from jupyter_gpufair.handlers import HANDLERS, GpufairHandler
from jupyter_gpufair.mine import WISH_BYTES, WORKLOAD, user_of, whose
from jupyter_gpufair.sessions import sessions

LAB_EVENT = "https://jupyter-gpufair.org/events/lab/v1"
LAB_SCHEMA: dict[str, Any] = {
    "$id": LAB_EVENT,
    "version": "1",
    "title": "The lab has changed",
    "description": "Some workload of the lab changed; emitted at most once a second.",
    "type": "object",
    "required": ["at_s"],
    "properties": {"at_s": {"type": "number"}},
}

# What the service tells everybody; each with the parameters that are passed on.
READABLE: dict[str, tuple[str, ...]] = {
    "queue": ("fields",),
    "budgets": (),
    "budgets/delivered": ("since_s", "until_s"),
    "budgets/over-time": ("allocation", "since_s", "until_s", "bins"),
    "nodes": (),
    "profiles": (),
    "workloads": ("state", "user", "holding", "fields"),
    "pyramid": ("since_s", "until_s"),
    "history": ("hours", "node"),
    "preview": ("hours",),
    "maintenance": (),
    "announcements": (),
}


def _read(path: str, params: dict[str, str] | None = None) -> Call[Any]:
    return Call("GET", f"{API}/{path}", lambda data: data, params or {})


class ReadHandler(GpufairHandler):
    """``GET lab/{queue|budgets|nodes|…}``: the service's answer as it is."""

    @web.authenticated
    @authorized
    async def get(self, what: str) -> None:
        """Parameters that the route does not have are left out."""
        given = {name: value for name in READABLE[what] if (value := self.get_query_argument(name, None)) is not None}
        self._json(await self._ask(sessions().link.client.send(_read(what, given))))


class WhyHandler(GpufairHandler):
    """``GET lab/workloads/{id}/why``."""

    @web.authenticated
    @authorized
    async def get(self, workload_id: str) -> None:
        """Why it waits, or how it stands; ``mine``: whether the user may make the change that is named."""
        client = sessions().link.client
        answer = await self._ask(client.send(_read(f"workloads/{workload_id}/why")))
        may = answer.get("change") is not None and (await self._ask(client.workload(workload_id))).user == await self._me()
        self._json(answer | {"mine": may})

    async def _me(self) -> str:
        user: str = await self._ask(user_of())
        return user


class TourHandler(GpufairHandler):
    """``GET lab/tour``: why some workloads of the last week waited, ran and were preempted; the user's first."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """The service's answer as it is."""
        link = sessions().link
        self._json(await self._ask(link.client.send(_read("tour", {"user": link.user} if link.user else {}))))


class AllocationsHandler(GpufairHandler):
    """``GET lab/allocations``: where this user may submit."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Paths of leaves, in the order of the tree."""
        self._json(await self._ask(_allocations()))


class CoachHandler(GpufairHandler):
    """``POST lab/coach``: what a wish, and other ways to ask, would mean for the wait. Changes nothing."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """The body is a submission without ``launch``; the service checks it."""
        wish = self.get_json_body()
        if not isinstance(wish, dict) or len(self.request.body) > WISH_BYTES:
            raise web.HTTPError(400, f"a wish is a JSON object of at most {WISH_BYTES} bytes")
        link = sessions().link
        body = wish | ({"user": link.user} if link.user else {})
        self._json(await self._ask(link.client.send(Call("POST", f"{API}/coach", lambda data: data, json=body))))


async def _allocations() -> dict[str, Any]:
    found: dict[str, Any] = await sessions().link.client.send(_read("allocations", whose()))
    return found


ROUTES: list[tuple[str, type[GpufairHandler]]] = [
    *HANDLERS,
    *divide.HANDLERS,
    *debate.HANDLERS,
    (rf"/gpufair/lab/(?P<what>{'|'.join(READABLE)})", ReadHandler),
    (rf"/gpufair/lab/workloads/{WORKLOAD}/why", WhyHandler),
    (r"/gpufair/lab/allocations", AllocationsHandler),
    (r"/gpufair/lab/tour", TourHandler),
    (r"/gpufair/lab/coach", CoachHandler),
    *mine.HANDLERS,
    *traces.HANDLERS,
]
