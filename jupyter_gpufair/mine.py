"""REST under ``/gpufair/lab/mine``: the user's own sessions and runs, wherever they were begun, and what can be done with each."""

from __future__ import annotations

from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from tornado import web

from gpufair.client import AsyncClient, NotFound, Workload
from gpufair.client.calls import API, Call
from gpufair.core.errors import GpufairError
from jupyter_gpufair.handlers import GpufairHandler
from jupyter_gpufair.launch import place_of
from jupyter_gpufair.manager import view_of
from jupyter_gpufair.reattach import take_up
from jupyter_gpufair.sessions import sessions

WISH_BYTES = 64 << 10
WORKLOAD = r"(?P<workload_id>[A-Za-z0-9._-]{1,128})"


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
        # This server's own view knows how busy GPUs are only of notebooks that are looked at.
        return {"kernel_id": kernel, "held_cells": 0} | one | (view or {}) | here | {"utilization": one.get("utilization")}


class AmendHandler(GpufairHandler):
    """``POST lab/mine/{id}/amend``: one of the user's that waits asks for something else."""

    @web.authenticated
    @authorized
    async def post(self, workload_id: str) -> None:
        """The body is what is to be different, as ``change.amend`` of a ``why`` has it; the service checks it."""
        wish = self.get_json_body()
        if not isinstance(wish, dict) or len(self.request.body) > WISH_BYTES:
            raise web.HTTPError(400, f"a wish is a JSON object of at most {WISH_BYTES} bytes")
        await self._ask(mine_of(workload_id))
        await self._ask(sessions().link.client.amend(workload_id, **wish))
        self._json({}, 202)


class MyActionHandler(GpufairHandler):
    """``POST lab/mine/{id}/{checkpoint|park|resume|open|restore|stop}``: for any of the user's, whoever opened it.

    ``restore`` may name a ``checkpoint``; without it the last one is loaded.
    """

    @web.authenticated
    @authorized
    async def post(self, workload_id: str, action: str) -> None:
        """202: it has begun."""
        workload = await self._ask(mine_of(workload_id))
        if not workload.live:
            raise web.HTTPError(404, f"{workload_id} is over")
        body = self.get_json_body()
        chosen = body.get("checkpoint") if isinstance(body, dict) else None
        if chosen is not None and not isinstance(chosen, str):
            raise web.HTTPError(400, "checkpoint is the id of one")
        if action == "restore" and chosen is not None:
            await self._ask(sessions().link.client.restore(workload_id, chosen))
        elif workload_id not in self.kernel_manager:
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


class AttachHandler(GpufairHandler):
    """``POST lab/mine/{id}/attach``: give this server the kernel of a session whose notebook is below its root."""

    @web.authenticated
    @authorized
    async def post(self, workload_id: str) -> None:
        """200 once the notebook can be opened on it. 409 where this server cannot show it."""
        workload = await self._ask(mine_of(workload_id))
        place = place_of(workload.notebook, self.settings["server_root_dir"])
        if not workload.live or not workload.kernel_name or place is None:
            why = "it is over" if not workload.live else "it has no notebook below the folder of this server"
            raise web.HTTPError(409, f"{workload.label} cannot be taken up here: {why}")
        if workload_id not in self.kernel_manager:
            try:
                await take_up(self.kernel_manager, self.session_manager, workload, place)
            except GpufairError as err:
                raise web.HTTPError(409, f"{workload.label} cannot be taken up here: {err}") from err
        self._json({"path": place[0]})


async def user_of() -> str:
    """Whose sessions these are. Runs in the io thread, as do the others.

    A server's token may act for others: what is shown and touched here belongs to one user alone.
    """
    link = sessions().link
    return link.user or (await link.client.status()).user


async def mine_of(workload_id: str) -> Workload:
    """A session or run of the user's, over or not.

    Raises: NotFound: There is none of that name, or it is somebody else's.
    """
    workload, user = await sessions().link.client.workload(workload_id), await user_of()
    if user and workload.user != user:
        raise NotFound(404, "not_found", f"{workload_id} is no session or run of yours")
    return workload


async def _mine() -> list[dict[str, Any]]:
    answer = await sessions().link.client.send(Call("GET", f"{API}/mine", lambda data: data, whose()))
    found: list[dict[str, Any]] = answer["sessions"]
    return found


def whose() -> dict[str, str]:
    """Of whom the service is asked: this server's token may act for others."""
    user = sessions().link.user
    return {"user": user} if user else {}


HANDLERS: list[tuple[str, type[GpufairHandler]]] = [
    (r"/gpufair/lab/mine", MineHandler),
    (rf"/gpufair/lab/mine/{WORKLOAD}/attach", AttachHandler),
    (rf"/gpufair/lab/mine/{WORKLOAD}/amend", AmendHandler),
    (rf"/gpufair/lab/mine/{WORKLOAD}/(?P<action>{'|'.join(_ELSEWHERE)})", MyActionHandler),
]
