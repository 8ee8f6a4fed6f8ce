"""The smallest change of a wish that would start it now. It is proven before it is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from gpufair.core import words
from gpufair.core.actions import Action
from gpufair.core.admission import check_spec
from gpufair.core.decide import Pass
from gpufair.core.errors import GpufairError
from gpufair.core.facts import Facts
from gpufair.core.model import Shape
from gpufair.core.placement import holds
from gpufair.core.possible import without
from gpufair.core.record import NodeRecord, Record
from gpufair.core.units import CauseId, Millis

_TRIAL: Final = CauseId("trial")


@dataclass(frozen=True, slots=True)
class Change:
    """A smaller wish: cancelling the workload and submitting it like this starts it at once."""

    shape: Shape
    min_runtime: Millis
    sentence: str


def smallest_change(facts: Facts, record: Record) -> Change | None:
    """The wish nearest to the original that would start now; None if none would."""
    if not record.gpus and not record.spec.shape.demanding:
        return None
    for shape in _smaller(facts, record):
        if _admitted(facts, record, shape) and _has_room(facts, record, shape):
            # Whoever finds room starts on it, unless somebody else is to do something first.
            if not at_rest(facts):
                return None
            asked = words.shape(record.spec.shape)
            return Change(shape, record.spec.min_runtime, f"{words.shape(shape)} instead of {asked} would start now")
    return None


def at_rest(facts: Facts) -> bool:
    """Whether a pass at this moment would decide nothing. It is run, up to its first decision.

    Cancelling somebody who waits leaves everything at rest: ranks, rooms and rights are as before, and one fewer asks.
    A submission then adds one who could act, and he alone: he starts if there is room for him.
    """
    try:
        Pass(facts, _TRIAL, _decided).run(())
    except _DecidedError:
        return False
    return True


class _DecidedError(Exception):
    """A trial pass came to a decision."""


def _decided(action: Action) -> None:
    raise _DecidedError


def _admitted(facts: Facts, record: Record, shape: Shape) -> bool:
    try:
        check_spec(replace(record.spec, shape=shape), facts)
    except GpufairError:
        return False
    return True


def _has_room(facts: Facts, record: Record, shape: Shape) -> bool:
    """Whether it would start on free GPUs, and not preempt in a pool that it names earlier."""
    for pool in record.spec.pools:
        if holds(facts.by_pool.get(pool, ()), shape):
            return True
        running = facts.running.get(pool)
        if record.gpus and running is not None and running.freed():
            return False
    return False


def _smaller(facts: Facts, record: Record) -> Iterator[Shape]:
    """Shapes for which there may be room now, the nearest to what was asked for first."""
    asked = record.spec.shape
    for _, less in without(asked):
        if (less.cpus_per_node, less.memory_per_node) == (asked.cpus_per_node, asked.memory_per_node):
            yield less
    found: list[Shape] = []
    for pool in record.spec.pools:
        nodes = facts.by_pool.get(pool, [])
        yield from _with_less_beside(asked, nodes)
        for wide in range(1, asked.nodes + 1):
            best = _deepest(_spread(asked, wide), nodes)
            if best is not None and best != asked:
                found.append(best)
    yield from sorted(found, key=lambda shape: (-shape.gpus, abs(shape.nodes - asked.nodes), shape.nodes))


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


def _deepest(most: Shape, nodes: list[NodeRecord]) -> Shape | None:
    """The most GPUs per node, up to those of ``most``, for which there is room on so many nodes."""
    rooms = sorted({node.room for node in nodes if 0 < node.room <= most.gpus_per_node} | {most.gpus_per_node})
    for gpus in reversed(rooms):
        shape = replace(most, gpus_per_node=gpus)
        if gpus > 0 and holds(nodes, shape):
            return shape
    return None
