"""Stories told by hand, in minutes."""

from __future__ import annotations

from collections.abc import Iterable

from gpufair.core.model import Allocation, Kind, Lease, Node, Outcome, Policy, PreemptReason, Shape, WorkloadSpec
from gpufair.core.units import DAY, HOUR, MINUTE, AllocationPath, Instant, Millis, NodeName, PoolName, WorkloadId
from gpufair.sim.job import Job, JobKind
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Landed, Life, Stint, Story

POOL = PoolName("default")


def at(minute: float) -> Instant:
    return Instant(round(minute * MINUTE))


def job(
    name: str,
    submit: float,
    gpus: int = 1,
    nodes: int = 1,
    leaf: str = "a",
    min_runtime: Millis = HOUR,
    kind: JobKind = JobKind.BATCH,
    resumable: bool = True,
) -> Job:
    spec = WorkloadSpec(
        AllocationPath(leaf),
        "u",
        Kind.SESSION if kind is JobKind.SESSION else Kind.BATCH,
        Shape(gpus, nodes),
        min_runtime,
        resumable=resumable,
    )
    return Job(WorkloadId(name), at(submit), Millis(0), spec, kind)


def stint(
    waited_since: float,
    granted: float,
    freed: float | None,
    *,
    up: float | None = None,
    notice: float | None = None,
    reason: PreemptReason | None = None,
    touched: bool = False,
    worked: float = 0,
    lost: float = 0,
    protected: float = 0,
    node: str = "n0",
    gpus: int = 1,
) -> Stint:
    return Stint(
        (Lease(NodeName(node), gpus),),
        POOL,
        at(granted),
        at(granted + protected),
        at(waited_since),
        touched,
        at(granted if up is None else up),
        None if notice is None else at(notice),
        reason,
        freed=None if freed is None else at(freed),
        worked=Millis(at(worked)),
        lost=Millis(at(lost)),
    )


def life(
    job: Job, *stints: Stint, ended: float | None = None, waiting: float | None = None, touched: bool = False
) -> Life:
    return Life(
        job,
        job.submit,
        waiting_since=None if waiting is None else at(waiting),
        touched=touched,
        stints=list(stints),
        ended=None if ended is None else at(ended),
        outcome=None if ended is None else Outcome.COMPLETED,
    )


def story(
    *lives: Life,
    shares: Iterable[tuple[str, str]] = (("a", "1"),),
    gpus: int = 8,
    nodes: int = 1,
    until: float = DAY / MINUTE,
    warm_up: float = 0,
    landings: Iterable[Landed] = (),
    protected_preemptions: int = 0,
) -> Story:
    scenario = Scenario(
        "by hand",
        tuple(Node(NodeName(f"n{index}"), gpus) for index in range(nodes)),
        tuple(Allocation(AllocationPath(path), share) for path, share in shares),
        [one.job for one in lives],
        at(until),
        warm_up=Millis(at(warm_up)),
    )
    return Story(
        scenario,
        "hand",
        Policy(),
        {one.job.id: one for one in lives},
        landings=list(landings),
        ended_at=at(until),
        protected_preemptions=protected_preemptions,
    )
