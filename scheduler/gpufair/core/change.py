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
from gpufair.core.placement import place
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
    if not record.gpus:
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
        if place(facts.by_pool.get(pool, ()), shape) is not None:
            return True
        running = facts.running.get(pool)
        if running is not None and running.freed():
            return False
    return False


def _smaller(facts: Facts, record: Record) -> Iterator[Shape]:
    """Shapes for which there may be room now, the nearest to what was asked for first."""
    asked = record.spec.shape
    if asked.gpu_type:
        yield replace(asked, gpu_type="")
    found: list[Shape] = []
    for pool in record.spec.pools:
        nodes = facts.by_pool.get(pool, [])
        for wide in range(1, asked.nodes + 1):
            best = _deepest(Shape(asked.gpus // wide, wide, asked.gpu_type), nodes)
            if best is not None and best != asked:
                found.append(best)
    yield from sorted(found, key=lambda shape: (-shape.gpus, abs(shape.nodes - asked.nodes), shape.nodes))


def _deepest(most: Shape, nodes: list[NodeRecord]) -> Shape | None:
    """The most GPUs per node, up to those of ``most``, for which there is room on so many nodes."""
    rooms = sorted({node.room for node in nodes if 0 < node.room <= most.gpus_per_node} | {most.gpus_per_node})
    for gpus in reversed(rooms):
        shape = replace(most, gpus_per_node=gpus)
        if gpus > 0 and place(nodes, shape) is not None:
            return shape
    return None
