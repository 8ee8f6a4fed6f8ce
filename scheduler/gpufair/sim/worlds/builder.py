"""Puts a world together: a cluster, a tree, and streams of jobs that keep every allocation asking for what it is to ask."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from gpufair.core.events import Event
from gpufair.core.model import Allocation
from gpufair.core.tree import Tree
from gpufair.core.units import MINUTE, AllocationPath, GpuMillis, Instant, Millis
from gpufair.sim.assumptions import Mix, NodeAssumptions, millis
from gpufair.sim.errors import ScenarioError
from gpufair.sim.habits import Crowd, Habits
from gpufair.sim.incidents import failures
from gpufair.sim.job import Burst, Job, JobKind
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds.profile import Profile
from gpufair.sim.worlds.setting import Setting

# What is there from the beginning is submitted within so long.
_OPENING: Final = Millis(5 * MINUTE)
_SHORTEST: Final = Millis(20 * MINUTE)
MOST_JOBS: Final = 5_000_000


class Builder:
    """A world under construction. What it draws depends on the seed and on the order of the calls."""

    def __init__(self, setting: Setting, allocations: Sequence[Allocation]) -> None:
        self.setting = setting
        self.allocations = tuple(allocations)
        self.tree = Tree(allocations)
        self.until = setting.until
        self.draw = Random(f"world:{setting.seed}")
        self.habits = Habits(setting.assumptions, setting.max_min_runtime, setting.seed)
        self.held = self.unallocated = 0  # GPU-ms asked for so far
        self._jobs: list[Job] = []
        self._crowds: dict[AllocationPath, Crowd] = {}

    def demand(self, usual: float) -> float:
        """What was asked for, or what the world is made for."""
        return usual if self.setting.demand is None else self.setting.demand

    def free(self, usual: float = 0.0) -> float:
        """The part of it that runs unallocated, likewise."""
        return usual if self.setting.unallocated_share is None else self.setting.unallocated_share

    def part(self, leaf: AllocationPath) -> float:
        """GPUs that an allocation is entitled to."""
        return float(self.tree[leaf].entitlement) * self.setting.cluster.gpus

    def submit(
        self,
        leaf: AllocationPath,
        at: Instant,
        gpus: int,
        work: Millis,
        *,
        kind: JobKind = JobKind.BATCH,
        user: str = "",
        bursts: tuple[Burst, ...] = (),
        min_runtime: Millis | None = None,
        resumable: bool | None = None,
        name: str = "",
    ) -> Job:
        """One job, of somebody of the allocation unless ``user`` says whose."""
        shape = self.setting.cluster.shape(gpus)
        if shape is None:
            raise ScenarioError(f"{gpus} GPUs are more than {self.setting.cluster} has; take a larger cluster")
        if len(self._jobs) >= MOST_JOBS:
            raise ScenarioError(f"this world has more than {MOST_JOBS:,} jobs; take fewer days or a smaller cluster")
        job = self.habits.job(
            f"{leaf.replace('/', '.')}.{len(self._jobs):06d}",
            at,
            work,
            kind=kind,
            leaf=leaf,
            user=user or self.crowd(leaf).somebody(),
            shape=shape,
            bursts=bursts,
            min_runtime=min_runtime,
            resumable=resumable,
            name=name,
        )
        held = self.habits.held(kind, work, bursts, shape.gpus)
        self.held += held
        self.unallocated += 0 if job.spec.allocated else held
        self._jobs.append(job)
        return job

    def crowd(self, leaf: AllocationPath) -> Crowd:
        """Its researchers."""
        if leaf not in self._crowds:
            name = leaf.rpartition("/")[2]
            self._crowds[leaf] = Crowd(name, self.setting.assumptions, self.setting.seed)
        return self._crowds[leaf]

    def stream(
        self,
        leaf: AllocationPath,
        demand: float,
        *,
        profile: Profile | None = None,
        sizes: Mix | None = None,
        unallocated: float = 0.0,
        sessions: float | None = None,
        debug: float | None = None,
        stock: bool = True,
    ) -> Sequence[Job]:
        """All kinds of jobs of one allocation, asking for ``demand`` times its part of the cluster (debug runs beside).

        They come as a fluid would: when so much has been asked for as is due by then, the next job is submitted. So
        the demand is there at all times, and not only on average.

        Args:
            leaf: Whose.
            demand: Times its entitlement, over the whole run.
            profile: When; None: evenly over the run.
            sizes: GPUs, and part of the batch GPU time; None: ``usual_sizes``.
            unallocated: Part of the demand that runs unallocated.
            sessions: Part of the demand that is sessions; None: as assumed.
            debug: Part of all jobs that are debug runs; None: as assumed.
            stock: Ask for ``demand`` times its part at once in the first minutes.

        Returns:
            The jobs.
        """
        usual = self.setting.assumptions
        when = profile or Profile.even(Instant(0), self.until)
        sessions = usual.session.share if sessions is None else sessions
        goal = round(demand * self.part(leaf) * self.until)
        before = len(self._jobs)
        stocked = demand * self.part(leaf) if stock else 0.0
        left = goal - self._sessions(leaf, round(goal * sessions), when, stocked * sessions)
        free = min(1.0, unallocated * goal / left) if left > 0 else 0.0
        by_size = sizes or self.usual_sizes(leaf)
        total = sum(often for _, often in by_size)
        carried = 0
        for size, often in sorted(by_size, reverse=True):
            lane = round(left * often / total) + carried
            carried = lane - self._batch(leaf, int(size), lane, when, stocked * often / total, free)
        share = usual.debug.share if debug is None else debug
        self.debug_runs(leaf, round((len(self._jobs) - before) * share / max(1e-9, 1 - share)), when)
        return self._jobs[before:]

    def usual_sizes(self, leaf: AllocationPath) -> Mix:
        """Jobs of powers of two up to the GPUs that an allocation is entitled to (one GPU at the least).

        Larger gangs than its part are nobody's habit, and one granule (such a gang for the longest protection) stays
        below a twentieth of what it is owed in a week.
        """
        batch = self.setting.assumptions.batch
        largest = self.setting.cluster.largest()
        most = max(1, min(int(self.part(leaf)), largest.gpus if largest is not None else 0))
        small = [(size, often) for size, often in batch.gpu_time if size <= most]
        gangs = [2.0**power for power in range(4, most.bit_length()) if 2**power <= most]
        rest = max(0.0, 1 - sum(often for _, often in batch.gpu_time))
        return (*small, *((gang, rest / len(gangs)) for gang in gangs)) if small or gangs else ((1.0, 1.0),)

    def debug_runs(self, leaf: AllocationPath, count: int, when: Profile, user: str = "") -> None:
        """So many short runs at random times."""
        usual = self.setting.assumptions.debug
        sizes = [one for one in usual.gpus if one[0] <= max(1.0, self.part(leaf))] or [(1.0, 1.0)]
        for _ in range(count):
            work = min(self.habits.lognormal(usual.median_s, usual.spread), usual.most_s)
            at, gpus = when.at(self.draw.random()), int(self.habits.pick(tuple(sizes)))
            self.submit(leaf, at, gpus, millis(work), kind=JobKind.DEBUG, user=user)

    def scenario(
        self,
        name: str,
        notes: Sequence[str] = (),
        incidents: Sequence[Event] = (),
        failing: NodeAssumptions | None = None,
    ) -> Scenario:
        """The world as it stands. Nodes fail beside its own incidents, as ``failing`` or the assumptions say."""
        setting, nodes = self.setting, self.setting.cluster.nodes()
        capacity = setting.cluster.gpus * self.until
        lost = failures(nodes, Instant(0), self.until, failing or setting.assumptions.nodes, setting.seed)
        figures = (
            f"demand is {self.held / capacity:.3f} of the GPU time there is, "
            f"{self.unallocated / capacity:.3f} of it unallocated"
        )
        return Scenario(
            name=f"world:{name}",
            nodes=nodes,
            allocations=self.allocations,
            jobs=tuple(sorted(self._jobs, key=lambda job: (job.submit, job.id))),
            until=self.until,
            warm_up=setting.window if self.until >= 2 * setting.window else Millis(0),
            incidents=tuple(sorted((*incidents, *lost), key=lambda event: event.at)),
            costs=setting.assumptions.costs.engine(),
            outstanding=setting.outstanding,
            think=millis(setting.assumptions.users.think_s),
            seed=setting.seed,
            notes=(*notes, figures),
        )

    def _sessions(self, leaf: AllocationPath, goal: int, when: Profile, stocked: float) -> int:
        """Sessions that would hold about ``goal`` GPU-ms, and what they would."""
        usual = self.setting.assumptions.session
        sizes = tuple(one for one in usual.gpus if one[0] <= max(1.0, self.part(leaf))) or ((1.0, 1.0),)
        wishes: list[tuple[int, GpuMillis, tuple[Burst, ...]]] = []
        held = 0
        while held < goal:
            gpus = int(self.habits.pick(sizes))
            bursts = self.habits.bursts(millis(self.habits.lognormal(usual.hold_median_s, usual.hold_spread)))
            holds = self.habits.held(JobKind.SESSION, Millis(0), bursts, gpus)
            if held + holds > goal + holds // 2:
                break
            wishes.append((gpus, holds, bursts))
            held += holds
        times = self._times([(gpus, holds) for gpus, holds, _ in wishes], when, stocked)
        for (gpus, _, bursts), at in zip(wishes, times, strict=True):
            self.submit(leaf, at, gpus, Millis(0), kind=JobKind.SESSION, bursts=bursts)
        return held

    def _batch(self, leaf: AllocationPath, gpus: int, goal: int, when: Profile, stocked: float, free: float) -> int:
        """Runs of one size that hold ``goal`` GPU-ms, and what they hold: the last one is as long as is left."""
        usual = self.setting.assumptions.batch
        shape = self.setting.cluster.shape(gpus)
        taken = shape.gpus if shape is not None else gpus
        runs: list[tuple[int, GpuMillis]] = []
        held = 0
        while True:
            drawn = millis(min(self.habits.lognormal(usual.median_s * gpus**usual.growth, usual.spread), usual.most_s))
            work = min(max(drawn, _SHORTEST), (goal - held) // taken)
            if work < _SHORTEST:
                break
            runs.append((taken, GpuMillis(taken * work)))
            held += taken * work
        done = unallocated = 0
        for (_, holds), at in zip(runs, self._times(runs, when, stocked), strict=True):
            done += holds
            is_free = unallocated + holds / 2 <= free * done
            unallocated += holds if is_free else 0
            work = Millis(holds // taken)
            self.submit(leaf, at, gpus, work, min_runtime=Millis(0) if is_free else None)
        return held

    def _times(self, wishes: Sequence[tuple[int, GpuMillis]], when: Profile, stocked: float) -> list[Instant]:
        """When each of (GPUs, GPU-ms) is submitted, so that what was asked for follows the profile."""
        opening, gpus = 0, 0
        while opening < len(wishes) and gpus < stocked:
            gpus += wishes[opening][0]
            opening += 1
        first = min(int(_OPENING), max(1, self.until // 100))
        times = [Instant(int(self.draw.random() * first)) for _ in range(opening)]
        rest = sum(holds for _, holds in wishes[opening:])
        done = 0
        for _, holds in wishes[opening:]:
            # Somewhere in the time that it fills, so that submissions of a stream keep no beat.
            times.append(when.at((done + self.draw.random() * holds) / rest))
            done += holds
        return times
