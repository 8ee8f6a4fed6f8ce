"""What the pool was asked for, as the notebook holds it. It survives a restore: its ticket is saved, its result stays there."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gpufair.core.errors import GpufairError
from gpufair.cpu import kept
from gpufair.cpu.errors import Cancelled
from gpufair.workload import companions

if TYPE_CHECKING:
    from gpufair.cpu.pool import Pool

Kind = Literal["own", "machine", "service", "address", "gateway"]  # of a pool
cancelled: set[str] = set()  # tickets
_living: weakref.WeakSet[Task] = weakref.WeakSet()
_restored: dict[str, str] = {}  # ticket -> id of its scheduler; those that came with a checkpoint
_mentioned: set[str] = set()  # tickets that were pickled since the present checkpoint began


@dataclass(frozen=True)
class Where:
    """Which pool has a task.

    Attributes:
        kind: ``own`` (it ends with the kernel), ``machine`` (of `gpufair cpu start`), ``service`` (that it keeps), ``address``, or
            ``gateway``: a cluster there.
        address: Of the scheduler.
        scheduler: Its id, which another one at the same address does not have.
        machine: The name of the kernel's.
    """

    kind: Kind
    address: str
    scheduler: str
    machine: str


class Task:
    """What the pool is asked for. It may be an argument of further tasks: its result then stays in the pool."""

    def __init__(self, where: Where, ticket: str, name: str, pool: Pool | None = None, future: Any = None) -> None:
        """Without pool and future, which are looked for when they are needed: one that comes back with a checkpoint."""
        self.where, self.ticket, self.name = where, ticket, name
        self._pool, self._future = pool, future
        _living.add(self)

    @property
    def attached(self) -> bool:
        """Whether it is known where it stands: not so after a restore, until somebody asks."""
        return self._future is not None

    def take(self, pool: Pool, future: Any) -> None:
        """It has been found again."""
        self._pool, self._future = pool, future

    @property
    def pool(self) -> Pool:
        """The pool that has it."""
        attach([self])
        assert self._pool is not None
        return self._pool

    @property
    def future(self) -> Any:
        """Dask's own.

        Raises:
            Cancelled, ResultGone: There is nothing behind a task that was restored.
        """
        attach([self])
        return self._future

    def done(self) -> bool:
        """Whether it has ended, well or not."""
        try:
            return bool(self.future.done())
        except (Cancelled, kept.ResultGone):
            return True

    def result(self) -> Any:
        """Wait for the result, or raise what the task raised; an interrupt cancels the task."""
        return self.pool.gather(self)

    def cancel(self) -> None:
        """Stop it, where it runs as well; its result is gone."""
        try:
            self.pool.cancel([self])
        except GpufairError:  # there is nothing to stop
            cancelled.add(self.ticket)

    def __repr__(self) -> str:
        status = "not looked for since the restore" if self._future is None else self._future.status
        return f"<{self.name} in the CPU pool: {status}>"

    def __copy__(self) -> Task:
        return self

    def __deepcopy__(self, memo: object) -> Task:
        return self

    def __reduce__(self) -> Any:
        _mentioned.add(self.ticket)
        return _restore, (self.where, self.ticket, self.name, self.ticket in cancelled)


def _restore(where: Where, ticket: str, name: str, was_cancelled: bool) -> Task:
    if was_cancelled:
        cancelled.add(ticket)
    elif where.kind != "own":
        _restored[ticket] = where.scheduler
    return Task(where, ticket, name)


def attach(tasks: Sequence[Task]) -> None:
    """Find tasks again that came with a checkpoint; nothing is done for others.

    Raises:
        Cancelled, ResultGone: About the first one of which nothing is left.
    """
    from gpufair.cpu import connection  # noqa: PLC0415 - it imports us

    loose = [task for task in tasks if not task.attached]
    for where in dict.fromkeys(task.where for task in loose):
        some = [task for task in loose if task.where == where]
        if gone := next((task for task in some if task.ticket in cancelled), None):
            raise Cancelled(gone.name)
        pool = connection.reach(where, some[0].name)
        futures = pool.futures([task.ticket for task in some])
        for task in some:
            if task.ticket in futures:
                task.take(pool, futures[task.ticket])
        if forgotten := next((task for task in some if not task.attached), None):
            raise kept.ResultGone(forgotten.name, _FORGOTTEN)


_FORGOTTEN = (
    "the pool keeps what a saved session mentions, but it lets go of it when a later save does without it, when no kernel has asked "
    f"for {kept.KEPT_FOR_S / 86400:.0f} days, or when it fills the workers' memory"
)


class _Companion:
    """Has the pools keep what a checkpoint mentions."""

    def before_save(self) -> None:
        _mentioned.clear()
        for pool in _durable():
            wanted = {task.ticket for task in _living_of(pool) if task.future.status in {"pending", "finished", "error"}}
            if new := wanted - pool.kept:
                pool.kept |= kept.keep_new(pool.client, new)

    def saved(self) -> None:
        for pool in _durable():
            restored = {ticket for ticket, scheduler in _restored.items() if scheduler == pool.where.scheduler}
            if gone := (pool.kept | restored) - _mentioned:
                kept.let_go(pool.client, gone)
                pool.kept -= gone
                for ticket in gone & restored:
                    del _restored[ticket]

    def ended(self) -> None:
        for pool in _durable():
            kept.let_go(pool.client, pool.kept)


def _durable() -> list[Pool]:
    from gpufair.cpu import connection  # noqa: PLC0415 - it imports us

    return [pool for pool in connection.connected() if pool.where.kind != "own" and pool.client.status == "running"]


def _living_of(pool: Pool) -> list[Task]:
    return [task for task in list(_living) if task.attached and task.pool is pool]


companions.register(_Companion())
