"""An engine that goes on from a state in which workloads run, leave and wait already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpufair.core.events import Event
from gpufair.core.model import HOLDING, Phase
from gpufair.core.record import Record
from gpufair.core.state import State
from gpufair.core.units import Instant, Millis, WorkloadId
from gpufair.sim.course import Course
from gpufair.sim.engine import Engine
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Landed, Life, Stint
from gpufair.sim.whatif.arrivals import Underway


class Resumed(Engine):
    """Goes on from a state.

    Args:
        scenario: What comes; it starts when the state is. Its budgets and nodes are those of the state.
        state: It is played on: give it a copy.
        underway: What is there already.
        changes: What is tried: told to the state as the first thing that happens.
    """

    def __init__(
        self, scenario: Scenario, state: State, underway: Mapping[WorkloadId, Underway], changes: Iterable[Event] = ()
    ) -> None:
        super().__init__(scenario, "fair-share", state, state.policy)
        self._state, self._underway, self._changes = state, underway, tuple(changes)

    def set_up(self) -> None:
        """Take up what is there, then change what is tried."""
        for workload, one in self._underway.items():
            record = self._state.facts.records[workload]
            life = Life(one.job, submitted=record.submitted_at)
            self.story.lives[workload] = life
            self.courses[workload] = self._taken_up(record, life, one)
        for workload in self._underway:
            self._go_on(self._state.facts.records[workload], self.courses[workload])
        for change in self._changes:
            self.feed(change)
        self.story.options = self._state.policy

    def _taken_up(self, record: Record, life: Life, one: Underway) -> Course:
        course = Course(life, self._costs)
        course.incarnation = record.incarnation
        course.sequence = record.checkpoint.sequence if record.checkpoint is not None else 0
        course.done, course.saved, course.thinks = one.done, one.saved, one.thinks
        if record.phase is Phase.QUEUED:
            life.waiting_since, life.touched = record.queued_at, course.session and bool(record.starts)
        if record.held is not None and record.phase in HOLDING:
            held = record.held
            course.stint = Stint(held.leases, held.pool, held.granted_at, held.protected_until, held.granted_at)
            life.stints.append(course.stint)
        if record.landing is not None:
            landing = record.landing
            landed = Landed(record.id, landing.leases, landing.granted_at, landing.at, landing.start_by)
            self._landings[record.id] = landed
            self.story.landings.append(landed)
        return course

    def _go_on(self, record: Record, course: Course) -> None:
        """What it does next."""
        stint, now, costs = course.stint, self.now, self._costs
        if stint is None:
            if record.phase is Phase.PARKED:
                self.later(now + course.burst.thought, self._thought, course, course.number)
            return
        if record.phase in {Phase.STARTING, Phase.RESTORING}:
            restoring = course.restore if record.phase is Phase.RESTORING else 0
            self.later(max(now, stint.granted + self._launch(course) + restoring), self._started, course, course.token)
            return
        stint.up = Instant(min(now, stint.granted + (record.restored_in or Millis(0))))
        if record.phase is Phase.RUNNING:
            if course.thinks:
                self.later(now + course.burst.thought, self._thought, course, course.number)
            else:
                self._work(course)
            return
        # It was told to leave: as long as a save takes it stays, and to its deadline at the most.
        stint.notice, stint.reason, stint.beneficiary = now, record.notice, record.beneficiary
        leaves = now + costs.stop
        if record.phase is Phase.CHECKPOINTING and record.deadline is not None:
            leaves = min(max(now, record.deadline), now + course.save) + costs.stop
            course.saved = course.done if course.resumable else 0
        if not course.resumable:
            course.lose(0)
        self.later(leaves, self._released, course, course.token)
