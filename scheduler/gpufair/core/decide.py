"""The pass: what to do now. Runs after each event, over the facts, and commits each decision as it is made.

Its steps, in order:

1. settle what the event said about single workloads (queue again, park, end, stop);
2. stop what has overstayed its grace; give up reservations that cannot come true;
3. tell workloads on cordoned nodes to leave as their protection ends;
4. start work without GPUs, which waits for nobody;
5. start those whose reserved GPUs are free;
6. walk the allocated queue: start on free GPUs, else preempt;
7. start unallocated work on what is left.

Landings, the debug right, the take limit and consolidation have their place in step 6; none of them exists yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpufair.core import order, words
from gpufair.core.actions import Action, BeginCheckpoint, Reserve, Start, Unreserve
from gpufair.core.facts import STAYING, Facts
from gpufair.core.model import Held, Lease, Phase, PreemptReason, Shape
from gpufair.core.order import Walk
from gpufair.core.placement import place
from gpufair.core.preemption import Candidate, Exposed, Plan, candidates, plan
from gpufair.core.record import Record
from gpufair.core.settle import overdue, settle
from gpufair.core.share import Shares
from gpufair.core.units import AllocationPath, CauseId, NodeName, PoolName, WorkloadId

Commit = Callable[[Action], None]


class PoolPass:
    """What a pass knows of one pool, computed when first needed and kept current as GPUs are granted."""

    def __init__(self, facts: Facts, pool: PoolName) -> None:
        self.pool = pool
        self.nodes = facts.by_pool.get(pool, [])
        self.shares: Shares = facts.shares(pool)
        self.exposed = Exposed(facts, pool)
        self.coming: dict[NodeName, int] = facts.coming(pool)
        # Room only shrinks while a pass grants, so a shape that found none finds none later.
        self.full_for: set[tuple[int, int, str]] = set()
        self.not_coming_for: set[tuple[int, int, str]] = set()
        # (priority, promised GPU time) of those in a leaf who may preempt nobody, or nobody for their shape. Who has
        # no more priority and asks for no less protection may not either.
        self.harmless: dict[tuple[AllocationPath, Shape | None], list[tuple[int, int]]] = {}

    def hopeless(self) -> bool:
        """Whether nobody at all could start, or preempt anybody."""
        return not self.exposed and not self.coming and all(node.room <= 0 for node in self.nodes)


class Pass:
    """One run over the facts.

    Args:
        facts: What is so; changed only by ``commit``.
        cause: Carried into every action.
        commit: Applies an action to the facts.
    """

    def __init__(self, facts: Facts, cause: CauseId, commit: Commit) -> None:
        self.facts, self.cause = facts, cause
        self.actions: list[Action] = []
        self._commit = commit
        self._pools: dict[PoolName, PoolPass] = {}

    def run(self, touched: Iterable[WorkloadId]) -> list[Action]:
        """Decide. ``touched`` are the workloads that the event was about."""
        for workload in touched:
            self._settle(workload)
        self._keep_deadlines()
        self._give_up_reservations()
        self._drain()
        self._start_plain()
        self._start_reserved()
        self._walk_allocated()
        self._start_unallocated()
        return self.actions

    def _do(self, action: Action) -> None:
        self._commit(action)
        self.actions.append(action)

    # -- steps 1 to 3 ---------------------------------------------------------------------------------------------

    def _settle(self, workload: WorkloadId) -> None:
        action = settle(self.facts, self.facts.records[workload], self.cause)
        if action is not None:
            self._do(action)

    def _keep_deadlines(self) -> None:
        holding = self.facts.holding
        for workload in sorted(held for held, record in holding.items() if record.phase is Phase.CHECKPOINTING):
            stop = overdue(self.facts, self.facts.records[workload], self.cause)
            if stop is not None:
                self._do(stop)

    def _give_up_reservations(self) -> None:
        for record in _reserved(self.facts):
            if self._void(record):
                self._do(Unreserve(self.cause, record.id))

    def _void(self, record: Record) -> bool:
        reservation = record.reservation
        assert reservation is not None
        for lease in reservation.leases:
            node = self.facts.nodes[lease.node]
            # A node that came back smaller cannot keep what it promised.
            if not node.open or node.room < 0:
                return True
        # A victim that does not even stop in time must not block the beneficiary: it may choose others.
        victims = (self.facts.records[victim] for victim in reservation.pending)
        return any(
            victim.phase is Phase.STOPPING and victim.deadline is not None and victim.deadline <= self.facts.now
            for victim in victims
        )

    def _drain(self) -> None:
        leaving = {
            workload
            for node in self.facts.nodes.values()
            if node.cordoned and not node.lost
            for workload in node.holders
        }
        for workload in sorted(leaving):
            record = self.facts.records[workload]
            if record.phase in STAYING and self.facts.exposed(record):
                self._notify(record, PreemptReason.DRAIN, None, "its node is cordoned and its protection has ended")

    def _notify(self, record: Record, reason: PreemptReason, beneficiary: WorkloadId | None, why: str) -> None:
        deadline = self.facts.deadline(record)
        self._do(BeginCheckpoint(self.cause, record.id, record.incarnation, deadline, reason, beneficiary, why))

    # -- steps 4 and 5 --------------------------------------------------------------------------------------------

    def _start_plain(self) -> None:
        for ticket in tuple(self.facts.waiting.plain):
            record = self.facts.records[ticket.workload]
            for pool in record.spec.pools:
                leases = place(self.facts.by_pool.get(pool, ()), record.spec.shape)
                if leases is not None:
                    self._start(
                        record, pool, leases, f"it needs no GPUs, and {words.places(leases)} had the fewest workloads"
                    )
                    break

    def _start_reserved(self) -> None:
        for record in _reserved(self.facts):
            reservation = record.reservation
            assert reservation is not None
            nodes = self.facts.nodes
            mine = {lease.node: self.facts.claim(nodes[lease.node], record.id) for lease in reservation.leases}
            if all(mine[lease.node] == lease.gpus for lease in reservation.leases):
                went = words.names(self.facts.records[victim].label for victim in reservation.victims)
                why = f"the GPUs kept for it on {words.places(reservation.leases)} are free ({went} left)"
                self._start(record, reservation.pool, reservation.leases, why)
                continue
            # Its victims still leave, but enough has become free elsewhere.
            for pool in record.spec.pools:
                leases = place(self.facts.by_pool.get(pool, ()), record.spec.shape, mine)
                if leases is not None:
                    self._start(
                        record, pool, leases, f"GPUs on {words.places(leases)} became free before its victims had left"
                    )
                    break

    # -- steps 6 and 7 --------------------------------------------------------------------------------------------

    def _walk_allocated(self) -> None:
        for choice, pool in self._rounds(allocated=True):
            here = self._pool(pool)
            if here.hopeless():
                continue
            walk = Walk(self.facts, pool, choice, here.shares)
            while (step := walk.next()) is not None:
                leaf, head, workload = step
                record = self.facts.records[workload]
                if record.reservation is None and self._start_on_room(record, here):
                    pass  # it has left the list
                elif (
                    record.reservation is not None
                    or self._waits_for_release(record, here)
                    or self._preempt(record, here)
                ):
                    head.skip(record.spec.user)
                else:
                    walk.close(leaf, head)

    def _start_unallocated(self) -> None:
        for choice, pool in self._rounds(allocated=False):
            here = self._pool(pool)
            if all(node.room <= 0 for node in here.nodes):
                continue
            for workload in order.unallocated(self.facts, pool, choice, here.shares):
                self._start_on_room(self.facts.records[workload], here)

    def _rounds(self, allocated: bool) -> list[tuple[int, PoolName]]:
        """(choice, pool): everybody's first choice in each pool by name, then the second choices, and so on."""
        side = self.facts.waiting.allocated if allocated else self.facts.waiting.unallocated
        named = {(choice, pool) for line in side.values() for key in line for choice, pool in enumerate(key.pools)}
        return sorted(named)

    def _pool(self, pool: PoolName) -> PoolPass:
        if pool not in self._pools:
            self._pools[pool] = PoolPass(self.facts, pool)
        return self._pools[pool]

    def _start_on_room(self, record: Record, here: PoolPass) -> bool:
        shape = record.spec.shape
        key = _key(shape)
        if key in here.full_for:
            return False
        leases = place(here.nodes, shape)
        if leases is None:
            here.full_for.add(key)
            return False
        leaf = record.spec.allocation
        if record.spec.allocated:
            turn = f"{leaf} ({words.metric(here.shares.metric(leaf))}) was next"
        else:
            turn = "it is unallocated, and nobody else could use the GPUs"
        self._start(record, here.pool, leases, f"{turn}; {words.were(record.gpus)} free on {words.places(leases)}")
        return True

    def _waits_for_release(self, record: Record, here: PoolPass) -> bool:
        """Whether GPUs that are being released anyway will do: then nobody else need be moved for it."""
        key = _key(record.spec.shape)
        if not here.coming or key in here.not_coming_for:
            return False
        leases = place(here.nodes, record.spec.shape, here.coming)
        if leases is None:
            here.not_coming_for.add(key)
            return False
        for lease in leases:
            taken = max(0, lease.gpus - max(0, self.facts.nodes[lease.node].room))
            if taken:
                here.coming[lease.node] -= taken
        return True

    def _preempt(self, record: Record, here: PoolPass) -> bool:
        if not here.exposed or _is_harmless(here, record):
            return False
        leaf = record.spec.allocation
        possible = candidates(self.facts, here.shares, here.exposed, record)
        found = plan(self.facts, possible, record, here.pool) if possible else None
        if found is None:
            about = (leaf, record.spec.shape if possible else None)
            here.harmless.setdefault(about, []).append((record.spec.priority, record.commitment))
            return False
        reasons = [(victim, self._why_victim(record, victim, here)) for victim in found.victims]
        self._validate(found, record)
        victims = tuple(victim.record.id for victim in found.victims)
        leaving = words.names(victim.record.label for victim in found.victims)
        why = f"{leaving} must leave {words.places(found.leases)} for it: {reasons[0][1]}"
        self._do(Reserve(self.cause, record.id, found.leases, here.pool, victims, why))
        for victim, reason in reasons:
            self._notify(victim.record, victim.reason, record.id, reason)
        here.shares.grant(leaf, record.commitment, record.spec.user)
        return True

    def _validate(self, found: Plan, record: Record) -> None:
        """Try the plan on a copy of the rooms: with the victims gone the beneficiary must fit where it is to start."""
        room = {lease.node: self.facts.nodes[lease.node].room for lease in found.leases}
        for victim in found.victims:
            for name, gpus in victim.gpus.items():
                if name in room:
                    room[name] += gpus
        fits = all(room[lease.node] >= lease.gpus for lease in found.leases)
        assert fits, f"{record.id} would not fit after the eviction that was planned for it"
        assert found.victims, f"{record.id} fits without any eviction"

    def _why_victim(self, record: Record, victim: Candidate, here: PoolPass) -> str:
        mine, theirs = record.spec.allocation, victim.record.spec.allocation
        if victim.reason is PreemptReason.UNALLOCATED:
            return f"{victim.record.label} is unallocated, and {record.label} of {mine} is allocated"
        if victim.reason is PreemptReason.PRIORITY:
            return (
                f"{record.label} has priority {record.spec.priority} in {mine}, above {victim.record.spec.priority}, "
                f"and the protection of {victim.record.label} has ended"
            )
        sides = self.facts.tree.diverge(mine, theirs)
        assert sides is not None
        ours = here.shares.metric_with(sides[0], record.commitment)
        return (
            f"{sides[0]} ({words.metric(ours)} with {record.label}) is under-served against "
            f"{sides[1]} ({words.metric(here.shares.metric(sides[1]))}), and the protection of "
            f"{victim.record.label} has ended"
        )

    def _start(self, record: Record, pool: PoolName, leases: tuple[Lease, ...], why: str) -> None:
        checkpoint = record.checkpoint if record.spec.resumable and record.resume_from_checkpoint else None
        held = Held(leases, pool, record.incarnation + 1, self.facts.now, self.facts.protected_until(record))
        had_reservation = record.reservation
        self._do(Start(self.cause, record.id, held, checkpoint.id if checkpoint is not None else None, why))
        # A reservation was counted as committed when this pool's metrics were made.
        if pool in self._pools and record.spec.allocated and record.gpus and had_reservation is None:
            self._pools[pool].shares.grant(record.spec.allocation, record.commitment, record.spec.user)


def _key(shape: Shape) -> tuple[int, int, str]:
    return shape.gpus_per_node, shape.nodes, shape.gpu_type


def _is_harmless(here: PoolPass, record: Record) -> bool:
    """Whether somebody of its leaf with a better claim found nobody to preempt in this pass."""
    return any(
        record.spec.priority <= priority and record.commitment >= promised
        for about in (None, record.spec.shape)
        for priority, promised in here.harmless.get((record.spec.allocation, about), ())
    )


def _reserved(facts: Facts) -> list[Record]:
    return sorted(facts.reserved.values(), key=_reservation_order)


def _reservation_order(record: Record) -> int:
    return record.reservation.order if record.reservation is not None else 0
