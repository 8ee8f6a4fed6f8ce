"""Why a task of the pool does not begin: said once to whoever waits for it, and when waiting is in vain."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpufair.cpu.errors import WorkersGone

TELL_S = 5.0  # before it nobody wonders
_ANSWER_S = 5.0
TURNS = "gpufair-turns"  # the plugin of a pool that several users share; see ``fair``, which is heavy


@dataclass(frozen=True)
class Line:
    """How it stands in a pool: its workers, their threads, and the tasks that begin before any that we wait for.

    ``turns``: it gives turns to several users, and starts workers itself; ``ahead`` is then what runs and what waits of
    one's own. ``quota``: so many tasks of one's own run, and no more may; ``ahead`` is then one's own.
    """

    workers: int
    threads: int
    ahead: int
    turns: bool = False
    quota: int = 0

    def told(self, address: str) -> str | None:
        """A sentence for whoever waits; None while a task of theirs runs."""
        if self.quota:
            return (
                f"your quota of {_plural(self.quota, 'task')} in the CPU pool at {address} is in use; {self.ahead} ahead of you. "
                "Interrupt to give it up"
            )
        if not self.workers:
            remedy = (
                "It starts workers now" if self.turns else
                f"This goes on waiting for some: start one with `dask worker {address}`, or interrupt and call "
                "gpufair.cpu.connect with another pool"
            )  # fmt: skip
            return f"the CPU pool at {address} has no workers; {_tasks(self.ahead)} ahead of yours. {remedy}"
        if self.ahead < self.threads:
            return None
        busy = "its only worker is busy" if self.workers == 1 else f"all its {self.workers} workers are busy"
        order = "; next is the allocation that is furthest below its share" if self.turns else ""
        return (
            f"yours waits for its turn in the CPU pool at {address}: {busy}, and {_tasks(self.ahead)} ahead{order}. "
            "Interrupt to give it up"
        )


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _tasks(count: int) -> str:
    return f"{_plural(count, 'task')} {'is' if count == 1 else 'are'}"


def line(client: Any, tickets: Sequence[str]) -> Line | None:
    """How it stands for these tasks, none of which is done; None where the scheduler does not say."""

    # Nested, so that it travels by value: a scheduler need not have gpufair.
    def count(tickets: Sequence[str], plugin: str, dask_scheduler: Any) -> tuple[int, int, int, bool, int]:
        workers = dask_scheduler.workers.values()
        threads = sum(worker.nthreads for worker in workers)
        if (turns := dask_scheduler.plugins.get(plugin)) is not None:
            ahead, quota = turns.standing(tickets)
            return len(workers), threads, ahead, True, quota
        # Of equal priorities, which tasks sent within a tenth of a second have, the older goes first.
        states = {"processing", "queued", "no-worker"}
        order = enumerate(dask_scheduler.tasks.values())
        live = [(task.priority, at, task.key) for at, task in order if task.state in states]
        ours = set(tickets)
        first = min((found for found in live if found[2] in ours), default=None)
        ahead = len(live) if first is None else sum(found < first for found in live)
        return len(workers), threads, ahead, False, 0

    try:
        return Line(*client.sync(client._run_on_scheduler, count, tickets, TURNS, callback_timeout=_ANSWER_S))  # noqa: SLF001 - the public one waits for ever
    except Exception:  # noqa: BLE001 - another release's scheduler, or one that is gone, which the caller finds out
        return None


class Watch:
    """Looks now and then how it stands for tasks that somebody waits for."""

    def __init__(self, pool: Any, every_s: float | None = None) -> None:
        self._pool = pool
        self._every_s = min(TELL_S, pool.workers_wait_s / 2) if every_s is None else every_s
        self._next = time.monotonic() + self._every_s
        self._empty_since: float | None = None
        self._told = False

    def look(self, tickets: Sequence[str]) -> None:
        """Tell on standard error, at most once, what these tasks wait for.

        Raises:
            WorkersGone: The pool had workers, and has had none for as long as is allowed.
        """
        if time.monotonic() < self._next:
            return
        found = line(self._pool.client, tickets)
        now = time.monotonic()
        self._next = now + self._every_s
        if found is None:
            return
        if found.workers:
            self._pool.had_workers, self._empty_since = True, None
        elif self._empty_since is None:
            self._empty_since = now
        elif self._pool.had_workers and now - self._empty_since >= self._pool.workers_wait_s:
            raise WorkersGone(self._pool.address, now - self._empty_since)
        if not self._told and (text := found.told(self._pool.address)):
            self._told = True
            print(text, file=sys.stderr)  # noqa: T201 - under the cell
