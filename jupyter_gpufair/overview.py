"""REST under ``/gpufair/lab/``: what the panels show of the whole lab, and the user's own sessions wherever they run.

The answers are the service's own, for the token of this server: panels work while kernels are parked or not there at all.
"""

from __future__ import annotations

from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from tornado import web

from gpufair.client import AsyncClient
from gpufair.client.calls import API, Call
from jupyter_gpufair import debate, divide
from jupyter_gpufair.handlers import HANDLERS, GpufairHandler
from jupyter_gpufair.launch import place_of
from jupyter_gpufair.manager import view_of
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
}
_WISH_BYTES = 64 << 10
_WORKLOAD = r"(?P<workload_id>[A-Za-z0-9._-]{1,128})"


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
        mine = answer.get("change") is not None and (await self._ask(client.workload(workload_id))).user == await self._me()
        self._json(answer | {"mine": mine})

    async def _me(self) -> str:
        user: str = await self._ask(_user())
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
        if not isinstance(wish, dict) or len(self.request.body) > _WISH_BYTES:
            raise web.HTTPError(400, f"a wish is a JSON object of at most {_WISH_BYTES} bytes")
        link = sessions().link
        body = wish | ({"user": link.user} if link.user else {})
        self._json(await self._ask(link.client.send(Call("POST", f"{API}/coach", lambda data: data, json=body))))


class MineHandler(GpufairHandler):
    """``GET lab/mine``: the user's live sessions and runs, of all servers, parked ones included."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """As a list, the newest first."""
        self._json({"sessions": [self._view(one) for one in await self._ask(_mine())]})

    def _view(self, one: dict[str, Any]) -> dict[str, Any]:
        kernel = one["workload_id"]
        view = view_of(self.kernel_manager.get_kernel(kernel)) if kernel in self.kernel_manager else None
        place = place_of(one["notebook"], self.settings["server_root_dir"])
        here = {"here": view is not None, "path": place[0] if place is not None else None}
        return {"kernel_id": kernel, "held_cells": 0} | one | (view or {}) | here


class OneOfMineHandler(GpufairHandler):
    """Base of what is done with one of the user's."""

    async def _require_mine(self, workload_id: str) -> None:
        if not any(one["workload_id"] == workload_id for one in await self._ask(_mine())):
            raise web.HTTPError(404, f"{workload_id} is no live session or run of yours")


class AmendHandler(OneOfMineHandler):
    """``POST lab/mine/{id}/amend``: one of the user's that waits asks for something else."""

    @web.authenticated
    @authorized
    async def post(self, workload_id: str) -> None:
        """The body is what is to be different, as ``change.amend`` of a ``why`` has it; the service checks it."""
        wish = self.get_json_body()
        if not isinstance(wish, dict) or len(self.request.body) > _WISH_BYTES:
            raise web.HTTPError(400, f"a wish is a JSON object of at most {_WISH_BYTES} bytes")
        await self._require_mine(workload_id)
        await self._ask(sessions().link.client.amend(workload_id, **wish))
        self._json({}, 202)


class MyActionHandler(OneOfMineHandler):
    """``POST lab/mine/{id}/{checkpoint|park|resume|open|restore|stop}``: for any of the user's, whoever opened it."""

    @web.authenticated
    @authorized
    async def post(self, workload_id: str, action: str) -> None:
        """202: it has begun."""
        await self._require_mine(workload_id)
        if workload_id not in self.kernel_manager:
            await self._ask(_ELSEWHERE[action](sessions().link.client, workload_id))
        elif action == "stop":
            manager: Any = self.kernel_manager
            await ensure_async(manager.shutdown_kernel(workload_id))
        else:
            await self._act(workload_id, action)
        self._json({}, 202)


_ELSEWHERE: dict[str, Any] = {
    "checkpoint": AsyncClient.checkpoint,
    "park": AsyncClient.park,
    "resume": AsyncClient.resume,
    "open": AsyncClient.open_on_cpu,
    "dismiss": AsyncClient.dismiss,
    "restore": AsyncClient.restore,
    "stop": AsyncClient.stop,
}


async def _user() -> str:
    link = sessions().link
    return link.user or (await link.client.status()).user


async def _allocations() -> dict[str, Any]:
    found: dict[str, Any] = await sessions().link.client.send(_read("allocations", _whose()))
    return found


async def _mine() -> list[dict[str, Any]]:
    answer = await sessions().link.client.send(_read("mine", _whose()))
    found: list[dict[str, Any]] = answer["sessions"]
    return found


def _whose() -> dict[str, str]:
    # A server's token may act for others: what is shown and touched here belongs to one user alone.
    user = sessions().link.user
    return {"user": user} if user else {}


ROUTES: list[tuple[str, type[GpufairHandler]]] = [
    *HANDLERS,
    *divide.HANDLERS,
    *debate.HANDLERS,
    (rf"/gpufair/lab/(?P<what>{'|'.join(READABLE)})", ReadHandler),
    (rf"/gpufair/lab/workloads/{_WORKLOAD}/why", WhyHandler),
    (r"/gpufair/lab/mine", MineHandler),
    (r"/gpufair/lab/allocations", AllocationsHandler),
    (r"/gpufair/lab/tour", TourHandler),
    (r"/gpufair/lab/coach", CoachHandler),
    (rf"/gpufair/lab/mine/{_WORKLOAD}/amend", AmendHandler),
    (rf"/gpufair/lab/mine/{_WORKLOAD}/(?P<action>{'|'.join(_ELSEWHERE)})", MyActionHandler),
]
