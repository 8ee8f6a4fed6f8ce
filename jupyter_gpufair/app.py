"""The server extension: a service in the background, kernelspecs, REST and events, and sessions that outlive servers."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from traitlets import Unicode
from traitlets.config import Config

from gpufair.core.errors import GpufairError
from jupyter_gpufair import compat
from jupyter_gpufair.io_thread import on_io
from jupyter_gpufair.manager import (
    GpufairKernelManager,
    GpufairSessionManager,
    TakingUp,
    provisioner_of,
    view_of,
)
from jupyter_gpufair.overview import LAB_EVENT, LAB_SCHEMA, ROUTES
from jupyter_gpufair.pool_pages import PAGES
from jupyter_gpufair.profiles import SHIPPED, own_folder, write_kernelspecs
from jupyter_gpufair.reattach import reattach
from jupyter_gpufair.session import Session
from jupyter_gpufair.sessions import sessions
from jupyter_gpufair.view import SESSION_EVENT, SESSION_SCHEMA
from jupyter_gpufair.websocket import GpufairWebsocketConnection

AGAIN_S = 5.0
LAB_EVERY_S = 1.0

CLASSES: dict[str, type] = {
    "kernel_manager_class": GpufairKernelManager,
    "session_manager_class": GpufairSessionManager,
    "kernel_websocket_connection_class": GpufairWebsocketConnection,
}
WITHOUT = {
    "kernel_manager_class": "idle sessions are culled instead of parked",
    "session_manager_class": "a page that loads while sessions are taken up may start a second kernel",
    "kernel_websocket_connection_class": "cells sent while a session waits are not held, and pages wait with it",
}


class GpufairExtension(ExtensionApp):
    """See the module."""

    name = "jupyter_gpufair"
    load_other_extensions = True
    handlers: list[tuple[Any, ...]] = [*ROUTES, *PAGES]  # noqa: RUF012 - as the base class has it

    config_file_for_service = Unicode(
        "",
        config=True,
        help="gpufair.toml for a scheduler service that this server has to start; default: the usual places.",
    )

    _background: asyncio.Task[None] | None = None
    _announcing: asyncio.TimerHandle | None = None
    _folder: Path | None = None
    _hidden: frozenset[str] = frozenset()

    # ------------------------------------------------------------------ before the server is set up
    def load_config_file(self, *args: Any, **kwargs: Any) -> None:
        """Called while the extension is linked, before the server makes its managers: where ours are put in."""
        super().load_config_file(*args, **kwargs)
        server = self.serverapp
        if server is None:
            return
        ours = Config()
        for name, cls in CLASSES.items():
            if name in server.config.ServerApp:
                self.log.warning("ServerApp.%s is configured: %s.", name, WITHOUT[name])
            elif server.config.GatewayClient.get("url"):
                self.log.warning("Kernels come from a gateway: the GPU scheduler is not used.")
                return
            else:
                ours.ServerApp[name] = cls
        self.update_config(ours)

    def initialize_settings(self) -> None:
        """Called once the server's parts are there."""
        server = self._server()
        assert server.event_logger is not None
        assert server.kernel_spec_manager is not None
        for schema in (SESSION_SCHEMA, LAB_SCHEMA):
            server.event_logger.register_event_schema(schema)
        logging.getLogger("jupyter_gpufair").parent = self.log  # ours into the server's log
        logging.getLogger("jupyter_gpufair").setLevel(self.log.getEffectiveLevel())
        known = sessions()
        known.holder, known.stopping = True, False
        known.link.config = self.config_file_for_service or None
        # A folder for each server: another one may know other profiles.
        self._folder = own_folder(Path(server.runtime_dir))
        # First: a profile of the service names its kernel, not the one that we ship under the same name.
        server.kernel_spec_manager.kernel_dirs.insert(0, str(self._folder))
        compat.hide_kernelspecs(server.kernel_spec_manager, lambda: self._hidden)

    # ------------------------------------------------------------------ while it runs
    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Called on the server's loop once it runs. Returns at once: the page need not wait for a scheduler."""
        loop = asyncio.get_running_loop()
        sessions().listeners = ((loop, self._session_changed),)
        sessions().lab_changed = partial(loop.call_soon_threadsafe, self._lab_changed)
        for manager in (serverapp.session_manager, serverapp.kernel_manager):
            if isinstance(manager, TakingUp):
                manager.reattached = loop.create_future()
        self._background = loop.create_task(self._bring_up(serverapp))

    async def _bring_up(self, server: ServerApp) -> None:
        begun = time.monotonic()
        said = ""
        while True:
            try:
                endpoint = await on_io(sessions().link.ready())
                await self._profiles(server)
                taken = await reattach(server.kernel_manager, server.session_manager, server.root_dir)
                break
            except GpufairError as err:
                if str(err) != said:
                    said = str(err)
                    self.log.error("No GPU sessions for now: %s", said)
                self._reattached(server)  # nothing to wait for
            await asyncio.sleep(AGAIN_S)
        self._reattached(server)
        await on_io(_follow())
        self.log.info(
            "Scheduler service at %s, ready after %.1f s; %d sessions taken up.",
            endpoint.url,
            time.monotonic() - begun,
            len(taken),
        )

    async def _profiles(self, server: ServerApp) -> None:
        assert self._folder is not None
        profiles = await on_io(sessions().link.call(lambda client: client.profiles()))
        names = await asyncio.to_thread(write_kernelspecs, profiles, self._folder)
        # Those that we ship are for the default profiles; a service with others could not start them.
        self._hidden = SHIPPED.difference(names)
        self.log.info("Kernels of the scheduler's profiles: %s", ", ".join(names) or "none")

    @staticmethod
    def _reattached(server: ServerApp) -> None:
        for manager in (server.session_manager, server.kernel_manager):
            future = getattr(manager, "reattached", None)
            if future is not None and not future.done():
                future.set_result(None)

    def _session_changed(self, session: Session) -> None:
        """Called on the server's loop after each change of a session."""
        server = self._server()
        if session.kernel_id not in server.kernel_manager or sessions().stopping:
            return
        kernel: Any = server.kernel_manager.get_kernel(session.kernel_id)
        provisioner = provisioner_of(kernel)
        if provisioner is None or provisioner.session is not session:
            return
        if (view := view_of(kernel)) is not None and server.event_logger is not None:
            server.event_logger.emit(schema_id=SESSION_EVENT, data=view)
        if session.ended and not kernel.shutting_down:
            reason = session.workload.reason if session.workload is not None else ""
            self.log.warning("Session %s is over: %s", session.kernel_id, reason or "it was ended")
            kernel.reason = reason
            if provisioner.gate is not None:
                provisioner.gate.close(keep=True)  # what is to be said of its cells can still be read
            compat.declare_dead(kernel)

    def _lab_changed(self) -> None:
        """Called on the server's loop after each change of any workload: pages look again, but not more than once a second."""
        if self._announcing is None:
            self._announcing = asyncio.get_running_loop().call_later(LAB_EVERY_S, self._announce)

    def _announce(self) -> None:
        self._announcing = None
        if (events := self._server().event_logger) is not None and not sessions().stopping:
            events.emit(schema_id=LAB_EVENT, data={"at_s": time.time()})

    # ------------------------------------------------------------------ the end
    async def stop_extension(self) -> None:
        """Called before the server shuts its kernels down: from here on nothing reaches them, and sessions go on."""
        sessions().stopping = True
        # Jupyter is about to log that it shuts down their kernels, which is true of its side only.
        live = sum(1 for one in sessions().all() if not one.ended)
        if live:
            self.log.info("%d GPU %s without this server.", live, "session goes on" if live == 1 else "sessions go on")
        if self._background is not None:
            self._background.cancel()
        sessions().listeners, sessions().lab_changed = (), lambda: None
        if self._announcing is not None:
            self._announcing.cancel()
        await on_io(sessions().close())
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _server(self) -> ServerApp:
        assert self.serverapp is not None
        return self.serverapp


async def _follow() -> None:
    sessions().follow()
