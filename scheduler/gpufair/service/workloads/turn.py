"""One turn of the runtime: the events and details that are committed together, or not at all."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gpufair.core import actions as act
from gpufair.core.events import Event
from gpufair.core.state import State
from gpufair.core.units import CauseId, Instant, WorkloadId
from gpufair.service.storage import audit, codec, stays
from gpufair.service.storage.announcements import Board
from gpufair.service.storage.budget_requests import Requests
from gpufair.service.storage.stays import Writes
from gpufair.service.storage.store import NewEntry
from gpufair.service.workloads import dependencies, moving, notices, standin
from gpufair.service.workloads.details import QUEUED_AGAIN, Detail
from gpufair.service.workloads.notices import Notice

EMPTY = Detail()


@dataclass(slots=True)
class Turn:
    """What a step may do. Valid only while the step runs.

    Attributes:
        now: The instant of this turn's events.
        state: The core's state; changed through ``handle`` only.
    """

    now: Instant
    state: State
    _details: dict[WorkloadId, Detail]  # committed ones
    _next_seq: int
    _waiting: Collection[WorkloadId] = ()  # who is withheld from the queue, by what is committed
    _held: Collection[WorkloadId] = ()  # who ended long ago, and is in the state for questions only
    entries: list[NewEntry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    actions: list[act.Action] = field(default_factory=list)
    staged: dict[WorkloadId, Detail] = field(default_factory=dict)
    durable: set[WorkloadId] = field(default_factory=set)
    touched: set[WorkloadId] = field(default_factory=set)
    notices: list[Notice] = field(default_factory=list)
    stays: list[Writes] = field(default_factory=list)
    requests: Requests = field(default_factory=Requests)
    board: Board = field(default_factory=Board)
    _writes: list[Writes] = field(default_factory=list)
    _noted: list[dict[str, Any]] = field(default_factory=list)  # lines of the audit
    _set: int = 0  # details that were set, again or for the first time
    afterwards: list[Callable[[], None]] = field(default_factory=list)
    _ended: deque[WorkloadId] = field(default_factory=deque)  # of which those who wait have not heard yet
    _telling: bool = False

    def cause(self) -> CauseId:
        """A name for the next event: the number that its journal entry will have."""
        return CauseId(f"e{self._next_seq + len(self.entries)}")

    def handle(self, event: Event) -> list[act.Action]:
        """Feed an event and note it, with the actions decided, for the journal.

        Raises:
            GpufairError: The core refused the event; nothing has changed.
        """
        actions = self.state.handle(event)
        if getattr(event, "workload", None) in self._held:
            return actions  # a late report, which changes nothing: whoever recovers the state finds no such workload
        self.entries.append(
            NewEntry(
                event.at, codec.dump_event(event), codec.dump_actions(actions), codec.policy_digest(self.state.policy)
            )
        )
        self.events.append(event)
        self.actions += actions
        self.notices += notices.of(event, actions, self.state)
        self.stays += stays.of(event, actions, self.state)
        if isinstance(workload := getattr(event, "workload", None), str):
            self.touched.add(WorkloadId(workload))
        for action in actions:
            self.touched.add(action.workload)
            self._follow(action)
        standin.settle(self, [action.workload for action in actions])
        moving.settle(self, [action.workload for action in actions])
        self._ended += [action.workload for action in actions if isinstance(action, act.End)]
        self._tell_of_ends()
        return actions

    def waiting(self) -> set[WorkloadId]:
        """Who is withheld from the queue, or was so when the turn began."""
        return {*self._waiting, *(workload for workload, detail in self.staged.items() if detail.rests)}

    def _tell_of_ends(self) -> None:
        """One end may be the cause of others: one after the other, since a chain may be longer than a stack is deep."""
        if self._telling:
            return
        self._telling = True
        while self._ended:
            dependencies.settle(self, self._ended.popleft())
        self._telling = False

    def detail(self, workload: WorkloadId) -> Detail:
        """The detail of a workload, changes of this turn included."""
        return self.staged.get(workload) or self._details.get(workload, EMPTY)

    def set_detail(self, workload: WorkloadId, detail: Detail, *, durable: bool = True, news: bool = True) -> None:
        """Replace the detail of a workload when this turn is committed; subscribers hear of it if it is ``news``."""
        if detail != self.detail(workload):
            self._set += 1
            self.staged[workload] = detail
            if news:
                self.touched.add(workload)
            if durable:
                self.durable.add(workload)

    def post(self, more: Iterable[Notice]) -> None:
        """Have people told of something beside what follows from events."""
        self.notices += more

    def write(self, work: Writes) -> None:
        """Have something written down in the transaction of this turn."""
        self._writes.append(work)

    def note(self, who: audit.Doer, entries: tuple[int, int]) -> None:
        """Have it written down who did what became these entries."""
        self._noted.append(audit.line(self.now, who, *entries))

    def mark(self) -> tuple[int, int, int]:
        """How much has been done until now, for ``since``."""
        return len(self.entries), self._set, len(self.also())

    def since(self, mark: tuple[int, int, int]) -> tuple[int, int] | None:
        """Numbers of the first and the last journal entry since then, (0, 0) if only something beside it was kept; None: nothing."""
        if self.mark() == mark:
            return None
        begun, ended = self._next_seq + mark[0], self._next_seq + len(self.entries) - 1
        return (begun, ended) if begun <= ended else (0, 0)

    def also(self) -> list[Writes]:
        """What is written down beside entries, details and notices."""
        noted = [partial(audit.write, self._noted)] if self._noted else []
        return [*self.stays, *self._writes, *self.requests.writes(), *self.board.writes(), *noted]

    def after(self, deed: Callable[[], None]) -> None:
        """Do this once the turn is committed. It must not block or fail."""
        self.afterwards.append(deed)

    def _follow(self, action: act.Action) -> None:
        """A kernel is reachable only between its start and its release."""
        detail = self.detail(action.workload)
        match action:
            case act.Start():
                # Kernels are counted anew in each incarnation. Whoever compares (incarnation, generation) must not meet
                # the new incarnation with the last one's count: its first kernel would look like one of the past.
                # How it lost its last node is news until its kernel is up; that it is queued is none any more.
                kept = self._kept(action.workload, 0)
                self.set_detail(action.workload, replace(kept, move=None, died_of=kept.died_of.removesuffix(QUEUED_AGAIN)))
            case act.Stop() | act.Requeue() | act.Park() | act.End():
                self.set_detail(action.workload, self._kept(action.workload, detail.generation))
            case _:
                pass

    def ran(self, workload: WorkloadId, at: int) -> int:
        """How long it has been up until ``at`` over all of its starts, in milliseconds."""
        detail = self.detail(workload)
        return detail.ran_ms + (max(0, at - detail.up_at_ms) if detail.up_at_ms else 0)

    def _kept(self, workload: WorkloadId, generation: int) -> Detail:
        """What is left of a detail when its kernel has gone."""
        detail = self.detail(workload)
        return Detail(
            generation,
            checkpoints=detail.checkpoints,
            unsaved=detail.unsaved,
            stand_in=detail.stand_in,
            move=detail.move,
            died_of=detail.died_of,
            retries=detail.retries,
            ran_ms=self.ran(workload, self.state.now),
        )

    def durable_details(self) -> dict[str, dict[str, Any] | None]:
        """What to commit beside the entries."""
        return {str(workload): self.staged[workload].to_dict() for workload in sorted(self.durable)}
