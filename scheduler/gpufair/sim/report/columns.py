"""Jobs, bars and landings as columns of numbers: what cards say, and where pictures are painted.

Times are ticks since the start of the scenario; ``NOBODY`` stands for no job and for no reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpufair.core.model import PreemptReason
from gpufair.core.tree import ancestors
from gpufair.core.units import AllocationPath, Instant
from gpufair.sim.job import Job, JobKind
from gpufair.sim.report.closed import Era
from gpufair.sim.report.encode import column, texts
from gpufair.sim.report.rows import Bar, Rows, Shade
from gpufair.sim.story import Story

NOBODY = -1
REASONS: tuple[PreemptReason, ...] = tuple(PreemptReason)
KINDS: tuple[JobKind, ...] = tuple(JobKind)
FARTHEST = 2**30
HOLDING, TOUCHED, FAILED = 1, 2, 4  # flags of a bar


@dataclass(frozen=True)
class Cast:
    """Who is in the pictures: the jobs that are drawn under any policy, and the names that they use."""

    jobs: tuple[Job, ...]
    place: Mapping[str, int]
    paths: tuple[AllocationPath, ...]  # the root first, parents before children

    @classmethod
    def of(cls, stories: Sequence[Story], pictures: Iterable[Sequence[Bar]], every_era: Sequence[Era]) -> Cast:
        """Those of these pictures."""
        drawn = {bar.job.id: bar.job for picture in pictures for bar in picture}
        for story in stories:
            for landed in story.landings:
                if landed.workload in story.lives:
                    drawn.setdefault(landed.workload, story.lives[landed.workload].job)
        jobs = tuple(sorted(drawn.values(), key=lambda job: (job.submit, job.id)))
        paths = {path for era in every_era for path in era.tree.paths}
        for job in jobs:
            paths.update((*ancestors(job.spec.allocation), job.spec.allocation))
        return cls(jobs, {job.id: place for place, job in enumerate(jobs)}, tuple(sorted(paths)))


@dataclass(frozen=True, slots=True)
class Clock:
    """Instants as ticks of so many milliseconds. Rounding down keeps the order of all of them."""

    start: Instant
    tick: int

    def ticks(self, instants: Iterable[int]) -> list[int]:
        """Ticks since the start; what is too far off to be drawn is as far as a number reaches."""
        return [min((at - self.start) // self.tick, FARTHEST) for at in instants]


def runs(rows: Sequence[Rows]) -> dict[str, object]:
    """How many runs of rows each has, where each run begins, and how long it is."""
    every = [run for own in rows for run in own]
    return {
        "runs": column(len(own) for own in rows),
        "first": column(first for first, _ in every),
        "count": column(count for _, count in every),
    }


def job_columns(cast: Cast, clock: Clock) -> dict[str, object]:
    """The jobs that cards tell of."""
    specs = [job.spec for job in cast.jobs]
    users, user = _places(spec.user for spec in specs)
    types, gpu_type = _places(spec.shape.gpu_type for spec in specs)
    paths = {path: place for place, path in enumerate(cast.paths)}
    return {
        "id": texts([job.id for job in cast.jobs]),
        "name": texts(["" if job.spec.name == job.id else job.spec.name for job in cast.jobs]),
        "users": texts(users),
        "user": column(user),
        "types": texts(types),
        "type": column(gpu_type),
        "path": column(paths[spec.allocation] for spec in specs),
        "kind": column(KINDS.index(job.kind) for job in cast.jobs),
        "nodes": column(spec.shape.nodes for spec in specs),
        "per_node": column(spec.shape.gpus_per_node for spec in specs),
        "submit": column(clock.ticks(job.submit for job in cast.jobs)),
        "min_runtime_s": column(spec.min_runtime // 1000 for spec in specs),
    }


def _places(names: Iterable[str]) -> tuple[list[str], list[int]]:
    every = list(names)
    known = sorted(set(every))
    place = {name: at for at, name in enumerate(known)}
    return known, [place[name] for name in every]


def bar_columns(drawn: Sequence[Bar], cast: Cast, clock: Clock) -> dict[str, object]:
    """Bars in the order of their grants. Ends and protections are told as spans, which are small."""
    stints = [bar.stint for bar in drawn]
    start = clock.ticks(bar.start for bar in drawn)
    return {
        "job": column(cast.place[bar.job.id] for bar in drawn),
        "start": column(start),
        "span": column(_after(start, clock.ticks(bar.end for bar in drawn))),
        "protected": column(_after(start, clock.ticks(max(stint.protected_until, stint.granted) for stint in stints))),
        "waited": column((stint.granted - stint.waited_since) // clock.tick for stint in stints),
        "reason": column(NOBODY if stint.reason is None else REASONS.index(stint.reason) for stint in stints),
        "beneficiary": column(cast.place.get(stint.beneficiary or "", NOBODY) for stint in stints),
        "flags": column(
            HOLDING * (stint.freed is None) + TOUCHED * stint.touched + FAILED * stint.failed for stint in stints
        ),
        "lost": column(stint.lost // clock.tick for stint in stints),
        **runs([bar.rows for bar in drawn]),
    }


def landing_columns(shaded: Sequence[Shade], cast: Cast, clock: Clock) -> dict[str, object]:
    """Landings in the order of their grants."""
    landings = [shade.landed for shade in shaded]
    return {
        "job": column(cast.place[landed.workload] for landed in landings),
        "start": column(clock.ticks(shade.start for shade in shaded)),
        "end": column(clock.ticks(shade.end for shade in shaded)),
        "at": column(clock.ticks(landed.at for landed in landings)),
        "start_by": column(clock.ticks(landed.start_by for landed in landings)),
        "dropped": texts([landed.dropped for landed in landings]),
        **runs([shade.rows for shade in shaded]),
    }


def _after(start: Sequence[int], end: Sequence[int]) -> list[int]:
    return [later - earlier for earlier, later in zip(start, end, strict=True)]
