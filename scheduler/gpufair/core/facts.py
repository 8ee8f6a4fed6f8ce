"""The mutable heart of the state: records, nodes, ledgers and queues, changed only through the primitives here.

Nothing in this module decides anything. Whatever changes the use of a GPU goes through ``touch`` of its node, so that
the ledger's totals and the room that a pass may grant cannot drift from who holds what.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from gpufair.core import demand, maintenance, metrics
from gpufair.core.amount import rest
from gpufair.core.backoff import RestClock
from gpufair.core.cpu_use import CpuUse, part_of
from gpufair.core.errors import Inconsistent, UnknownWorkload
from gpufair.core.horizon import bounds_of
from gpufair.core.hours import Kept
from gpufair.core.ledger import PoolLedger
from gpufair.core.model import Held, Lease, Maintenance, Node, Phase, Policy, WorkloadSpec
from gpufair.core.record import UNCOUNTED, Landing, NodeRecord, Record, Reservation
from gpufair.core.rooms import Rooms
from gpufair.core.running import Running
from gpufair.core.sessions import IdleClock
from gpufair.core.share import Shares
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, PoolName, WorkloadId, after
from gpufair.core.waiting import Waiting, ticket
from gpufair.core.weights import Weights, reweigh

# Phases in which GPUs are held and nobody has told the workload to leave.
STAYING: Final = frozenset({Phase.STARTING, Phase.RESTORING, Phase.RUNNING})
LEAVING: Final = frozenset({Phase.CHECKPOINTING, Phase.STOPPING})
NO_USES: Final = (0,) * len(PoolLedger.USES)


class Facts:
    """What is so. Iteration orders are by id or by order of arrival, never by hash."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.tree = Tree()
        self.now = Instant(0)
        self.records: dict[WorkloadId, Record] = {}
        self.holding: dict[WorkloadId, Record] = {}
        self.nodes: dict[NodeName, NodeRecord] = {}
        self.by_pool: dict[PoolName, list[NodeRecord]] = {}  # by name
        self.ledgers: dict[PoolName, PoolLedger] = {}
        self.rooms: dict[PoolName, Rooms] = {}
        self.closed: set[NodeName] = set()  # nodes on which nothing may start
        self._capacities: dict[PoolName, tuple[int, int]] = {}  # as GPUs, and weighted
        self._limits: dict[PoolName, tuple[tuple[Tree, Policy, int], dict[AllocationPath, int]]] = {}
        self.weights = Weights(policy.gpu_weights)
        self.waiting = Waiting()
        self.cpu_use = CpuUse()
        self.demand = demand.Demand()
        self.running: dict[PoolName, Running] = {}
        self.leaving: dict[WorkloadId, Record] = {}  # told to, and still holding
        self.reserved: dict[WorkloadId, Record] = {}
        self.debugging: dict[WorkloadId, Record] = {}  # started, or to be started, under the debug right
        self.reservations = 0  # ever made
        self.landed: dict[tuple[PoolName, AllocationPath], Record] = {}  # owners of landings, in the order of grants
        self.landings = 0  # ever granted
        self.maintenance: dict[str, Maintenance] = {}  # plans whose time has not come, by id
        self.landings_in_doubt = True  # something has changed that may have voided one: a pass looks, and clears it
        self.protected_preemptions = 0
        self.resting = RestClock()
        self.idling = IdleClock()
        self.idle_releases = 0  # not a preemption: they may come during protection
        self.forced_moves = self.allowed_moves = 0  # of protected workloads, off nodes that were drained
        self.consolidation_moves = 0  # to join free GPUs for somebody else
        # When the next pass is due, if that has been worked out since the last event (``gpufair.core.wakeup``).
        self.wakeup: Instant | None = None
        self.wakeup_known = False

    # -- time and workloads ---------------------------------------------------------------------------------------

    def advance(self, at: Instant) -> None:
        """Let time pass until ``at``; an instant before now (a clock stepped back) counts as now."""
        span = at - self.now
        if span > 0:
            for ledger in self.ledgers.values():
                ledger.advance(self.now, span)
            before, self.now = self.now, at
            for record in self.landed.values():
                if record.landing is not None and before < record.landing.at <= at:
                    for lease in record.landing.leases:
                        self.touch(lease.node)
            if self.maintenance:
                maintenance.begin_due(self)
            for running in self.running.values():
                running.expire(at, self.records)

    def record(self, workload: WorkloadId) -> Record:
        """The record of a workload.

        Raises:
            UnknownWorkload: There is none.
        """
        try:
            return self.records[workload]
        except KeyError:
            raise UnknownWorkload(workload) from None

    @property
    def ranking(self) -> Tree:
        """The tree in which leaves are compared: that of the budgets, or its leaves side by side."""
        return self.tree.flat if self.policy.flattened else self.tree

    @property
    def kept(self) -> Kept:
        """How history is kept."""
        return Kept(self.policy.history_step, self.policy.history)

    def change_policy(self, policy: Policy) -> None:
        """From now on other options hold."""
        before, self.policy = self.policy, policy
        if policy.gpu_weights != before.gpu_weights:
            reweigh(self)
        for ledger in self.ledgers.values():
            ledger.keep(self.kept)
            # What the window before this edit knows is what fading begins with.
            ledger.fade(policy.half_life, self.now - before.window, self.now)

    def label(self, workload: WorkloadId) -> str:
        """What people are told about a workload; its id once it has been forgotten."""
        record = self.records.get(workload)
        return record.label if record is not None else workload

    def add(self, workload: WorkloadId, spec: WorkloadSpec, withheld: bool = False) -> None:
        """Queue a new workload, unless it is ``withheld``."""
        record = Record(
            id=workload,
            spec=spec,
            submitted_at=self.now,
            reason="waiting for its turn",
            weight=self.weights.of(spec.shape.gpu_type),
        )
        self.records[workload] = record
        if withheld:
            record.phase, record.withheld, record.reason = Phase.PARKED, True, "it is not to start yet"
        else:
            self.enqueue(record)

    def enqueue(self, record: Record) -> None:
        """Give it its place in the queue: that of its first submission."""
        self.waiting.add(record.spec, ticket(record.submitted_at, record.id), record.min_runtime)
        self.resting.watch(record, self.now)
        demand.begin_to_wait(self, record)

    def dequeue(self, record: Record) -> None:
        """Take it out of the queue, with its reservation and its landing."""
        self.waiting.remove(record.spec, ticket(record.submitted_at, record.id), record.min_runtime)
        demand.cease_to_wait(self, record)
        self.unreserve(record)
        self.drop_landing(record)

    def ask_for_a_slice(self, record: Record, span: Millis) -> None:
        """From now on a queued workload asks for no more protection than ``span``. What is kept for it stays so."""
        place = ticket(record.submitted_at, record.id)
        self.waiting.remove(record.spec, place, record.min_runtime)
        record.slice = Millis(min(span, record.min_runtime))
        self.waiting.add(record.spec, place, record.min_runtime)

    # -- GPUs -----------------------------------------------------------------------------------------------------

    def grant(self, record: Record, held: Held) -> None:
        """From now on it holds these leases, and is charged for them if it is allocated."""
        record.settled, record.settled_at = record.charged(self.now), self.now
        record.held = held
        self._charge(record, held.leases, +1)
        if not record.gpus:
            record.cpu_part = part_of(self.nodes.values(), record.spec.shape)
            self.cpu_use.charge(record.spec, self.now, record.cpu_part)
        self.hold(record)
        for lease in held.leases:
            self.nodes[lease.node].holders[record.id] = lease.gpus
            self.touch(lease.node)

    def extend(self, record: Record, until: Instant) -> None:
        """It is protected until then. Nobody's protection is ever shortened."""
        held = record.held
        if held is None or until < held.protected_until:
            raise Inconsistent(f"workload {record.id!r} cannot be protected until {until}: it holds {held}")
        running = self._running(held.pool)
        running.leave(record)
        record.held = replace(held, protected_until=until)
        running.enter(record, self.now)
        for lease in held.leases:
            self.touch(lease.node)

    def hold(self, record: Record) -> None:
        """List a workload that holds GPUs."""
        self.holding[record.id] = record
        if record.phase in LEAVING:
            self.leaving[record.id] = record
        elif record.held is not None:
            self._running(record.held.pool).enter(record, self.now)

    def _running(self, pool: PoolName) -> Running:
        if pool not in self.running:
            self.running[pool] = Running()
        return self.running[pool]

    def switched(self, record: Record, before: Phase) -> None:
        """A workload that holds GPUs came from another phase: it starts, restores, saves or stops, or has done so."""
        if record.held is not None and (before is Phase.RUNNING) != (record.phase is Phase.RUNNING):
            gpus = sum(lease.gpus for lease in record.held.leases)
            sign = +1 if before is Phase.RUNNING else -1
            self.ledger(record.held.pool).change(PoolLedger.SWITCHING, sign * gpus)

    def told_to_leave(self, record: Record) -> None:
        """It does not stay any longer, but still holds."""
        self.leaving[record.id] = record
        if record.held is not None:
            self._running(record.held.pool).leave(record)
            for lease in record.held.leases:
                if self.nodes[lease.node].bounds:
                    self.touch(lease.node)

    def release(self, record: Record, only: NodeName | None = None) -> None:
        """It holds its leases (or only those on one node) no longer."""
        held = record.held
        if held is None:
            return
        gone = tuple(lease for lease in held.leases if only is None or lease.node == only)
        kept = tuple(lease for lease in held.leases if lease not in gone)
        record.settled, record.settled_at = record.charged(self.now), self.now
        self._charge(record, gone, -1)
        record.held = replace(held, leases=kept) if kept else None
        for lease in gone:
            del self.nodes[lease.node].holders[record.id]
        if not kept:
            self.cpu_use.charge(record.spec, self.now, -record.cpu_part)
            record.cpu_part = 0
            del self.holding[record.id]
            self.leaving.pop(record.id, None)
            self._running(held.pool).leave(record)
            self._no_longer_pending(record, gone)
        for lease in gone:
            self.touch(lease.node)

    def _charge(self, record: Record, leases: Iterable[Lease], sign: int) -> None:
        gpus = sum(lease.gpus for lease in leases)
        if not gpus or record.held is None:
            return
        ledger, spec = self.ledger(record.held.pool), record.spec
        if record.phase is not Phase.RUNNING:
            ledger.change(PoolLedger.SWITCHING, sign * gpus)
        if spec.allocated:
            self._charge_weighted(record, record.held.pool, sign * self.weigh(leases))

    def _charge_weighted(self, record: Record, pool: PoolName, more: int) -> None:
        record.rate += more
        if more:
            spec = record.spec
            self.ledger(pool).charge(spec.allocation, spec.user, self.now, more, self.policy.window)
            demand.want(self, pool, spec.allocation, more)

    def _no_longer_pending(self, victim: Record, gone: tuple[Lease, ...]) -> None:
        # Several may wait for one who leaves: for different GPUs of his.
        owners = {owner: None for lease in gone for owner in self.nodes[lease.node].claims}
        if victim.beneficiary is not None:
            owners[victim.beneficiary] = None
        for owner in owners:
            record = self.records.get(owner)
            if record is None or record.reservation is None or victim.id not in record.reservation.pending:
                continue
            pending = tuple(other for other in record.reservation.pending if other != victim.id)
            record.reservation = replace(record.reservation, pending=pending)
            for lease in record.reservation.leases:
                self.touch(lease.node)

    # -- reservations ---------------------------------------------------------------------------------------------

    def reserve(self, record: Record, reservation: Reservation) -> None:
        """Keep these GPUs for it, those of its victims as they are released. Its ``order`` is given here."""
        self.reservations += 1
        record.reservation = replace(reservation, order=self.reservations)
        self.reserved[record.id] = record
        for lease in reservation.leases:
            self.nodes[lease.node].claims[record.id] = lease.gpus
            self.touch(lease.node)

    def unreserve(self, record: Record) -> None:
        """Keep nothing for it any longer."""
        if record.reservation is None:
            return
        leases = record.reservation.leases
        record.reservation = None
        del self.reserved[record.id]
        for lease in leases:
            del self.nodes[lease.node].claims[record.id]
            self.touch(lease.node)

    def count_as_debug(self, record: Record, counts: bool = True) -> None:
        """It counts against the bounds of the debug right from now on, or no longer."""
        record.debug = counts
        if counts:
            self.debugging[record.id] = record
        else:
            self.debugging.pop(record.id, None)

    # -- landings -------------------------------------------------------------------------------------------------

    def land(self, record: Record, landing: Landing) -> None:
        """From its time on these GPUs are its own. Its ``order`` is given here, or is that of the one it replaces."""
        if record.landing is None:
            self.landings += 1
            self.landed[landing.pool, record.spec.allocation] = record
        order = record.landing.order if record.landing is not None else self.landings
        record.landing = replace(landing, order=order)
        for lease in landing.leases:
            self.nodes[lease.node].landings[record.id] = lease.gpus
            self.touch(lease.node)

    def drop_landing(self, record: Record) -> None:
        """It has no landing any longer."""
        landing = record.landing
        if landing is None:
            return
        record.landing = None
        del self.landed[landing.pool, record.spec.allocation]
        for lease in landing.leases:
            del self.nodes[lease.node].landings[record.id]
            self.touch(lease.node)

    def claim(self, node: NodeRecord, owner: WorkloadId) -> int:
        """GPUs of a reserved lease that are free already."""
        reservation = self.records[owner].reservation
        if reservation is None:
            return 0
        coming = sum(node.holders.get(victim, 0) for victim in reservation.pending)
        return max(0, node.claims[owner] - coming)

    # -- nodes and pools ------------------------------------------------------------------------------------------

    def ledger(self, pool: PoolName) -> PoolLedger:
        """The ledger of a pool, opened on first use."""
        if pool not in self.ledgers:
            self.ledgers[pool] = PoolLedger(self.kept, self.policy.half_life)
            self.ledgers = dict(sorted(self.ledgers.items()))
        return self.ledgers[pool]

    def put_node(self, node: Node) -> None:
        """A node is there, with this inventory."""
        known = self.nodes.get(node.name)
        self.landings_in_doubt = True
        if known is None:
            self.nodes[node.name] = NodeRecord(node)
            self.nodes = dict(sorted(self.nodes.items()))
        else:
            known.node, known.lost = node, False
            known.cpus_left = known.memory_left = UNCOUNTED
        self._list_by_pool()
        self.touch(node.name)
        demand.recount(self)

    def _list_by_pool(self) -> None:
        self._capacities = {}
        self.by_pool = {}
        for record in self.nodes.values():
            self.by_pool.setdefault(record.node.pool, []).append(record)

    def lose_node(self, name: NodeName) -> None:
        """A node, on which nobody holds anything any more, is gone."""
        self.nodes[name].lost = True
        self.touch(name)
        demand.recount(self)

    def remove_node(self, name: NodeName) -> None:
        """A lost node, on which nothing is held, kept or planned, is known no longer."""
        node = self.nodes.pop(name)
        if node.counted_in is not None:
            self._count(node.counted_in, node.uses, NO_USES)
            self.rooms[node.counted_in].drop(name)
        self.closed.discard(name)
        self._list_by_pool()

    def apply_budgets(self, tree: Tree) -> None:
        """From now on another tree holds."""
        self.landings_in_doubt = True
        self.tree = tree
        demand.recount(self)

    def touch(self, name: NodeName) -> None:
        """Count anew what the GPUs of a node are used for."""
        node = self.nodes[name]
        gpus = node.node.gpus
        used = sum(node.holders.values())
        free_of_charge, records = 0, self.records
        for holder, held_here in node.holders.items():
            if not records[holder].spec.allocated:
                free_of_charge += held_here
        claimed = sum(self.claim(node, owner) for owner in node.claims) if node.claims else 0
        free = gpus - used - claimed
        node.free = free if node.open else 0
        if node.node.cpus is not None or node.node.memory is not None:
            node.cpus_left, node.memory_left = rest(node, self.records)
        node.bounds = bounds_of(self, node) if node.landings or node.closes_at is not None else ()
        node.room = min(node.free, *(bound.left for bound in node.bounds)) if node.bounds else node.free
        held, away = claimed + node.free - node.room, gpus if node.lost else 0
        uses = (free_of_charge, held, node.room, free - node.free, gpus, used - free_of_charge, away)
        before, pool = node.uses, node.node.pool
        if node.counted_in != pool or not before:
            if node.counted_in is not None:
                self._count(node.counted_in, before, NO_USES)
            before = NO_USES
        self._count(pool, before, uses)
        if node.counted_in is not None and node.counted_in != pool:
            self.rooms[node.counted_in].drop(name)
        rooms = self.rooms.get(pool)
        if rooms is None:
            rooms = self.rooms[pool] = Rooms()
        rooms.put(node)
        if not node.open or name in self.closed:
            self.landings_in_doubt = True
            self._capacities = {}  # it may have been lost, or be back
            (self.closed.discard if node.open else self.closed.add)(name)
        node.uses, node.counted_in = uses, pool

    def _count(self, pool: PoolName, before: tuple[int, ...], uses: tuple[int, ...]) -> None:
        """GPUs of a node are used otherwise than before."""
        ledger = self.ledger(pool)
        if before == uses:
            return
        for index, use in enumerate(PoolLedger.USES):
            more = uses[index] - before[index]
            if more:
                ledger.change(use, more)

    def capacity(self, pool: PoolName) -> int:
        """GPUs of a pool on nodes that are not lost."""
        return self._capacity(pool)[0]

    def worth(self, pool: PoolName) -> int:
        """The same as it is charged for: in units of ``weights``."""
        return self._capacity(pool)[1]

    def _capacity(self, pool: PoolName) -> tuple[int, int]:
        if pool not in self._capacities:
            nodes = [node.node for node in self.by_pool.get(pool, ()) if not node.lost]
            weighted = sum(node.gpus * self.weights.of(node.gpu_type) for node in nodes)
            self._capacities[pool] = sum(node.gpus for node in nodes), weighted
        return self._capacities[pool]

    def limits(self, pool: PoolName) -> dict[AllocationPath, int]:
        """The take limits that have been worked out of a pool's leaves, for as long as what they follow from is so."""
        tree, policy, gpus = self.tree, self.policy, self.capacity(pool)
        known = self._limits.get(pool)
        if known is None or known[0][0] is not tree or known[0][1] is not policy or known[0][2] != gpus:
            known = self._limits[pool] = (tree, policy, gpus), {}
        return known[1]

    def weigh(self, leases: Iterable[Lease]) -> int:
        """What leases are charged for, in units of ``weights``."""
        return sum(lease.gpus * self.weights.of(self.nodes[lease.node].node.gpu_type) for lease in leases)

    def recharge(self) -> None:
        """The weights have changed: from now on charge those who hold GPUs by the new ones."""
        self._capacities, self.running = {}, {}
        for record in self.holding.values():
            held = record.held
            if held is not None and record.spec.allocated:
                record.settled, record.settled_at = record.charged(self.now), self.now
                self._charge_weighted(record, held.pool, self.weigh(held.leases) - record.rate)
            self.hold(record)

    def pools(self) -> tuple[PoolName, ...]:
        """Pools that have nodes or history, by name."""
        return tuple(sorted(self.ledgers.keys() | self.by_pool.keys()))

    # -- figures --------------------------------------------------------------------------------------------------

    def shares(self, pool: PoolName) -> Shares:
        """The metrics of a pool as of now."""
        return metrics.shares_of(self, pool)

    def exposed(self, record: Record) -> bool:
        """Whether it may be told to leave now: its protection is over, or it never had any."""
        return record.held is not None and self.now >= record.held.protected_until

    def grace(self, record: Record) -> Millis:
        """How long it may take to leave."""
        if record.spec.grace is not None:
            return record.spec.grace
        if record.spec.kind == "session" and record.spec.allocated:
            return self.policy.grace_session
        return self.policy.grace_batch

    def deadline(self, record: Record) -> Instant:
        """Until when it must have left if it is told now."""
        return after(self.now, self.grace(record))

    def stop_deadline(self, record: Record) -> Instant:
        """Until when it is counted on to be gone if it is told to stop now.

        A grace of nothing is no time to kill a process in: whoever waits for it would give up at once, and evict it
        again when it has come back, for ever.
        """
        return after(self.now, max(self.grace(record), self.policy.grid_checkpoint))

    def protected_until(self, record: Record) -> Instant:
        """Until when it would be protected if it started now."""
        return after(self.now, record.min_runtime)

    def copy(self, *, listed: bool = True) -> Facts:
        """An independent copy.

        Args:
            listed: To try something on; otherwise to be written down only, for it is made in half the time.
        """
        twin = Facts(self.policy)
        twin.tree, twin.now, twin.weights = self.tree, self.now, self.weights
        twin.reservations, twin.protected_preemptions = self.reservations, self.protected_preemptions
        twin.idle_releases = self.idle_releases
        twin.forced_moves, twin.allowed_moves = self.forced_moves, self.allowed_moves
        twin.consolidation_moves = self.consolidation_moves
        twin.demand, twin.cpu_use = self.demand.copy(), self.cpu_use.copy()
        twin.landings = self.landings
        twin.maintenance = dict(self.maintenance)
        twin.ledgers = {pool: ledger.copy() for pool, ledger in self.ledgers.items()}
        twin.nodes = {
            name: replace(node, holders=dict(node.holders), claims=dict(node.claims), landings=dict(node.landings))
            for name, node in self.nodes.items()
        }
        if not listed:
            twin.records = {name: record.copy() for name, record in self.records.items()}
            return twin
        for record in self.records.values():
            twin.list_workload(record.copy())
        twin.list_nodes()
        return twin

    def list_workload(self, record: Record) -> None:
        """Take in the record of a workload from elsewhere: a copy, or a snapshot."""
        self.records[record.id] = record
        if record.phase is Phase.QUEUED:
            self.resting.watch(record, self.now)
            self.waiting.add(record.spec, ticket(record.submitted_at, record.id), record.min_runtime)
            if demand.wants(record):
                self.demand.list_waiting(record)
        if record.reservation is not None:
            self.reserved[record.id] = record
        if record.debug:
            self.debugging[record.id] = record
        if record.held is not None:
            self.hold(record)
            self.idling.watch(record)

    def list_nodes(self) -> None:
        """List the nodes by pool and by room, once all of them and all workloads are here."""
        owners = [(record.landing.order, record) for record in self.records.values() if record.landing is not None]
        for _, record in sorted(owners, key=lambda pair: pair[0]):
            if record.landing is not None:
                self.landed[record.landing.pool, record.spec.allocation] = record
        self._capacities = {}
        self.by_pool = {}
        for name, node in self.nodes.items():
            self.by_pool.setdefault(node.node.pool, []).append(node)
            self.touch(name)


def left_of(facts: Facts, record: Record) -> int:
    """What is left of the protection of one who runs, and is asked for again if he is moved; at least a millisecond."""
    return max(1, record.held.protected_until - facts.now) if record.held is not None else record.min_runtime
