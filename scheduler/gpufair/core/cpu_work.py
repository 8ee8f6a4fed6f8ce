"""Work without GPUs: whose turn it is for CPUs and memory, and its start.

The walk from the root is that of the queue for GPUs, with what everybody had of CPUs and memory within the last hour in
the place of charged GPU time; what he holds now counts as if he held it for another hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import merge
from typing import Final

from gpufair.core import words
from gpufair.core.cpu_use import SPAN, WHOLE, part_of
from gpufair.core.facts import Facts
from gpufair.core.model import Lease, Shape
from gpufair.core.order import Walk
from gpufair.core.placement import holds, place
from gpufair.core.record import Record
from gpufair.core.share import Shares, Sums
from gpufair.core.units import AllocationPath, Millis, PoolName, WorkloadId, after
from gpufair.core.waiting import Turn

EXACT: Final = 200  # places in the queue; it takes about 20 µs to work out one
Start = Callable[[Record, PoolName, tuple[Lease, ...], str], None]


def cpu_shares(facts: Facts) -> Shares:
    """How allocations and researchers stand now in CPUs and memory, over all pools."""
    use, now = facts.cpu_use, facts.now
    # Taken down now: what is granted from here on is counted by ``Shares.grant``, and must not be found here again.
    had, held = use.all_had(now), {leaf: part * SPAN for leaf, part in use.all_held().items()}

    def of(leaf: AllocationPath, user: str) -> int:
        return use.had(leaf, user, now) + use.held(leaf, user) * SPAN

    tree = facts.ranking
    occupancy, commitment = Sums(tree, lambda: had), Sums(tree, lambda: held)
    return Shares(tree, occupancy, commitment, WHOLE, SPAN, count_commitment=True, researchers=of)


def start_all(facts: Facts, start: Start) -> None:
    """Start whoever finds room, each in its turn."""
    shares: Shares | None = None
    turns, soon = facts.waiting.plain.turns, after(facts.now, Millis(1))
    for choice, pool in sorted(turns):
        turn, nodes = turns.get((choice, pool), {}), facts.by_pool.get(pool, [])
        hopeful = {shape for shape in turn if holds(nodes, shape, until=soon)}
        if hopeful:
            shares = shares or cpu_shares(facts)
            _start_in(facts, pool, turn, hopeful, shares, start)


def _start_in(facts: Facts, pool: PoolName, turn: Turn, hopeful: set[Shape], shares: Shares, start: Start) -> None:
    nodes, soon = facts.by_pool[pool], after(facts.now, Millis(1))
    walk = Walk(facts.ranking, shares, turn, hopeful.__contains__)
    while (leaf := walk.leaf()) is not None:
        step = walk.first(leaf)
        if step is None:
            continue
        record = facts.records[step[1]]
        shape, until = record.spec.shape, max(facts.protected_until(record), soon)
        leases = place(nodes, shape, facts.policy.blocks, until=until)
        if leases is not None:
            start(record, pool, leases, f"it needs no GPUs, and {words.places(leases)} had the fewest workloads")
            shares.grant(leaf, record.cpu_part * SPAN, record.spec.user)
            continue
        walk.drop(leaf)
        if not holds(nodes, shape, until=soon):
            hopeful.discard(shape)


def in_order(facts: Facts) -> Iterator[WorkloadId]:
    """Those who wait, in the order in which they would start if there were room for one after the other.

    Exactly the first ``EXACT`` of them; the rest, whom it would take long to put in order, by submission.
    """
    plain = facts.waiting.plain
    if not plain.turns:
        return
    shares = cpu_shares(facts)
    parts: dict[Shape, int] = {}
    told: set[WorkloadId] = set()
    for pool in sorted(pool for choice, pool in plain.turns if choice == 0):
        walk = Walk(facts.ranking, shares, plain.turns[0, pool], _any)
        while len(told) < EXACT and (leaf := walk.leaf()) is not None:
            step = walk.first(leaf)
            if step is None:
                continue
            head, workload = step
            if head.shape not in parts:
                parts[head.shape] = part_of(facts.nodes.values(), head.shape)
            user = facts.records[workload].spec.user
            head.skip(user)
            shares.grant(leaf, parts[head.shape] * SPAN, user)
            told.add(workload)
            yield workload
    if plain.length > len(told):
        queues = [tickets for line in plain.lines.values() for each in line.values() for tickets in each.values()]
        yield from (ticket.workload for ticket in merge(*queues) if ticket.workload not in told)


def _any(shape: Shape) -> bool:
    return True
