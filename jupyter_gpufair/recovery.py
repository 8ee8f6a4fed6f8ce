"""What became of the cells that a server before us held: exactly once means that what has begun never begins again.

The file of held cells says which were not answered. Whether one of these reached a kernel and began is in the record
that the supervisor beside the kernel keeps, and nowhere else. So the record decides: what is in it ran, what is not in
it did not, provided that the record is complete up to a moment after the last thing that the old server can have sent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gpufair.client import AsyncClient, Workload
from gpufair.core.errors import GpufairError
from jupyter_gpufair import again
from jupyter_gpufair.cell import Cell
from jupyter_gpufair.io_thread import on_io
from jupyter_gpufair.kernel_line import KernelLine
from jupyter_gpufair.session import Session

# States in which no kernel exists: its record is closed before a session gets there.
AWAY = frozenset({"parked", "queued", "ended"})
RECORD_S = 10.0  # a supervisor writes within milliseconds what it hears
RECORD_AGAIN_S = 0.1
AGAIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Account:
    """Executions of a record, by message id. ``complete``: what is not among them has not begun."""

    runs: Mapping[str, Mapping[str, Any]]
    complete: bool


@dataclass(slots=True)
class Verdict:
    """What is to be done with cells that were found, each list in their order."""

    wait: list[Cell] = field(default_factory=list)
    again: list[tuple[Cell, str]] = field(default_factory=list)  # as well: with the checkpoint from which it runs again
    ran: list[Cell] = field(default_factory=list)
    skip: list[Cell] = field(default_factory=list)  # the one before it failed, as in a kernel's own queue
    unknown: list[Cell] = field(default_factory=list)  # may have begun: twice is worse than not at all


async def account(session: Session, line: KernelLine) -> Account | None:
    """What has run; None if that cannot be said now, because a kernel comes or goes.

    Where a kernel runs, this takes as long as what was sent to it before.

    Raises: GpufairError: The service cannot be asked.
    """
    attached, question = session.attached, None
    if attached is not None:
        if not line.open or (question := await line.settled()) is None:
            return None
    elif session.state not in AWAY:
        return None
    until = time.monotonic() + RECORD_S
    while True:
        runs = {run["msg_id"]: run for run in await on_io(session.ask(AsyncClient.outputs))}
        if session.attached != attached:
            return None
        complete = question is None or question in runs
        if complete or time.monotonic() > until:
            return Account(runs, complete)
        await asyncio.sleep(RECORD_AGAIN_S)


async def settled_account(session: Session, line: KernelLine, news: asyncio.Event, log: logging.Logger) -> Account:
    """Wait until it can be said. ``news``: set whenever something has changed."""
    while True:
        news.clear()
        try:
            found = await account(session, line)
        except GpufairError as err:
            log.warning("session %s: its record cannot be read yet: %s", session.kernel_id, err)
            found = None
        if found is not None:
            return found
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), AGAIN_S)


def sort_out(cells: Iterable[Cell], found: Account, workload: Workload) -> Verdict:
    """Decide for each of the cells of a server before us, in the order in which they were sent."""
    verdict = Verdict()
    stopped = False
    for cell in cells:
        run = found.runs.get(cell.msg_id)
        begins_with = run.get("again_from") if run is not None else None
        if run is not None and run.get("status") == "interrupted" and again.possible(cell, begins_with, workload):
            verdict.again.append((cell, str(begins_with)))
        elif run is not None:
            verdict.ran.append(cell)
            stopped = stopped or (cell.stop_on_error and run.get("status") != "ok")
        elif stopped:
            verdict.skip.append(cell)
        elif found.complete:
            verdict.wait.append(cell)
        else:
            verdict.unknown.append(cell)
            stopped = True
    return verdict
