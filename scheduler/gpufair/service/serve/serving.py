"""A service that listens, until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import ssl
from pathlib import Path

from fastapi import FastAPI

from gpufair.node.files import write_json
from gpufair.paths import SERVICE_FILE
from gpufair.service.api import build_app
from gpufair.service.backends.local import LocalAgents
from gpufair.service.lifecycle import closing
from gpufair.service.lifecycle.lifetime import Lifetime
from gpufair.service.lifecycle.listening import ServeError, Server, listen, url_of
from gpufair.service.lifecycle.standby import options as http_options
from gpufair.service.serve.parts import Parts
from gpufair.service.web.context import Context
from gpufair.service.web.gate import is_loopback

_log = logging.getLogger("gpufair.service")


async def serve_parts(
    stack: contextlib.AsyncExitStack, parts: Parts, stop: asyncio.Event, deposed: asyncio.Event
) -> None:
    """Serve until told to end or deposed, or, embedded, until the linger time is over; sessions are then parked.

    Raises:
        ServeError: The HTTP server ended by itself.
    """
    it, agents, listener, tls = parts.it, parts.agents, parts.listener, parts.start.tls
    app = build_app(it)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app.state.reloader.reload_soon)
    serving = await _listen(stack, it, app, listener, tls)
    url = url_of(listener, "http" if tls is None else "https")
    near = url
    if tls is not None:
        # Agents of this machine and who has the state folder know the service by its file, not by a certificate's name.
        local = stack.enter_context(listen("127.0.0.1", 0))
        await _listen(stack, it, app, local, None)
        near = url_of(local, "http")
    service_file = it.state_dir / SERVICE_FILE
    info: dict[str, object] = {
        "url": near,
        "token": it.secrets.operator_token(),
        "pid": os.getpid(),
        "started_s": it.started_at / 1000,
        "version": it.version,
        "epoch": it.hub.epoch,
        "config": None if parts.start.config_file is None else str(parts.start.config_file),
    }
    await asyncio.to_thread(write_json, service_file, info)
    stack.callback(_unlink_own, service_file, info)
    # After the file: the agents look there for the address.
    await agents.start()
    stack.push_async_callback(agents.leave)
    await it.cpu_pool.start()
    stack.push_async_callback(it.cpu_pool.leave)
    _log.info("listening on %s, state in %s", url, it.state_dir)
    if tls is None and not is_loopback(listener.getsockname()[0]):
        _log.warning("other machines can reach this, and tokens travel unencrypted: see [tls] of gpufair.toml")
    await _until_over(it, stop, deposed, serving)
    if it.embedded and not serving.done() and not deposed.is_set():
        await _park_everything(it, agents, stop)


async def _listen(
    stack: contextlib.AsyncExitStack, it: Context, app: FastAPI, listener: socket.socket, tls: ssl.SSLContext | None
) -> asyncio.Task[None]:
    """Serve ``app`` there; what is returned ends with that."""
    server = Server(http_options(app, tls, it.config.service.proxies))
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    stack.push_async_callback(_end_http, server, serving, it)
    await server.wait_listening(serving)
    return serving


def _unlink_own(service_file: Path, info: dict[str, object]) -> None:
    """Remove the file, unless it is another service's: somebody may have removed our folder and started that one.

    In containers all have the same pid, so everything in it is compared.
    """
    with contextlib.suppress(OSError, ValueError):
        if json.loads(service_file.read_bytes()) == info:
            service_file.unlink()


async def _until_over(
    it: Context, stop: asyncio.Event, deposed: asyncio.Event, serving: asyncio.Task[None]
) -> None:
    waits: set[asyncio.Task[object]] = {asyncio.create_task(_told(stop)), asyncio.create_task(_told(deposed))}
    if it.embedded:
        waits.add(asyncio.create_task(_over(it.lifetime)))
    try:
        await asyncio.wait({*waits, serving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    if serving.done():
        raise ServeError(f"the HTTP server ended by itself: {serving.exception() or 'no reason was given'}")
    if deposed.is_set():
        return
    _log.info("told to end" if stop.is_set() else "nobody has been here for the linger time: ending")


async def _park_everything(it: Context, agents: LocalAgents, stop: asyncio.Event) -> None:
    """Park all sessions and end the agents. A second signal cuts it short: supervisors then wait for the next service."""
    stop.clear()
    parking = asyncio.create_task(closing.park_all(it.runtime, it.journal, it.dispatcher))
    impatient = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({parking, impatient}, return_when=asyncio.FIRST_COMPLETED)
        if not parking.done():
            _log.warning("told to end again: workloads go on by themselves until the next service")
            return
        if not parking.result():
            _log.error("not everything has left its GPUs; its agents go on until the next service")
            return
        await agents.stop()
        await it.cpu_pool.stop()
        await closing.lose_all_nodes(it.runtime)
        _log.info("every session is parked; the next start offers them for resuming")
    finally:
        for task in (parking, impatient):
            task.cancel()
        await asyncio.gather(parking, impatient, return_exceptions=True)


async def _end_http(server: Server, serving: asyncio.Task[None], it: Context) -> None:
    it.lifetime.ending.set()  # event streams end, so that nobody has to be cut off
    it.pods.close()
    await it.hub.close()  # and so do the agents' polls
    server.should_exit = True
    await asyncio.gather(serving, return_exceptions=True)
    # A quick next start is worth one more write; without it the journal is enough.
    await it.runtime.snapshot()


async def _told(stop: asyncio.Event) -> object:
    return await stop.wait()


async def _over(lifetime: Lifetime) -> object:
    await lifetime.wait_over()
    return None
