"""How people ask for GPUs, where nobody recorded it: protections, priorities, checkpoints, and pauses in a notebook.

One ``Habits`` makes all jobs of a scenario, of traces and of constructed worlds alike, so that they differ in nothing
but what is meant to differ. What it draws depends on its seed and on the order of the calls.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import exp, log
from random import Random

from gpufair.core.model import Kind, Outcome, Shape, WorkloadSpec
from gpufair.core.units import AllocationPath, GpuMillis, Instant, Millis, WorkloadId
from gpufair.sim.assumptions import Assumptions, Mix, millis
from gpufair.sim.job import Burst, Job, JobKind

_HOUR_S = 3600.0


class Habits:
    """Jobs as users would submit them.

    Args:
        assumptions: What is usual.
        max_min_runtime: Nobody asks for more protection.
        seed: Of all that is drawn.
    """

    def __init__(self, assumptions: Assumptions, max_min_runtime: Millis, seed: int) -> None:
        self.assumptions, self.cap = assumptions, max_min_runtime
        self._draw = Random(f"habits:{seed}")
        steps = (millis(step) for step in assumptions.batch.steps_s)
        self._steps = (*(step for step in steps if step < max_min_runtime), max_min_runtime)
        self._priorities = {
            JobKind.DEBUG: assumptions.debug.priority,
            JobKind.SESSION: assumptions.session.priority,
            JobKind.BATCH: assumptions.batch.priority,
        }
        self._idle_release = millis(assumptions.session.idle_release_s)
        # Most jobs ask for what some other one has asked for: a month of them shares a few thousand wishes.
        self._specs: dict[tuple[object, ...], WorkloadSpec] = {}

    def job(
        self,
        job_id: str,
        submit: Instant,
        work: Millis,
        *,
        kind: JobKind,
        leaf: AllocationPath,
        user: str,
        shape: Shape,
        bursts: tuple[Burst, ...] = (),
        min_runtime: Millis | None = None,
        priority: int | None = None,
        resumable: bool | None = None,
        expected: Millis | None = None,
        outcome: Outcome = Outcome.COMPLETED,
        name: str = "",
    ) -> Job:
        """A job. What is None is drawn, or is what is usual for its kind. Of bursts their work counts, not ``work``."""
        usual = self.assumptions
        if resumable is None:
            long = work > millis(usual.batch.non_resumable_most_s)
            resumable = kind is JobKind.SESSION or long or self._draw.random() >= usual.batch.non_resumable
        asked = self._min_runtime(kind, work, resumable) if min_runtime is None else min(min_runtime, self.cap)
        if priority is None:
            priority = self._priorities[kind]
        key = (leaf, user, kind is JobKind.SESSION, shape, asked, resumable, priority, expected, name)
        spec = self._specs.get(key)
        if spec is None:
            is_session = kind is JobKind.SESSION
            spec = self._specs[key] = WorkloadSpec(
                allocation=leaf,
                user=user,
                kind=Kind.SESSION if is_session else Kind.BATCH,
                shape=shape,
                min_runtime=asked,
                resumable=resumable,
                priority=priority,
                name=name,
                idle_release=self._idle_release if is_session else None,
                expected=expected,
            )
        return Job(
            id=WorkloadId(job_id),
            submit=submit,
            work=Millis(sum(one.work for one in bursts)) if bursts else work,
            spec=spec,
            kind=kind,
            state_gib=self._state_gib(shape.gpus),
            bursts=bursts,
            outcome=outcome,
        )

    def bursts(self, hold: Millis) -> tuple[Burst, ...]:
        """What the user of a session does in the time from its first cell to its last thought, which is ``hold``.

        The part in which cells run is drawn; of the rest, ``long_idle`` lies in gaps above an hour if there is so much
        of it, and the other gaps are short.
        """
        usual, draw = self.assumptions.session, self._draw
        busy = hold * draw.uniform(*usual.busy)
        idle = hold - busy
        longest = idle * usual.long_idle
        count = round(longest / 1000 / usual.long_gap_s) or (longest >= 2 * 1000 * _HOUR_S)
        # What is no gap above an hour is many short ones, in notebooks that are open for less than that as well.
        few = self._pieces(longest, int(count), 1000 * _HOUR_S) if count else []
        rest = idle - sum(few)
        many = self._pieces(rest, max(1, round(rest / 1000 / usual.short_gap_s)), 0.0)
        gaps = few + many
        draw.shuffle(gaps)
        works = self._pieces(busy, len(gaps), 1000.0)
        return tuple(
            Burst(Millis(max(1, round(work))), Millis(round(gap))) for work, gap in zip(works, gaps, strict=True)
        )

    def held(self, kind: JobKind, work: Millis, bursts: tuple[Burst, ...], gpus: int) -> GpuMillis:
        """GPU time that a job would hold if it got its GPUs whenever it wants them: thought beyond the idle release is
        no demand."""
        if kind is JobKind.SESSION and bursts:
            return GpuMillis(gpus * sum(one.work + min(one.thought, self._idle_release) for one in bursts))
        return GpuMillis(gpus * work)

    def lognormal(self, median: float, spread: float) -> float:
        """A draw whose median is ``median``; ``spread`` is the factor of one standard deviation."""
        return exp(log(median) + self._draw.gauss(0.0, 1.0) * log(spread))

    def pick(self, mix: Mix) -> float:
        """One of its values, as often as it says."""
        return self._draw.choices([value for value, _ in mix], [often for _, often in mix])[0]

    def _pieces(self, total: float, count: int, least: float) -> list[float]:
        """``total`` cut into ``count`` random pieces, none below ``least`` where that is possible."""
        least = min(least, total / count)
        parts = [self._draw.expovariate(1.0) for _ in range(count)]
        whole = sum(parts) or 1.0
        return [least + (total - least * count) * part / whole for part in parts]

    def _min_runtime(self, kind: JobKind, work: Millis, resumable: bool) -> Millis:
        usual = self.assumptions
        if kind is JobKind.DEBUG:
            return min(self.cap, millis(usual.debug.min_runtime_s))
        if kind is JobKind.SESSION:
            return min(self.cap, millis(self.pick(usual.session.min_runtime_s)))
        style = self._draw.random()
        if style < usual.batch.longest:
            return self.cap
        if resumable and style < usual.batch.longest + usual.batch.shortest:
            return self._steps[0]
        needed = work * self._draw.uniform(*usual.batch.factor)
        return self._steps[min(bisect_left(self._steps, needed), len(self._steps) - 1)]

    def _state_gib(self, gpus: int) -> float:
        usual = self.assumptions.state
        gib = self.lognormal(usual.gib * gpus**usual.growth, usual.spread)
        return round(min(max(gib, usual.least_gib), usual.most_gib), 1)


class Crowd:
    """The researchers of an allocation, of whom the n-th submits as often as 1 / n^skew."""

    def __init__(self, name: str, assumptions: Assumptions, seed: int) -> None:
        users = assumptions.users
        self._draw = Random(f"crowd:{name}:{seed}")
        width = len(str(users.per_allocation - 1))
        self._names = [f"{name}-u{number:0{width}d}" for number in range(users.per_allocation)]
        self._weights = list(accumulate((number + 1) ** -users.skew for number in range(users.per_allocation)))

    def somebody(self) -> str:
        """Who submits next."""
        return self._draw.choices(self._names, cum_weights=self._weights)[0]
