"""Who may preempt whom, and which victims cost least.

A plan is made without touching anything: it names the leases on which the beneficiary starts and the victims, each
with the right by which it goes, and no victim that the chosen nodes do not need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from gpufair.core.facts import Facts
from gpufair.core.model import Lease, PreemptReason, Shape
from gpufair.core.placement import admits
from gpufair.core.record import NodeRecord, Record
from gpufair.core.running import Running
from gpufair.core.share import Shares
from gpufair.core.units import AllocationPath, GpuMillis, NodeName, PoolName, WorkloadId

# Leaves whose metric is within a quarter of the most over-served one's are equals; among them the loss decides.
# Without bands the prototype threw away 7-14 % of all GPU time in work that could not be resumed.
BAND: Final = 0.25

# A plan for a gang is made once for each of so many other gangs: more would only make large plans slow.
MOST_BEGINNINGS: Final = 4


class Cost(NamedTuple):
    """What evicting one workload costs, the most important part first."""

    level: int  # 0 unallocated, 1 lower priority in the own leaf, 2... bands of over-served leaves
    loss: int  # GPU-milliseconds of work
    release: int  # milliseconds until its GPUs are free
    workload: WorkloadId


class SetCost(NamedTuple):
    """What evicting a set on one node costs."""

    level: int
    loss: int
    release: int
    victims: int
    left_over: int
    node: NodeName


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running workload that may be preempted, and by which right."""

    record: Record
    reason: PreemptReason
    cost: Cost
    gpus: Mapping[NodeName, int]


Price = tuple[SetCost, tuple[Candidate, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Who leaves and where the beneficiary then starts."""

    leases: tuple[Lease, ...]
    victims: tuple[Candidate, ...]


def loss(facts: Facts, record: Record) -> GpuMillis:
    """GPU time that an eviction loses: work since the last checkpoint, saving and restoring; all if not resumable."""
    held = record.held
    if held is None:
        return GpuMillis(0)
    if not record.spec.resumable:
        return GpuMillis(record.gpus * (facts.now - held.granted_at))
    since, twice = held.granted_at, 0
    if record.checkpoint is not None:
        since, twice = max(since, record.checkpoint.at), 2 * record.checkpoint.duration
    return GpuMillis(record.gpus * (max(0, facts.now - since) + twice))


@dataclass(frozen=True, slots=True)
class Rights:
    """Whom a workload may preempt now: all unallocated work, lower priorities of its own leaf, and outranked leaves."""

    unallocated: Mapping[WorkloadId, Record]
    own: Mapping[WorkloadId, Record]
    outranked: tuple[AllocationPath, ...]
    exposed: Mapping[AllocationPath, Mapping[WorkloadId, Record]]

    def groups(self) -> Iterator[Mapping[WorkloadId, Record]]:
        """All of them."""
        yield self.unallocated
        yield self.own
        for leaf in self.outranked:
            yield self.exposed[leaf]


def rights(facts: Facts, shares: Shares, running: Running, record: Record) -> Rights:
    """Whom ``record``, which is allocated, may preempt now."""
    leaf, hysteresis = record.spec.allocation, facts.policy.hysteresis
    colleagues = running.exposed.get(leaf, {})
    return Rights(
        unallocated=running.unallocated,
        own={one: victim for one, victim in colleagues.items() if record.spec.priority > victim.spec.priority},
        outranked=tuple(
            other for other in running.exposed if shares.outranks(leaf, other, record.commitment, hysteresis)
        ),
        exposed=running.exposed,
    )


def candidates(facts: Facts, shares: Shares, right: Rights) -> list[Candidate]:
    """Everybody who may be preempted by these rights, the cheapest first."""
    found = [candidate(facts, victim, PreemptReason.UNALLOCATED, 0) for victim in right.unallocated.values()]
    found += [candidate(facts, victim, PreemptReason.PRIORITY, 1) for victim in right.own.values()]
    for other, level in bands((shares.metric(leaf), leaf) for leaf in right.outranked).items():
        found += [candidate(facts, victim, PreemptReason.RANK, level) for victim in right.exposed[other].values()]
    return sorted(found, key=cost_of)


def cost_of(candidate: Candidate) -> Cost:
    """The order of victims."""
    return candidate.cost


def bands(outranked: Iterable[tuple[float, AllocationPath]]) -> dict[AllocationPath, int]:
    """The level of each leaf: the most over-served and all within a quarter of it first."""
    levels: dict[AllocationPath, int] = {}
    level, top = 1, inf
    for metric, leaf in sorted(outranked, key=lambda pair: (-pair[0], pair[1])):
        if level == 1 or metric < top * (1 - BAND):
            level, top = level + 1, metric
        levels[leaf] = level
    return levels


def candidate(facts: Facts, victim: Record, reason: PreemptReason, level: int) -> Candidate:
    """A running workload as one who may be told to leave."""
    leases = victim.held.leases if victim.held is not None else ()
    return Candidate(
        record=victim,
        reason=reason,
        cost=Cost(level, loss(facts, victim), facts.grace(victim), victim.id),
        gpus={lease.node: lease.gpus for lease in leases},
    )


def plan(facts: Facts, found: list[Candidate], record: Record, pool: PoolName) -> Plan | None:
    """The cheapest way to make room for the whole shape in ``pool`` with some of ``found``; None if there is none."""
    shape = record.spec.shape
    nodes = {node.node.name: node for node in facts.by_pool.get(pool, ()) if admits(node, shape)}
    # Node by node a gang looks as dear as all of it, so each of the cheapest is also tried as the beginning.
    gangs = [one for one in found if sum(1 for name in one.gpus if name in nodes) > 1] if shape.nodes > 1 else []
    beginnings: list[tuple[Candidate, ...]] = [(), *((gang,) for gang in gangs[:MOST_BEGINNINGS])]
    plans = (_plan_from(beginning, nodes, shape, found) for beginning in beginnings)
    return min((one for one in plans if one is not None), key=_plan_cost, default=None)


def _plan_from(
    beginning: tuple[Candidate, ...], nodes: Mapping[NodeName, NodeRecord], shape: Shape, found: list[Candidate]
) -> Plan | None:
    """A plan in which the candidates of ``beginning`` leave first."""
    market = _Market(nodes, shape.gpus_per_node, found, beginning)
    taken = market.buy(shape.nodes)
    if taken is None:
        return None
    victims = _spare(market.chosen.values(), {name: nodes[name].room for name in taken}, shape.gpus_per_node)
    leases = tuple(Lease(name, shape.gpus_per_node) for name in sorted(taken))
    return Plan(leases, tuple(sorted(victims, key=cost_of)))


def _plan_cost(one: Plan) -> tuple[int, int, int, int]:
    costs = [victim.cost for victim in one.victims]
    return (
        max((cost.level for cost in costs), default=-1),
        sum(cost.loss for cost in costs),
        max((cost.release for cost in costs), default=0),
        len(costs),
    )


class _Market:
    """The price of making room on each node, given who has been chosen to leave already."""

    def __init__(
        self,
        nodes: Mapping[NodeName, NodeRecord],
        gpus: int,
        found: Iterable[Candidate],
        beginning: tuple[Candidate, ...],
    ) -> None:
        self.chosen: dict[WorkloadId, Candidate] = {candidate.record.id: candidate for candidate in beginning}
        self._nodes, self._gpus = nodes, gpus
        self._here: dict[NodeName, list[Candidate]] = {}
        for candidate in found:
            for name in candidate.gpus:
                if name in nodes:
                    self._here.setdefault(name, []).append(candidate)
        self._prices: dict[NodeName, Price] = {}
        for name in nodes:
            self._price(name)

    def buy(self, count: int) -> list[NodeName] | None:
        """The cheapest nodes, one at a time: a gang that leaves one node leaves its others too."""
        if len(self._prices) < count:
            return None
        taken: list[NodeName] = []
        while len(taken) < count:
            cost, victims = min(self._prices.values(), key=_set_cost)
            del self._prices[cost.node]
            taken.append(cost.node)
            self.chosen.update((candidate.record.id, candidate) for candidate in victims)
            for name in sorted({name for candidate in victims for name in candidate.gpus}):
                if name in self._prices:
                    self._price(name)
        return taken

    def _price(self, name: NodeName) -> None:
        price = _price(self._nodes[name], self._here.get(name, ()), self._gpus, self.chosen)
        if price is not None:
            self._prices[name] = price


def _spare(chosen: Iterable[Candidate], room: dict[NodeName, int], gpus_per_node: int) -> list[Candidate]:
    """Those without whom there would not be enough on the taken nodes, given the ``room`` there; the dearest is
    spared first."""
    every = sorted(chosen, key=cost_of, reverse=True)
    for candidate in every:
        for name, gpus in candidate.gpus.items():
            if name in room:
                room[name] += gpus
    needed: list[Candidate] = []
    for candidate in every:
        here = {name: gpus for name, gpus in candidate.gpus.items() if name in room}
        if all(room[name] - gpus >= gpus_per_node for name, gpus in here.items()):
            for name, gpus in here.items():
                room[name] -= gpus
        else:
            needed.append(candidate)
    return needed


def _set_cost(price: Price) -> SetCost:
    return price[0]


def _price(
    node: NodeRecord, here: Iterable[Candidate], gpus: int, chosen: Mapping[WorkloadId, Candidate]
) -> Price | None:
    """The cheapest victims that make ``gpus`` free on one node, beside those chosen already; None if not enough."""
    name = node.node.name
    open_to_choice = [candidate for candidate in here if candidate.record.id not in chosen]
    room = node.room + sum(candidate.gpus[name] for candidate in here if candidate.record.id in chosen)
    if room >= gpus:
        return SetCost(-1, 0, 0, 0, room - gpus, name), ()
    greedy: list[Candidate] = []
    reached = room
    for candidate in open_to_choice:
        if reached >= gpus:
            break
        greedy.append(candidate)
        reached += candidate.gpus[name]
    if reached < gpus:
        return None
    needed: list[Candidate] = []
    for candidate in reversed(greedy):
        if reached - candidate.gpus[name] >= gpus:
            reached -= candidate.gpus[name]
        else:
            needed.append(candidate)
    # One large victim is often cheaper than the small ones before it.
    single = next((one for one in open_to_choice if room + one.gpus[name] >= gpus), None)
    sets = [tuple(needed)] if single is None else [tuple(needed), (single,)]
    return min(((_sum_up(name, victims, room, gpus), victims) for victims in sets), key=_set_cost)


def _sum_up(name: NodeName, victims: tuple[Candidate, ...], room: int, gpus: int) -> SetCost:
    return SetCost(
        level=max(candidate.cost.level for candidate in victims),
        loss=sum(candidate.cost.loss for candidate in victims),
        release=max(candidate.cost.release for candidate in victims),
        victims=len(victims),
        left_over=room + sum(candidate.gpus[name] for candidate in victims) - gpus,
        node=name,
    )
