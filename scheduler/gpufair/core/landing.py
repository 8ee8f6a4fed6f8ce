"""Where and when a blocked workload can land: the earliest time at which enough whole slots are ready for it.

A landing is a promise that nothing which comes later can break, so it counts on nothing that could fail to happen:
everybody who runs is ready for it at the end of his protection if the asker outranks his leaf now, and else once the
longest protection that anybody can have has passed since the grant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpufair.core import words
from gpufair.core.actions import GrantLanding
from gpufair.core.facts import Facts
from gpufair.core.horizon import Surplus, surplus
from gpufair.core.model import Lease, PreemptReason, Shape
from gpufair.core.placement import admits, enough, group
from gpufair.core.plan import GPUS, Measure, cheapest
from gpufair.core.preemption import Candidate, candidate, cost_of
from gpufair.core.record import NodeRecord, Record
from gpufair.core.share import Shares
from gpufair.core.units import AllocationPath, CauseId, Instant, Millis, NodeName, PoolName, WorkloadId, after


@dataclass(frozen=True, slots=True)
class Slot:
    """A node on which there will be room: when, and what is free on it before anybody is told to leave."""

    at: Instant
    node: NodeRecord
    free: int


class Approach:
    """The view of one pool that a blocked workload has when it looks for its landing."""

    def __init__(self, facts: Facts, shares: Shares, record: Record, pool: PoolName) -> None:
        self._facts, self._shares, self._record, self._pool = facts, shares, record, pool
        self._latest = after(facts.now, facts.policy.max_min_runtime)
        self._outranked: dict[AllocationPath, bool] = {}
        self._ready: dict[WorkloadId, Instant] = {}  # nothing changes while it looks

    def landing(self, cause: CauseId) -> GrantLanding | None:
        """The landing it can have; None if its shape cannot be had on the nodes that are open and not promised."""
        shape = self._record.spec.shape
        slots = [slot for node in self._facts.by_pool.get(self._pool, ()) if (slot := self._slot(node)) is not None]
        blocks = group(slots, shape, "", lambda slot: slot.node.node).values()
        times = [sorted(slot.at for slot in block)[shape.nodes - 1] for block in blocks if len(block) >= shape.nodes]
        if not times:
            return None
        at = min(times)
        leases = self._cheapest([slot for slot in slots if slot.at <= at], at)
        nodes = [self._facts.nodes[lease.node] for lease in leases]
        grace, start_by, why = self._promise(nodes, at)
        return GrantLanding(
            cause, self._record.id, leases, self._pool, at, start_by, grace, self._staying(nodes, at), why
        )

    def ready(self, holder: Record) -> Instant:
        """When somebody who runs would have to leave for it."""
        known = self._ready.get(holder.id)
        if known is None:
            known = self._ready[holder.id] = self._judge(holder)
        return known

    def _judge(self, holder: Record) -> Instant:
        if not holder.spec.allocated:
            return self._facts.now
        end = self._end(holder)
        return end if self._goes_first(holder) else max(end, self._latest)

    def _end(self, holder: Record) -> Instant:
        assert holder.held is not None
        return max(self._facts.now, holder.held.protected_until)

    def _why_then(self, holder: Record) -> str:
        """Why somebody is ready when he is."""
        facts, held = self._facts, holder.held
        assert held is not None
        if not holder.spec.allocated:
            return f"{holder.label} is unallocated"
        if self._goes_first(holder):
            return f"the protection of {holder.label} ends at {words.moment(held.protected_until)}"
        if self._latest <= self._end(holder):
            return f"the protection of {holder.label} ends only then"
        span = words.span(facts.policy.max_min_runtime)
        return f"{holder.label} may stay for {span} more, the longest protection that there is"

    def _goes_first(self, holder: Record) -> bool:
        mine, theirs = self._record.spec, holder.spec
        if mine.allocation == theirs.allocation:
            return mine.priority > theirs.priority
        known = self._outranked.get(theirs.allocation)
        if known is None:
            hysteresis = self._facts.policy.hysteresis
            known = self._shares.outranks(mine.allocation, theirs.allocation, 0, hysteresis)
            self._outranked[theirs.allocation] = known
        return known

    def _slot(self, node: NodeRecord) -> Slot | None:
        """When this node has room for a part of the shape; None if that cannot be promised."""
        facts, wanted = self._facts, self._record.spec.shape.gpus_per_node
        promised = sum(node.claims.values()) + sum(node.landings.values())
        if node.node.gpus - promised < wanted or not admits(node, self._record.spec.shape):
            return None
        at, free = facts.now, node.node.gpus - promised
        gone: list[tuple[Instant, int]] = []
        for holder, gpus in node.holders.items():
            if gpus and holder not in facts.leaving:
                gone.append((self.ready(facts.records[holder]), gpus))
        leaving = surplus(facts, node)
        if leaving.gpus:
            gone.append((self._free_by(leaving), leaving.gpus))
        free -= sum(gpus for _, gpus in gone)
        room = free
        for when, gpus in sorted(gone):
            if room >= wanted:
                break
            at, room = max(at, when), room + gpus
        for bound in node.bounds:
            if bound.owner is None:
                # It starts by two graces after its time at the latest, and must have ended when the node closes.
                if at + 2 * _longest_grace(facts) + self._record.min_runtime > bound.at:
                    return None
            elif bound.slack < wanted and bound.at > at:
                at = bound.at  # until then these GPUs are another's; what he needs is taken off already
        return Slot(Instant(at), node, free)

    def _free_by(self, leaving: Surplus) -> Instant:
        # Nobody knows when they will be gone who have not kept their deadline.
        return leaving.by if leaving.by > self._facts.now else self._latest

    def _cheapest(self, slots: Iterable[Slot], at: Instant) -> tuple[Lease, ...]:
        """Among nodes that are ready by then those whose clearing costs least, as far as one can see now."""
        facts = self._facts
        rooms: dict[NodeName, int] = {}
        found: dict[WorkloadId, Candidate] = {}
        for slot in slots:
            leaving = surplus(facts, slot.node)
            there = leaving.gpus if self._free_by(leaving) <= at else 0
            rooms[slot.node.node.name] = slot.free + there
            for holder in slot.node.holders:
                record = facts.records[holder]
                if holder not in found and holder not in facts.leaving and record.gpus and self.ready(record) <= at:
                    found[holder] = to_leave(facts, record)
        plan = cheapest(
            [slot.node for slot in slots],
            self._record.spec.shape,
            sorted(found.values(), key=cost_of),
            facts.policy.blocks,
            gpus_of(rooms),
        )
        assert plan is not None, f"{self._record.id} is said to be able to land, yet there is no place"
        return plan.leases

    def _staying(self, nodes: Iterable[NodeRecord], at: Instant) -> tuple[tuple[WorkloadId, int], ...]:
        facts = self._facts
        there = {holder for node in nodes for holder, gpus in node.holders.items() if gpus}
        return tuple(
            (holder, facts.records[holder].incarnation)
            for holder in sorted(there)
            if holder not in facts.leaving and self.ready(facts.records[holder]) > at
        )

    def _promise(self, nodes: list[NodeRecord], at: Instant) -> tuple[Millis, Instant, str]:
        """The grace, the start-by time and how it comes about."""
        facts = self._facts
        there = {holder: None for node in nodes for holder, gpus in node.holders.items() if gpus}
        records = [facts.records[holder] for holder in there]
        going = [one for one in records if one.id not in facts.leaving and self.ready(one) <= at]
        grace = Millis(max([_longest_grace(facts), *(facts.grace(one) for one in going)]))
        start_by = after(at, Millis(2 * grace))
        last = max(((self.ready(one), one.id) for one in going), default=None)
        where = words.places(Lease(node.node.name, 0) for node in nodes)
        asked = words.shape(self._record.spec.shape)
        if last is not None and last[0] > facts.now:
            because = f"when {self._why_then(facts.records[last[1]])}"
        else:
            because = "which is now"
        why = (
            f"it will start by {words.moment(start_by)} at the latest: {asked} on {where} can be cleared for it at "
            f"{words.moment(at)}, {because}; whoever must leave then has {words.span(grace)}, and once more if he is late"
        )
        return grace, start_by, why


def _longest_grace(facts: Facts) -> Millis:
    return Millis(max(facts.policy.grace_session, facts.policy.grace_batch))


def to_leave(facts: Facts, victim: Record) -> Candidate:
    """Somebody who must leave for a landing: unallocated work first, then whoever loses least."""
    return candidate(facts, victim, PreemptReason.LANDING, int(victim.spec.allocated))


def gpus_of(rooms: Mapping[NodeName, int]) -> Measure[int]:
    """The measure of GPUs alone, where so many are to be had on each node."""
    return Measure(
        room=lambda node: rooms[node.node.name],
        asked=GPUS.asked,
        freed=GPUS.freed,
    )


def could_land(nodes: Iterable[NodeRecord], shape: Shape) -> bool:
    """Whether enough nodes are open and not promised, whoever is there now: a quick look before ``Approach``.

    A shape that takes CPUs or memory is not promised anything: horizons count GPUs.
    """
    wanted = shape.gpus_per_node
    return not shape.counted and enough(
        (
            node.node
            for node in nodes
            if node.node.gpus - sum(node.claims.values()) - sum(node.landings.values()) >= wanted
            and admits(node, shape)
        ),
        shape,
    )
