"""The smallest change of a wish that would start it now. It is proven before it is said: the very pass is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from gpufair.core import words
from gpufair.core.admission import check_spec
from gpufair.core.errors import GpufairError
from gpufair.core.horizon import room_for
from gpufair.core.model import PreemptReason, Shape, WorkloadSpec
from gpufair.core.placement import holds
from gpufair.core.possible import without
from gpufair.core.reading import Reading
from gpufair.core.record import NodeRecord, Record
from gpufair.core.trial import Trial, could, has_room, trial_amended
from gpufair.core.units import HOUR, MINUTE, Instant, Millis

# Protections that people ask for; a wish is cut to one of these, or to a part of itself.
SPANS: Final = tuple(Millis(span) for span in (8 * HOUR, 4 * HOUR, 2 * HOUR, HOUR, 30 * MINUTE, 15 * MINUTE, 5 * MINUTE))
# A trial costs about as much as a pass. What could start is found out by cheaper means first, so few are needed.
MOST_TRIALS: Final = 4
MOST_GAPS: Final = 8  # the next horizons; more distant ones hardly differ from the usual protections


@dataclass(frozen=True, slots=True)
class Change:
    """A smaller wish: amending it to this starts it.

    ``at`` is when it would start at the latest: now, or when those have left who would be told to at once, by ``right``.
    """

    shape: Shape
    min_runtime: Millis
    sentence: str
    at: Instant
    right: PreemptReason | None = None


def smallest_change(reading: Reading, record: Record) -> Change | None:
    """The wish nearest to the original that would start now; None if none would, or none is known to.

    Nearest first: a shorter min_runtime; another type, or one demand fewer; fewer GPUs or another shape; unallocated;
    and fewer GPUs with a shorter min_runtime.
    """
    if not record.gpus and not record.spec.shape.demanding:
        return None
    seeker = _Seeker(reading, record)
    left = MOST_TRIALS
    for spec in seeker.wishes():
        found = seeker.proof(spec)
        if found is not None:
            return found
        left -= 1
        if not left:
            break
    return None


class _Seeker:
    def __init__(self, reading: Reading, record: Record) -> None:
        self._reading, self._facts, self._record = reading, reading.facts, record
        self._spec = replace(record.spec, min_runtime=record.min_runtime)
        self._shapes = tuple(_smaller(reading, self._spec))
        self._spans = self._shorter_spans()

    def wishes(self) -> Iterator[WorkloadSpec]:
        """What is worth a trial, the nearest to the original first."""
        asked, spec = self._spec.shape, self._spec
        tried: set[tuple[Shape, Millis]] = set()
        for shape, span in self._variants(asked, spec.min_runtime):
            if (shape, span) not in tried and self._admitted(wish := replace(spec, shape=shape, min_runtime=span)):
                tried.add((shape, span))
                yield wish

    def _variants(self, asked: Shape, span: Millis) -> Iterator[tuple[Shape, Millis]]:
        shorter = self._longest(asked)
        if shorter is not None:
            yield asked, shorter
        for shape in self._shapes:
            if self._could(shape, span):
                yield shape, span
        if span and self._fits_unallocated(asked):
            yield asked, Millis(0)
        for shape in self._shapes:
            shorter = self._longest(shape)
            if shorter is not None:
                yield shape, shorter
                break
        for shape in self._shapes if span else ():
            if self._fits_unallocated(shape):
                yield shape, Millis(0)
                break

    def _shorter_spans(self) -> tuple[Millis, ...]:
        """Shorter protections than the wish's, the longest first."""
        span = self._spec.min_runtime
        parts = [Millis(span // part) for part in (2, 4, 8)]
        usual = [*SPANS, self._facts.policy.debug_min_runtime]
        return tuple(sorted({one for one in (*usual, *parts, *self._gaps()) if 0 < one < span}, reverse=True))

    def _gaps(self) -> Iterator[Millis]:
        """How long it is until the next horizons of nodes on which something is free: landings and maintenances."""
        nodes = [node for pool in self._spec.pools for node in self._facts.by_pool.get(pool, ()) if node.free > 0]
        ends = sorted({bound.at for node in nodes for bound in node.bounds if bound.at > self._facts.now})
        return (Millis(end - self._facts.now) for end in ends[:MOST_GAPS])

    def _longest(self, shape: Shape) -> Millis | None:
        """The longest shorter protection with which a shape could start; whoever asks for less may do more."""
        spans = self._spans if self._record.gpus else ()
        if not spans or not self._could(shape, spans[-1]):
            return None
        low, high = 0, len(spans) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._could(shape, spans[middle]) else (middle + 1, high)
        return spans[low]

    def _could(self, shape: Shape, span: Millis) -> bool:
        return could(self._reading, replace(self._spec, shape=shape, min_runtime=span))

    def _fits_unallocated(self, shape: Shape) -> bool:
        return has_room(self._reading, replace(self._spec, shape=shape, min_runtime=Millis(0)))

    def _admitted(self, spec: WorkloadSpec) -> bool:
        try:
            check_spec(spec, self._facts)
        except GpufairError:
            return False
        return True

    def proof(self, spec: WorkloadSpec) -> Change | None:
        """The change, if the pass would start it or make room for it at once."""
        found = trial_amended(self._facts, self._record, spec)
        at = found.at(self._facts.now)
        if at is None:
            return None
        return Change(spec.shape, spec.min_runtime, self._sentence(spec, found, at), at, found.right)

    def _sentence(self, spec: WorkloadSpec, found: Trial, at: Instant) -> str:
        mine = self._spec
        new, old = [], []
        if spec.shape != mine.shape:
            new.append(words.shape(spec.shape))
            old.append(words.shape(mine.shape))
        if spec.min_runtime != mine.min_runtime:
            new.append(words.protection(spec.min_runtime))
            old.append(words.protection(mine.min_runtime))
        said = f"{' with '.join(new)} instead of {' with '.join(old)} would start"
        if found.start is not None:
            return f"{said} now"
        leaving = words.names(self._facts.label(notice.workload) for notice in found.notices)
        return f"{said} by {words.moment(at)}: {leaving} must leave for it at once ({found.right})"


def _smaller(reading: Reading, spec: WorkloadSpec) -> Iterator[Shape]:
    """Shapes for which there may be room now, the nearest to what was asked for first."""
    facts, asked, until = reading.facts, spec.shape, reading.until(spec.min_runtime)
    for _, less in without(asked):
        if (less.cpus_per_node, less.memory_per_node) == (asked.cpus_per_node, asked.memory_per_node):
            yield less
    found: list[Shape] = []
    for pool in spec.pools:
        nodes = facts.by_pool.get(pool, [])
        yield from _with_less_beside(asked, nodes)
        for wide in range(1, asked.nodes + 1):
            best = _deepest(_spread(asked, wide), nodes, until)
            if best is not None and best != asked:
                found.append(best)
    found += _halves(asked)  # for these others may have to leave
    yield from sorted(found, key=lambda shape: (-shape.gpus, abs(shape.nodes - asked.nodes), shape.nodes))


def _halves(asked: Shape) -> Iterator[Shape]:
    """Half the nodes and so on down to one, then half the GPUs on it."""
    nodes, gpus = asked.nodes, asked.gpus_per_node
    while nodes * gpus > 1:
        nodes, gpus = (nodes // 2, gpus) if nodes > 1 else (1, gpus // 2)
        yield replace(asked, nodes=nodes, gpus_per_node=gpus)


def _with_less_beside(asked: Shape, nodes: list[NodeRecord]) -> Iterator[Shape]:
    """With fewer CPUs, then with less memory, the most for which there is room."""
    for cpus in sorted({max(0, node.cpus_left) for node in nodes}, reverse=True):
        if cpus < asked.cpus_per_node and holds(nodes, shape := replace(asked, cpus_per_node=cpus)):
            yield shape
            break
    for memory in sorted({max(0, node.memory_left) for node in nodes}, reverse=True):
        if memory < asked.memory_per_node and holds(nodes, shape := replace(asked, memory_per_node=memory)):
            yield shape
            break


def _spread(asked: Shape, wide: int) -> Shape:
    """As much of everything on ``wide`` nodes; GPUs are rounded down, the rest up."""
    return replace(
        asked,
        nodes=wide,
        gpus_per_node=asked.gpus // wide,
        cpus_per_node=-(-asked.nodes * asked.cpus_per_node // wide),
        memory_per_node=-(-asked.nodes * asked.memory_per_node // wide),
    )


def _deepest(most: Shape, nodes: list[NodeRecord], until: Instant) -> Shape | None:
    """The most GPUs per node, up to those of ``most``, for which there is room on so many nodes."""
    sizes = {room for node in nodes if (room := room_for(node, until)) <= most.gpus_per_node}
    rooms = sorted(sizes | {most.gpus_per_node})
    for gpus in reversed(rooms):
        shape = replace(most, gpus_per_node=gpus)
        if gpus > 0 and holds(nodes, shape, until=until):
            return shape
    return None
