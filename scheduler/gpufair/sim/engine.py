"""Plays a scenario: submissions, nodes and users on one side, a policy on the other, time between them.

It jumps from one moment at which something happens to the next. At one instant the policy's own moment comes first,
then incidents, then what nodes and users do, in the order in which it was planned, then submissions.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from gpufair.core import events as ev
from gpufair.core.errors import GpufairError
from gpufair.core.lines import ENDLESS
from gpufair.core.metrics import shares_of
from gpufair.core.model import Policy
from gpufair.core.state import State
from gpufair.core.units import DAY, HOUR, Instant, Millis
from gpufair.sim.course import Course
from gpufair.sim.garbage import seldom_collected
from gpufair.sim.job import Job
from gpufair.sim.policies.contender import Contender, Decider
from gpufair.sim.scenario import Scenario
from gpufair.sim.site import CAUSE, Site
from gpufair.sim.story import Life, Sample, Story

_NEVER: Final = ENDLESS


def play(
    scenario: Scenario,
    contender: Contender,
    options: Policy = Policy(),
    *,
    sample_every: Millis | None = None,
    step: Millis | None = None,
    progress: Callable[[Instant], None] | None = None,
) -> Story:
    """One scenario under one policy.

    Args:
        scenario: What happens.
        contender: Who decides.
        options: With which options.
        sample_every: How often the allocations' standing is sampled, where the policy has a metric; None: never.
        step: Look at the clock so often in between, although nothing happens; no figure depends on it.
        progress: Called about once per simulated hour with the instant reached.

    Raises:
        GpufairError: The scenario's cluster, budgets or options make no sense. A refused submission is no error: it is
            in the story.
    """
    return Engine(scenario, contender.name, contender.make(options), options).run(sample_every, step, progress)


class Engine(Site):
    """A site, and its time."""

    def __init__(self, scenario: Scenario, name: str, decider: Decider, options: Policy) -> None:
        super().__init__(scenario, decider, Story(scenario, name, options))
        self._unfinished: dict[str, int] = {}  # by user, in a closed loop
        self._backlog: dict[str, deque[Job]] = {}
        self._late: list[tuple[int, int, Job]] = []  # submissions of a closed loop that come later than recorded

    # -- the clock ------------------------------------------------------------------------------------------------

    def run(
        self,
        sample_every: Millis | None = None,
        step: Millis | None = None,
        progress: Callable[[Instant], None] | None = None,
    ) -> Story:
        """Play it to its end."""
        wall, cpu = time.perf_counter(), time.process_time()
        self.set_up()
        with seldom_collected():
            self._play(sample_every, step, progress)
        for course in self.courses.values():
            course.pause(self.scenario.until)
        story = self.story
        story.ended_at = self.scenario.until
        story.protected_preemptions = self.decider.protected_preemptions
        story.wall_s, story.cpu_s = time.perf_counter() - wall, time.process_time() - cpu
        return story

    def set_up(self) -> None:
        """Tell the policy of budgets and nodes, unless it knows them already."""
        scenario = self.scenario
        self.feed(ev.BudgetsApplied(scenario.start, CAUSE, scenario.allocations))
        for node in scenario.nodes:
            self.feed(ev.NodeJoined(scenario.start, CAUSE, node))

    def _play(
        self, sample_every: Millis | None, step: Millis | None, progress: Callable[[Instant], None] | None
    ) -> None:
        scenario, decider, coming, late = self.scenario, self.decider, self.coming, self._late
        jobs, incidents, until = iter(scenario.jobs), iter(scenario.incidents), int(scenario.until)
        job, incident = next(jobs, None), next(incidents, None)
        sample = scenario.start + sample_every if sample_every is not None else _NEVER
        tick = scenario.start + step if step is not None else _NEVER
        tidy, hour = scenario.start + DAY, int(scenario.start)
        while True:
            due = decider.next_wakeup()
            happens = coming[0][0] if coming else _NEVER
            befalls = incident.at if incident is not None else _NEVER
            submits = job.submit if job is not None else _NEVER
            delayed = late[0][0] if late else _NEVER
            now = min(happens, submits)  # two at a time: compiled, that takes no call
            now = min(now, befalls)
            now = min(now, delayed)
            if due is not None:
                now = min(now, due)
            while sample < now and sample <= until:
                self._sample(Instant(sample))
                sample += sample_every or 0
            while tick < now and tick <= until:
                self.now = Instant(tick)
                self.feed(ev.TimePassed(self.now, CAUSE))
                tick += step or 0
            if now > until:
                return
            self.now = Instant(now)
            if due is not None and due <= now:
                self.feed(ev.TimePassed(Instant(now), CAUSE))
            elif befalls == now and incident is not None:
                self._befall(incident)
                incident = next(incidents, None)
            elif happens == now:
                _, _, happen, course, token = heapq.heappop(coming)
                happen(course, token)
            elif delayed == now:
                self._submit(heapq.heappop(late)[2])
            elif job is not None:
                self._arrive(job)
                job = next(jobs, None)
            if now >= hour:
                hour = now + HOUR
                if progress is not None:
                    progress(self.now)
            if now >= tidy:
                decider.forget(self.now)
                tidy = now + DAY

    def _befall(self, incident: ev.Event) -> None:
        if isinstance(incident, ev.NodeLost):
            self.lose(incident.node)
        self.feed(incident)

    # -- submissions ----------------------------------------------------------------------------------------------

    def _arrive(self, job: Job) -> None:
        most = self.scenario.outstanding
        if most is not None:
            user = job.spec.user
            if self._unfinished.get(user, 0) >= most:
                self._backlog.setdefault(user, deque()).append(job)
                return
            self._unfinished[user] = self._unfinished.get(user, 0) + 1
        self._submit(job)

    def _submit(self, job: Job) -> None:
        life = Life(job, submitted=self.now, waiting_since=self.now)
        self.story.lives[job.id] = life
        self.courses[job.id] = Course(life, self._costs)
        try:
            self.feed(ev.Submitted(self.now, CAUSE, job.id, job.spec))
        except GpufairError as err:
            life.refused, life.ended = str(err), self.now
            self.over(self.courses.pop(job.id))

    def over(self, course: Course) -> None:
        """Its job is over: in a closed loop the next one of its user may come."""
        if self.scenario.outstanding is None:
            return
        user = course.life.job.spec.user
        backlog = self._backlog.get(user)
        if not backlog:
            self._unfinished[user] -= 1
            return
        job = backlog.popleft()
        self._count += 1
        heapq.heappush(self._late, (max(self.now + self.scenario.think, job.submit), self._count, job))

    # -- how allocations stand ------------------------------------------------------------------------------------

    def _sample(self, at: Instant) -> None:
        if not isinstance(self.decider, State):
            return
        facts = self.decider.facts
        for pool in facts.pools():
            shares = shares_of(facts, pool, tree=facts.tree)
            standings = [shares.standing(node.path) for node in facts.tree.nodes()]
            metric = tuple((one.path, one.metric) for one in standings)
            occupancy = tuple((one.path, one.occupancy / 1000) for one in standings)
            self.story.samples.append(Sample(at, pool, metric, occupancy))
