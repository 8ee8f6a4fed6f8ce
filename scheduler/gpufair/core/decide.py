"""The pass: what to do now. Runs after each event, over the facts, and commits each decision as it is made.

Its steps, in order:

1. settle what the event said about single workloads (queue again, park, end, stop);
2. stop what has overstayed its grace; give up reservations that cannot come true;
3. tell workloads on cordoned nodes to leave as their protection ends;
4. start work without GPUs, which waits for nobody;
5. start those whose reserved GPUs are free;
6. walk the allocated queue: start on free GPUs, else preempt;
7. start unallocated work on what is left.

Landings and consolidation have their place in step 6; none of them exists yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpufair.core import order, words
from gpufair.core.actions import Action, BeginCheckpoint, Reserve, Start, Unreserve
from gpufair.core.amount import asked, left
from gpufair.core.chances import Chances
from gpufair.core.coming import already_kept, is_complete
from gpufair.core.facts import STAYING, Facts
from gpufair.core.model import Held, Lease, Phase, PreemptReason, Shape
from gpufair.core.order import Walk
from gpufair.core.placement import place, suits
from gpufair.core.plan import validate
from gpufair.core.preemption import Candidate
from gpufair.core.queue import reserved
from gpufair.core.record import Record
from gpufair.core.rights import room_for
from gpufair.core.settle import overdue, settle
from gpufair.core.units import CauseId, PoolName, WorkloadId
from gpufair.core.waiting import Turn

Commit = Callable[[Action], None]


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
        self._pools: dict[PoolName, Chances] = {}

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
        for workload in sorted(self.facts.leaving):
            stop = overdue(self.facts, self.facts.records[workload], self.cause)
            if stop is not None:
                self._do(stop)

    def _give_up_reservations(self) -> None:
        for record in reserved(self.facts):
            if self._void(record):
                self._do(Unreserve(self.cause, record.id))

    def _void(self, record: Record) -> bool:
        reservation = record.reservation
        assert reservation is not None
        nodes = self.facts.nodes
        if not suits(nodes, reservation.leases, record.spec.shape):
            return True
        for lease in reservation.leases:
            node = nodes[lease.node]
            # A node that came back smaller, or in another pool, cannot keep what it promised.
            if min(node.room, node.cpus_left, node.memory_left) < 0 or node.node.pool != reservation.pool:
                return True
        # A victim that does not even stop in time must not block the beneficiary: it may choose others.
        victims = (self.facts.records[victim] for victim in reservation.pending)
        return any(
            victim.phase is Phase.STOPPING and victim.deadline is not None and victim.deadline <= self.facts.now
            for victim in victims
        )

    def _drain(self) -> None:
        closed = [self.facts.nodes[name] for name in self.facts.closed]
        for workload in sorted({holder for node in closed if not node.lost for holder in node.holders}):
            record = self.facts.records[workload]
            if record.phase in STAYING and self.facts.exposed(record):
                self._notify(record, PreemptReason.DRAIN, None, "its node is cordoned and its protection has ended")

    def _notify(self, record: Record, reason: PreemptReason, beneficiary: WorkloadId | None, why: str) -> None:
        deadline = self.facts.deadline(record)
        self._do(BeginCheckpoint(self.cause, record.id, record.incarnation, deadline, reason, beneficiary, why))

    # -- steps 4 and 5 --------------------------------------------------------------------------------------------

    def _start_plain(self) -> None:
        nowhere: set[tuple[PoolName, Shape]] = set()
        for ticket in tuple(self.facts.waiting.plain):
            record = self.facts.records[ticket.workload]
            for pool in record.spec.pools:
                if (pool, record.spec.shape) in nowhere:
                    continue
                leases = place(self.facts.by_pool.get(pool, ()), record.spec.shape, self.facts.policy.blocks)
                if leases is None:
                    nowhere.add((pool, record.spec.shape))
                else:
                    self._start(
                        record, pool, leases, f"it needs no GPUs, and {words.places(leases)} had the fewest workloads"
                    )
                    break

    def _start_reserved(self) -> None:
        for record in reserved(self.facts):
            reservation = record.reservation
            assert reservation is not None
            mine = already_kept(self.facts, record)
            if is_complete(record, mine):
                went = words.names(self.facts.records[victim].label for victim in reservation.victims)
                why = f"the GPUs kept for it on {words.places(reservation.leases)} are free ({went} left)"
                self._start(record, reservation.pool, reservation.leases, why)
                continue
            # Its victims still leave, but enough has become free elsewhere.
            for pool in record.spec.pools:
                rooms, shape = self.facts.rooms.get(pool), record.spec.shape
                if rooms is None or not rooms.fits(shape, mine):
                    continue
                leases = place(self.facts.by_pool[pool], shape, self.facts.policy.blocks, mine)
                if leases is not None:
                    self._start(
                        record, pool, leases, f"GPUs on {words.places(leases)} became free before its victims had left"
                    )
                    break

    # -- steps 6 and 7 --------------------------------------------------------------------------------------------

    def _walk_allocated(self) -> None:
        turns = self.facts.waiting.allocated.turns
        rounds = sorted(turns)
        last = {pool: choice for choice, pool in rounds}
        for choice, pool in rounds:
            turn, here = turns.get((choice, pool), {}), self._pool(pool)
            # Whoever fits on what is coming has to be heard though nothing is done for him: he spares later ones a
            # victim. After the last turn there is nobody whom he could spare.
            if here.coming and (choice != last[pool] or self._acts_beyond(here)):
                self._walk(turn, here, to_the_end=True)
            elif here.acts(turn):
                self._walk(turn, here, to_the_end=False)
        # What is left goes to those whom the take limit held back.
        for choice, pool in rounds:
            here = self._pool(pool)
            if self._acts_beyond(here):
                turn = here.take.beyond(turns.get((choice, pool), {}))
                self._walk(turn, here, to_the_end=True, beyond=True)

    def _acts_beyond(self, here: Chances) -> bool:
        """Whether anybody whom the take limit holds back could do something with what is left."""
        turns = [turn for (_, pool), turn in self.facts.waiting.allocated.turns.items() if pool == here.pool]
        if len(self.facts.waiting.allocated.pools()) > 1:
            # The other pools may yet feed the hungry, so that nobody is held back here.
            return any(here.take.beyond(turn) for turn in turns)
        return any(here.acts_beyond(turn) for turn in turns)

    def _walk(self, turn: Turn, here: Chances, to_the_end: bool, beyond: bool = False) -> None:
        walk = Walk(self.facts.tree, here.shares, turn, here.hopeful)
        while (leaf := walk.leaf()) is not None:
            if not beyond and not here.acts_in(leaf, walk.groups[leaf]):
                walk.narrow(leaf, here.is_coming)
            step = walk.first(leaf)
            if step is None:
                continue
            head, workload = step
            record = self.facts.records[workload]
            if record.reservation is not None:
                head.skip(record.spec.user)
            elif not beyond and here.take.holds_back(leaf, record.gpus):
                walk.drop(leaf)
            elif self._start_on_room(record, here):
                if not to_the_end and self._is_done(turn, here):
                    return
            elif self._waits_for_release(record, here):
                head.skip(record.spec.user)
            elif self._preempt(record, here):
                head.skip(record.spec.user)
                if not to_the_end and self._is_done(turn, here):
                    return
            else:
                walk.drop(leaf)

    def _is_done(self, turn: Turn, here: Chances) -> bool:
        """Whether nothing else can be done in the last turn of a pool, nor depends on who is heard in it."""
        return not here.acts(turn) and not (here.coming and self._acts_beyond(here))

    def _start_unallocated(self) -> None:
        turns = self.facts.waiting.unallocated.turns
        for choice, pool in sorted(turns):
            turn, here = turns.get((choice, pool), {}), self._pool(pool)
            for workload in order.unallocated(turn, here.shares, here.rooms.fits):
                self._start_on_room(self.facts.records[workload], here)

    def _pool(self, pool: PoolName) -> Chances:
        if pool not in self._pools:
            self._pools[pool] = Chances(self.facts, pool)
        return self._pools[pool]

    def _start_on_room(self, record: Record, here: Chances) -> bool:
        leases = here.rooms.place(record.spec.shape, self.facts.policy.blocks)
        if leases is None:
            return False
        leaf = record.spec.allocation
        if record.spec.allocated:
            turn = f"{leaf} ({words.metric(here.shares.metric(leaf))}) was next"
        else:
            turn = "it is unallocated, and nobody else could use the GPUs"
        self._start(record, here.pool, leases, f"{turn}; {words.were(record.gpus)} free on {words.places(leases)}")
        return True

    def _waits_for_release(self, record: Record, here: Chances) -> bool:
        """Whether GPUs that are being released anyway will do: then nobody else need be moved for it."""
        shape = record.spec.shape
        if not here.is_coming(shape):
            return False
        leases = place(self.facts.by_pool[here.pool], shape, self.facts.policy.blocks, here.coming)
        assert leases is not None
        each = asked(shape)
        for lease in leases:
            here.coming.take(lease.node, each.beyond(left(self.facts.nodes[lease.node])))
        return True

    def _preempt(self, record: Record, here: Chances) -> bool:
        found = room_for(self.facts, here, record)
        if found is None:
            return False
        reasons = [(victim, self._why_victim(record, victim, here)) for victim in found.victims]
        validate(self.facts, found, record)
        victims = tuple(victim.record.id for victim in found.victims)
        leaving = words.names(victim.record.label for victim in found.victims)
        why = f"{leaving} must leave {words.places(found.leases)} for it: {reasons[0][1]}"
        debug = any(victim.reason is PreemptReason.DEBUG for victim in found.victims)
        self._do(Reserve(self.cause, record.id, found.leases, here.pool, victims, why, debug))
        for victim, reason in reasons:
            self._notify(victim.record, victim.reason, record.id, reason)
        self._granted(record, here)
        return True

    def _why_victim(self, record: Record, victim: Candidate, here: Chances) -> str:
        mine, theirs = record.spec.allocation, victim.record.spec.allocation
        if victim.reason is PreemptReason.UNALLOCATED:
            return f"{victim.record.label} is unallocated, and {record.label} of {mine} is allocated"
        if victim.reason is PreemptReason.PRIORITY:
            return (
                f"{record.label} has priority {record.spec.priority} in {mine}, above {victim.record.spec.priority}, "
                f"and the protection of {victim.record.label} has ended"
            )
        if victim.reason is PreemptReason.TAKE_LIMIT:
            return (
                f"{theirs} holds more than the {words.gpus(here.take.limit(theirs))} of its take limit while {mine} "
                f"({words.metric(here.shares.metric(mine))}) waits, and the protection of {victim.record.label} has ended"
            )
        if victim.reason is PreemptReason.DEBUG:
            return (
                f"{record.label} is a debug workload ({words.gpus(record.gpus)} for {words.span(record.min_runtime)}), "
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
        if pool in self._pools and record.gpus and had_reservation is None:
            self._granted(record, self._pools[pool])

    def _granted(self, record: Record, here: Chances) -> None:
        here.granted(record)
        for other in self._pools.values():
            if other is not here:
                other.take.granted_elsewhere()
