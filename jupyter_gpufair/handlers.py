"""REST under ``/gpufair/``: sessions for the front end. Errors are ``{"message", "reason"}``, as Jupyter's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from gpufair.client import AsyncClient, Refused, ServiceError, Unavailable
from gpufair.core.errors import GpufairError
from jupyter_gpufair.io_thread import on_io
from jupyter_gpufair.manager import provisioner_of, view_of
from jupyter_gpufair.provisioner import GpufairProvisioner
from jupyter_gpufair.recorded import executions_of
from jupyter_gpufair.session import Session
from jupyter_gpufair.sessions import sessions
from jupyter_gpufair.websocket import gate_of

_KERNEL = r"(?P<kernel_id>\w+-\w+-\w+-\w+-\w+)"
Ask = Callable[[Session], Coroutine[Any, Any, Any]]

ACTIONS: dict[str, Ask] = {
    "checkpoint": lambda session: session.ask(AsyncClient.checkpoint),
    "park": lambda session: session.ask(AsyncClient.park),
    "resume": lambda session: session.resume(),
    "open": lambda session: session.ask(AsyncClient.open_on_cpu),
    "dismiss": lambda session: session.ask(AsyncClient.dismiss),
    "restore": lambda session: session.ask(AsyncClient.restore),
}


class GpufairHandler(APIHandler):
    """Base: authorisation as for kernels, errors of the scheduler as answers."""

    auth_resource = "kernels"

    def _provisioner(self, kernel_id: str) -> tuple[GpufairProvisioner, Session]:
        provisioner = None
        if kernel_id in self.kernel_manager:
            provisioner = provisioner_of(self.kernel_manager.get_kernel(kernel_id))
        if provisioner is None or provisioner.session is None:
            raise web.HTTPError(404, f"kernel {kernel_id} is no session of the GPU scheduler, or is over")
        return provisioner, provisioner.session

    async def _ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await on_io(work)
        except Unavailable as err:
            raise web.HTTPError(503, str(err), reason="Scheduler Unavailable") from err
        except Refused as err:
            raise web.HTTPError(err.status if err.status in {403, 404, 409, 422, 429} else 409, str(err)) from err
        except ServiceError as err:
            raise web.HTTPError(502, str(err), reason="Scheduler Error") from err
        except GpufairError as err:
            raise web.HTTPError(503, str(err), reason="Scheduler Unavailable") from err

    def _json(self, value: object, status: int = 200) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value))

    async def _act(self, kernel_id: str, action: str) -> Any:
        """Begin an action of ``ACTIONS`` on a session of this server; its view."""
        provisioner, session = self._provisioner(kernel_id)
        if action == "park" and provisioner.gate is not None:
            # Cells that wait would resume it in the same moment: who parks does not want them run.
            provisioner.gate.withdraw()
        await self._ask(ACTIONS[action](session))
        return view_of(self.kernel_manager.get_kernel(kernel_id))


class StatusHandler(GpufairHandler):
    """``GET status``: is there a service, and what does it say of itself."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """200 in any case: "unavailable" with its reason is an answer."""
        known = sessions()
        answer: dict[str, Any] = {"available": False, "following": known.following, "sessions": len(known.all())}
        try:
            status = await on_io(known.link.client.status())
        except GpufairError as err:
            answer["problem"] = known.link.problem or str(err)
        else:
            answer |= {
                "available": True,
                "problem": None,
                "version": status.version,
                "mode": status.mode,
                "user": status.user,
                "nodes": status.nodes,
                "gpus": {"total": status.gpus.total, "free": status.gpus.free},
                "counts": status.counts,
            }
        self._json(answer)


class SessionsHandler(GpufairHandler):
    """``GET sessions``: all sessions of this server."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """As a list."""
        views = (
            view_of(self.kernel_manager.get_kernel(kernel_id)) for kernel_id in self.kernel_manager.list_kernel_ids()
        )
        self._json({"sessions": [view for view in views if view is not None]})


class SessionHandler(GpufairHandler):
    """``GET sessions/{kernel_id}``."""

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        """The session of one kernel."""
        _, session = self._provisioner(kernel_id)
        await on_io(session.look())
        self._json(view_of(self.kernel_manager.get_kernel(kernel_id)))


class OutputsHandler(GpufairHandler):
    """``GET sessions/{kernel_id}/outputs``: what the supervisor recorded."""

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        """Executions with their outputs, oldest first, and what only this server could say of them."""
        _, session = self._provisioner(kernel_id)
        gate = gate_of(self.kernel_manager.get_kernel(kernel_id))
        notes = dict(gate.kept.notes) if gate is not None else {}
        self._json({"executions": await self._ask(executions_of(session, notes))})


class CellsHandler(GpufairHandler):
    """``GET sessions/{kernel_id}/cells``: cells that are not answered yet."""

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        """``{"cells": [{"msg_id", "cell_id", "state": "sent" or "held"}]}``, in the order in which they run."""
        self._provisioner(kernel_id)
        gate = gate_of(self.kernel_manager.get_kernel(kernel_id))
        self._json({"cells": gate.cells() if gate is not None else []})


class ActionHandler(GpufairHandler):
    """``POST sessions/{kernel_id}/{checkpoint|park|resume|restore}``."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str, action: str) -> None:
        """202: it has begun; events tell how it goes on."""
        self._json(await self._act(kernel_id, action), 202)


class ExtendHandler(GpufairHandler):
    """``POST sessions/{kernel_id}/extend`` with ``{"min_runtime_s"}``."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        """202: it is protected for so long from now on. 409 where somebody else comes first."""
        _, session = self._provisioner(kernel_id)
        body = self.get_json_body()
        span_s = body.get("min_runtime_s") if isinstance(body, dict) else None
        if isinstance(span_s, bool) or not isinstance(span_s, (int, float)) or not 0 < span_s < 366 * 86_400:
            raise web.HTTPError(400, "give min_runtime_s: seconds, more than 0, for which nobody may take the GPUs")
        await self._ask(session.ask(lambda client, workload: client.extend(workload, float(span_s))))
        self._json(view_of(self.kernel_manager.get_kernel(kernel_id)), 202)


HANDLERS: list[tuple[str, type[GpufairHandler]]] = [
    (r"/gpufair/status", StatusHandler),
    (r"/gpufair/sessions", SessionsHandler),
    (rf"/gpufair/sessions/{_KERNEL}", SessionHandler),
    (rf"/gpufair/sessions/{_KERNEL}/outputs", OutputsHandler),
    (rf"/gpufair/sessions/{_KERNEL}/cells", CellsHandler),
    (rf"/gpufair/sessions/{_KERNEL}/extend", ExtendHandler),
    (rf"/gpufair/sessions/{_KERNEL}/(?P<action>{'|'.join(ACTIONS)})", ActionHandler),
]
