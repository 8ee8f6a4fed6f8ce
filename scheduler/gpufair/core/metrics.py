"""The fair-share metrics of a pool, from what the facts say at this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpufair.core.fading import full_span
from gpufair.core.ledger import PoolLedger
from gpufair.core.running import Running
from gpufair.core.share import Denominators, Shares, measured
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, PoolName

if TYPE_CHECKING:
    from gpufair.core.facts import Facts


def shares_of(
    facts: Facts, pool: PoolName, asks: AllocationPath | None = None, gpus: int = 0, tree: Tree | None = None
) -> Shares:
    """The metrics of a pool as of now. Who has a reservation, or lands, counts as committed: he will start.

    Args:
        facts: What is so.
        pool: The pool.
        asks: A leaf that is about to want more there, if one is.
        gpus: How many GPUs more.
        tree: In which allocations are compared, if not in that of the ranks.
    """
    tree = tree or facts.ranking
    ledger = facts.ledgers.get(pool) or PoolLedger()
    running = facts.running.get(pool) or Running()
    now, policy = facts.now, facts.policy
    window, span = policy.window, full_span(policy)
    reserved: dict[AllocationPath, int] = {}
    reserved_by: dict[tuple[AllocationPath, str], int] = {}
    soon = [one for one in facts.reserved.values() if one.reservation is not None and one.reservation.pool == pool]
    soon += [one for (where, _), one in facts.landed.items() if where == pool and one.lands(now)]
    for record in soon:
        leaf, user = record.spec.allocation, record.spec.user
        reserved[leaf] = reserved.get(leaf, 0) + record.commitment
        reserved_by[leaf, user] = reserved_by.get((leaf, user), 0) + record.commitment

    # As it is now: what the pass grants from here on is counted by ``Shares.grant``, and must not be found here again.
    committed = running.commitments(tree, now)
    for leaf, more in reserved.items():
        for path in tree[tree.nearest(leaf)].lineage:
            committed.add(path, more)

    def had(leaf: AllocationPath, user: str) -> int:
        occupancy = ledger.occupancy_of(leaf, user, now, window)
        if not policy.commitment:
            return occupancy
        promised = running.promised.get(leaf, {}).get(user)
        return occupancy + (promised.left(now) if promised else 0) + reserved_by.get((leaf, user), 0)

    return Shares(
        tree=tree,
        occupancy=ledger.occupancies(tree, now, window),
        commitment=committed,
        capacity=facts.worth(pool),
        window=span,
        count_commitment=policy.commitment,
        researchers=had,
        denominators=_denominators(facts, pool, ledger, tree, asks, gpus),
        unit=facts.weights.unit,
    )


def _denominators(
    facts: Facts, pool: PoolName, ledger: PoolLedger, tree: Tree, asks: AllocationPath | None = None, gpus: int = 0
) -> Denominators:
    now, policy = facts.now, facts.policy
    return Denominators(
        tree=tree,
        banking=policy.banking,
        newcomer=policy.newcomer,
        capacity=facts.worth(pool),
        elapsed=ledger.capacity.occupancy(now, policy.window),
        window=full_span(policy),
        owed=ledger.owed_within(tree, now, policy.window),
        demand=ledger.demand(tree, asks, gpus),
    )


def metric_of(facts: Facts, pool: PoolName, leaf: AllocationPath) -> float:
    """The metric of one leaf as of now: that of ``shares_of``, without what only the others need."""
    ledger = facts.ledgers.get(pool)
    if ledger is None or facts.reserved or facts.landed:
        return shares_of(facts, pool).metric(leaf)
    tree, now, policy = facts.ranking, facts.now, facts.policy
    had = ledger.occupancies(tree, now, policy.window)[leaf]
    running = facts.running.get(pool)
    if policy.commitment and running is not None:
        had += running.commitment_of(tree, leaf, now)
    if not tree.ratio(leaf)[0]:
        return measured(had, 0, 0, entitled=False)
    factor, denominator = _denominators(facts, pool, ledger, tree).of(leaf)
    return measured(had, factor, denominator, entitled=True)


class Metrics:
    """The metrics of a pool, worked out when somebody first asks for them.

    Args:
        facts: What is so.
        pool: The pool.
        shares: They themselves, if they are known already.
    """

    __slots__ = ("_facts", "_pool", "_shares")

    def __init__(self, facts: Facts, pool: PoolName, shares: Shares | None = None) -> None:
        self._facts, self._pool, self._shares = facts, pool, shares

    @property
    def shares(self) -> Shares:
        """They themselves."""
        if self._shares is None:
            self._shares = self._facts.shares(self._pool)
        return self._shares
