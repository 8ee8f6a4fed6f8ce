"""Which ended workloads leave the state of a runtime, and how those come back that somebody asks about.

They leave with a snapshot: their rows (``ended``) are written first, then the snapshot without them. From the moment of
which that snapshot is, no entry of the journal may name them, or it could not be recovered from there; so what is in the
state but no longer in the snapshots of the future is ``held``: for questions only, and not for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from gpufair.core.record import Record
from gpufair.core.state import State
from gpufair.core.units import HOUR, MINUTE, Instant, WorkloadId
from gpufair.service.storage import ended
from gpufair.service.storage.database import StoreError
from gpufair.service.storage.ended import Ended
from gpufair.service.storage.journal import Journal
from gpufair.service.workloads import standin
from gpufair.service.workloads.details import Detail

KEPT: Final = 1000  # of those that ended last stay in the state,
KEPT_FOR: Final = HOUR  # if it was not longer ago than this
_ASKED_FOR: Final = MINUTE  # so long one stays that somebody asked about
_AT_ONCE: Final = 100  # rows of one transaction, which commits wait for: about 10 ms

Details = dict[WorkloadId, Detail]
R = TypeVar("R")


def due(state: State, asked_for: Mapping[WorkloadId, Instant] = MappingProxyType({})) -> list[WorkloadId]:
    """Who may leave now; ``asked_for``: those that somebody asked about, and when."""
    records = state.facts.records.values()
    ends = sorted(record.ended_at for record in records if record.ended_at is not None)
    newest = ends[-KEPT] if len(ends) > KEPT else Instant(0)
    before = Instant(max(state.now - KEPT_FOR, newest))
    lately = state.now - _ASKED_FOR
    return [one for one in state.forgettable(before) if asked_for.get(one, lately) <= lately]


class Attic:
    """The ended workloads of a runtime that its state needs no more. ``adopt`` before all else."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._state: State | None = None  # as adopted last
        self._rows = 0
        self._unwritten: set[WorkloadId] = set()
        self.held: dict[WorkloadId, Instant] = {}  # see above; when each was asked for

    async def adopt(self, state: State, *, reachable: bool = True) -> None:
        """Begin with a state that was just recovered.

        Raises:
            StoreUnavailable: The rows can't be counted.
        """
        self._state, self.held, self._unwritten = state, {}, set()
        if reachable:
            self._rows = await self._journal.within(ended.count)

    def beyond(self) -> int:
        """How many have ended that are in the table and not in the state."""
        return self._rows - (len(self.held) - len(self._unwritten))

    def begin(self, state: State) -> list[WorkloadId]:
        """Who leaves with the snapshot that is taken of the state as it is now."""
        leaving = due(state, self.held)
        self._unwritten |= {one for one in leaving if one not in self.held}
        self.held.update(dict.fromkeys(leaving, Instant(0)))
        return leaving

    async def write(self, seq: int, leaving: list[WorkloadId], state: State, details: Details) -> bool:
        """Write their rows. False: another state was adopted meanwhile, so there is to be no snapshot without them.

        Raises:
            StoreUnavailable: Not all could be written; those that could not are no longer ``held``.
        """
        unit = state.facts.weights.unit
        if self._state is not state:
            return False
        try:
            for first in range(0, len(leaving), _AT_ONCE):
                ids = leaving[first : first + _AT_ONCE]
                records = [state.facts.records[one] for one in ids]
                # What is asked of the journal later is done later: a detail that changes from now on is not lost.
                rows = [_row(record, unit, details.get(record.id, Detail())) for record in records]
                new = await self._journal.put_away(seq, rows)
                if self._state is not state:
                    return False  # they have been counted
                self._rows += new
                self._unwritten.difference_update(ids)
        except BaseException:
            for one in self._unwritten.intersection(leaving):
                self._unwritten.discard(one)
                self.held.pop(one, None)
            raise
        return True

    def finish(self, state: State, details: Details) -> list[WorkloadId]:
        """Drop what is in the table and nobody has asked about lately; who that was."""
        asked = state.now - _ASKED_FOR
        gone = [one for one, at in self.held.items() if at <= asked and one not in self._unwritten]
        self._drop(gone, state, details)
        return gone

    async def recall(self, workloads: Iterable[WorkloadId], state: State, details: Details) -> None:
        """Take those of ``workloads`` back into the state that ended long ago.

        Raises:
            StoreError: What is kept of one is damaged.
            StoreUnavailable: The table can't be read.
        """
        known = state.facts.records
        missing = set()
        for one in workloads:
            if one in self.held:
                self.held[one] = state.now
            elif one not in known:
                missing.add(one)
        if missing and self._rows:
            for found in await self._journal.within(partial(ended.find, workloads=missing)):
                self._take_in(found, state, details)

    def seen(self, found: Ended, state: State, details: Details, look: Callable[[WorkloadId], R]) -> R:
        """What ``look`` says of one that was found in the table, which is in the state only while it looks."""
        workload = found.record.id
        if workload in state.facts.records:
            return look(workload)
        self._take_in(found, state, details)
        try:
            return look(workload)
        finally:
            self._drop([workload], state, details)

    def _take_in(self, found: Ended, state: State, details: Details) -> None:
        workload = found.record.id
        try:
            detail = Detail.from_dict(dict(found.detail))
        except (TypeError, KeyError, ValueError) as err:
            raise StoreError(f"the details of the ended workload {workload!r} in the journal are damaged: {err}") from err
        state.recall(found.record, found.unit)
        details.setdefault(workload, detail)
        self.held[workload] = state.now

    def _drop(self, gone: Iterable[WorkloadId], state: State, details: Details) -> None:
        for record in state.drop(gone):
            details.pop(record.id, None)
            self.held.pop(record.id, None)


def _row(record: Record, unit: int, detail: Detail) -> Ended:
    return Ended(record, unit, detail.to_dict(), listed=standin.session_of(record.spec) is None)
