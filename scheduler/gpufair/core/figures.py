"""What each allocation is entitled to, has had and waits for: figures for people, never used to decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from gpufair.core.facts import Facts
from gpufair.core.fading import full_span
from gpufair.core.metrics import shares_of
from gpufair.core.model import Phase
from gpufair.core.record import Record
from gpufair.core.units import AllocationPath, GpuMillis, PoolName


@dataclass(frozen=True, slots=True)
class AllocationFigures:
    """One node of the budget tree in one pool. An inner node's figures are the sums of its children's."""

    pool: PoolName
    path: AllocationPath
    depth: int
    share: Fraction
    entitlement: Fraction
    occupancy: GpuMillis
    commitment: GpuMillis
    budget: GpuMillis
    metric: float
    running_gpus: int
    queued_gpus: int
    owed: GpuMillis
    due: GpuMillis  # what occupancy and commitment are measured against in the metric
    wanted_gpus: int  # that run, and that wait and could be started


def budgets(facts: Facts) -> tuple[AllocationFigures, ...]:
    """Every node of the tree in every pool, parents before children."""
    result: list[AllocationFigures] = []
    unit, span = facts.weights.unit, full_span(facts.policy)
    for pool in facts.pools():
        shares = shares_of(facts, pool, tree=facts.tree)
        running = _sum_gpus(facts, [record for record in facts.holding.values() if _runs_in(record, pool)])
        queued = _sum_gpus(facts, [record for record in facts.records.values() if _waits_for(record, pool)])
        wanted = facts.ledger(pool).demand(facts.tree)
        for node in facts.tree.nodes():
            standing = shares.standing(node.path)
            result.append(
                AllocationFigures(
                    pool=pool,
                    path=node.path,
                    depth=node.depth,
                    share=node.share,
                    entitlement=node.entitlement,
                    occupancy=standing.occupancy,
                    commitment=standing.commitment,
                    budget=GpuMillis(int(node.entitlement * facts.worth(pool) * span / unit)),
                    metric=standing.metric,
                    running_gpus=running.get(node.path, 0),
                    queued_gpus=queued.get(node.path, 0),
                    owed=standing.owed,
                    due=standing.due,
                    wanted_gpus=wanted[node.path] // unit,
                )
            )
    return tuple(result)


def _runs_in(record: Record, pool: PoolName) -> bool:
    return record.held is not None and record.held.pool == pool


def _waits_for(record: Record, pool: PoolName) -> bool:
    return record.phase is Phase.QUEUED and record.spec.pools[0] == pool


def _sum_gpus(facts: Facts, records: Iterable[Record]) -> dict[AllocationPath, int]:
    sums: dict[AllocationPath, int] = {}
    for record in records:
        if record.gpus:
            for path in facts.tree[record.spec.allocation].lineage:
                sums[path] = sums.get(path, 0) + record.gpus
    return sums
