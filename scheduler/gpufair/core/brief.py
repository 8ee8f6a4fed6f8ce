"""Why a workload waits, in one line: for lists and status bars, where an explanation is too long and too dear."""

from __future__ import annotations

from gpufair.core import words
from gpufair.core.estimate import Estimate
from gpufair.core.facts import Facts
from gpufair.core.model import Shape
from gpufair.core.placement import admits
from gpufair.core.possible import could_hold_now, of_others
from gpufair.core.record import NodeRecord, Record


def brief(facts: Facts, record: Record, guess: Estimate) -> str:
    """What a queued workload waits for, and what stands in its way.

    Args:
        facts: What is so.
        record: A queued workload.
        guess: Its estimate; where there is none, its reason is said.
    """
    if record.reservation is not None:
        return record.reason
    if record.landing is not None:
        return f"it owns a landing and starts by {words.moment(record.landing.start_by)} at the latest"
    said = _obstacle(facts, record)
    if guess.at is None:
        said += f"; {guess.basis}"
    # Where it ran before, how it came to wait is what its owner asks first.
    return f"{record.reason}; {said}" if record.starts else said


def _obstacle(facts: Facts, record: Record) -> str:
    asked = record.spec.shape
    nodes = [node for pool in record.spec.pools for node in facts.by_pool.get(pool, ())]
    usable = [node for node in nodes if admits(node, asked)]
    what = f"waiting for {words.shape(asked)}" if record.gpus else "waiting for a node"
    if len(usable) < asked.nodes:
        return f"{what}: {len(usable)} of {len(nodes)} nodes can take it now"
    if not record.gpus:
        return f"{what}{rest_left(asked, usable)}{not_offered(asked, usable)}"
    free, total = sum(max(0, node.room) for node in usable), sum(node.node.gpus for node in usable)
    said = f"{what}: {free} of {words.gpus(total)} {'is' if total == 1 else 'are'} free{rest_left(asked, usable)}"
    said += not_offered(asked, usable)
    held = (facts.records[workload].held for node in usable for workload in node.holders)
    ends = [one.protected_until for one in held if one is not None and one.protected_until > facts.now]
    return f"{said}, the first protection ends at {words.moment(min(ends))}" if ends else said


def not_offered(asked: Shape, usable: list[NodeRecord]) -> str:
    """What others hold of these nodes, where there would be enough for the shape without them, and is not now."""
    return "" if could_hold_now(usable, asked) else of_others((node.node for node in usable), asked)


def rest_left(asked: Shape, usable: list[NodeRecord]) -> str:
    """How many nodes have enough left beside GPUs, where that is asked for."""
    wanted = {"CPUs": asked.cpus_per_node, "memory": asked.memory_per_node}
    left = {"CPUs": [node.cpus_left for node in usable], "memory": [node.memory_left for node in usable]}
    return "".join(
        f", {sum(1 for has in left[what] if has >= wanted[what])} of {len(usable)} nodes have {what} enough"
        for what in wanted
        if wanted[what]
    )
