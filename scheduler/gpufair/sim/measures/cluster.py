"""The nodes and the budgets of a scenario as functions of time: the same for every policy that is measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from gpufair.core import events as ev
from gpufair.core.errors import BudgetError
from gpufair.core.model import Lease, Maintenance, Node, Shape
from gpufair.core.owed import MICRO
from gpufair.core.possible import could_hold
from gpufair.core.record import NodeRecord
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName
from gpufair.core.weights import Weights
from gpufair.sim.measures.period import Period
from gpufair.sim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Presence:
    """A node from when it joined until it was lost, or joined again with another inventory, or until the end."""

    node: Node
    start: Instant
    end: Instant
    lost: bool = False  # at ``end``, and what it held with it
    removed: Instant | None = None  # when it was known to be gone for good


class Turn(NamedTuple):
    """Where a wish counted from ``since`` until ``until``."""

    since: Instant
    until: Instant
    pool: PoolName | None


class Cluster:
    """What was there when.

    Args:
        scenario: Its nodes, budgets and incidents.
        end: When the run ended.
        weights: Cost factors of GPU types, as they were when it began.
    """

    def __init__(self, scenario: Scenario, end: Instant, weights: Mapping[str, float]) -> None:
        self.start, self._end = scenario.start, end
        self.weights = Weights(weights)
        self.presences: dict[NodeName, list[Presence]] = {}
        self.cordons: dict[NodeName, list[tuple[Instant, Instant]]] = {}  # when it took nobody new
        self.trees: list[tuple[Instant, Tree]] = [(scenario.start, Tree(scenario.allocations))]
        self._plans: dict[str, Maintenance] = {}
        self._turns: dict[tuple[Shape, tuple[PoolName, ...]], list[Turn]] = {}
        self._present: dict[tuple[PoolName, Instant], list[NodeRecord]] = {}
        for node in scenario.nodes:
            self._join(node, scenario.start)
        for incident in scenario.incidents:
            if incident.at < end:
                self._take(incident, max(incident.at, scenario.start))
        self._close_due(end)

    # -- incidents ------------------------------------------------------------------------------------------------

    def _take(self, incident: ev.Event, at: Instant) -> None:
        self._close_due(at)
        match incident:
            case ev.NodeJoined():
                self._leave(incident.node.name, at, lost=False)
                self._join(incident.node, at)
            case ev.NodeLost():
                self._leave(incident.node, at, lost=True)
            case ev.NodeRemoved():
                self._remove(incident.node, at)
            case ev.NodeCordoned() | ev.NodeDrained():
                self._cordon(incident.node, at)
            case ev.NodeUncordoned():
                self._uncordon(incident.node, at)
            case ev.MaintenancePlanned():
                self._plans[incident.plan.id] = incident.plan
                self._close_due(at)
            case ev.MaintenanceCancelled():
                self._plans.pop(incident.plan, None)
            case ev.BudgetsApplied():
                try:
                    self.trees.append((at, Tree(incident.allocations)))
                except BudgetError:  # nobody applied it
                    return

    def _join(self, node: Node, at: Instant) -> None:
        self.presences.setdefault(node.name, []).append(Presence(node, at, self._end))

    def _leave(self, name: NodeName, at: Instant, lost: bool) -> None:
        known = self.presences.get(name)
        if known and known[-1].end == self._end:
            known[-1] = replace(known[-1], end=at, lost=lost)

    def _remove(self, name: NodeName, at: Instant) -> None:
        known = self.presences.get(name)
        if known and known[-1].lost:
            known[-1] = replace(known[-1], removed=at)
            self._uncordon(name, at)  # whoever has its name later is open
            for plan in list(self._plans.values()):
                self._plans[plan.id] = replace(plan, nodes=tuple(node for node in plan.nodes if node != name))

    def _cordon(self, name: NodeName, at: Instant) -> None:
        spans = self.cordons.setdefault(name, [])
        if not spans or spans[-1][1] < self._end:
            spans.append((at, self._end))

    def _uncordon(self, name: NodeName, at: Instant) -> None:
        spans = self.cordons.get(name)
        if spans and spans[-1][1] == self._end:
            spans[-1] = spans[-1][0], at

    def _close_due(self, now: Instant) -> None:
        for plan in [one for one in self._plans.values() if one.at <= now]:
            del self._plans[plan.id]
            for name in plan.nodes:
                self._cordon(name, max(plan.at, self.start))

    # -- nodes ----------------------------------------------------------------------------------------------------

    @cached_property
    def steady(self) -> bool:
        """Whether every node is there all the time, and every GPU counts the same."""
        return all(
            one.start == self.start and one.end == self._end and self._weigh(one.node) == self.weights.unit == 1
            for one in self._all()
        )

    def _all(self) -> Iterator[Presence]:
        for presences in self.presences.values():
            yield from presences

    def _weigh(self, node: Node) -> int:
        return self.weights.of(node.gpu_type)

    def lost_at(self, name: NodeName, at: Instant) -> Instant:
        """When a node that is there at an instant was lost, or the end; ``at`` itself if it is not there."""
        there = at
        for one in self.presences.get(name, ()):
            if one.start <= there < one.end:
                there = one.end
                if one.lost:
                    break
        return there

    def gpus_of(self, name: NodeName) -> int:
        """GPUs that a node has, or had last."""
        return self.presences[name][-1].node.gpus

    def worth(self, leases: Iterable[Lease]) -> int:
        """What leases are charged for, in units of ``weights``."""
        return sum(lease.gpus * self._weigh(self.presences[lease.node][-1].node) for lease in leases)

    def installed(self, period: Period) -> int:
        """GPU-milliseconds of all nodes since they joined first until they were removed, lost or not."""
        total = 0
        for presences in self.presences.values():
            for index, one in enumerate(presences):
                until = presences[index + 1].start if index + 1 < len(presences) else self._end
                until = until if one.removed is None else one.removed
                total += one.node.gpus * period.overlap(one.start, until)
        return total

    def present(self, period: Period) -> int:
        """GPU-milliseconds of nodes while they were there."""
        return sum(one.node.gpus * period.overlap(one.start, one.end) for one in self._all())

    # -- who is entitled to how much ------------------------------------------------------------------------------

    @cached_property
    def pools(self) -> tuple[PoolName, ...]:
        """Pools that ever had a node, by name."""
        return tuple(sorted({one.node.pool for one in self._all()}))

    @cached_property
    def leaves(self) -> tuple[AllocationPath, ...]:
        """Leaves of the tree at any time, by path."""
        return tuple(sorted({leaf for _, tree in self.trees for leaf in tree.leaves}))

    @cached_property
    def _changes(self) -> list[Instant]:
        return sorted({self.start, *(at for one in self._all() for at in (one.start, one.end) if at < self._end)})

    @cached_property
    def _capacities(self) -> dict[PoolName, list[tuple[Instant, int, Tree]]]:
        instants = sorted({*self._changes, *(at for at, _ in self.trees)})
        found: dict[PoolName, list[tuple[Instant, int, Tree]]] = {}
        for pool in self.pools:
            nodes = [one for one in self._all() if one.node.pool == pool]
            found[pool] = [
                (
                    at,
                    sum(one.node.gpus * self._weigh(one.node) for one in nodes if one.start <= at < one.end),
                    next(tree for since, tree in reversed(self.trees) if since <= at),
                )
                for at in instants
            ]
        return found

    def ceilings(self, pool: PoolName, leaf: AllocationPath) -> list[tuple[Instant, int]]:
        """A leaf's entitlement to a pool in whole millionths of a GPU (of a unit of ``weights``), rounded down, from
        each instant on at which it may change."""
        found = []
        for at, worth, tree in self._capacities[pool]:
            numerator, denominator = tree.ratio(leaf) if leaf in tree else (0, 1)
            found.append((at, numerator * worth * MICRO // denominator))
        return found

    def turns(self, shape: Shape, pools: tuple[PoolName, ...]) -> list[Turn]:
        """Where somebody who waits is demand when: the first of his pools that could hold him with the nodes that are
        there. None: none could."""
        known = self._turns.get((shape, pools))
        if known is None:
            known = self._turns[shape, pools] = []
            for at, until in pairwise([*self._changes, self._end]):
                there = (pool for pool in pools if could_hold(self._records(pool, at), shape))
                pool = next(there, None)
                if known and known[-1].pool == pool:
                    at = known.pop().since  # noqa: PLW2901
                known.append(Turn(at, until, pool))
        return known

    def _records(self, pool: PoolName, at: Instant) -> list[NodeRecord]:
        known = self._present.get((pool, at))
        if known is None:
            there = (one.node for one in self._all() if one.node.pool == pool and one.start <= at < one.end)
            known = self._present[pool, at] = [NodeRecord(node) for node in there]
        return known
