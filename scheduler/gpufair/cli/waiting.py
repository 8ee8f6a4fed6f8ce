"""Waiting until what was asked for has happened: bounded, with the state shown to whoever watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from gpufair.cli.exits import CommandError
from gpufair.cli.output import console
from gpufair.cli.words import NOTHING, clean, clock, span, what

if TYPE_CHECKING:
    from gpufair.client import Client
    from gpufair.client.types import Workload

_POLL_S = 0.25
_SLOW_POLL_S = 1.0
_SLOW_AFTER_S = 10.0


class NotDone(CommandError):
    """It did not come to that in time, or cannot any more."""


def wait_for(
    service: Client,
    workload: Workload,
    goal: str,
    done: Callable[[Workload], bool],
    failed: Callable[[Workload], str | None],
    timeout_s: float,
    *,
    quiet: bool,
) -> Workload:
    """Ask until ``done``; what the wait began stays begun if it is given up.

    Args:
        goal: What is waited for, for texts: "parked".
        failed: A sentence once the goal cannot be reached any more, else None.
        timeout_s: Seconds, >= 0.
        quiet: Show nothing.

    Raises:
        NotDone: ``failed`` said so, or the time is over.
    """
    err = console(err=True)
    begun = time.monotonic()
    spinner = err.status(_shown(workload, goal, 0)) if err.is_terminal and not quiet else None
    with spinner or nullcontext():
        seen = ""
        while True:
            if done(workload):
                return workload
            if reason := failed(workload):
                raise NotDone(reason)
            waited = time.monotonic() - begun
            if waited >= timeout_s:
                raise NotDone(
                    f"{clean(workload.label)} is not {goal} after {span(timeout_s)} but {what(workload)}"
                    f"{_because(workload)}; it goes on: `gpufair why {workload.id[:8]}` says how it stands"
                )
            if spinner is not None:
                spinner.update(_shown(workload, goal, waited))
            elif not quiet and (now := what(workload)) != seen:
                seen = now
                err.print(f"{clean(workload.label)}: {now}", markup=False)
            time.sleep(min(_SLOW_POLL_S if waited > _SLOW_AFTER_S else _POLL_S, max(timeout_s - waited, 0.0)))
            workload = service.workload(workload.id)


def over(workload: Workload) -> str | None:
    """A sentence if ``workload`` has ended: then nothing more comes of it."""
    if workload.live:
        return None
    return f"{clean(workload.label)} has ended ({workload.outcome or 'outcome unknown'}){_because(workload)}"


def _because(workload: Workload) -> str:
    return f" ({clean(workload.reason)})" if workload.reason else ""


def _shown(workload: Workload, goal: str, waited: float) -> str:
    from rich.markup import escape  # noqa: PLC0415  # only for a terminal

    state = escape(f"{clean(workload.label)}: {what(workload)}{_starts(workload, time.time())}")
    return f"{state} [dim](waiting until it is {goal}, {span(round(waited)) if waited >= 1 else NOTHING})[/dim]"


def _starts(workload: Workload, now: float) -> str:
    if workload.start_by_s is not None:
        return f", starts by {clock(workload.start_by_s, now)}"
    return f", starts about {clock(workload.estimate_s, now)}" if workload.estimate_s else ""
