"""Emptying nodes: who must leave a cordoned node, by when, and who may be moved though it is protected.

Workloads leave a cordoned node as their protection ends. A drain is a cordon with a deadline. What is still protected
then stays, unless the operator forces it (FORCED) or its owner allows moves (MOVED). An owner who allows them is also
moved earlier, while it runs and as soon as there is room for it on other nodes: one at a time in each pool, so that
two do not count on the same room. Neither is a preemption, and both are counted by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpufair.core import words
from gpufair.core.facts import STAYING, Facts
from gpufair.core.model import Phase, PreemptReason
from gpufair.core.placement import place
from gpufair.core.record import NodeRecord, Record
from gpufair.core.units import Instant, PoolName, WorkloadId, after

Departure = tuple[Record, PreemptReason, str]


def due(facts: Facts) -> list[Departure]:
    """Who has to leave a cordoned node now, whether or not there is room elsewhere, with the right and the reason."""
    found: list[Departure] = []
    for workload in _on_closed(facts):
        record = facts.records[workload]
        if record.phase not in STAYING:
            continue
        if facts.exposed(record):
            found.append((record, PreemptReason.DRAIN, "its node is cordoned and its protection has ended"))
            continue
        late = [node for node in _closed_nodes(facts, record) if _has_passed(facts, node)]
        if late and record.spec.movable:
            found.append((record, PreemptReason.MOVED, f"{_ended(late[0])}, and its owner allows it to be moved"))
            continue
        forced = next((node for node in late if node.drain is not None and node.drain.force), None)
        if forced is not None:
            found.append((record, PreemptReason.FORCED, f"{_ended(forced)}, and an operator forces it"))
    return found


def movable(facts: Facts) -> list[Departure]:
    """Whom its owner allows to be moved, and for whom there is room on other nodes now: the first of each pool."""
    found: dict[PoolName, Departure] = {}
    for workload in _on_closed(facts):
        record = facts.records[workload]
        held = record.held
        if held is None or not record.spec.movable or record.phase is not Phase.RUNNING or held.pool in found:
            continue
        if held.pool in _moving(facts):
            continue
        for pool in record.spec.pools:
            leases = place(facts.by_pool.get(pool, ()), record.spec.shape, facts.policy.blocks)
            if leases is not None:
                node = next(_closed_nodes(facts, record)).node.name
                why = f"{node} is to be emptied, its owner allows it to be moved, and {words.places(leases)} had room"
                found[held.pool] = record, PreemptReason.MOVED, why
                break
    return list(found.values())


def moments(facts: Facts) -> Iterator[Instant]:
    """When somebody has to leave a cordoned node, as far as time alone decides it."""
    for name in facts.closed:
        node = facts.nodes[name]
        for record in map(facts.records.__getitem__, node.holders):
            if not node.cordoned or record.phase not in STAYING:
                continue
            leaves = _leaves_at(facts, node, record)
            if leaves > facts.now:
                yield leaves


def still_protected(facts: Facts, node: NodeRecord) -> tuple[tuple[WorkloadId, Instant], ...]:
    """Who is protected on a node, and until when, by name."""
    found = [(workload, facts.records[workload].held) for workload in sorted(node.holders)]
    staying = [(workload, held) for workload, held in found if facts.records[workload].phase in STAYING]
    return tuple((who, held.protected_until) for who, held in staying if held and held.protected_until > facts.now)


def empty_by(facts: Facts, node: NodeRecord) -> Instant | None:
    """When the last workload has left a cordoned node, if nobody overstays its grace; None if it is not cordoned."""
    if not node.cordoned or node.lost:
        return None
    moments = [facts.now]
    for workload in node.holders:
        record = facts.records[workload]
        if record.phase in STAYING:
            moments.append(after(max(facts.now, _leaves_at(facts, node, record)), facts.grace(record)))
        elif record.deadline is not None:
            moments.append(record.deadline)
    return max(moments)


def outlook(facts: Facts, record: Record) -> str:
    """What is going to happen to a workload because its node is cordoned, as a sentence; "" if it is not."""
    nodes = [node for node in _closed_nodes(facts, record) if node.cordoned]
    if not nodes or record.held is None:
        return ""
    node = min(nodes, key=lambda one: (_leaves_at(facts, one, record), one.node.name))
    leaves = _leaves_at(facts, node, record)
    by = "as soon as there is room elsewhere, at the latest " if record.spec.movable else ""
    how = " when its protection ends" if leaves == record.held.protected_until else ", protected or not"
    return f" {node.node.name} is to be emptied: it leaves {by}at {words.moment(leaves)}{how}."


def _leaves_at(facts: Facts, node: NodeRecord, record: Record) -> Instant:
    """When it is told to leave a cordoned node at the latest."""
    until = record.held.protected_until if record.held is not None else facts.now
    drain = node.drain
    if drain is None or drain.deadline is None or not (drain.force or record.spec.movable):
        return until
    return min(until, drain.deadline)


def _on_closed(facts: Facts) -> list[WorkloadId]:
    return sorted({holder for name in facts.closed if not facts.nodes[name].lost for holder in facts.nodes[name].holders})


def _closed_nodes(facts: Facts, record: Record) -> Iterator[NodeRecord]:
    for lease in record.held.leases if record.held is not None else ():
        if lease.node in facts.closed:
            yield facts.nodes[lease.node]


def _moving(facts: Facts) -> list[PoolName]:
    """Pools in which a move is in flight."""
    moved = [one for one in facts.leaving.values() if one.notice is PreemptReason.MOVED]
    return [one.held.pool for one in moved if one.held is not None]


def _has_passed(facts: Facts, node: NodeRecord) -> bool:
    return node.drain is not None and node.drain.deadline is not None and node.drain.deadline <= facts.now


def _ended(node: NodeRecord) -> str:
    assert node.drain is not None
    assert node.drain.deadline is not None
    return f"{node.node.name} was to be empty by {words.moment(node.drain.deadline)}"
