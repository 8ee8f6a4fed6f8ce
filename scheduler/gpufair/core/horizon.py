"""Horizons: from an instant on, some or all GPUs of a node are spoken for, by landings or by a planned maintenance.

Until then others may use them as *guests*: whose protection has ended by that instant (unallocated work has none).
Whoever stays longer takes from what is spoken for by nobody. ``Bound`` is what one horizon leaves to those who outstay
it; the room of a node for a start is the least of what is free now and of the bounds that the start would outstay.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpufair.core.lines import ENDLESS
from gpufair.core.record import Bound, NodeRecord
from gpufair.core.units import Instant, WorkloadId

if TYPE_CHECKING:
    from gpufair.core.amount import Freed
    from gpufair.core.facts import Facts

# Ends of protection: earlier than every horizon, for whoever would be a guest everywhere; and later than all.
GUEST: Final = Instant(-1)
FOREVER: Final = Instant(ENDLESS)
_ENDLESS: Final = 1 << 30
_NOBODY: Final = frozenset[WorkloadId]()


def bounds_of(facts: Facts, node: NodeRecord) -> tuple[Bound, ...]:
    """What each horizon of a node leaves to those who outstay it, the earliest horizon first.

    Those who have been told to leave do not count: they will be gone. Of landings the earlier ones count against the
    later ones: their owners will run by then. Once the time of a landing has come, what is free and what is being
    released is its own first.
    """
    records, leaving = facts.records, facts.leaving
    landings = [(records[owner].landing, owner) for owner in node.landings]
    found: list[Bound] = []
    needed = 0
    for landing, owner in sorted(
        ((landing, owner) for landing, owner in landings if landing is not None),
        key=lambda pair: (pair[0].at, pair[0].order),
    ):
        needed += node.landings[owner]
        taken = needed
        fixed: list[WorkloadId] = []
        for holder, gpus in node.holders.items():
            record = records[holder]
            if not gpus or holder in leaving or record.held is None:
                continue
            if (holder, record.incarnation) in landing.staying:
                taken += gpus
                fixed.append(holder)
            elif record.held.protected_until > landing.at:
                taken += gpus
        for claimant, gpus in node.claims.items():
            reservation = records[claimant].reservation
            if reservation is not None and (reservation.ends is None or reservation.ends > landing.at):
                taken += gpus
        slack = left = node.node.gpus - taken
        if landing.at <= facts.now:
            left = min(slack, max(0, node.free + surplus(facts, node).gpus - needed))
        found.append(Bound(landing.at, slack, left, owner, node.landings[owner], frozenset(fixed)))
    if node.closes_at is not None:
        found.append(Bound(node.closes_at, 0, 0, None, 0, frozenset()))
        found.sort(key=lambda bound: bound.at)
    return tuple(found)


def applying(node: NodeRecord, until: Instant, owner: WorkloadId | None) -> list[tuple[Bound, int]]:
    """The bounds that a start would outstay, each with the slack that it leaves to this start.

    Args:
        node: Where it would start.
        until: When its protection would end.
        owner: Whose landing does not hinder it, as it is its own.
    """
    mine: Bound | None = None
    found: list[tuple[Bound, int]] = []
    for bound in node.bounds:
        if owner is not None and bound.owner == owner:
            mine = bound
        elif until > bound.at:
            # A landing counts against those that come later: its owner is not hindered by itself.
            found.append((bound, bound.left + (mine.gpus if mine is not None and bound.owner is not None else 0)))
    return found


def room_for(node: NodeRecord, until: Instant, owner: WorkloadId | None = None) -> int:
    """GPUs of a node that a start whose protection ends at ``until`` could have now."""
    if not node.bounds:
        return node.room
    room = node.free
    if room <= 0 or until <= node.bounds[0].at:
        return room  # it outstays none of them, or it makes no difference
    for _, slack in applying(node, until, owner):
        room = min(room, slack)
    return room


class Site:
    """A node as one asker sees it: what is free there, and what he may outstay the horizons with."""

    __slots__ = ("cap", "fixed", "free")

    def __init__(self, free: int, cap: int, fixed: frozenset[WorkloadId]) -> None:
        self.free, self.cap = free, cap
        self.fixed = fixed  # whose leaving also gives to ``cap``


def site(node: NodeRecord, until: Instant, owner: WorkloadId | None = None) -> Site:
    """A node as seen by somebody whose protection would end at ``until``."""
    cap, fixed = _ENDLESS, None
    for bound, slack in applying(node, until, owner):
        cap = min(cap, slack)
        fixed = bound.fixed if fixed is None else fixed & bound.fixed
    return Site(node.free, cap, fixed if fixed is not None else _NOBODY)


def room_with(node: NodeRecord, more: Freed | None, until: Instant) -> int:
    """GPUs that a start whose protection ends at ``until`` could have if what is in ``more`` became free."""
    gpus = more.gpus.get(node.node.name, 0) if more is not None else 0
    if not node.bounds:
        return node.room + gpus
    if until <= node.bounds[0].at:
        return node.free + gpus  # it outstays none of them
    here = site(node, until)
    given = 0
    if more is not None and here.fixed:
        given = sum(node.holders.get(one, 0) for one in here.fixed if more.includes(one))
    return min(here.free + gpus, here.cap + given)


def guest_until(nodes: Iterable[NodeRecord], until: Instant) -> Instant | None:
    """The earliest horizon of these nodes at which a guest must leave; None if it is nobody's guest."""
    return min((bound.at for node in nodes for bound in node.bounds if until <= bound.at), default=None)


@dataclass(frozen=True, slots=True)
class Surplus:
    """GPUs of a node that are being released and that no reservation waits for, and when all of them must be free."""

    gpus: int
    by: Instant


def surplus(facts: Facts, node: NodeRecord, counted_on: bool = False) -> Surplus:
    """What those who leave a node leave to others.

    Args:
        facts: What is so.
        node: The node.
        counted_on: Leave out who has overstayed his deadline.
    """
    gpus, by = 0, facts.now
    for holder, held in node.holders.items():
        record = facts.leaving.get(holder)
        if record is None or not held:
            continue
        late = record.deadline is None or record.deadline <= facts.now
        if late and counted_on:
            continue
        gpus += held
        by = max(by, record.deadline or by)
    waited_for = sum(held - facts.claim(node, owner) for owner, held in node.claims.items())
    return Surplus(max(0, gpus - waited_for), by)
