"""Who wants how many GPUs where: what runs counts where it runs, what waits in the first pool that could hold it.

Workloads that ask for the same shape in the same pools move together when nodes come and go, so a change of the nodes
looks at each such wish once and not at the queue. Where a wish counted when is kept for a window: a workload that is
cancelled before it ever started is then taken out of all that its leaf was owed on its account.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gpufair.core.hours import Hours
from gpufair.core.ledger import PoolLedger
from gpufair.core.model import Shape
from gpufair.core.owed import MICRO, Owed
from gpufair.core.possible import could_hold_now
from gpufair.core.record import Asked, Record
from gpufair.core.units import AllocationPath, Instant, PoolName

if TYPE_CHECKING:
    from gpufair.core.facts import Facts


class Wish(NamedTuple):
    """What a queued workload asks for, and where."""

    shape: Shape
    pools: tuple[PoolName, ...]


class Turn(NamedTuple):
    """From ``since`` on a wish counted in ``pool``; None: no pool could hold it. ``weight`` is that of each GPU."""

    since: Instant
    pool: PoolName | None
    weight: int = 1


@dataclass(slots=True)
class Place:
    """Where a wish counts, and for how many of each leaf."""

    turns: list[Turn]
    asked_at: Instant  # when somebody last began or ceased to ask for it
    leaves: dict[AllocationPath, int] = field(default_factory=dict)

    @property
    def pool(self) -> PoolName | None:
        """Where it counts at present."""
        return self.turns[-1].pool

    def turn(self, turn: Turn) -> None:
        """From now on it counts otherwise."""
        if self.turns[-1].since == turn.since:
            self.turns.pop()
        self.turns.append(turn)


class Demand:
    """All wishes of queued allocated workloads."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: dict[Wish, Place] = {}

    def list_waiting(self, record: Record) -> None:
        """Count one who waits without charging anything: it comes from a copy or a snapshot."""
        place = self.places.get(wish_of(record))
        if place is None:  # a snapshot of before demand was kept; it is opened once everything is here
            return
        leaves = place.leaves
        leaves[record.spec.allocation] = leaves.get(record.spec.allocation, 0) + 1

    def copy(self) -> Demand:
        """An independent copy in which nobody waits yet."""
        twin = Demand()
        twin.places = {wish: Place(place.turns.copy(), place.asked_at) for wish, place in self.places.items()}
        return twin


def wish_of(record: Record) -> Wish:
    """What a workload asks for."""
    # In a third of the time that the class itself takes to make one.
    return tuple.__new__(Wish, (record.spec.shape, record.spec.pools))


def wants(record: Record) -> bool:
    """Whether a workload is demand while it waits."""
    return record.spec.allocated and record.gpus > 0


def account(facts: Facts, pool: PoolName, leaf: AllocationPath) -> Owed:
    """What is owed to a leaf, opened on first use."""
    ledger = facts.ledger(pool)
    owed = ledger.owed.get(leaf)
    if owed is None:
        owed = ledger.owed[leaf] = Owed(hours=Hours(ledger.kept), fading=ledger.fading())
        owed.limit(facts.now, ceiling(facts, pool, leaf), facts.policy.window)
    return owed


def ceiling(facts: Facts, pool: PoolName, leaf: AllocationPath) -> int:
    """A leaf's entitlement to a pool at present, in whole millionths of a GPU, rounded down."""
    if leaf not in facts.tree:
        return 0
    numerator, denominator = facts.tree.ratio(leaf)
    return numerator * facts.worth(pool) * MICRO // denominator


def want(facts: Facts, pool: PoolName, leaf: AllocationPath, gpus: int) -> None:
    """From now on a leaf wants more GPUs of a pool (fewer, if negative)."""
    account(facts, pool, leaf).want(facts.now, gpus, facts.policy.window)


def begin_to_wait(facts: Facts, record: Record) -> None:
    """A workload joins the queue."""
    record.queued_at = facts.now
    if not wants(record):
        return
    wish = wish_of(record)
    place = facts.demand.places.get(wish)
    if place is None:
        place = facts.demand.places[wish] = Place([Turn(facts.now, first_pool(facts, wish), record.weight)], facts.now)
    _wait(facts, place, record, +1)


def cease_to_wait(facts: Facts, record: Record) -> None:
    """A workload leaves the queue."""
    if not wants(record):
        return
    if not record.starts:
        record.waits = (*record.waits, (record.queued_at, facts.now))
    _wait(facts, facts.demand.places[wish_of(record)], record, -1)


def _wait(facts: Facts, place: Place, record: Record, more: int) -> None:
    leaf, place.asked_at = record.spec.allocation, facts.now
    count = place.leaves.get(leaf, 0) + more
    if count:
        place.leaves[leaf] = count
    else:
        del place.leaves[leaf]
    if place.pool is not None:
        want(facts, place.pool, leaf, more * record.gpus * record.weight)


def never_started(facts: Facts, record: Record) -> None:
    """It is over and was never granted anything: what it waited for was not owed to anybody."""
    if not record.starts:
        set_aside(record)
        for asked in record.earlier:
            _take_out(facts, asked, 0)
        record.earlier = ()


def first_started(facts: Facts, record: Record) -> None:
    """It starts for the first time. Of what it waited for before it was amended no more stays owed than for what it
    starts with, and nothing to another leaf."""
    for asked in record.earlier:
        mine = wants(record) and asked.allocation == record.spec.allocation
        _take_out(facts, asked, record.gpus * record.weight if mine else 0)
    record.waits, record.earlier = (), ()


def set_aside(record: Record) -> None:
    """It asks for something else from now on, or for nothing."""
    if record.waits:
        spec = record.spec
        record.earlier = (*record.earlier, Asked(spec.allocation, spec.shape, spec.pools, record.waits))
        record.waits = ()


def _take_out(facts: Facts, asked: Asked, kept: int) -> None:
    """It was no demand for more than ``kept`` GPUs, weighted, whenever this was waited for."""
    known = facts.now - facts.policy.window
    for turn, start, end in _intervals(facts, asked):
        beyond = asked.shape.gpus * turn.weight - kept
        owed = facts.ledger(turn.pool).owed.get(asked.allocation) if turn.pool is not None else None
        if owed is not None and beyond > 0:
            owed.take_out(start, end, beyond, known)


def _intervals(facts: Facts, asked: Asked) -> Iterator[tuple[Turn, int, int]]:
    """When and where a wish was demand before anything was granted."""
    place = facts.demand.places.get(Wish(asked.shape, asked.pools))
    if place is None:  # forgotten, as whatever it was owed: nobody has asked for this within a window
        return
    turns = place.turns
    ends = [turn.since for turn in turns[1:]]
    for begun, ended in asked.waits:
        for turn, until in zip(turns, [*ends, ended], strict=True):
            start, end = max(begun, turn.since), min(ended, until)
            if start < end:
                yield turn, start, end


def recount(facts: Facts) -> None:
    """Nodes came or went, or the budgets were edited: from now on other ceilings hold, and wishes may count elsewhere."""
    window = facts.policy.window
    for pool in facts.pools():
        ledger = facts.ledger(pool)
        _recount_capacity(facts, ledger, pool)
        for leaf, owed in ledger.owed.items():
            owed.limit(facts.now, ceiling(facts, pool, leaf), window)
    for wish, place in list(facts.demand.places.items()):
        if not place.leaves and place.asked_at < facts.now - window:
            del facts.demand.places[wish]
            continue
        pool_now = first_pool(facts, wish)
        if pool_now == place.pool:
            continue
        for leaf, count in place.leaves.items():
            for side, sign in ((place.pool, -1), (pool_now, +1)):
                if side is not None:
                    want(facts, side, leaf, sign * count * wish.shape.gpus * place.turns[-1].weight)
        place.turn(Turn(facts.now, pool_now, place.turns[-1].weight))


def _recount_capacity(facts: Facts, ledger: PoolLedger, pool: PoolName) -> None:
    more = facts.worth(pool) - ledger.capacity.gpus
    if more:
        ledger.capacity.change(facts.now, more, facts.policy.window)


def first_pool(facts: Facts, wish: Wish) -> PoolName | None:
    """Where a wish counts: the first of its pools that could hold it with the nodes that are there."""
    for pool in wish.pools:
        if could_hold_now(facts.by_pool.get(pool, ()), wish.shape):
            return pool
    return None
