"""Which GPUs each stint is drawn on. Leases say how many on which node; a picture needs a row for each GPU.

Rows are given out in the order of grants, the lowest free ones of a node first and side by side where that is possible,
so that the same story always makes the same picture.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate

from gpufair.core.errors import Inconsistent
from gpufair.core.model import Lease
from gpufair.core.units import GpuMillis, Instant, NodeName
from gpufair.sim.job import Job
from gpufair.sim.measures.cluster import Cluster
from gpufair.sim.story import Landed, Stint, Story

Rows = tuple[tuple[int, int], ...]  # (first row, how many), in ascending order


class Floor:
    """The rows of a cluster: those of its nodes, in the order in which they joined."""

    def __init__(self, cluster: Cluster) -> None:
        gpus = {name: max(one.node.gpus for one in presences) for name, presences in cluster.presences.items()}
        self.gpus = {name: count for name, count in gpus.items() if count}
        self.first = dict(zip(self.gpus, accumulate(self.gpus.values(), initial=0), strict=False))
        self.rows = sum(self.gpus.values())


@dataclass(frozen=True, slots=True)
class Bar:
    """A stint as it is drawn. ``end`` is when its GPUs were free, or the end of the story."""

    job: Job
    stint: Stint
    start: Instant
    end: Instant
    rows: Rows

    @property
    def gpu_time(self) -> GpuMillis:
        """GPU time that it held."""
        return GpuMillis((self.end - self.start) * sum(count for _, count in self.rows))


class _Free:
    """The free rows of each node, as bits."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._bits = {name: (1 << gpus) - 1 for name, gpus in floor.gpus.items()}

    def take(self, lease: Lease) -> int:
        free = self._bits.get(lease.node, 0)
        if free.bit_count() < lease.gpus:
            raise Inconsistent(
                f"{lease.gpus} GPUs were granted on {lease.node!r}, where only {free.bit_count()} were free"
            )
        starts = free
        for shift in range(1, lease.gpus):
            starts &= free >> shift
        taken = ((1 << lease.gpus) - 1) * (starts & -starts) if starts else _lowest(free, lease.gpus)
        self._bits[lease.node] = free & ~taken
        return taken

    def give(self, node: NodeName, bits: int) -> None:
        self._bits[node] |= bits


def _lowest(bits: int, count: int) -> int:
    taken = 0
    for _ in range(count):
        one = bits & -bits
        bits ^= one
        taken |= one
    return taken


def bars(story: Story, floor: Floor) -> list[Bar]:
    """All stints that held GPUs for a while, in the order of their grants.

    Raises:
        Inconsistent: More GPUs of a node were held at once than it has.
    """
    free = _Free(floor)
    leaving: list[tuple[Instant, int]] = []  # when, and the place in ``taken``
    taken: list[list[tuple[NodeName, int]]] = []
    drawn: list[Bar] = []
    for job, stint in _by_grant(story):
        end = story.ended_at if stint.freed is None else stint.freed
        leases = [lease for lease in stint.leases if lease.gpus]
        if end <= stint.granted or not leases:
            continue
        while leaving and leaving[0][0] <= stint.granted:
            for node, bits in taken[heappop(leaving)[1]]:
                free.give(node, bits)
        own = [(lease.node, free.take(lease)) for lease in leases]
        heappush(leaving, (end, len(taken)))
        taken.append(own)
        drawn.append(Bar(job, stint, stint.granted, end, _joined(own, floor)))
    return drawn


def _by_grant(story: Story) -> list[tuple[Job, Stint]]:
    every = [(life.job, stint) for life in story.lives.values() for stint in life.stints]
    return sorted(every, key=lambda pair: (pair[1].granted, pair[0].id))


def _joined(own: Iterable[tuple[NodeName, int]], floor: Floor) -> Rows:
    """Rows as runs: of whole nodes that are neighbours one run is left."""
    rows = sorted(
        floor.first[node] + place for node, bits in own for place in range(bits.bit_length()) if bits >> place & 1
    )
    runs: list[tuple[int, int]] = []
    for row in rows:
        if runs and sum(runs[-1]) == row:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((row, 1))
    return tuple(runs)


@dataclass(frozen=True, slots=True)
class Shade:
    """A landing as it is drawn: what was kept free for it from its grant until it was over."""

    landed: Landed
    start: Instant
    end: Instant
    rows: Rows


def shades(story: Story, floor: Floor, drawn: Iterable[Bar]) -> list[Shade]:
    """All landings, in the order of their grants: on the rows that their owner then got, else on a node's lowest."""
    starts: dict[str, list[Bar]] = {}
    for bar in drawn:
        starts.setdefault(bar.job.id, []).append(bar)
    found = []
    for landed in sorted(story.landings, key=lambda one: (one.granted, one.workload)):
        end = story.ended_at if landed.over is None else landed.over
        if end > landed.granted:
            got = next((bar for bar in starts.get(landed.workload, ()) if bar.start >= landed.granted), None)
            same = got is not None and got.stint.leases == landed.leases
            found.append(Shade(landed, landed.granted, end, got.rows if same and got else _lowest_rows(landed, floor)))
    return found


def _lowest_rows(landed: Landed, floor: Floor) -> Rows:
    known = [lease for lease in landed.leases if lease.node in floor.first]
    return _joined([(lease.node, (1 << min(lease.gpus, floor.gpus[lease.node])) - 1) for lease in known], floor)
