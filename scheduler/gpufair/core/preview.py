"""What happens next if nothing new arrives: who starts when, who is told to leave for whom, until when.

The very core is played forward on a copy. It is fed each moment that is due; nodes answer, and workloads end, as is
assumed. Nothing about it is a promise: it says what follows from the present, and it comes true if the future goes as
assumed.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import singledispatch
from types import MappingProxyType
from typing import Final

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core import words
from gpufair.core.admission import is_stale
from gpufair.core.engine import handle
from gpufair.core.facts import LEAVING, Facts
from gpufair.core.model import CheckpointRef, Outcome, Phase, PreemptReason
from gpufair.core.record import Record
from gpufair.core.units import (
    SECOND,
    AllocationPath,
    CauseId,
    Instant,
    Millis,
    NodeName,
    WorkloadId,
    after,
)
from gpufair.core.wakeup import next_wakeup

_CAUSE: Final = CauseId("preview")


class StepKind(StrEnum):
    """What happens in a step."""

    STARTS = "starts"
    KEPT = "kept"  # GPUs are kept for it while its victims leave
    GIVEN_UP = "given up"  # they are kept no longer
    LANDING = "landing"  # it is granted a landing: it starts by ``until`` at the latest
    TOLD_TO_LEAVE = "told to leave"
    STOPPED = "stopped"  # without a (further) checkpoint
    RELEASES = "releases"  # its GPUs are free; assumed, as is the end of a run
    QUEUED_AGAIN = "queued again"
    PARKED = "parked"
    ENDS = "ends"
    DECIDED = "decided"  # any other decision


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is assumed of the future.

    Args:
        start: From a grant until the workload is up.
        save: From a notice until the checkpoint is durable; None: as long as the workload's last one took, half its
            grace if there is none.
        release: From a notice until the GPUs are really free; None: ``stop`` after the checkpoint.
        stop: From a stop until the GPUs are really free.
        expected: How long workloads need their GPUs in all, where that is known better than from their own words
            (``WorkloadSpec.expected``). Whatever is not known to end runs on.
    """

    start: Millis = Millis(30 * SECOND)
    save: Millis | None = None
    release: Millis | None = None
    stop: Millis = Millis(5 * SECOND)
    expected: Mapping[WorkloadId, Millis] = field(default_factory=lambda: MappingProxyType({}))

    def saving(self, facts: Facts, record: Record) -> Millis:
        """From a notice until the checkpoint is durable."""
        if self.save is not None:
            return self.save
        if record.checkpoint is not None:
            return min(record.checkpoint.duration, facts.grace(record))
        return Millis(facts.grace(record) // 2)

    def end(self, record: Record) -> Instant | None:
        """When a workload that holds GPUs ends by itself; None if that is not known.

        What can be resumed goes on where it was, as far as its charges tell; other runs begin anew.
        """
        expected = self.expected.get(record.id, record.spec.expected)
        if expected is None or record.held is None:
            return None
        before = record.settled // record.gpus if record.spec.resumable and record.gpus else 0
        return after(record.held.granted_at, Millis(expected - before))


TYPICAL: Final = Assumed()


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens at ``at``.

    ``until``: for a start the end of its protection, for a notice its deadline. ``why`` is the sentence of the decision.
    """

    at: Instant
    what: StepKind
    workload: WorkloadId
    user: str
    allocation: AllocationPath
    gpus: int
    nodes: tuple[NodeName, ...]
    why: str
    reason: PreemptReason | None = None
    beneficiary: WorkloadId | None = None
    until: Instant | None = None

    def __str__(self) -> str:
        where = f" on {words.names(self.nodes)}" if self.nodes else ""
        whom = f" for {self.beneficiary[:8]}" if self.beneficiary is not None else ""
        return f"{words.moment(self.at)} {self.user}'s {self.workload[:8]} ({self.allocation}) {self.what}{where}{whom}"


@dataclass(frozen=True, slots=True)
class Preview:
    """The steps from now until ``until``, in order.

    ``first_start`` names each workload that waits now and starts in that time. ``cut`` says why the preview ends
    earlier than was asked for; "" if it does not.
    """

    now: Instant
    until: Instant
    steps: tuple[Step, ...]
    first_start: Mapping[WorkloadId, Instant]
    cut: str = ""


def preview(facts: Facts, until: Instant, assume: Assumed, most_steps: int, most_events: int) -> Preview:
    """Play the core forward on a copy of the facts."""
    waiting = {workload for workload, record in facts.records.items() if record.phase is Phase.QUEUED}
    play = _Play(facts.copy(), assume)
    cut, reached = "", until
    for events in range(most_events + 1):
        event = play.next(until)
        if event is None:
            break
        if events == most_events or len(play.steps) >= most_steps:
            reached = play.facts.now
            limit = f"{most_events} events" if events == most_events else f"{most_steps} steps"
            cut = f"cut at {words.moment(reached)} after {limit}"
            break
        play.feed(event)
    first: dict[WorkloadId, Instant] = {}
    for step in play.steps:
        if step.what is StepKind.STARTS and step.workload in waiting:
            first.setdefault(step.workload, step.at)
    return Preview(facts.now, reached, tuple(play.steps), MappingProxyType(first), cut)


class _Play:
    """The copy that is played forward, and the answers that are on their way to it.

    Answers at one instant come in the order of the workloads' ids, and after the moment that is due then.
    """

    def __init__(self, facts: Facts, assume: Assumed) -> None:
        self.facts, self._assume = facts, assume
        self.steps: list[Step] = []
        self._answers: list[tuple[int, WorkloadId, int, ev.Event]] = []
        self._count = 0
        for workload in sorted(facts.holding):
            self._under_way(facts.holding[workload])

    def next(self, until: Instant) -> ev.Event | None:
        """What happens next; None if nothing does until then."""
        due = next_wakeup(self.facts)
        answer = self._answers[0][0] if self._answers else None
        if due is not None and due <= until and (answer is None or due <= answer):
            return ev.TimePassed(due, _CAUSE)
        return heapq.heappop(self._answers)[3] if answer is not None and answer <= until else None

    def feed(self, event: ev.Event) -> None:
        """Let it happen."""
        if is_stale(event, self.facts):
            return
        if isinstance(event, ev.Released | ev.Exited):
            self._released(event)
        for action in handle(self.facts, event):
            self.steps.append(_step(action, self.facts))
            self._decided(action)

    def _released(self, event: ev.Released | ev.Exited) -> None:
        record = self.facts.record(event.workload)
        why = "it is expected to have ended" if isinstance(event, ev.Exited) else "its GPUs are expected to be free"
        nodes = tuple(lease.node for lease in record.held.leases) if record.held is not None else ()
        self.steps.append(_of(record, event.at, StepKind.RELEASES, nodes, why))

    def _decided(self, action: act.Action) -> None:
        record = self.facts.record(action.workload)
        if isinstance(action, act.Start):
            self._starts(record)
        elif isinstance(action, act.BeginCheckpoint):
            self._saves(record, self.facts.now)
        elif isinstance(action, act.Stop):
            self._stops(record, self.facts.now)

    def _under_way(self, record: Record) -> None:
        """The answers that are still to come from whoever holds GPUs now."""
        if record.phase in {Phase.STARTING, Phase.RESTORING}:
            self._starts(record)
            return
        self._ends(record)
        if record.phase in LEAVING and record.deadline is not None:
            told = after(record.deadline, Millis(-self.facts.grace(record)))
            if record.phase is Phase.CHECKPOINTING:
                self._saves(record, told)
            else:
                self._stops(record, told)

    def _starts(self, record: Record) -> None:
        assert record.held is not None
        started = ev.Started(after(record.held.granted_at, self._assume.start), _CAUSE, record.id, record.incarnation)
        self._answer(started)
        self._ends(record)

    def _ends(self, record: Record) -> None:
        end = self._assume.end(record)
        if end is not None and end > self.facts.now:
            outcome = Outcome.COMPLETED
            self._answer(ev.Exited(end, _CAUSE, record.id, record.incarnation, outcome, "it ended as was expected"))

    def _saves(self, record: Record, told: Instant) -> None:
        saving = self._assume.saving(self.facts, record)
        saved = after(told, saving)
        last = record.checkpoint
        if last is None or last.at < told:
            sequence, size = (last.sequence + 1, last.size_bytes) if last is not None else (1, 0)
            done = CheckpointRef(f"{record.id}-{sequence}", sequence, saved, size, saving)
            self._answer(ev.CheckpointDone(saved, _CAUSE, record.id, record.incarnation, done))
        release = self._assume.release
        free = after(told, release) if release is not None else after(saved, self._assume.stop)
        self._answer(ev.Released(free, _CAUSE, record.id, record.incarnation))

    def _stops(self, record: Record, told: Instant) -> None:
        self._answer(ev.Released(after(told, self._assume.stop), _CAUSE, record.id, record.incarnation))

    def _answer(self, event: ev.CheckpointDone | ev.Exited | ev.Released | ev.Started) -> None:
        self._count += 1
        # What should have come already comes now.
        at = max(event.at, self.facts.now)
        heapq.heappush(self._answers, (at, event.workload, self._count, event))


def _of(
    record: Record, at: Instant, what: StepKind, nodes: tuple[NodeName, ...], why: str, until: Instant | None = None
) -> Step:
    return Step(at, what, record.id, record.spec.user, record.spec.allocation, record.gpus, nodes, why, until=until)


@singledispatch
def _step(action: act.Action, facts: Facts) -> Step:
    """A decision as a step, once it has been applied."""
    why = str(getattr(action, "why", "")) or type(action).__name__
    return _of(facts.record(action.workload), facts.now, StepKind.DECIDED, (), why)


@_step.register
def _started(action: act.Start, facts: Facts) -> Step:
    nodes, until = tuple(lease.node for lease in action.held.leases), action.held.protected_until
    return _of(facts.record(action.workload), facts.now, StepKind.STARTS, nodes, action.why, until)


@_step.register
def _kept(action: act.Reserve, facts: Facts) -> Step:
    nodes = tuple(lease.node for lease in action.leases)
    return _of(facts.record(action.workload), facts.now, StepKind.KEPT, nodes, action.why)


@_step.register
def _given_up(action: act.Unreserve, facts: Facts) -> Step:
    record = facts.record(action.workload)
    return _of(record, facts.now, StepKind.GIVEN_UP, (), record.reason)


@_step.register
def _landing(action: act.GrantLanding, facts: Facts) -> Step:
    nodes = tuple(lease.node for lease in action.leases)
    return _of(facts.record(action.workload), facts.now, StepKind.LANDING, nodes, action.why, action.start_by)


@_step.register
def _dropped(action: act.DropLanding, facts: Facts) -> Step:
    return _of(facts.record(action.workload), facts.now, StepKind.GIVEN_UP, (), action.why)


@_step.register
def _told(action: act.BeginCheckpoint, facts: Facts) -> Step:
    record = facts.record(action.workload)
    nodes = tuple(lease.node for lease in record.held.leases) if record.held is not None else ()
    return Step(
        at=facts.now,
        what=StepKind.TOLD_TO_LEAVE,
        workload=record.id,
        user=record.spec.user,
        allocation=record.spec.allocation,
        gpus=record.gpus,
        nodes=nodes,
        why=action.why,
        reason=action.reason,
        beneficiary=action.beneficiary,
        until=action.deadline,
    )


@_step.register
def _stopped(action: act.Stop, facts: Facts) -> Step:
    record = facts.record(action.workload)
    nodes = tuple(lease.node for lease in record.held.leases) if record.held is not None else ()
    return _of(record, facts.now, StepKind.STOPPED, nodes, action.why)


@_step.register
def _queued_again(action: act.Requeue, facts: Facts) -> Step:
    return _of(facts.record(action.workload), facts.now, StepKind.QUEUED_AGAIN, (), action.why)


@_step.register
def _parked(action: act.Park, facts: Facts) -> Step:
    return _of(facts.record(action.workload), facts.now, StepKind.PARKED, (), action.why)


@_step.register
def _ended(action: act.End, facts: Facts) -> Step:
    return _of(facts.record(action.workload), facts.now, StepKind.ENDS, (), action.why)
