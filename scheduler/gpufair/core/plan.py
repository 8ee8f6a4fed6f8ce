"""Which victims make room for a workload at the least cost.

A plan is made without touching anything: it names the leases on which the beneficiary starts and the victims, each
with the right by which it goes, and no victim that the chosen nodes do not need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from gpufair.core.amount import Amount, Quantity, asked, left
from gpufair.core.facts import Facts
from gpufair.core.horizon import FOREVER, site
from gpufair.core.model import Lease, Shape
from gpufair.core.placement import admits, group, suits
from gpufair.core.preemption import Candidate, cost_of
from gpufair.core.record import NodeRecord, Record
from gpufair.core.units import Instant, NodeName, PoolName, WorkloadId

# A plan for a gang is made once for each of so many other gangs: more would only make large plans slow.
MOST_BEGINNINGS: Final = 4


class Space:
    """What a node with horizons has: GPUs that are free, those with which one may outstay the horizons, and the rest."""

    # As ``Candidate``.
    __slots__ = ("cap", "cpus", "free", "memory")

    def __init__(self, free: int, cap: int, cpus: int, memory: int) -> None:
        self.free, self.cap, self.cpus, self.memory = free, cap, cpus, memory

    def __add__(self, other: Space) -> Space:
        return Space(
            self.free + other.free, self.cap + other.cap, self.cpus + other.cpus, self.memory + other.memory
        )

    def __sub__(self, other: Space) -> Space:
        return Space(
            self.free - other.free, self.cap - other.cap, self.cpus - other.cpus, self.memory - other.memory
        )

    def __ge__(self, other: Space) -> bool:
        return (
            self.free >= other.free
            and self.cap >= other.cap
            and self.cpus >= other.cpus
            and self.memory >= other.memory
        )


Q = TypeVar("Q", bound=Quantity)


# What evicting a set on one node costs: level, loss, busy, release, how many victims, GPUs left over, and the node.
SetCost = tuple[int, int, int, int, int, int, NodeName]
Price = tuple[SetCost, tuple[Candidate, ...]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Who leaves and where the beneficiary then starts."""

    leases: tuple[Lease, ...]
    victims: tuple[Candidate, ...]


def plan(
    facts: Facts, found: list[Candidate], record: Record, pool: PoolName, until: Instant = FOREVER
) -> Plan | None:
    """The cheapest way to make room for the whole shape in ``pool`` with some of ``found``; None if there is none.

    Args:
        facts: What is so.
        found: Whom ``record`` may preempt.
        record: Who is to start.
        pool: Where.
        until: When its protection will have ended: what horizons leave it depends on that.
    """
    shape = record.spec.shape
    nodes = [node for node in facts.by_pool.get(pool, ()) if admits(node, shape)]
    if shape.nodes == 1:
        # Most nodes would not have enough GPUs whoever left. (A gang's plan may begin with one who is on such a node.)
        freed: dict[NodeName, int] = {}
        for one in found:
            for name, gpus in one.gpus.items():
                freed[name] = freed.get(name, 0) + gpus
        nodes = [node for node in nodes if node.free + freed.get(node.node.name, 0) >= shape.gpus_per_node]
    if any(node.bounds for node in nodes):
        return cheapest(nodes, shape, found, facts.policy.blocks, with_horizons(nodes, until))
    if shape.counted:
        return cheapest(nodes, shape, found, facts.policy.blocks, ALL_THREE)
    return cheapest(nodes, shape, found, facts.policy.blocks, GPUS)


def cheapest(
    nodes: list[NodeRecord], shape: Shape, found: list[Candidate], blocks: tuple[str, ...], measure: Measure[Q]
) -> Plan | None:
    """The cheapest plan on some of these nodes.

    A gang that can have one block at the same level of victims has it, though others elsewhere would lose less.
    """
    best: tuple[tuple[int, ...], Plan] | None = None
    for rank, label in enumerate((*blocks, "") if shape.nodes > 1 else ("",)):
        for block in group(nodes, shape, label, lambda node: node.node).values():
            if len(block) < shape.nodes:
                continue
            one = _plan_on({node.node.name: node for node in block}, shape, found, measure)
            if one is not None:
                level, *cost = _plan_cost(one)
                if best is None or (level, rank, *cost) < best[0]:
                    best = (level, rank, *cost), one
    return best[1] if best is not None else None


def _plan_on(
    nodes: Mapping[NodeName, NodeRecord], shape: Shape, found: list[Candidate], measure: Measure[Q]
) -> Plan | None:
    """The cheapest plan on some nodes, wherever among them."""
    here = [one for one in found if any(name in nodes for name in one.gpus)]
    # Node by node a gang looks as dear as all of it, so each of the cheapest is also tried as the beginning.
    gangs: list[Candidate] = []
    if shape.nodes > 1:
        gangs = [one for one in here if sum(1 for name in one.gpus if name in nodes) > 1]
    beginnings: list[tuple[Candidate, ...]] = [(), *((gang,) for gang in gangs[:MOST_BEGINNINGS])]
    plans = (_plan_from(beginning, nodes, shape, here, measure) for beginning in beginnings)
    return min((one for one in plans if one is not None), key=_plan_cost, default=None)


class Measure(Generic[Q]):
    """What is counted while a plan is made: GPUs, and CPUs and memory with them where the shape takes some.

    Args:
        room: What a node has.
        asked: What a shape takes of each node.
        freed: What a victim makes free on a node.
    """

    def __init__(
        self,
        room: Callable[[NodeRecord], Q],
        asked: Callable[[Shape], Q],
        freed: Callable[[Candidate, NodeName], Q],
    ) -> None:
        self.room, self.asked, self.freed = room, asked, freed


GPUS: Final[Measure[int]] = Measure(
    room=lambda node: node.room,
    asked=lambda shape: shape.gpus_per_node,
    freed=lambda candidate, name: candidate.gpus[name],
)
ALL_THREE: Final[Measure[Amount]] = Measure(
    room=left,
    asked=asked,
    freed=lambda candidate, _: asked(candidate.record.spec.shape),
)


def with_horizons(nodes: Iterable[NodeRecord], until: Instant, owner: WorkloadId | None = None) -> Measure[Space]:
    """The measure of somebody whose protection will have ended at ``until``, and whose own landing hinders nobody.

    Args:
        nodes: All that will be looked at.
        until: When its protection will have ended.
        owner: Whose landing does not count.
    """
    sites = {node.node.name: site(node, until, owner) for node in nodes}

    def room(node: NodeRecord) -> Space:
        here = sites[node.node.name]
        return Space(here.free, here.cap, node.cpus_left, node.memory_left)

    def asked_of(shape: Shape) -> Space:
        return Space(shape.gpus_per_node, shape.gpus_per_node, shape.cpus_per_node, shape.memory_per_node)

    def freed(candidate: Candidate, name: NodeName) -> Space:
        gpus, shape = candidate.gpus[name], candidate.record.spec.shape
        given = gpus if candidate.record.id in sites[name].fixed else 0
        return Space(gpus, given, shape.cpus_per_node, shape.memory_per_node)

    return Measure(room, asked_of, freed)


def _plan_from(
    beginning: tuple[Candidate, ...],
    nodes: Mapping[NodeName, NodeRecord],
    shape: Shape,
    found: list[Candidate],
    measure: Measure[Q],
) -> Plan | None:
    """A plan in which the candidates of ``beginning`` leave first."""
    market = _Market(nodes, shape, found, beginning, measure)
    taken = market.buy(shape.nodes)
    if taken is None:
        return None
    rooms = {name: measure.room(nodes[name]) for name in taken}
    victims = _spare(market.chosen.values(), rooms, shape, measure)
    leases = tuple(Lease(name, shape.gpus_per_node) for name in sorted(taken))
    return Plan(leases, tuple(sorted(victims, key=cost_of)))


def _plan_cost(one: Plan) -> tuple[int, int, int, int, int]:
    level, loss, busy, release = _total(one.victims)
    return level, loss, busy, release, len(one.victims)


def _total(victims: tuple[Candidate, ...]) -> tuple[int, int, int, int]:
    """The highest level of some victims, what they lose, how many are busy, and the longest release."""
    level, loss, busy, release = -1, 0, 0, 0
    for one in victims:
        level, release = max(level, one.level), max(release, one.release)
        loss += one.loss
        busy += one.busy
    return level, loss, busy, release


def validate(facts: Facts, found: Plan, record: Record, until: Instant = FOREVER) -> None:
    """Try a plan on a copy of the rooms: with the victims gone the beneficiary must fit where it is to start."""
    shape = record.spec.shape
    measure = with_horizons([facts.nodes[lease.node] for lease in found.leases], until)
    room = {lease.node: measure.room(facts.nodes[lease.node]) for lease in found.leases}
    for victim in found.victims:
        for name in victim.gpus:
            if name in room:
                room[name] += measure.freed(victim, name)
    fits = suits(facts.nodes, found.leases, shape) and all(has >= measure.asked(shape) for has in room.values())
    assert fits, f"{record.id} would not fit after the eviction that was planned for it"
    assert found.victims, f"{record.id} fits without any eviction"


class _Market(Generic[Q]):
    """The price of making room on each node, given who has been chosen to leave already."""

    def __init__(
        self,
        nodes: Mapping[NodeName, NodeRecord],
        shape: Shape,
        found: Iterable[Candidate],
        beginning: tuple[Candidate, ...],
        measure: Measure[Q],
    ) -> None:
        self.chosen: dict[WorkloadId, Candidate] = {candidate.record.id: candidate for candidate in beginning}
        self._nodes, self._shape = nodes, shape
        self._measure: Measure[Q] = measure
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
            name = cost[-1]
            del self._prices[name]
            taken.append(name)
            self.chosen.update((candidate.record.id, candidate) for candidate in victims)
            for name in sorted({name for candidate in victims for name in candidate.gpus}):
                if name in self._prices:
                    self._price(name)
        return taken

    def _price(self, name: NodeName) -> None:
        price = _price(self._nodes[name], self._here.get(name, ()), self._shape, self.chosen, self._measure)
        if price is not None:
            self._prices[name] = price


def _spare(chosen: Iterable[Candidate], room: dict[NodeName, Q], shape: Shape, measure: Measure[Q]) -> list[Candidate]:
    """Those without whom there would not be enough on the taken nodes, given the ``room`` there; the dearest is
    spared first."""
    every, each = sorted(chosen, key=cost_of, reverse=True), measure.asked(shape)
    for candidate in every:
        for name in candidate.gpus:
            if name in room:
                room[name] += measure.freed(candidate, name)
    needed: list[Candidate] = []
    for candidate in every:
        here = {name: measure.freed(candidate, name) for name in candidate.gpus if name in room}
        if all(room[name] - freed >= each for name, freed in here.items()):
            for name, freed in here.items():
                room[name] -= freed
        else:
            needed.append(candidate)
    return needed


def _set_cost(price: Price) -> SetCost:
    return price[0]


def _price(
    node: NodeRecord,
    here: Iterable[Candidate],
    shape: Shape,
    chosen: Mapping[WorkloadId, Candidate],
    measure: Measure[Q],
) -> Price | None:
    """The cheapest victims that make enough free on one node, beside those chosen already; None if not enough."""
    name, each, freed = node.node.name, measure.asked(shape), measure.freed
    open_to_choice: list[Candidate] = []
    room, gpus = measure.room(node), node.room - shape.gpus_per_node
    for candidate in here:
        if candidate.record.id in chosen:
            room += freed(candidate, name)
            gpus += candidate.gpus[name]
        else:
            open_to_choice.append(candidate)
    if room >= each:
        return (-1, 0, 0, 0, 0, gpus, name), ()
    greedy: list[Candidate] = []
    reached = room
    for candidate in open_to_choice:
        if reached >= each:
            break
        greedy.append(candidate)
        reached += freed(candidate, name)
    if not reached >= each:
        return None
    needed: list[Candidate] = []
    for candidate in reversed(greedy):
        if reached - freed(candidate, name) >= each:
            reached -= freed(candidate, name)
        else:
            needed.append(candidate)
    # One large victim is often cheaper than the small ones before it.
    single = next((one for one in open_to_choice if room + freed(one, name) >= each), None)
    sets = [tuple(needed)] if single is None else [tuple(needed), (single,)]
    return min(((_sum_up(name, victims, gpus), victims) for victims in sets), key=_set_cost)


def _sum_up(name: NodeName, victims: tuple[Candidate, ...], gpus: int) -> SetCost:
    level, loss, busy, release = _total(victims)
    for one in victims:
        gpus += one.gpus[name]
    return level, loss, busy, release, len(victims), gpus, name
