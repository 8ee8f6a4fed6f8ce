"""Tasks that outlive their kernel: the scheduler keeps what a checkpoint mentions for the kernel that restores it.

Dask forgets what no connected client wants. So a client of ours that never connects wants these tasks, from just before a
checkpoint is written until a later one does without them. What no kernel asks for goes after a while, and earlier where
it fills the workers' memory.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from distributed import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from gpufair.core.errors import GpufairError

OWNER = "gpufair-kept"
KEPT_FOR_S = 3 * 24 * 3600.0  # after the last kernel that had looked for it is gone: a long weekend
SHARE = 0.5  # of the workers' memory, for results that no kernel asks for
_LOOK_S = 60.0
_ANSWER_S = 2.0  # of a checkpoint's time, in all
_POLL_S = 0.01


class ResultGone(GpufairError):
    """A task that came back with a checkpoint has nothing behind it any more."""

    def __init__(self, what: str, why: str, remedy: str = "run the cell again that asks for it") -> None:
        super().__init__(what, why, remedy)
        self.what, self.why, self.remedy = what, why, remedy

    def __str__(self) -> str:
        return f"{self.what} is not in the CPU pool any more: {self.why}; {self.remedy}"


def keep(
    client: Any, tickets: Sequence[str], *, reader: str = "", kept_for_s: float = KEPT_FOR_S, share: float = SHARE
) -> list[str]:
    """Keep these tasks, or keep them longer; returns those that the scheduler does not know.

    Args:
        client: Of Dask, connected.
        tickets: Keys of tasks.
        reader: The id of a client that wants to have them, too.
        kept_for_s: How long after the last connected client that wanted one; as the first call on a scheduler says.
        share: As ``SHARE``; likewise.

    Raises:
        OSError, TimeoutError: The scheduler does not answer.
    """

    keeper_class = _keeper_class()

    def on_scheduler(dask_scheduler: Any) -> list[str]:
        keeper = dask_scheduler.plugins.get(OWNER)
        if keeper is None:
            keeper = keeper_class(dask_scheduler, kept_for_s, share)
            dask_scheduler.add_plugin(keeper, name=OWNER)
        known = [ticket for ticket in tickets if ticket in dask_scheduler.tasks]
        for name in filter(None, (OWNER, reader)):
            dask_scheduler.client_desires_keys(known, name)
        keeper.wanted_at.update(dict.fromkeys(known, time.monotonic()))
        return [ticket for ticket in tickets if ticket not in dask_scheduler.tasks]

    found: list[str] = _ask(client, on_scheduler)
    return found


def _keeper_class() -> Any:
    """Made in a function, as what is called on the scheduler is: so it travels by value, and a scheduler need not have gpufair."""

    class Keeper(SchedulerPlugin):
        def __init__(self, scheduler: Any, kept_for_s: float, share: float) -> None:
            self.wanted_at: dict[str, float] = {}
            self._scheduler, self._kept_for_s, self._share = scheduler, kept_for_s, share
            self._timer = PeriodicCallback(self._look, 1000 * min(_LOOK_S, kept_for_s / 4))
            self._timer.start()

        async def close(self) -> None:
            self._timer.stop()

        def _look(self) -> None:
            """Let go of what is too old or too much."""
            now = time.monotonic()
            unwanted = []
            for ticket in list(self.wanted_at):
                task = self._scheduler.tasks.get(ticket)
                if task is None:
                    del self.wanted_at[ticket]
                elif len(task.who_wants or ()) > 1:
                    self.wanted_at[ticket] = now
                else:
                    unwanted.append(task)
            unwanted.sort(key=lambda task: self.wanted_at[task.key])
            room = self._share * sum(worker.memory_limit or 0 for worker in self._scheduler.workers.values())
            used = sum(max(task.nbytes, 0) for task in unwanted)
            for task in unwanted:
                if now - self.wanted_at[task.key] > self._kept_for_s or (used > room > 0 and task.nbytes > 0):
                    used -= max(task.nbytes, 0)
                    self.drop([task.key])

        def drop(self, tickets: list[str]) -> None:
            for ticket in tickets:
                self.wanted_at.pop(ticket, None)
            if OWNER in self._scheduler.clients:
                self._scheduler.client_releases_keys(tickets, OWNER)

    return Keeper


def let_go(client: Any, tickets: Collection[str]) -> None:
    """Keep these no longer than a connected client wants them."""
    if not tickets:
        return
    found = sorted(tickets)

    def on_scheduler(dask_scheduler: Any) -> None:
        if (keeper := dask_scheduler.plugins.get(OWNER)) is not None:
            keeper.drop(found)

    with suppress(OSError, TimeoutError):  # a pool that is gone keeps nothing
        _ask(client, on_scheduler)


def keep_new(client: Any, tickets: Collection[str]) -> set[str]:
    """As ``keep``, for tasks that were sent a moment ago and that the scheduler may not have read yet; those that are kept."""
    left = sorted(tickets)
    until = time.monotonic() + _ANSWER_S
    try:
        while (left := keep(client, left)) and time.monotonic() < until:
            time.sleep(_POLL_S)
    except (OSError, TimeoutError):
        return set()
    return set(tickets) - set(left)


def _ask(client: Any, function: Any) -> Any:
    return client.sync(client._run_on_scheduler, function, callback_timeout=_ANSWER_S)  # noqa: SLF001 - the public one waits for ever
