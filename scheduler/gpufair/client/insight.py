"""Answers to questions about what was and what will be: typed like those in ``types``, and read as leniently."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpufair.client.marks import one_of, sometimes


@dataclass(frozen=True, slots=True)
class ForeseenStep:
    """One thing that happens if nothing new arrives. ``until_s``: end of the protection, or deadline of the notice."""

    at_s: float
    what: str  # "starts", "told to leave", "releases", "queued again", …
    workload: str
    user: str = ""
    allocation: str = ""
    gpus: int = 0
    nodes: tuple[str, ...] = ()
    why: str = ""
    reason: str | None = None
    beneficiary: str | None = None
    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class ForeseenStart:
    """When a workload that waits now starts first."""

    workload: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Preview:
    """The steps from now until ``until_s``; ``cut`` says why it ends earlier than was asked for."""

    now_s: float = 0.0
    until_s: float = 0.0
    cut: str = ""
    steps: tuple[ForeseenStep, ...] = ()
    starts: tuple[ForeseenStart, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to ask, and what would come of it.

    ``outlook``: "now", "makes room", "start by" (binding), "estimated", "unknown" or "refused"; ``at_s``: when, or None.
    """

    outlook: str = field(metadata=one_of("now", "makes room", "start by", "estimated", "unknown", "refused"))
    gpus: int = 0  # per node
    nodes: int = 1
    gpu_type: str = ""
    min_runtime_s: float = 0.0
    at_s: float | None = None
    right: str | None = None
    committed_gpu_s: float = 0.0
    of_budget: float | None = None
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Coaching:
    """A wish as it is, other ways to ask, and one sentence of advice."""

    asked: Choice
    choices: tuple[Choice, ...] = ()
    advice: str = ""
    warnings: tuple[str, ...] = ()  # about the wish as it is
    allocation: str = ""
    now_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Loss:
    """Where a part of a level went."""

    cause: str
    gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """Of ``of_gpu_s`` remained ``kept_gpu_s``. ``ratio`` None: unknown, or there was nothing."""

    of_gpu_s: float = 0.0
    kept_gpu_s: float = 0.0
    ratio: float | None = None
    losses: tuple[Loss, ...] = ()
    coverage: float | None = field(default=None, metadata=sometimes())  # of utilization: the part of the held time that was measured


@dataclass(frozen=True, slots=True)
class Worst:
    """The allocation that got the least of what it was owed."""

    path: str
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class PyramidOfPool:
    """Where GPU time went in one pool, from ``start_s`` to ``end_s``."""

    pool: str
    start_s: float = 0.0
    end_s: float = 0.0
    availability: Level = Level()
    occupancy: Level = Level()
    impact: Level = Level()
    utilization: Level = Level()
    held_gpu_s: float = 0.0
    charged_gpu_s: float = 0.0
    unallocated_gpu_s: float = 0.0
    switching_gpu_s: float = 0.0
    capped: float | None = None
    uncapped: float | None = None
    capped_hourly: float | None = None
    worst: Worst | None = None


@dataclass(frozen=True, slots=True)
class Pyramid:
    """Availability, occupancy, impact and utilization of each pool."""

    pools: tuple[PyramidOfPool, ...] = ()


@dataclass(frozen=True, slots=True)
class ResearcherView:
    """What somebody was charged in a leaf."""

    user: str
    charged_gpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DeliveredView:
    """What an allocation was owed and charged. ``ratio`` is charged / owed; capped ones count no more than was owed."""

    path: str
    leaf: bool = True
    entitlement: float = 0.0
    owed_gpu_s: float = 0.0
    charged_gpu_s: float = 0.0
    capped_gpu_s: float = 0.0
    capped_hourly_gpu_s: float = 0.0
    ratio: float | None = None
    researchers: tuple[ResearcherView, ...] = ()


@dataclass(frozen=True, slots=True)
class DeliveredInPool:
    """Delivered / owed in one pool: ``capped`` is the headline."""

    pool: str
    start_s: float = 0.0
    end_s: float = 0.0
    capped: float | None = None
    uncapped: float | None = None
    capped_hourly: float | None = None
    worst: Worst | None = None
    allocations: tuple[DeliveredView, ...] = ()


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Delivered / owed of each pool."""

    pools: tuple[DeliveredInPool, ...] = ()


@dataclass(frozen=True, slots=True)
class Course:
    """What an allocation was owed and charged, a figure for each bin."""

    path: str
    leaf: bool = True
    entitlement: float = 0.0
    owed_gpu_s: tuple[float, ...] = ()
    charged_gpu_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class CoursesInPool:
    """Bins of ``bin_s`` from ``start_s`` on; the last one ends with ``end_s``."""

    pool: str
    start_s: float = 0.0
    end_s: float = 0.0
    bin_s: float = 3600.0
    allocations: tuple[Course, ...] = ()


@dataclass(frozen=True, slots=True)
class BudgetsOverTime:
    """Owed and charged over time, in each pool."""

    pools: tuple[CoursesInPool, ...] = ()


@dataclass(frozen=True, slots=True)
class Stay:
    """One workload on GPUs of one node. ``to_s`` None: it is there still. ``preempted_s``: when it had to make room."""

    workload: str
    user: str = ""
    allocation: str = ""
    rows: tuple[int, ...] = ()  # which of the node's GPUs, from 0
    from_s: float = 0.0
    up_s: float | None = None
    to_s: float | None = None
    protected: tuple[tuple[float, float], ...] = ()  # from when until when it could not be preempted
    preempted_s: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """What was on one node. ``devices``: ids of its GPUs, in the order of rows, where known."""

    name: str
    pool: str = ""
    gpu_type: str = ""
    gpus: int = 0
    devices: tuple[str, ...] = ()
    stays: tuple[Stay, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuHistory:
    """GPU × time from ``since_s`` on, which is later than was asked for where no more is known, or it is too much."""

    now_s: float = 0.0
    since_s: float = 0.0
    nodes: tuple[NodeHistory, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned maintenance: these nodes are closed at ``at_s``."""

    id: str
    nodes: tuple[str, ...] = ()
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TourLine:
    """One event or decision, as it was recorded."""

    at_s: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class TourStep:
    """A workload of the tour, and why it is in it; ``terms`` are those it uses."""

    kind: str = field(metadata=one_of("own", "wait", "preemption", "landing", "debug"))
    title: str
    workload: str
    label: str = ""
    name: str = ""
    user: str = ""
    allocation: str = ""
    mine: bool = False
    lines: tuple[TourLine, ...] = ()
    terms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tour:
    """Why some workloads of the last week waited, ran and were preempted.

    ``about`` says how much is recorded, ``missing`` what there was none of; ``terms`` by name: ``means`` and ``where``.
    """

    since_s: float = 0.0
    until_s: float = 0.0
    whole_week: bool = False
    about: str = ""
    steps: tuple[TourStep, ...] = ()
    missing: tuple[str, ...] = ()
    terms: dict[str, Any] = field(default_factory=dict)
