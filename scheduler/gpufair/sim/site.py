"""Nodes and users as they answer a policy: launches, saves, ends, cells that run and thought between them.

What is assumed beyond ``Costs``:

- A notice stops the work at once. Who can save within the deadline saves, and his GPUs are free ``stop`` after that.
  Who can't goes on from his last periodic checkpoint: batch runs leave at once, sessions at the deadline.
- Periodic saves cost no time. A policy that weighs what its victims lose hears of them once the protection is over, when
  they begin to matter to it, at most once in half an hour.
- A session works through its bursts. It is up again where it was; a burst that was cut goes on. Its user comes back at
  the end of his thought, wherever the session is by then: a parked one is resumed with a slice, and asks to be protected
  for longer before that ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final
from zlib import crc32

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import GpufairError
from gpufair.core.model import CheckpointRef
from gpufair.core.state import State
from gpufair.core.units import MINUTE, CauseId, Millis, NodeName, WorkloadId
from gpufair.sim.course import Course
from gpufair.sim.policies.contender import Decider
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Landed, Stint, Story

CAUSE: Final = CauseId("simulation")
SLICE: Final = Millis(15 * MINUTE)
HALF_HOUR: Final = 30 * MINUTE
_GIB: Final = 2**30

Happens = Callable[[Course, int], None]


class Site:
    """The world around a policy, as it is at ``now``. Who moves the time on is the engine."""

    def __init__(self, scenario: Scenario, decider: Decider, story: Story) -> None:
        self.scenario, self.decider, self.story = scenario, decider, story
        self.now = scenario.start
        self.coming: list[tuple[int, int, Happens, Course, int]] = []
        self.courses: dict[WorkloadId, Course] = {}  # of those who have not ended
        self._costs = scenario.costs
        # Only the core weighs how old the checkpoint of a victim is; others need not hear of each.
        self._weighs_checkpoints = isinstance(decider, State)
        self._count = 0
        self._landings: dict[WorkloadId, Landed] = {}

    def over(self, course: Course) -> None:
        """Called when a job has ended."""

    def later(self, at: int, happen: Happens, course: Course, token: int) -> None:
        """Plan something. It is called with ``token``, by which it knows whether it still means anything."""
        self._count += 1
        heapq.heappush(self.coming, (at, self._count, happen, course, token))

    def feed(self, event: ev.Event) -> None:
        """Let the policy know, and carry out what it decides."""
        self.story.events += 1
        actions = self.decider.handle(event)
        self.story.decisions += len(actions)
        for action in actions:
            self._carry_out(action)

    # -- users of sessions ----------------------------------------------------------------------------------------

    def _thought(self, course: Course, number: int) -> None:
        """The user of a session comes back after that burst, or goes home."""
        if not course.thinks or course.number != number:
            return
        stint = course.stint
        leaves = stint is None or stint.notice is not None
        if course.last:
            course.thinks, course.home = False, True
            if stint is None:
                self._go_home(course, course.token)
            elif stint.up is not None and not leaves:
                self._exit(course)
            return
        course.next_burst()
        if leaves:
            self._touch(course, course.token)
        elif stint is not None and stint.up is not None:
            self._work(course)

    def _touch(self, course: Course, token: int) -> None:
        """A cell is run in a session that has no GPUs, or is about to lose them."""
        life = course.life
        life.waiting_since, life.touched = self.now, True
        whole = life.job.spec.min_runtime
        part = SLICE if whole > SLICE else None
        self.feed(ev.ResumeRequested(self.now, CAUSE, life.job.id, slice=part))

    def _go_home(self, course: Course, token: int) -> None:
        if course.life.ended is None:
            self.feed(ev.Cancelled(self.now, CAUSE, course.life.job.id))

    # -- nodes ----------------------------------------------------------------------------------------------------

    def lose(self, node: NodeName) -> None:
        """A node is gone, and with it what ran there."""
        for course in self.courses.values():
            stint = course.stint
            if stint is not None and any(lease.node == node for lease in stint.leases):
                stint.failed = True
                self._cut(course, course.durable(self.now))

    def _cut(self, course: Course, durable: int) -> None:
        """Whatever it does ends now; ``durable`` remains."""
        course.token += 1
        course.pause(self.now)
        course.lose(durable)

    def _launch(self, course: Course) -> int:
        costs = self._costs
        span = costs.launch_most - costs.launch_least + 1
        drawn = crc32(f"{self.scenario.seed} {course.life.job.id} {course.incarnation}".encode())
        return costs.launch_least + drawn % span

    def _started(self, course: Course, token: int) -> None:
        stint = course.stint
        if token != course.token or stint is None:
            return
        stint.up = self.now
        stint.switching = Millis(self.now - stint.granted)
        self.feed(ev.Started(self.now, CAUSE, course.life.job.id, course.incarnation))
        if token != course.token:
            return  # told to leave in the very moment
        if course.home:
            self._exit(course)  # its user went home in the meantime
            return
        if not course.thinks:
            self._work(course)

    def _work(self, course: Course) -> None:
        """It begins, or goes on with, a burst."""
        stint, job = course.stint, course.life.job
        assert stint is not None
        course.begin(self.now)
        course.token += 1
        token = course.token
        if course.session:
            self.feed(ev.ActivityReported(self.now, CAUSE, job.id, course.incarnation, busy=True))
            if token != course.token:
                return
        ends = self.now + course.left
        self.later(ends, self._done, course, token)
        if course.session:
            self._plan_extension(course, ends)
        if course.period and self._weighs_checkpoints:
            first = max(stint.protected_until, self.now + course.save + course.period)
            if first < ends:
                self.later(first, self._saved_by_itself, course, token)

    def _done(self, course: Course, token: int) -> None:
        """A burst is over: cells have run, or the job has."""
        if token != course.token:
            return
        course.token += 1
        course.pause(self.now)
        job = course.life.job
        if not course.session or (course.last and not course.burst.thought):
            self._exit(course)
            return
        course.thinks = True
        self.later(self.now + course.burst.thought, self._thought, course, course.number)
        if course.resumable and course.save < course.burst.thought:
            self.later(self.now + course.save, self._saved_after_cell, course, course.token)
        self.feed(ev.ActivityReported(self.now, CAUSE, job.id, course.incarnation, busy=False))

    def _exit(self, course: Course) -> None:
        job = course.life.job
        self._free(course)
        self.feed(ev.Exited(self.now, CAUSE, job.id, course.incarnation, job.outcome))

    # -- checkpoints ----------------------------------------------------------------------------------------------

    def _saved_by_itself(self, course: Course, token: int) -> None:
        if token != course.token or course.since is None:
            return
        self._report_checkpoint(course)
        # Of several in half an hour it hears of one: enough to tell who would lose hours from who would lose minutes.
        then = self.now + max(1, HALF_HOUR // course.period) * course.period
        if then < course.since + course.left:
            self.later(then, self._saved_by_itself, course, token)

    def _saved_after_cell(self, course: Course, token: int) -> None:
        if token == course.token:
            course.saved = course.done
            self._report_checkpoint(course)

    def _saved_at_notice(self, course: Course, token: int) -> None:
        if token == course.token:
            course.saved = course.done
            self._report_checkpoint(course)
            self.later(self.now + self._costs.stop, self._released, course, token)

    def _report_checkpoint(self, course: Course) -> None:
        course.sequence += 1
        job = course.life.job
        reference = CheckpointRef(
            id=f"{job.id}-{course.sequence}",
            sequence=course.sequence,
            at=self.now,
            size_bytes=int(job.state_gib * _GIB),
            duration=course.save,
        )
        self.feed(ev.CheckpointDone(self.now, CAUSE, job.id, course.incarnation, reference))

    # -- protection -----------------------------------------------------------------------------------------------

    def _plan_extension(self, course: Course, ends: int) -> None:
        """A session that works beyond its slice asks for more, a minute before it ends."""
        stint = course.stint
        assert stint is not None
        sliced = stint.protected_until - stint.granted < course.life.job.spec.min_runtime
        if sliced and self.now < stint.protected_until < ends:
            at = max(self.now, stint.protected_until - MINUTE)
            self.later(at, self._extend, course, course.token)

    def _extend(self, course: Course, token: int) -> None:
        if token != course.token or course.since is None:
            return
        job, before = course.life.job, course.stint
        assert before is not None
        asked = min(job.spec.min_runtime, max(SLICE, course.since + course.left - self.now))
        protected = before.protected_until
        try:
            self.feed(ev.ExtensionRequested(self.now, CAUSE, job.id, Millis(asked)))
        except GpufairError:
            return  # somebody comes first: it goes on unprotected
        if token == course.token and before.protected_until > protected:
            self._plan_extension(course, course.since + course.left)

    # -- decisions ------------------------------------------------------------------------------------------------

    def _carry_out(self, action: act.Action) -> None:
        match action:
            case act.Start():
                self._start(action)
            case act.BeginCheckpoint():
                self._notice(action)
            case act.Stop():
                self._stop(self.courses[action.workload])
            case act.Requeue() | act.Park() | act.End():
                self._settled(action)
            case act.Extend():
                stint = self.courses[action.workload].stint
                if stint is not None:
                    stint.protected_until = action.protected_until
            case act.GrantLanding():
                if action.workload not in self._landings:
                    landed = Landed(action.workload, action.leases, self.now, action.at, action.start_by)
                    self._landings[action.workload] = landed
                    self.story.landings.append(landed)
            case act.DropLanding():
                self._touch_down(action.workload, action.why)

    def _touch_down(self, workload: WorkloadId, dropped: str = "") -> None:
        landed = self._landings.pop(workload, None)
        if landed is not None:
            landed.over, landed.dropped = self.now, dropped

    def _start(self, action: act.Start) -> None:
        course, held = self.courses[action.workload], action.held
        life, since = course.life, course.life.waiting_since
        assert since is not None
        stint = Stint(held.leases, held.pool, held.granted_at, held.protected_until, since, life.touched)
        course.stint, life.waiting_since, life.touched = stint, None, False
        life.stints.append(stint)
        course.incarnation = held.incarnation
        course.token += 1
        restoring = course.restore if course.saved else 0
        self.later(self.now + self._launch(course) + restoring, self._started, course, course.token)
        self._touch_down(action.workload)

    def _notice(self, action: act.BeginCheckpoint) -> None:
        course = self.courses[action.workload]
        stint, now = course.stint, self.now
        assert stint is not None
        stint.notice, stint.reason, stint.beneficiary = now, action.reason, action.beneficiary
        durable = course.durable(now)
        course.token += 1
        course.pause(now)
        # At the deadline itself it is too late: it is told to stop then.
        saves = course.resumable and course.done > durable and now + course.save < action.deadline
        if saves:
            self.later(now + course.save, self._saved_at_notice, course, course.token)
            return
        late = course.done > durable and course.session and course.resumable
        course.lose(durable)
        self.later((action.deadline if late else now) + self._costs.stop, self._released, course, course.token)

    def _stop(self, course: Course) -> None:
        stint = course.stint
        if stint is None:
            return
        self._cut(course, course.durable(self.now))
        stint.notice = stint.notice if stint.notice is not None else self.now
        self.later(self.now + self._costs.stop, self._released, course, course.token)

    def _released(self, course: Course, token: int) -> None:
        if token != course.token:
            return
        self._free(course)
        busy = not course.thinks
        self.feed(ev.Released(self.now, CAUSE, course.life.job.id, course.incarnation, busy=busy))

    def _free(self, course: Course) -> None:
        stint = course.stint
        assert stint is not None
        stint.freed = self.now
        if stint.up is None:
            stint.switching = Millis(self.now - stint.granted)
        elif stint.notice is not None:
            stint.switching = Millis(stint.switching + self.now - stint.notice)
        course.stint = None
        course.token += 1

    def _settled(self, action: act.Requeue | act.Park | act.End) -> None:
        course = self.courses[action.workload]
        if course.stint is not None:
            self._free(course)  # its nodes were lost
        if isinstance(action, act.End):
            course.life.ended, course.life.outcome = self.now, action.outcome
            self._touch_down(action.workload)
            del self.courses[action.workload]
            self.over(course)
            return
        # What follows is fed when all that was decided with this has been carried out.
        if course.home:
            self.later(self.now, self._go_home, course, course.token)
        elif isinstance(action, act.Requeue):
            life = course.life
            life.waiting_since = life.waiting_since if life.touched else self.now
        elif not course.thinks:
            self.later(self.now, self._touch, course, course.token)
