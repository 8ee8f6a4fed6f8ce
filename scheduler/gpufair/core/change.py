"""The smallest change of a wish that would start it now. It is tried out, so it is true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from gpufair.core import words
from gpufair.core.actions import Start
from gpufair.core.engine import handle
from gpufair.core.errors import GpufairError
from gpufair.core.events import Cancelled, Submitted
from gpufair.core.facts import Facts
from gpufair.core.model import Shape, WorkloadSpec
from gpufair.core.placement import place
from gpufair.core.record import NodeRecord, Record
from gpufair.core.units import CauseId, Millis, WorkloadId

_TRIAL: Final = CauseId("trial")
# Each trial copies the state. The first fits nearly always; more than a few would only make `why` slow.
MOST_TRIALS: Final = 3


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
    for trial, shape in enumerate(_smaller(facts, record)):
        if trial == MOST_TRIALS:
            break
        if starts(facts, record, replace(record.spec, shape=shape)):
            asked = words.shape(record.spec.shape)
            return Change(shape, record.spec.min_runtime, f"{words.shape(shape)} instead of {asked} would start now")
    return None


def starts(facts: Facts, record: Record, spec: WorkloadSpec) -> bool:
    """Whether cancelling ``record`` and submitting ``spec`` in its place starts at once; tried on a copy."""
    copy = facts.copy()
    # An id that sorts behind every other: whoever waits as long goes first.
    twin = WorkloadId(f"\U0010ffff{record.id}")
    try:
        handle(copy, Cancelled(copy.now, _TRIAL, record.id))
        actions = handle(copy, Submitted(copy.now, _TRIAL, twin, spec))
    except GpufairError:
        return False
    return any(isinstance(action, Start) and action.workload == twin for action in actions)


def _smaller(facts: Facts, record: Record) -> Iterator[Shape]:
    asked = record.spec.shape
    if asked.gpu_type:
        yield replace(asked, gpu_type="")
    found: list[Shape] = []
    for pool in record.spec.pools:
        nodes = facts.by_pool.get(pool, ())
        for wide in range(1, asked.nodes + 1):
            best = _deepest(Shape(asked.gpus // wide, wide, asked.gpu_type), [*nodes])
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
