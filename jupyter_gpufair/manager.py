"""Jupyter's managers of kernels and sessions, where they must know that a kernel may be elsewhere or nowhere for a while."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from jupyter_server._tz import utcnow
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from jupyter_server.services.sessions.sessionmanager import SessionManager
from tornado.ioloop import IOLoop
from tornado.web import HTTPError

from gpufair.client import AsyncClient
from gpufair.core.errors import GpufairError
from gpufair.paths import private_dir, state_dir
from jupyter_gpufair import compat
from jupyter_gpufair.held_file import KEEP_S
from jupyter_gpufair.io_thread import on_io
from jupyter_gpufair.provisioner import GpufairProvisioner
from jupyter_gpufair.session import Session
from jupyter_gpufair.view import session_view

OFFLINE_BYTES = 8 << 20  # of messages for a page that lost its connection and may be back in a moment
REATTACH_S = 20.0  # a cold start of an embedded service, bounded: the page must load in the end


def provisioner_of(kernel_manager: Any) -> GpufairProvisioner | None:
    """Our provisioner of a kernel; None for kernels of others."""
    provisioner = getattr(kernel_manager, "provisioner", None)
    return provisioner if isinstance(provisioner, GpufairProvisioner) else None


def session_of(kernel_manager: Any) -> Session | None:
    """The session of a kernel; None for kernels of other provisioners."""
    provisioner = provisioner_of(kernel_manager)
    return provisioner.session if provisioner is not None else None


def view_of(kernel_manager: Any) -> dict[str, Any] | None:
    """The session of a kernel as JSON."""
    provisioner = provisioner_of(kernel_manager)
    if provisioner is None or provisioner.session is None:
        return None
    return session_view(provisioner.session, provisioner.gate.held if provisioner.gate is not None else 0)


class OfflineBuffer(list[tuple[str, list[bytes]]]):
    """Messages for a page that is away. Too many of them are given up together: what is shown must have no gap.

    Args:
        full: Called once, when there are too many.
    """

    def __init__(self, full: Callable[[], None]) -> None:
        super().__init__()
        self._full, self._size = full, 0

    def append(self, message: tuple[str, list[bytes]]) -> None:
        """Called by the server for each message."""
        before = self._size
        self._size += sum(map(len, message[1]))
        if self._size <= OFFLINE_BYTES:
            super().append(message)
        elif before <= OFFLINE_BYTES:
            self.clear()
            self._full()


class TakingUp:
    """A restarted server takes up the sessions of the one before it within a second or so.

    A page that asks sooner must not be told that its notebook has no kernel, or that its kernel is gone: it would give
    up the cells that it waits for, and start a second one.
    """

    reattached: asyncio.Future[None] | None = None

    @property
    def taking_up(self) -> bool:
        """Whether that is going on."""
        return self.reattached is not None and not self.reattached.done()

    async def taken_up(self) -> None:
        """Wait for it, for a while."""
        if self.reattached is not None and not self.reattached.done():
            await asyncio.wait([self.reattached], timeout=REATTACH_S)


class GpufairKernelManager(TakingUp, AsyncMappingKernelManager):
    """``ServerApp.kernel_manager_class``, unless another one is configured."""

    async def list_kernels(self) -> list[dict[str, Any]]:
        """Called for each look at the running kernels."""
        await self.taken_up()
        kernels: list[dict[str, Any]] = super().list_kernels()  # type: ignore[no-untyped-call]
        return kernels

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Jupyter's model of a kernel, with our session in ``gpufair``.

        Raises: tornado.web.HTTPError: 404, or 503 while it may still be found: a page asks again then.
        """
        if self.taking_up and kernel_id not in self:
            raise HTTPError(503, "the sessions of the server before this one are being looked for")
        model: dict[str, Any] = super().kernel_model(kernel_id)  # type: ignore[no-untyped-call]
        if (view := view_of(self.get_kernel(kernel_id))) is not None:
            model["gpufair"] = view
        return model

    async def shutdown_all(self, now: bool = False) -> None:  # type: ignore[override]
        """Called when the server ends."""
        compat.forget_failed_starts(self)
        await super().shutdown_all(now=now)

    def start_buffering(self, kernel_id: str, session_key: str, channels: dict[str, Any]) -> None:
        """Called when a kernel's last page goes away.

        A cell may print all night, and the server would keep all of it in memory. The supervisor's record has it too, and
        a page that comes back late is completed from there.
        """
        super().start_buffering(kernel_id, session_key, channels)  # type: ignore[no-untyped-call]
        info = compat.offline_buffer(self, kernel_id)
        if info is None or session_of(self.get_kernel(kernel_id)) is None:
            return

        def give_up() -> None:
            if compat.offline_buffer(self, kernel_id) is info:
                self.log.info("Kernel %s says more than is kept for a page that is away; its record has all.", kernel_id)
                self.stop_buffering(kernel_id)  # type: ignore[no-untyped-call]

        # Not at once: the stream that is to be closed is in the middle of a message.
        info["buffer"] = OfflineBuffer(lambda: IOLoop.current().add_callback(give_up))

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """Called by the culler for each kernel. Ours are parked: their GPUs are given back, their variables are kept."""
        kernel: Any = self.get_kernel(kernel_id)
        session = session_of(kernel)
        if session is None:
            await super().cull_kernel_if_idle(kernel_id)  # type: ignore[no-untyped-call]
            return
        timeout_s = (kernel.kernel_spec.metadata if kernel.kernel_spec else {}).get("cull_idle_timeout", self.cull_idle_timeout)
        idle = utcnow() - kernel.last_activity > timedelta(seconds=timeout_s)
        connected = bool(self._kernel_connections.get(kernel_id, 0)) and not self.cull_connected
        if session.state != "running" or not idle or connected or (kernel.execution_state == "busy" and not self.cull_busy):
            return
        self.log.warning("Parking kernel %s (%s): idle for more than %s seconds.", kernel.kernel_name, kernel_id, timeout_s)
        try:
            await on_io(session.ask(AsyncClient.park))
        except GpufairError as err:
            self.log.error("Kernel %s could not be parked: %s", kernel_id, err)


class GpufairSessionManager(TakingUp, SessionManager):
    """``ServerApp.session_manager_class``, unless another one is configured."""

    async def list_sessions(self) -> list[dict[str, Any]]:
        """Called for each look at the running sessions."""
        await self.taken_up()
        sessions: list[dict[str, Any]] = await super().list_sessions()  # type: ignore[no-untyped-call]
        return sessions

    async def session_exists(self, path: str) -> bool:
        """Called before a session is made for a document."""
        await self.taken_up()
        return bool(await super().session_exists(path))  # type: ignore[no-untyped-call]

    async def save_session(self, session_id: str, **of: Any) -> dict[str, Any]:  # type: ignore[override]
        """Called for each new session of a document. ``of``: path, name, type, kernel_id."""
        model: dict[str, Any] = await super().save_session(session_id, **of)  # type: ignore[no-untyped-call]
        self._remember(session_id, of.get("kernel_id"))
        return model

    async def update_session(self, session_id: str, **to: Any) -> None:
        """Called when a session is renamed, or given another kernel."""
        await super().update_session(session_id, **to)  # type: ignore[no-untyped-call]
        self._remember(session_id, to.get("kernel_id"))

    def _remember(self, session_id: str, kernel_id: str | None) -> None:
        manager: Any = self.kernel_manager
        if kernel_id in manager and session_of(manager.get_kernel(kernel_id)) is not None:
            try:
                (private_dir(_session_ids()) / str(kernel_id)).write_text(session_id)
            except OSError as err:
                self.log.warning("Open pages will lose kernel %s when this server is restarted: %s", kernel_id, err)


def _session_ids() -> Path:
    return state_dir() / "session-ids"


def session_id_of(kernel_id: str) -> str | None:
    """The id of a kernel's session in the server before this one: a page whose session is gone gives up its cells."""
    folder = _session_ids()
    with suppress(OSError, UnicodeDecodeError):
        for path in folder.iterdir():
            if path.stat().st_mtime < time.time() - KEEP_S:
                path.unlink()
        found = (folder / kernel_id).read_text()[:100]
        return found if re.fullmatch(r"[\w-]+", found) else None
    return None
