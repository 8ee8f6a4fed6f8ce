"""Who serves when: one service for a folder, or several that take turns at a database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from pathlib import Path

from gpufair.node.files import read_json
from gpufair.paths import SERVICE_FILE
from gpufair.service.lifecycle.leading_pod import LeadingPod
from gpufair.service.lifecycle.standby import stand_by
from gpufair.service.serve.parts import Start, open_parts
from gpufair.service.serve.serving import serve_parts
from gpufair.service.storage.leadership import Deposed, Leadership

_log = logging.getLogger("gpufair.service")


async def alone(start: Start, stop: asyncio.Event, pod: LeadingPod) -> None:
    """Serve until told to end; begin again where a service with another journal had taken over a cluster of this one."""
    deposed = asyncio.Event()
    while True:
        deposed.clear()
        async with contextlib.AsyncExitStack() as stack:
            parts = await open_parts(stack, start, deposed)
            pod.say(leads=True)
            await serve_parts(stack, parts, stop, deposed)
        if stop.is_set() or not deposed.is_set():
            return
        pod.say(leads=False)
        _log.warning("another service has the Lease of a cluster of this one: beginning again, and waiting for it")


async def take_turns(start: Start, stop: asyncio.Event, pod: LeadingPod) -> None:
    """Stand by until this service leads; serve until another one does; begin again."""
    while not stop.is_set():
        pod.say(leads=False)  # it may have been said by a container before this one
        async with contextlib.AsyncExitStack() as stack:
            leadership = await stack.enter_async_context(Leadership(start.place))
            service = start.config.service
            port = await stand_by(leadership, service.host, service.port, stop, start.tls)
            start = replace(start, config=replace(start.config, service=replace(service, port=port)))
            if not leadership.epoch:
                return
            _log.info("leading, in epoch %d", leadership.epoch)
            deposed = asyncio.Event()
            stack.push_async_callback(_cancelled, asyncio.create_task(_hold(leadership, start.state_dir, deposed)))
            with contextlib.suppress(Deposed):
                parts = await open_parts(stack, start, deposed, leadership.epoch)
                pod.say(leads=True)
                await serve_parts(stack, parts, stop, deposed)
            if not deposed.is_set() and not stop.is_set():
                return  # nobody has been here for the linger time
        _log.warning("another service leads: standing by")


async def _hold(leadership: Leadership, state_dir: Path, deposed: asyncio.Event) -> None:
    def elsewhere() -> bool:
        told = read_json(state_dir / SERVICE_FILE) or {}
        epoch = told.get("epoch")
        return isinstance(epoch, int) and epoch > leadership.epoch

    await leadership.hold(elsewhere)
    deposed.set()


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
