"""Rows of a trace as jobs to be: cut to the days that are played, laid on the cluster, and told apart by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from typing import Final, Literal

from gpufair.core.model import Shape
from gpufair.core.units import GpuMillis, Instant, Millis
from gpufair.sim.cluster import Cluster
from gpufair.sim.errors import ScenarioError, TooLarge
from gpufair.sim.habits import Habits
from gpufair.sim.job import Burst, JobKind
from gpufair.sim.shape.sample import sample
from gpufair.sim.traces.row import Row

OTHER: Final = "other"

Oversize = Literal["refuse", "clip", "skip"]


@dataclass(slots=True)
class Draft:
    """A row on its way to a job."""

    row: Row
    submit: Instant  # from the beginning of the run on
    shape: Shape
    kind: JobKind
    bursts: tuple[Burst, ...] = ()
    held: GpuMillis = GpuMillis(0)

    @property
    def project(self) -> str:
        """Whose budget it is; ``OTHER`` if the trace does not say."""
        return self.row.project.strip() or OTHER


def lay_out(rows: Sequence[Row], begin: Millis, cluster: Cluster, oversize: Oversize, notes: list[str]) -> list[Draft]:
    """The rows on the cluster. What was changed is added to the notes.

    Raises:
        TooLarge: Some never fit, and ``oversize`` is "refuse".
        ScenarioError: They ask for GPUs of a type that the cluster lacks, and have to be refused as well.
    """
    drafts: list[Draft] = []
    shapes: dict[tuple[float, int | None, str], Shape | None] = {}
    counts: Counter[str] = Counter()
    refused: list[str] = []
    for row in rows:
        asked = (row.gpus, row.nodes, row.gpu_type)
        if asked not in shapes:
            shapes[asked] = cluster.shape(max(1, ceil(row.gpus)), row.nodes, _type_on(cluster, row))
        shape = shapes[asked]
        if row.gpus != int(row.gpus):
            counts["asked for parts of a GPU and get whole ones"] += 1
        if shape is None:
            largest = cluster.largest(_type_on(cluster, row))
            if oversize == "refuse" or largest is None:
                refused.append(f"{row.job_id!r} (line {row.line}: {row.gpus:g} GPUs)")
                continue
            if oversize == "skip":
                counts["are too large for the cluster and left out"] += 1
                continue
            counts[
                "are too large for the cluster and clipped to the largest that fits, their durations as they were"
            ] += 1
            shape = largest
        elif shape.gpus > ceil(row.gpus):
            counts["do not divide by whole nodes and get the next number of GPUs that does"] += 1
        if row.gpu_type and row.gpu_type not in cluster.gpu_types:
            counts["name a GPU type that the cluster lacks and run on any"] += 1
        drafts.append(Draft(row, Instant(row.submit - begin), shape, JobKind.BATCH))
    if refused:
        raise TooLarge(tuple(refused), str(cluster))
    if not drafts:
        raise ScenarioError(f"no job of the trace is left to play on {cluster}; take more days or a larger cluster")
    notes += [f"jobs that {what}: {count:,}" for what, count in sorted(counts.items())]
    return drafts


def _type_on(cluster: Cluster, row: Row) -> str:
    return row.gpu_type if row.gpu_type in cluster.gpu_types else ""


def tell_apart(
    drafts: list[Draft], habits: Habits, debug_share: float, session_share: float, seed: int, notes: list[str]
) -> None:
    """Set kinds, the bursts of sessions, and what each would hold.

    A trace that knows kinds keeps them. In one that names no debug runs, ``debug_share`` of those that are short and
    small are drawn; in one that names no sessions, ``session_share`` of those that are long and small.
    """
    usual = habits.assumptions
    for draft in drafts:
        draft.kind = JobKind(draft.row.kind) if draft.row.kind else JobKind.BATCH
    kinds = {draft.kind for draft in drafts}
    draw = Random(f"kinds:{seed}")
    plans = (
        (JobKind.DEBUG, debug_share, 0.0, usual.debug.most_s, usual.debug.most_gpus, "short and small"),
        (
            JobKind.SESSION,
            session_share,
            usual.session.least_s,
            float("inf"),
            usual.session.most_gpus,
            "long and small",
        ),
    )
    for kind, share, least_s, most_s, most_gpus, which in plans:
        if kind in kinds:
            continue
        may_be = [
            draft
            for draft in drafts
            if draft.kind is JobKind.BATCH
            and least_s <= draft.row.duration / 1000 <= most_s
            and draft.shape.gpus <= most_gpus
        ]
        chosen = draw.sample(may_be, round(share * len(may_be)))
        for draft in chosen:
            draft.kind = kind
        if chosen:
            notes.append(f"{len(chosen):,} of {len(may_be):,} {which} jobs are drawn as {kind} ones")
    for draft in drafts:
        if draft.kind is JobKind.SESSION:
            draft.bursts = habits.bursts(draft.row.duration)
        draft.held = habits.held(draft.kind, draft.row.duration, draft.bursts, draft.shape.gpus)


def choose_unallocated(
    held: Sequence[GpuMillis], may_be: Sequence[bool], strata: Sequence[object], share: float, seed: int
) -> set[int]:
    """Which jobs run unallocated, so that they come to ``share`` of all GPU time asked for, as far as they can.

    Args:
        held: Of each job.
        may_be: Whether it may be one of them.
        strata: Equal ones are drawn from evenly; they sort.
        share: From 0 to 1.
        seed: Of the draw.
    """
    order = sorted((at for at, may in enumerate(may_be) if may), key=lambda at: (strata[at], held[at], at))
    picked = sample([held[at] for at in order], round(share * sum(held)), Random(f"unallocated:{seed}"))
    return {order[at] for at in picked}
