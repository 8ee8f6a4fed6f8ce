"""Stories for the report without an engine: a cluster filled by a toy rule, at any size, in a second or two.

Nothing here is a policy. It makes what a picture must be able to show: gangs, unallocated work, protection that is
over, preemptions for somebody, landings with holes, a node that was lost, sessions that come back.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from gpufair.core.events import Event, NodeJoined, NodeLost
from gpufair.core.model import (
    DEFAULT_POOL,
    Allocation,
    Kind,
    Lease,
    Node,
    Outcome,
    Policy,
    PreemptReason,
    Shape,
    WorkloadSpec,
)
from gpufair.core.units import (
    DAY,
    HOUR,
    MINUTE,
    AllocationPath,
    CauseId,
    Instant,
    Millis,
    NodeName,
    WorkloadId,
)
from gpufair.sim.job import Job, JobKind
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Landed, Life, Sample, Stint, Story

TEAMS = {
    "language": ("40", ("pretrain", "finetune", "eval")),
    "vision": ("25", ("detect", "video")),
    "robotics": ("15", ("sim2real", "grasp")),
    "biology": ("10", ("folding",)),
    "climate": ("6", ("emulator",)),
    "teaching": ("4", ("course",)),
}


def scenario(
    nodes: int, days: float, jobs: int, seed: int = 0, name: str = "constructed", length: float = 1.0
) -> Scenario:
    """A cluster of nodes with 8 GPUs, and so many jobs spread over so many days, each ``length`` times as long as usual."""
    rng = random.Random(seed)
    leaves = [(f"{team}/{leaf}", float(share)) for team, (share, own) in TEAMS.items() for leaf in own]
    machines = tuple(Node(NodeName(f"node-{number:03d}"), 8, "h100") for number in range(nodes))
    until = Instant(int(days * DAY))
    submits = sorted(rng.randrange(0, until) for _ in range(jobs))
    down = machines[nodes // 3]
    incidents: tuple[Event, ...] = (
        NodeLost(Instant(until // 4), CauseId("power"), down.name),
        NodeJoined(Instant(until // 4 + until // 12), CauseId("power"), down),
    )
    return Scenario(
        name=name,
        nodes=machines,
        allocations=tuple(
            [Allocation(AllocationPath(team), share) for team, (share, _) in TEAMS.items()]
            + [Allocation(AllocationPath(leaf)) for leaf, _ in leaves]
        ),
        jobs=[_job(place, at, leaves, nodes, rng, length) for place, at in enumerate(submits)],
        until=until,
        warm_up=Millis(until // 10),
        incidents=incidents,
        epoch_s=1_760_000_000.0,
        notes=("3 rows of the trace were skipped", "which tenth of the short jobs is debug was drawn with seed 0"),
    )


def _job(place: int, at: int, leaves: list[tuple[str, float]], nodes: int, rng: random.Random, length: float) -> Job:
    kind = rng.choices([JobKind.DEBUG, JobKind.SESSION, JobKind.BATCH], [2, 3, 5])[0]
    leaf = rng.choices([leaf for leaf, _ in leaves], [share for _, share in leaves])[0]
    shape = Shape(1)
    if kind is JobKind.BATCH:
        shape = rng.choices([Shape(1), Shape(4), Shape(8), Shape(8, max(1, min(4, nodes // 2)))], [4, 2, 3, 1])[0]
    hours = {JobKind.DEBUG: 0.2, JobKind.SESSION: 3, JobKind.BATCH: 9}[kind] * rng.lognormvariate(0, 0.9) * length
    protection = 0 if rng.random() < 0.3 else min(8 * HOUR, int(hours * HOUR * rng.choice([0.4, 0.8, 1])))
    spec = WorkloadSpec(
        AllocationPath(leaf),
        f"user-{rng.randrange(60)}",
        Kind.SESSION if kind is JobKind.SESSION else Kind.BATCH,
        shape,
        Millis(protection),
        name=f"{kind}-{place}",
    )
    return Job(WorkloadId(f"job-{place:06d}"), Instant(at), Millis(int(hours * HOUR)), spec, kind)


@dataclass
class _Toy:
    """Who holds what; the first that fits is served, and with ``evict`` whoever is unprotected makes way."""

    story: Story
    evict: bool
    rng: random.Random
    free: dict[NodeName, int] = field(default_factory=dict)
    ends: list[tuple[int, int, WorkloadId]] = field(default_factory=list)
    left: dict[WorkloadId, int] = field(default_factory=dict)
    held: dict[WorkloadId, Stint] = field(default_factory=dict)
    queue: list[Job] = field(default_factory=list)
    kept: dict[WorkloadId, Landed] = field(default_factory=dict)

    def fit(self, shape: Shape) -> tuple[Lease, ...] | None:
        nodes = [name for name, free in self.free.items() if free >= shape.gpus_per_node]
        if len(nodes) < shape.nodes:
            return None
        nodes.sort(key=lambda name: (self.free[name], name))
        return tuple(Lease(name, shape.gpus_per_node) for name in sorted(nodes[: shape.nodes]))

    def start(self, job: Job, leases: tuple[Lease, ...], now: int) -> None:
        life = self.story.lives[job.id]
        since = life.stints[-1].freed if life.stints else job.submit
        protected = Instant(now + job.spec.min_runtime)
        stint = Stint(leases, DEFAULT_POOL, Instant(now), protected, Instant(since or now), up=Instant(now + 30_000))
        stint.touched = bool(life.stints) and job.kind is JobKind.SESSION
        life.stints.append(stint)
        self.held[job.id] = stint
        for lease in leases:
            self.free[lease.node] -= lease.gpus
        heapq.heappush(self.ends, (now + self.left[job.id], len(life.stints), job.id))
        landed = self.kept.pop(job.id, None)
        if landed is not None:
            landed.over = Instant(now)

    def stop(
        self, workload: WorkloadId, now: int, reason: PreemptReason | None, for_whom: WorkloadId | None = None
    ) -> None:
        stint = self.held.pop(workload)
        stint.freed, stint.reason, stint.beneficiary = Instant(now), reason, for_whom
        life = self.story.lives[workload]
        for lease in stint.leases:
            if lease.node in self.free:
                self.free[lease.node] += lease.gpus
        done = now - stint.granted
        stint.worked = Millis(done)
        if reason is None:
            life.ended, life.outcome = Instant(now), Outcome.COMPLETED
        else:
            stint.notice, stint.lost = Instant(now), Millis(done // 20)
            self.left[workload] = max(self.left[workload] - done, int(MINUTE))
            self.queue.append(life.job)

    def serve(self, now: int) -> None:
        for job in self.queue[:12]:
            leases = self.fit(job.spec.shape) or (self.make_way(job, now) if self.evict else None)
            if leases:
                self.queue.remove(job)
                self.start(job, leases, now)
            elif job.spec.shape.nodes > 1 and self.evict and job.id not in self.kept and len(self.kept) < 3:
                nodes = sorted(self.free, key=lambda name: (-self.free[name], name))[: job.spec.shape.nodes]
                at, by = Instant(now + 2 * HOUR), Instant(now + 2 * HOUR + 20_000)
                landed = Landed(job.id, tuple(Lease(name, 8) for name in sorted(nodes)), Instant(now), at, by)
                self.kept[job.id] = landed
                self.story.landings.append(landed)

    def make_way(self, job: Job, now: int) -> tuple[Lease, ...] | None:
        if not job.spec.allocated or job.spec.shape.nodes > 1:
            return None
        for workload, stint in list(self.held.items()):
            over = now >= stint.protected_until and self.rng.random() < 0.2
            if over and stint.leases[0].node in self.free and stint.leases[0].gpus >= job.gpus:
                spec = self.story.lives[workload].job.spec
                reason = PreemptReason.RANK if spec.allocated else PreemptReason.UNALLOCATED
                self.stop(workload, now, reason, job.id)
                return self.fit(job.spec.shape)
        return None


def story(world: Scenario, policy: str = "fair-share", evict: bool = True, seed: int = 0) -> Story:
    """The scenario under the toy rule, with samples of a metric if it evicts."""
    told = Story(world, policy, Policy())
    toy = _Toy(told, evict, random.Random(seed), {node.name: node.gpus for node in world.nodes})
    for job in world.jobs:
        told.lives[job.id] = Life(job)
        toy.left[job.id] = job.work
    coming: list[tuple[int, int, Job | Event]] = [(job.submit, 1, job) for job in world.jobs]
    coming += [(incident.at, 0, incident) for incident in world.incidents]
    coming.sort(key=lambda one: one[:2])
    for at, _, what in coming:
        _finish(toy, at)
        if isinstance(what, Job):
            told.lives[what.id].submitted = told.lives[what.id].waiting_since = Instant(at)
            toy.queue.append(what)
        elif isinstance(what, NodeLost):
            del toy.free[what.node]
            for workload, stint in list(toy.held.items()):
                if any(lease.node == what.node for lease in stint.leases):
                    stint.failed = True
                    toy.stop(workload, at, PreemptReason.DRAIN)
        elif isinstance(what, NodeJoined):
            toy.free[what.node.name] = what.node.gpus
        toy.serve(at)
    _finish(toy, world.until)
    told.ended_at = world.until
    if evict:
        told.samples = list(_samples(world, seed))
    return told


def _finish(toy: _Toy, until: int) -> None:
    while toy.ends and toy.ends[0][0] <= until:
        at, number, workload = heapq.heappop(toy.ends)
        if workload in toy.held and len(toy.story.lives[workload].stints) == number:
            toy.stop(workload, at, None)
            toy.serve(at)


def _samples(world: Scenario, seed: int) -> list[Sample]:
    rng = random.Random(seed)
    paths = [allocation.path for allocation in world.allocations]
    level = dict.fromkeys(paths, 1.0)
    found = []
    for step in range(200):
        level = {path: max(0.05, value + rng.uniform(-0.08, 0.08)) for path, value in level.items()}
        at = Instant(world.until * step // 200)
        found.append(
            Sample(at, DEFAULT_POOL, tuple(level.items()), tuple((path, value * 1000) for path, value in level.items()))
        )
    return found
