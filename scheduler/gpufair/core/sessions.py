"""Sessions: when an idle one gives its GPUs back, and whether one that runs may have its protection extended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from gpufair.core import words
from gpufair.core.amount import Freed
from gpufair.core.errors import ExtensionRefused
from gpufair.core.horizon import GUEST
from gpufair.core.model import Kind, Phase, Shape
from gpufair.core.placement import admits
from gpufair.core.record import Record
from gpufair.core.running import Running, sum_up
from gpufair.core.share import Shares
from gpufair.core.units import AllocationPath, Instant, Millis, PoolName, WorkloadId, after
from gpufair.core.waiting import Group, Ticket

if TYPE_CHECKING:
    from gpufair.core.facts import Facts

Place = tuple[int, int, Ticket]  # in a leaf: urgency, what the researcher has had, submission and id


def idle_until(record: Record) -> Instant | None:
    """When a session that stays idle is told to give its GPUs back; None if it is not, or is not idle."""
    limit, held = record.spec.idle_release, record.held
    if limit is None or held is None or record.spec.kind is not Kind.SESSION or not record.gpus:
        return None
    return None if record.busy or record.phase is not Phase.RUNNING else after(record.active_at, limit)


class IdleClock:
    """When the next idle session is due: one entry per session, put right when it comes up."""

    __slots__ = ("_heap", "_listed")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, WorkloadId]] = []
        self._listed: set[WorkloadId] = set()

    def watch(self, record: Record) -> None:
        """Something has changed about a session."""
        due = idle_until(record)
        if due is not None and record.id not in self._listed:
            self._listed.add(record.id)
            heappush(self._heap, (due, record.id))

    def next(self, records: Mapping[WorkloadId, Record]) -> Instant | None:
        """When the first is due."""
        while self._heap:
            due, workload = self._heap[0]
            record = records.get(workload)
            really = idle_until(record) if record is not None else None
            if really == due:
                return due
            heappop(self._heap)
            self._listed.discard(workload)
            if record is not None:
                self.watch(record)
        return None

    def due(self, now: Instant, records: Mapping[WorkloadId, Record]) -> Iterator[Record]:
        """Those whose time has come. The caller tells each to leave before it asks for the next."""
        while (first := self.next(records)) is not None and first <= now:
            yield records[self._heap[0][1]]


def extended_until(facts: Facts, record: Record, span: Millis, now: Instant) -> Instant:
    """Until when an extension asked for at ``now`` would protect: never less than it has, never beyond a landing or a
    maintenance that counts on its GPUs."""
    held = record.held
    assert held is not None
    until = after(now, span)
    for lease in held.leases:
        node = facts.nodes[lease.node]
        ends = [bound.at for bound in node.bounds if record.id not in bound.fixed and bound.at >= held.protected_until]
        until = min([until, *ends])
    return max(until, held.protected_until)


def judge_extension(facts: Facts, record: Record, span: Millis, at: Instant) -> None:
    """Whether a workload that runs may be protected longer: as a submission of its leaf it would be the first.

    Raises:
        ExtensionRefused: Somebody who could use its GPUs comes first, or a landing counts on them.
    """
    held = record.held
    assert held is not None
    before, facts.now = facts.now, max(facts.now, at)
    try:
        until = extended_until(facts, record, span, facts.now)
        if until <= held.protected_until < after(facts.now, span):
            raise ExtensionRefused(
                record.id, "its GPUs are spoken for from then on", words.moment(held.protected_until)
            )
        first = _first_before(facts, record, held.pool)
        if first is not None:
            who = f"{first.label} of {first.spec.allocation}, which waits and could use them, comes first"
            raise ExtensionRefused(record.id, who, words.moment(held.protected_until))
    finally:
        facts.now = before


def _first_before(facts: Facts, record: Record, pool: PoolName) -> Record | None:
    """Who of those who wait and could use its GPUs would have his turn first, were it queued now."""
    shares = facts.shares(pool)
    choice = record.spec.pools.index(pool)
    mine = (-record.spec.priority, shares.had(record.spec.allocation, record.spec.user), Ticket(facts.now, record.id))
    freed: dict[bool, Freed] = {}
    for (number, where), turn in sorted(facts.waiting.allocated.turns.items()):
        if where != pool or number > choice:
            continue
        found: dict[AllocationPath, tuple[Place, WorkloadId]] = {}
        for shape, leaves in turn.items():
            if shape.counted not in freed:
                freed[shape.counted] = _without(facts, record, pool, shape.counted)
            if not _could_use(facts, record, shape, pool, freed[shape.counted]):
                continue
            for leaf, group in leaves.items():
                first = _first_of(facts, shares, leaf, group)
                if first is not None and (leaf not in found or first < found[leaf]):
                    found[leaf] = first
        ahead = [
            leaf
            for leaf in found
            if number < choice or _is_ahead(facts, shares, leaf, found[leaf][0], record.spec.allocation, mine)
        ]
        if ahead:
            best = min(ahead, key=lambda leaf: _walk_key(facts, shares, leaf))
            return facts.records[found[best][1]]
    return None


def _is_ahead(
    facts: Facts, shares: Shares, leaf: AllocationPath, place: Place, mine: AllocationPath, my_place: Place
) -> bool:
    if leaf == mine:
        return place < my_place
    return _walk_key(facts, shares, leaf) < _walk_key(facts, shares, mine)


def _walk_key(facts: Facts, shares: Shares, leaf: AllocationPath) -> tuple[tuple[float, AllocationPath], ...]:
    """Leaves compare by this as the walk down the tree takes them."""
    return tuple((shares.metric(path), path) for path in facts.ranking[leaf].lineage[1:])


def _first_of(facts: Facts, shares: Shares, leaf: AllocationPath, group: Group) -> tuple[Place, WorkloadId] | None:
    """The first of a group for whom no GPUs are kept."""
    best: Place | None = None
    for key, queues in group.line.items():
        for user, tickets in queues.items():
            ticket = next((one for one in tickets if one.workload not in facts.reserved), None)
            if ticket is not None:
                place = key.urgency, shares.had(leaf, user), ticket
                if best is None or place < best:
                    best = place
    return (best, best[2].workload) if best is not None else None


def _without(facts: Facts, record: Record, pool: PoolName, rest: bool) -> Freed:
    """What there would be if the workload and all who may be told to leave were gone; CPUs and memory if the ``rest``
    matters."""
    freed = (facts.running.get(pool) or Running()).freed()
    return freed if freed.includes(record.id) else freed.and_also(sum_up({record.id: record}), rest)


def _could_use(facts: Facts, record: Record, shape: Shape, pool: PoolName, freed: Freed) -> bool:
    """Whether a shape could start on a node of the workload with what is ``freed``."""
    held = record.held
    assert held is not None
    nodes = [facts.nodes[lease.node] for lease in held.leases]
    here = any(
        admits(node, shape) and node.free + freed.gpus.get(node.node.name, 0) >= shape.gpus_per_node for node in nodes
    )
    return here and facts.rooms[pool].fits(shape, freed, GUEST)
