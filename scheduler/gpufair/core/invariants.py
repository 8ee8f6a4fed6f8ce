"""What must hold in every state. A breach is a bug of the core, never the world."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from gpufair.core import amount, demand
from gpufair.core.amount import Amount
from gpufair.core.backoff import rests
from gpufair.core.coming import coming
from gpufair.core.errors import Inconsistent
from gpufair.core.facts import LEAVING, STAYING, Facts
from gpufair.core.horizon import FOREVER, bounds_of
from gpufair.core.model import HOLDING, Phase, PreemptReason, Shape
from gpufair.core.placement import holds, place
from gpufair.core.possible import could_hold_now
from gpufair.core.queue import queue
from gpufair.core.record import Record
from gpufair.core.rooms import Rooms
from gpufair.core.running import Running, sum_up
from gpufair.core.sessions import idle_until
from gpufair.core.units import AllocationPath, Instant, PoolName


def validate(facts: Facts) -> None:
    """Check all of them.

    Raises:
        Inconsistent: Naming each that is broken.
    """
    broken = [
        *_nodes(facts),
        *_workloads(facts),
        *_cpu_parts(facts),
        *_reservations(facts),
        *_landings(facts),
        *_ledger(facts),
        *_demand(facts),
        *_weights(facts),
        *_indexes(facts),
    ]
    if broken:
        raise Inconsistent("; ".join(broken))


def _nodes(facts: Facts) -> Iterator[str]:
    for name, node in facts.nodes.items():
        used = sum(node.holders.values())
        claimed = sum(facts.claim(node, owner) for owner in node.claims)
        if used + claimed > node.node.gpus:
            yield f"{name}: {used} held and {claimed} kept of {node.node.gpus} GPUs (P2)"
        if node.free != (node.node.gpus - used - claimed if node.open else 0):
            yield f"{name}: its {node.free} free GPUs are out of date"
        if node.bounds != bounds_of(facts, node):
            yield f"{name}: what its horizons leave is out of date: {node.bounds}"
        if node.room != min([node.free, *(bound.left for bound in node.bounds)]):
            yield f"{name}: its room {node.room} is out of date"
        cpus, memory = amount.held(node, facts.records)
        if not amount.whole(node.node) >= amount.Amount(used + claimed, cpus, memory):
            yield f"{name}: {cpus} CPUs and {memory} bytes are held of {node.node.cpus} and {node.node.memory} (P2)"
        if (node.cpus_left, node.memory_left) != amount.rest(node, facts.records) or min(
            node.cpus_left, node.memory_left
        ) < 0:
            yield f"{name}: {node.cpus_left} CPUs and {node.memory_left} bytes are said to be left"
        if node.lost and (node.holders or node.claims):
            yield f"{name}: lost, yet held by {sorted(node.holders)} and kept for {sorted(node.claims)}"
        for holder, gpus in node.holders.items():
            held = facts.records[holder].held
            if held is None or gpus not in [lease.gpus for lease in held.leases if lease.node == name]:
                yield f"{name}: {holder} is said to hold {gpus} GPUs, its leases say otherwise"


def _cpu_parts(facts: Facts) -> Iterator[str]:
    parts: dict[AllocationPath, int] = {}
    for record in facts.holding.values():
        parts[record.spec.allocation] = parts.get(record.spec.allocation, 0) + record.cpu_part
    for leaf, part in facts.cpu_use.all_held().items():
        if part != parts.get(leaf, 0):
            yield f"{leaf}: {part} millionths of CPUs and memory are held, by its workloads {parts.get(leaf, 0)}"


def _workloads(facts: Facts) -> Iterator[str]:
    waiting = queue(facts)
    queued = {record.id for record in facts.records.values() if record.phase is Phase.QUEUED}
    if len(waiting) != len(set(waiting)) or set(waiting) != queued or facts.waiting.length != len(queued):
        yield f"the queue {waiting} is not the queued workloads {sorted(queued)}, each once (P20)"
    for record in facts.records.values():
        held = record.held
        if (held is not None) != (record.phase in HOLDING) or (held is not None) != (record.id in facts.holding):
            yield f"{record.id}: {record.phase}, holding {held}"
        if held is None:
            continue
        shape = record.spec.shape
        nodes = [lease.node for lease in held.leases]
        whole = len(nodes) == shape.nodes or record.phase is Phase.STOPPING
        if not whole or len(set(nodes)) != len(nodes) or any(x.gpus != shape.gpus_per_node for x in held.leases):
            yield f"{record.id}: {held.leases} is not its shape {shape} (P3)"
        if held.granted < 0 or (not record.spec.allocated and held.granted):
            yield f"{record.id}: protected until {held.protected_until}, granted at {held.granted_at} (P1, P4)"
        for lease in held.leases:
            node = facts.nodes[lease.node]
            if node.holders.get(record.id) != lease.gpus or node.node.pool != held.pool:
                yield f"{record.id}: the node does not know of {lease}"
            if shape.gpu_type and node.node.gpu_type != shape.gpu_type:
                yield f"{record.id}: on GPUs of type {node.node.gpu_type!r}"
            if lease.node in shape.exclude:
                yield f"{record.id}: on {lease.node}, which it excludes"
        late = record.phase is Phase.CHECKPOINTING and (record.deadline is None or record.deadline < facts.now)
        if late and record.deadline is None:
            yield f"{record.id}: has no deadline"
    if facts.protected_preemptions:
        yield f"{facts.protected_preemptions} protected preemptions (P1)"


def _reservations(facts: Facts) -> Iterator[str]:
    for record in facts.records.values():
        reservation = record.reservation
        if (reservation is not None) != (record.id in facts.reserved):
            yield f"{record.id}: its reservation is listed wrongly"
        if reservation is None:
            continue
        moves = record.phase in LEAVING and record.notice is PreemptReason.CONSOLIDATION
        if record.phase is not Phase.QUEUED and not moves:
            yield f"{record.id}: {record.phase} with a reservation"
        for lease in reservation.leases:
            if facts.nodes[lease.node].claims.get(record.id) != lease.gpus:
                yield f"{record.id}: {lease.node} does not keep its GPUs"
        for victim in reservation.pending:
            if facts.records[victim].beneficiary != record.id or facts.records[victim].held is None:
                yield f"{record.id}: waits for {victim}, which has left or leaves for somebody else (P6)"


def _landings(facts: Facts) -> Iterator[str]:
    listed = {record.id: key for key, record in facts.landed.items()}
    for record in facts.records.values():
        landing = record.landing
        if (landing is not None) != (record.id in listed):
            yield f"{record.id}: its landing is listed wrongly"
        if landing is None:
            continue
        if record.phase is not Phase.QUEUED or listed.get(record.id) != (landing.pool, record.spec.allocation):
            yield f"{record.id}: {record.phase} with a landing of {listed.get(record.id)}"
        if not landing.granted_at <= landing.at <= landing.start_by:
            yield f"{record.id}: granted at {landing.granted_at} for {landing.at}, by {landing.start_by}"
        shape = record.spec.shape
        if len(landing.leases) != shape.nodes or any(lease.gpus != shape.gpus_per_node for lease in landing.leases):
            yield f"{record.id}: would land on {landing.leases} with {shape} (P3)"
        for lease in landing.leases:
            node = facts.nodes[lease.node]
            if node.landings.get(record.id) != lease.gpus:
                yield f"{record.id}: {lease.node} does not know of its landing"
            if any(bound.slack < 0 for bound in node.bounds if bound.owner == record.id):
                yield f"{record.id}: {lease.node} will not have room for it at {landing.at} (P25)"
    orders = [record.landing.order for record in facts.landed.values() if record.landing is not None]
    if orders != sorted(orders):
        yield f"landings are listed in the order {orders}"


def _ledger(facts: Facts) -> Iterator[str]:
    for pool, ledger in facts.ledgers.items():
        totals = ledger.conservation(pool)
        if totals.error:
            yield f"pool {pool}: {totals.error} GPU-ms are not accounted for (P7)"
        switching = [one for one in facts.holding.values() if one.held and one.held.pool == pool]
        gpus = sum(x.gpus for one in switching if one.held and one.phase is not Phase.RUNNING for x in one.held.leases)
        if ledger.rates[ledger.SWITCHING] != gpus:
            yield f"pool {pool}: {ledger.rates[ledger.SWITCHING]} GPUs are counted as switching, {gpus} are (P7)"
        for leaf, account in ledger.accounts.items():
            rate = sum(
                record.rate
                for record in facts.holding.values()
                if record.spec.allocation == leaf and record.held is not None and record.held.pool == pool
            )
            if rate != account.gpus:
                yield f"pool {pool}: {leaf} is charged for {account.gpus} GPUs and holds {rate} (P7)"
            shared = sum(part.gpus for part in ledger.researchers.get(leaf, {}).values())
            if shared != account.gpus:
                yield f"pool {pool}: the researchers of {leaf} are charged for {shared} of {account.gpus} GPUs (P7)"
        occupancy = ledger.occupancies(facts.tree, facts.now, facts.policy.window)
        for node in facts.tree.nodes():
            if node.children and node.path not in ledger.accounts:
                below = sum(occupancy[child] for child in node.children)
                if below > occupancy[node.path]:
                    yield f"pool {pool}: {node.path!r} was charged less than its children (P7)"


def _weights(facts: Facts) -> Iterator[str]:
    for record in facts.records.values():
        held = record.held
        rate = facts.weigh(held.leases) if held is not None and record.spec.allocated else 0
        if record.rate != rate or record.weight != facts.weights.of(record.spec.shape.gpu_type):
            yield f"{record.id}: charged for {record.rate} and asking for {record.weight} units a GPU, not {rate} (P7)"


def _demand(facts: Facts) -> Iterator[str]:
    wanted: dict[tuple[PoolName, AllocationPath], int] = {}
    for record in facts.records.values():
        pool = record.held.pool if record.held is not None else None
        gpus = record.rate
        if record.phase is Phase.QUEUED and demand.wants(record):
            here = [one for one in record.spec.pools if could_hold_now(facts.by_pool.get(one, ()), record.spec.shape)]
            pool, gpus = (here[0] if here else None), record.gpus * record.weight
        if pool is not None and gpus:
            where = pool, record.spec.allocation
            wanted[where] = wanted.get(where, 0) + gpus
    listed = {(pool, leaf): owed.demand for pool, ledger in facts.ledgers.items() for leaf, owed in ledger.owed.items()}
    if {where: gpus for where, gpus in listed.items() if gpus} != wanted:
        yield f"demand is listed as {listed}, and it is {wanted} (P8)"
    for pool, ledger in facts.ledgers.items():
        if ledger.capacity.gpus != facts.worth(pool):
            yield f"pool {pool}: its capacity is counted as {ledger.capacity.gpus} (P8)"
        for leaf, owed in ledger.owed.items():
            if owed.ceiling != demand.ceiling(facts, pool, leaf):
                yield f"pool {pool}: {leaf} is thought to be entitled to {owed.ceiling} millionths (P8)"


def _indexes(facts: Facts) -> Iterator[str]:
    """What is kept beside the records and nodes, so that a pass need not go through them, says the same as they do."""
    if facts.leaving.keys() != {one.id for one in facts.holding.values() if one.phase in LEAVING}:
        yield f"those who are leaving are listed as {sorted(facts.leaving)}"
    rest = [one.not_before for one in facts.records.values() if one.phase is Phase.QUEUED and rests(one, facts.now)]
    if facts.resting.next(facts.now, facts.records) != min((one for one in rest if one is not None), default=None):
        yield f"the next rest is listed as ending at {facts.resting.next(facts.now, facts.records)}"
    releases = [due for one in facts.holding.values() if (due := idle_until(one)) is not None]
    if facts.idling.next(facts.records) != min(releases, default=None):
        yield f"the next idle release is listed as {facts.idling.next(facts.records)}"
    if facts.debugging.keys() != {one.id for one in facts.records.values() if one.debug}:
        yield f"those under the debug right are listed as {sorted(facts.debugging)}"
    idle = [one.id for one in facts.debugging.values() if one.held is None and one.reservation is None]
    if idle:
        yield f"{idle} count as under the debug right without any GPU"
    if facts.closed != {name for name, node in facts.nodes.items() if not node.open}:
        yield f"nodes on which nothing may start are listed as {sorted(facts.closed)}"
    for pool in facts.pools():
        yield from _pool_indexes(facts, pool)


def _pool_indexes(facts: Facts, pool: PoolName) -> Iterator[str]:
    staying = [one for one in facts.holding.values() if one.phase in STAYING and one.held and one.held.pool == pool]
    afresh = Running()
    for record in staying:
        afresh.enter(record, facts.now)
    listed = facts.running.get(pool) or Running()
    same = afresh.unallocated == listed.unallocated and afresh.exposed == listed.exposed
    same = same and afresh.gpus == listed.gpus and afresh.restorable == listed.restorable
    same = same and afresh.sessions == listed.sessions
    promised = [{leaf: k for leaf, k in one.promised_to_each(facts.now).items() if k} for one in (afresh, listed)]
    if not same or promised[0] != promised[1] or afresh.next_end() != listed.next_end():
        yield f"pool {pool}: those who run are listed wrongly"
    sums = [one.commitments(facts.ranking, facts.now) for one in (afresh, listed)]
    if any(sums[0][path] != sums[1][path] for path in facts.ranking.paths):
        yield f"pool {pool}: what was promised is summed up wrongly"
    lowest = {leaf: min(one.spec.priority for one in group.values()) for leaf, group in listed.exposed.items()}
    if lowest != {leaf: listed.lowest(leaf) for leaf in listed.exposed}:
        yield f"pool {pool}: the lowest priorities are {lowest}"
    for most in sorted({one.gpus for one in _exposed(listed)}):
        small = sum_up(listed.unallocated, {one.id: one for one in _exposed(listed) if one.gpus <= most})
        if listed.freed_by_small(most).gpus != small.gpus:
            yield f"pool {pool}: what workloads of up to {most} GPUs would free is summed up wrongly"
    yield from _rooms(facts, pool, listed)


def _rooms(facts: Facts, pool: PoolName, running: Running) -> Iterator[str]:
    """What is counted of a pool's nodes is what looking at each of them finds, with and without those who leave."""
    rooms, nodes = facts.rooms.get(pool) or Rooms(), facts.by_pool.get(pool, [])
    ends = {Instant(bound.at + late) for node in nodes for bound in node.bounds for late in (0, 1)}
    untils = FOREVER, *sorted(ends)
    for gpus, until in product(sorted({node.free for node in nodes if node.free > 0}), untils):
        if rooms.place(Shape(gpus), until=until) != place(nodes, Shape(gpus), until=until):
            yield f"pool {pool}: its nodes with {gpus} free GPUs are listed wrongly"
    shapes = [Shape(gpus) for gpus in sorted({node.node.gpus for node in nodes if node.node.gpus})]
    freed, soon = running.freed(), coming(facts, pool)
    for name in (None, *soon.gpus):
        if name is not None:  # somebody counts on a part of what is coming
            rooms.take(soon, name, Amount(1, 0, 0))
        everything = freed.and_also(soon, rest=False)
        for shape, until in product(shapes, untils):
            if any(rooms.fits(shape, one, until) != holds(nodes, shape, one, until) for one in (freed, soon, everything)):
                yield f"pool {pool}: whether {shape.gpus} GPUs could be freed on a node is counted wrongly"
            if rooms.place_with(shape, soon, (), until) != place(nodes, shape, (), soon, until):
                yield f"pool {pool}: the nodes on which {shape.gpus} GPUs will be free are listed wrongly"


def _exposed(running: Running) -> Iterator[Record]:
    for group in running.exposed.values():
        yield from group.values()
