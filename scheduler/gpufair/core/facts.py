"""The mutable heart of the state: records, nodes, ledgers and queues, changed only through the primitives here.

Nothing in this module decides anything. Whatever changes the use of a GPU goes through ``touch`` of its node, so that
the ledger's totals and the room that a pass may grant cannot drift from who holds what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from gpufair.core.errors import UnknownWorkload
from gpufair.core.ledger import PoolLedger
from gpufair.core.model import Held, Lease, Node, Phase, Policy, WorkloadSpec
from gpufair.core.record import NodeRecord, Record, Reservation
from gpufair.core.share import Shares
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, GpuMillis, Instant, Millis, NodeName, PoolName, WorkloadId, after
from gpufair.core.waiting import Ticket, Waiting

# Phases in which GPUs are held and nobody has told the workload to leave.
STAYING: Final = frozenset({Phase.STARTING, Phase.RESTORING, Phase.RUNNING})
LEAVING: Final = frozenset({Phase.CHECKPOINTING, Phase.STOPPING})


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
        self.waiting = Waiting()
        self.reserved: dict[WorkloadId, Record] = {}
        self.reservations = 0  # ever made
        self.protected_preemptions = 0

    # -- time and workloads ---------------------------------------------------------------------------------------

    def advance(self, at: Instant) -> None:
        """Let time pass until ``at``; an instant before now (a clock stepped back) counts as now."""
        span = at - self.now
        if span > 0:
            for ledger in self.ledgers.values():
                ledger.advance(span)
            self.now = at

    def record(self, workload: WorkloadId) -> Record:
        """The record of a workload.

        Raises:
            UnknownWorkload: There is none.
        """
        try:
            return self.records[workload]
        except KeyError:
            raise UnknownWorkload(workload) from None

    def label(self, workload: WorkloadId) -> str:
        """What people are told about a workload; its id once it has been forgotten."""
        record = self.records.get(workload)
        return record.label if record is not None else workload

    def add(self, workload: WorkloadId, spec: WorkloadSpec) -> None:
        """Queue a new workload."""
        record = Record(id=workload, spec=spec, submitted_at=self.now, reason="waiting for its turn")
        self.records[workload] = record
        self.enqueue(record)

    def enqueue(self, record: Record) -> None:
        """Give it its place in the queue: that of its first submission."""
        self.waiting.add(record.spec, Ticket(record.submitted_at, record.id))

    def dequeue(self, record: Record) -> None:
        """Take it out of the queue, with its reservation."""
        self.waiting.remove(record.spec, Ticket(record.submitted_at, record.id))
        self.unreserve(record)

    # -- GPUs -----------------------------------------------------------------------------------------------------

    def grant(self, record: Record, held: Held) -> None:
        """From now on it holds these leases, and is charged for them if it is allocated."""
        record.settled, record.settled_at = record.charged(self.now), self.now
        record.held = held
        self.holding[record.id] = record
        self._charge(record, held.leases, +1)
        for lease in held.leases:
            self.nodes[lease.node].holders[record.id] = lease.gpus
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
            del self.holding[record.id]
            self._no_longer_pending(record)
        for lease in gone:
            self.touch(lease.node)

    def _charge(self, record: Record, leases: Iterable[Lease], sign: int) -> None:
        gpus = sum(lease.gpus for lease in leases)
        if gpus and record.spec.allocated and record.held is not None:
            ledger, spec = self.ledger(record.held.pool), record.spec
            ledger.charge(spec.allocation, spec.user, self.now, sign * gpus, self.policy.window)

    def _no_longer_pending(self, victim: Record) -> None:
        owner = self.records.get(victim.beneficiary) if victim.beneficiary is not None else None
        if owner is None or owner.reservation is None or victim.id not in owner.reservation.pending:
            return
        pending = tuple(other for other in owner.reservation.pending if other != victim.id)
        owner.reservation = replace(owner.reservation, pending=pending)
        for lease in owner.reservation.leases:
            self.touch(lease.node)

    # -- reservations ---------------------------------------------------------------------------------------------

    def reserve(
        self, record: Record, leases: tuple[Lease, ...], pool: PoolName, victims: tuple[WorkloadId, ...]
    ) -> None:
        """Keep these GPUs for it, those of its victims as they are released."""
        self.reservations += 1
        record.reservation = Reservation(leases, pool, victims, victims, self.reservations)
        self.reserved[record.id] = record
        for lease in leases:
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
            self.ledgers[pool] = PoolLedger()
            self.ledgers = dict(sorted(self.ledgers.items()))
        return self.ledgers[pool]

    def put_node(self, node: Node) -> None:
        """A node is there, with this inventory."""
        known = self.nodes.get(node.name)
        if known is None:
            self.nodes[node.name] = NodeRecord(node)
            self.nodes = dict(sorted(self.nodes.items()))
        else:
            known.node, known.lost = node, False
        self.by_pool = {}
        for record in self.nodes.values():
            self.by_pool.setdefault(record.node.pool, []).append(record)
        self.touch(node.name)

    def touch(self, name: NodeName) -> None:
        """Count anew what the GPUs of a node are used for."""
        node = self.nodes[name]
        gpus = node.node.gpus
        used = sum(node.holders.values())
        free_of_charge = sum(held for holder, held in node.holders.items() if not self.records[holder].spec.allocated)
        claimed = sum(self.claim(node, owner) for owner in node.claims) if node.claims else 0
        free = gpus - used - claimed
        node.room = free if node.open else 0
        uses = (free_of_charge, claimed, node.room, free - node.room, gpus)
        for pool, part, sign in ((node.counted_in, node.uses, -1), (node.node.pool, uses, +1)):
            if pool is not None:
                rates = self.ledger(pool).rates
                for use, count in zip(PoolLedger.USES, part, strict=True):
                    rates[use] += sign * count
        node.uses, node.counted_in = uses, node.node.pool

    def capacity(self, pool: PoolName) -> int:
        """GPUs of a pool on nodes that are not lost."""
        return sum(node.node.gpus for node in self.by_pool.get(pool, ()) if not node.lost)

    def pools(self) -> tuple[PoolName, ...]:
        """Pools that have nodes or history, by name."""
        return tuple(sorted(self.ledgers.keys() | self.by_pool.keys()))

    # -- figures --------------------------------------------------------------------------------------------------

    def shares(self, pool: PoolName) -> Shares:
        """The metrics of a pool as of now. Reservations count as committed: they will start."""
        commitment: dict[AllocationPath, int] = {}
        promised: dict[tuple[AllocationPath, str], int] = {}

        def promise(record: Record, amount: int) -> None:
            leaf, user = record.spec.allocation, record.spec.user
            commitment[leaf] = commitment.get(leaf, 0) + amount
            promised[leaf, user] = promised.get((leaf, user), 0) + amount

        for record in self.holding.values():
            held = record.held
            if held is None or held.pool != pool or record.phase not in STAYING or not record.spec.allocated:
                continue
            left = held.protected_until - self.now
            if left > 0:
                promise(record, left * record.gpus)
        for record in self.reserved.values():
            if record.reservation is not None and record.reservation.pool == pool:
                promise(record, record.commitment)
        ledger = self.ledgers.get(pool) or PoolLedger()

        def had(leaf: AllocationPath, user: str) -> int:
            committed = promised.get((leaf, user), 0) if self.policy.commitment else 0
            return ledger.occupancy_of(leaf, user, self.now, self.policy.window) + committed

        return Shares(
            tree=self.tree,
            occupancy=ledger.occupancies(self.tree, self.now, self.policy.window),
            commitment={leaf: GpuMillis(amount) for leaf, amount in commitment.items()},
            capacity=self.capacity(pool),
            window=self.policy.window,
            count_commitment=self.policy.commitment,
            researchers=had,
        )

    def staying(self, pool: PoolName) -> Iterator[Record]:
        """Workloads that run in a pool and hold GPUs and have not been told to leave, by id."""
        for workload in sorted(self.holding):
            record = self.holding[workload]
            if record.phase in STAYING and record.gpus and record.held is not None and record.held.pool == pool:
                yield record

    def exposed(self, record: Record) -> bool:
        """Whether it may be told to leave now: its protection is over, or it never had any."""
        return record.held is not None and self.now >= record.held.protected_until

    def coming(self, pool: PoolName) -> dict[NodeName, int]:
        """GPUs per open node that are being released and that no reservation waits for.

        A workload that overstays its deadline is not counted on: whoever waits may then move somebody else.
        """
        surplus: dict[NodeName, int] = {}
        for record in self.holding.values():
            if record.phase not in LEAVING or record.held is None or record.held.pool != pool:
                continue
            if record.deadline is None or record.deadline <= self.now:
                continue
            for lease in record.held.leases:
                if lease.gpus and self.nodes[lease.node].open:
                    surplus[lease.node] = surplus.get(lease.node, 0) + lease.gpus
        for name in surplus:
            node = self.nodes[name]
            surplus[name] -= sum(gpus - self.claim(node, owner) for owner, gpus in node.claims.items())
        return {name: surplus[name] for name in sorted(surplus) if surplus[name] > 0}

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

    def protected_until(self, record: Record) -> Instant:
        """Until when it would be protected if it started now."""
        return after(self.now, record.spec.min_runtime)

    def copy(self) -> Facts:
        """An independent copy, to try something on."""
        twin = Facts(self.policy)
        twin.tree, twin.now = self.tree, self.now
        twin.records = {workload: replace(record) for workload, record in self.records.items()}
        twin.holding = {workload: twin.records[workload] for workload in self.holding}
        twin.reserved = {workload: twin.records[workload] for workload in self.reserved}
        twin.nodes = {
            name: replace(node, holders=dict(node.holders), claims=dict(node.claims))
            for name, node in self.nodes.items()
        }
        for node in twin.nodes.values():
            twin.by_pool.setdefault(node.node.pool, []).append(node)
        twin.ledgers = {pool: ledger.copy() for pool, ledger in self.ledgers.items()}
        twin.waiting = self.waiting.copy()
        twin.reservations = self.reservations
        twin.protected_preemptions = self.protected_preemptions
        return twin
