"""What it costs to measure a run: 50,000 jobs with two stints each, on 1,024 GPUs, in 30 days."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Iterator
from functools import cache

from gpufair.core.model import Allocation, Kind, Lease, Node, Policy, PreemptReason, Shape, WorkloadSpec
from gpufair.core.units import DAY, HOUR, MINUTE, AllocationPath, Instant, Millis, NodeName, PoolName, WorkloadId
from gpufair.sim.job import Job
from gpufair.sim.measures import as_json, measure
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Life, Stint, Story
from tests.bench.core import result
from tests.bench.result import Result

JOBS, NODES, GPUS, DAYS = 50_000, 128, 8, 30
LEAVES = tuple(AllocationPath(f"lab/{index:02}") for index in range(30))
END = DAYS * DAY


class _Ground:
    """When each GPU is free next: whoever comes takes those that are free first."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.free = rng, [[0] * GPUS for _ in range(NODES)]

    def _when(self, since: int, first: int, shape: Shape) -> int:
        nodes = self.free[first : first + shape.nodes]
        return max(since, *(sorted(node)[shape.gpus_per_node - 1] for node in nodes))

    def hold(self, since: int, shape: Shape) -> Iterator[Stint]:
        """Two stints, if they begin before the end; the first one is preempted."""
        for last in (False, True):
            drawn = [self.rng.randrange(NODES - shape.nodes + 1) for _ in range(16)]
            granted, first = min((self._when(since, first, shape), first) for first in drawn)
            nodes = range(first, first + shape.nodes)
            if granted >= END:
                return
            freed = granted + int(self.rng.expovariate(1.5 / HOUR)) + MINUTE
            for node in nodes:
                self.free[node] = [*([freed] * shape.gpus_per_node), *sorted(self.free[node])[shape.gpus_per_node :]]
            leases = tuple(Lease(NodeName(f"n{node:03}"), shape.gpus_per_node) for node in nodes)
            up = Instant(granted + MINUTE // 2)
            stint = Stint(leases, PoolName("default"), Instant(granted), Instant(granted), Instant(since), up=up)
            stint.worked = Millis(min(freed, END) - up)
            yield stint
            if freed >= END:
                return
            stint.freed = Instant(freed)
            if not last:
                stint.notice, stint.reason, stint.worked = Instant(freed - 1), PreemptReason.RANK, Millis(0)
            since = freed


@cache
def told(jobs: int = JOBS) -> Story:
    """A story without a policy: who comes takes what is free first on some of the nodes."""
    rng = random.Random(1)
    ground = _Ground(rng)
    lives: dict[WorkloadId, Life] = {}
    for number, submit in enumerate(sorted(rng.randrange(END) for _ in range(jobs))):
        gpus = rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 4, 8, 8, 32))
        shape = Shape(min(gpus, GPUS), max(1, gpus // GPUS))
        span = Millis(rng.choice((0, HOUR, 4 * HOUR)))
        spec = WorkloadSpec(rng.choice(LEAVES), "u", Kind.BATCH, shape, span)
        job = Job(WorkloadId(f"j{number:06}"), Instant(submit), Millis(HOUR), spec)
        life = lives[job.id] = Life(job, job.submit, stints=list(ground.hold(submit, shape)))
        freed = life.stints[-1].freed if life.stints else job.submit
        if len(life.stints) == 2:
            life.ended = freed
        else:
            life.waiting_since = freed
    nodes = tuple(Node(NodeName(f"n{index:03}"), GPUS) for index in range(NODES))
    allocations = tuple(Allocation(leaf, str(1 + index % 5)) for index, leaf in enumerate(LEAVES))
    scenario = Scenario(
        "bench", nodes, allocations, [life.job for life in lives.values()], Instant(END), warm_up=Millis(7 * DAY)
    )
    return Story(scenario, "bench", Policy(), lives, ended_at=Instant(END))


def measured() -> Result:
    """All figures, from the story to JSON."""
    story = told()
    taken = []
    for _ in range(3):
        begun = time.process_time()
        plain = as_json(measure(story))
        taken.append(time.process_time() - begun)
    stints = sum(len(life.stints) for life in story.lives.values())
    return result(
        min(taken),
        "s CPU to measure 50,000 jobs",
        1.5,
        stints=stints,
        occupancy=plain["occupancy"],
        slowest_s=max(taken),
    )


def memory() -> Result:
    """What measuring needs beside the story, at its height."""
    story = told()
    tracemalloc.start()
    measure(story)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Result(peak / 2**20, "MiB to measure 50,000 jobs", 100.0)


CASES = {"sim_measure": measured, "sim_measure_memory": memory}
