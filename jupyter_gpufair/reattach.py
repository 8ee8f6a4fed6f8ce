"""A restarted server takes up the sessions that outlived the one before it, so that open notebooks find their kernels."""

from __future__ import annotations

import logging
import os
from typing import Any

from gpufair.client import Workload
from gpufair.core.errors import GpufairError
from jupyter_gpufair.held_file import files, held_folder, prune
from jupyter_gpufair.io_thread import on_io
from jupyter_gpufair.launch import place_of
from jupyter_gpufair.manager import session_id_of
from jupyter_gpufair.provisioner import adopting
from jupyter_gpufair.sessions import sessions
from jupyter_gpufair.websocket import gate_of

log = logging.getLogger(__name__)


async def reattach(kernel_manager: Any, session_manager: Any, root: str) -> list[str]:
    """Give each live session of a document under ``root`` its kernel and its entry in ``/api/sessions`` again.

    Returns: The kernel ids taken up.
    Raises: GpufairError: The service cannot be asked.
    """
    prune(held_folder())
    link = sessions().link
    user = link.user or (await on_io(link.call(lambda client: client.status()))).user
    taken = []
    for workload in await on_io(link.call(lambda client: client.workloads(user=user or None))):
        place = place_of(workload.notebook, root)
        if not workload.live or not workload.kernel_name or place is None or workload.id in kernel_manager:
            continue
        try:
            await take_up(kernel_manager, session_manager, workload, place)
        except Exception as err:  # noqa: BLE001 - one that cannot be taken up must not keep the others away
            log.error(
                "session %s (%s) was found but not taken up: %s. It goes on; `gpufair sessions list` shows it",
                workload.id,
                place[0],
                err,
            )
        else:
            taken.append(workload.id)
    return taken


async def take_up(kernel_manager: Any, session_manager: Any, workload: Workload, place: tuple[str, str, str]) -> None:
    """Give a live session its kernel in this server, and the entry of its document."""
    path, name, kind = place
    adopting.add(workload.id)
    try:
        await kernel_manager.start_kernel(
            kernel_id=workload.id,
            kernel_name=workload.kernel_name,
            path=path,
            env={**os.environ, "JPY_SESSION_NAME": workload.notebook},
        )
    finally:
        adopting.discard(workload.id)
    kernel = kernel_manager.get_kernel(workload.id)
    if workload.busy:
        kernel.execution_state = "busy"
    if files(held_folder(), workload.id):
        gate_of(kernel)  # cells wait, and they need no browser to run
    of = {"path": path, "name": name, "type": kind, "kernel_id": workload.id}
    if (known := session_id_of(workload.id)) is not None:
        await session_manager.save_session(known, **of)
    else:
        await session_manager.create_session(**of)
    log.info("session %s (%s) was taken up again: it is %s", workload.id, path, workload.state)


__all__ = ["GpufairError", "reattach", "take_up"]
