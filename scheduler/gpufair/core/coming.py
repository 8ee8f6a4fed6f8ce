"""What is being released anyway, and can be waited for instead of moving somebody."""

from __future__ import annotations

from gpufair.core.amount import Freed, Rest, add_rest, asked, kept
from gpufair.core.facts import Facts
from gpufair.core.record import Record
from gpufair.core.units import NodeName, PoolName


def coming(facts: Facts, pool: PoolName) -> Freed:
    """GPUs, CPUs and memory of open nodes that are being released and that no reservation waits for.

    A workload that overstays its deadline is not counted on: whoever waits may then move somebody else.
    """
    gpus: dict[NodeName, int] = {}
    rest: dict[NodeName, Rest] = {}
    for record in facts.leaving.values():
        if record.held is None or record.held.pool != pool:
            continue
        if record.deadline is None or record.deadline <= facts.now:
            continue
        for lease in record.held.leases:
            if lease.gpus:
                gpus[lease.node] = gpus.get(lease.node, 0) + lease.gpus
        add_rest(rest, record)
    for name in gpus:
        node = facts.nodes[name]
        gpus[name] -= sum(kept_for - facts.claim(node, owner) for owner, kept_for in node.claims.items())
    rest = {name: _unclaimed(facts, name, part) for name, part in rest.items()}
    nodes = facts.nodes
    return Freed(
        {name: gpus[name] for name in sorted(gpus) if gpus[name] > 0 and nodes[name].open},
        rest={name: rest[name] for name in sorted(rest) if rest[name] != (0, 0) and nodes[name].open},
    )


def _unclaimed(facts: Facts, name: NodeName, rest: Rest) -> Rest:
    node = facts.nodes[name]
    cpus, memory = rest
    for owner in node.claims:
        record = facts.records[owner]
        free, shape = kept(node, record, facts.records), record.spec.shape
        cpus -= shape.cpus_per_node - free[0]
        memory -= shape.memory_per_node - free[1]
    return max(0, cpus), max(0, memory)


def already_kept(facts: Facts, record: Record) -> Freed:
    """What is free already of the leases that are reserved for a workload."""
    leases = record.reservation.leases if record.reservation is not None else ()
    nodes, counted = facts.nodes, record.spec.shape.counted
    return Freed(
        {lease.node: facts.claim(nodes[lease.node], record.id) for lease in leases},
        rest={lease.node: kept(nodes[lease.node], record, facts.records) for lease in leases if counted},
    )


def is_complete(record: Record, mine: Freed) -> bool:
    """Whether all of its reservation is free already."""
    leases, shape = record.reservation.leases if record.reservation is not None else (), record.spec.shape
    if not all(mine.gpus[lease.node] == lease.gpus for lease in leases):
        return False
    return not shape.counted or all(mine.of(lease.node) >= asked(shape) for lease in leases)
