"""How long people wait. A wait that has not ended is never left out: it takes part with what is known of it."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gpufair.core.units import AllocationPath, Instant, Millis
from gpufair.sim.job import JobKind
from gpufair.sim.measures.figures import Quantiles, Waits
from gpufair.sim.measures.period import Period
from gpufair.sim.measures.stints import open_wait
from gpufair.sim.story import Life

PERCENTILES: Final = (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100))


@dataclass(slots=True)
class Sample:
    """Waits of one kind."""

    over: list[int] = field(default_factory=list)
    unfinished: list[int] = field(default_factory=list)

    def quantiles(self) -> Quantiles:
        """Their distribution."""
        self.over.sort()
        everything = sorted(self.over + self.unfinished) if self.unfinished else self.over
        count = len(everything)
        if not count:
            return Quantiles(0, 0)
        found: dict[str, Millis] = {}
        at_least = []
        for name, percent in PERCENTILES:
            place = -(-percent * count // 100)
            value = found[name] = Millis(everything[place - 1])
            # Enough of those that are over were no longer: however long the others take, it stays so.
            if self.unfinished and bisect_right(self.over, value) < place:
                at_least.append(name)
        return Quantiles(
            count,
            len(self.unfinished),
            found["p50"],
            found["p90"],
            found["p99"],
            found["max"],
            tuple(at_least),
        )


def size_class(gpus: int) -> str:
    """The class of sizes that a job belongs to: "1", "2", "3-4", "5-8", ...

    Examples:
        >>> [size_class(gpus) for gpus in (1, 2, 3, 4, 8, 9, 64)]
        ['1', '2', '3-4', '3-4', '5-8', '9-16', '33-64']
    """
    most = 1 << (gpus - 1).bit_length()
    return str(most) if most <= 2 else f"{most // 2 + 1}-{most}"


def waits_of(lives: Iterable[Life], period: Period, end: Instant) -> Waits:
    """Waits that began in the period. Work without GPUs is left out: it waits for none."""
    classes: defaultdict[str, Sample] = defaultdict(Sample)
    for name in ("all", *JobKind, "allocated", "unallocated"):
        classes[str(name)] = Sample()
    sizes: defaultdict[int, Sample] = defaultdict(Sample)
    leaves: defaultdict[AllocationPath, Sample] = defaultdict(Sample)
    resumed, requeued, unfinished = Sample(), Sample(), Sample()
    for life in lives:
        job, begun = life.job, life.submitted
        if begun is None or life.refused or not job.gpus:
            continue
        waiting = open_wait(life)
        until = end if life.ended is None else life.ended
        if begun in period:
            first = life.stints[0].granted - begun if life.stints else None
            allocated = "allocated" if job.spec.min_runtime > 0 else "unallocated"
            for sample in (
                classes["all"],
                classes[job.kind.value],
                classes[allocated],
                sizes[job.gpus],
                leaves[job.spec.allocation],
            ):
                if first is not None:
                    sample.over.append(first)
                else:
                    sample.unfinished.append(until - begun)
        for stint in life.stints[1:]:
            if stint.waited_since in period:
                (resumed if stint.touched else requeued).over.append(stint.granted - stint.waited_since)
        if waiting is not None and waiting in period:
            if life.stints:
                (resumed if life.touched else requeued).unfinished.append(until - waiting)
            if life.ended is None:
                unfinished.unfinished.append(until - waiting)
    largest = max(sizes, default=0)
    by_class = {name: sample.quantiles() for name, sample in classes.items()}
    by_class["largest_gang"] = sizes[largest].quantiles() if largest else Quantiles(0, 0)
    return Waits(
        by_class=by_class,
        by_size=_by_class_of_size(sizes),
        by_allocation={leaf: leaves[leaf].quantiles() for leaf in sorted(leaves)},
        largest_gang=largest,
        resumed=resumed.quantiles(),
        requeued=requeued.quantiles(),
        unfinished=unfinished.quantiles(),
    )


def _by_class_of_size(sizes: dict[int, Sample]) -> dict[str, Quantiles]:
    joined: dict[str, Sample] = {}
    for gpus in sorted(sizes):
        sample = joined.setdefault(size_class(gpus), Sample())
        sample.over += sizes[gpus].over
        sample.unfinished += sizes[gpus].unfinished
    return {name: sample.quantiles() for name, sample in joined.items()}
