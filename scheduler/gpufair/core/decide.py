"""The pass: what to do now. Runs after each event, over the facts, and commits each decision as it is made.

Its steps, in order:

1. settle what the event said about single workloads (queue again, park, end, stop);
2. stop what has overstayed its grace; give up reservations that cannot come true;
3. tell workloads on cordoned nodes to leave as their protection ends;
4. start work without GPUs, which moves nobody (``gpufair.core.cpu_work``);
5. start those whose reserved GPUs are free;
6. let the owners of landings start, or make room for them, on their own nodes (``gpufair.core.touchdown``);
7. walk the allocated queue: start on free GPUs, else preempt;
8. grant landings to those who are blocked; again from 6 if anybody landed at once, or left a landing unused;
9. move sessions that can be restored to join free GPUs for a blocked workload (``gpufair.core.consolidation``);
10. start unallocated work on what is left;
11. move off cordoned nodes those whose owner allows it and for whom there is still room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpufair.core import alone, cpu_work, draining, order, words
from gpufair.core.actions import Action, BeginCheckpoint, Reserve, Start, Unreserve
from gpufair.core.amount import asked, free
from gpufair.core.backoff import rests
from gpufair.core.chances import Chances
from gpufair.core.coming import already_kept, is_complete
from gpufair.core.consolidation import Consolidation
from gpufair.core.facts import Facts
from gpufair.core.horizon import guest_until
from gpufair.core.model import Held, Lease, Phase, PreemptReason
from gpufair.core.order import Walk
from gpufair.core.placement import suits
from gpufair.core.plan import validate
from gpufair.core.preemption import Candidate
from gpufair.core.queue import kept, reserved
from gpufair.core.record import Record
from gpufair.core.rights import room_for
from gpufair.core.settle import overdue, settle
from gpufair.core.touchdown import Touchdown
from gpufair.core.units import AllocationPath, CauseId, PoolName, WorkloadId, after
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
        self._spared: list[tuple[Record, Chances]] = []
        self._landings_ended = 0

    def run(self, touched: Iterable[WorkloadId]) -> list[Action]:
        """Decide. ``touched`` are the workloads that the event was about."""
        for workload in touched:
            self._settle(workload)
        self._keep_deadlines()
        self._release_idle()
        self._give_up_reservations()
        landings = Touchdown(self.facts, self.cause, self, self._pool)
        landings.give_up()
        self._drain()
        cpu_work.start_all(self.facts, self.start)
        self._start_reserved()
        landings.use()
        if not self._start_alone():
            self._serve_queue(landings)
        self._move()
        return self.actions

    def _serve_queue(self, landings: Touchdown) -> None:
        while True:
            before, ended = len(self.actions), self._landings_ended
            self._walk_allocated()
            # Whoever starts elsewhere than on its landing leaves room for those who have had their turn already.
            again = self._landings_ended > ended
            again = (len(self.actions) > before and landings.use()) or again
            if not (landings.grant() or again):
                break
            self._pools.clear()
        Consolidation(self.facts, self.cause, self, self._pool).run()
        self._start_unallocated()

    def do(self, action: Action) -> None:
        """Decide and apply."""
        self._commit(action)
        self.actions.append(action)

    # -- steps 1 to 3 ---------------------------------------------------------------------------------------------

    def _settle(self, workload: WorkloadId) -> None:
        action = settle(self.facts, self.facts.records[workload], self.cause)
        if action is not None:
            self.do(action)

    def _keep_deadlines(self) -> None:
        for workload in sorted(self.facts.leaving):
            stop = overdue(self.facts, self.facts.records[workload], self.cause)
            if stop is not None:
                self.do(stop)

    def _release_idle(self) -> None:
        for record in self.facts.idling.due(self.facts.now, self.facts.records):
            idle = words.span(record.spec.idle_release or 0)
            self.notify(record, PreemptReason.IDLE, None, f"it has run no cell for {idle}: its GPUs are given back")

    def _give_up_reservations(self) -> None:
        for record in kept(self.facts):
            if self._void(record):
                self.do(Unreserve(self.cause, record.id))

    def _void(self, record: Record) -> bool:
        reservation = record.reservation
        assert reservation is not None
        nodes = self.facts.nodes
        if not suits(nodes, reservation.leases, record.spec.shape):
            return True
        for lease in reservation.leases:
            node = nodes[lease.node]
            # A node that came back smaller, or in another pool, cannot keep what it promised.
            if min(node.free, node.cpus_left, node.memory_left) < 0 or node.node.pool != reservation.pool:
                return True
        # It was to be a guest there, and would still be protected when it must have left.
        if reservation.ends is not None and self.facts.protected_until(record) > reservation.ends:
            return True
        # A victim that does not even stop in time must not block the beneficiary: it may choose others.
        victims = [self.facts.records[victim] for victim in reservation.pending]
        if record.phase is not Phase.QUEUED:
            victims.append(record)  # it moves, and waits for nobody but itself
        return any(
            victim.phase is Phase.STOPPING and victim.deadline is not None and victim.deadline <= self.facts.now
            for victim in victims
        )

    def _drain(self) -> None:
        if self.facts.closed:
            for record, reason, why in draining.due(self.facts):
                self.notify(record, reason, None, why)

    def _move(self) -> None:
        if self.facts.closed:
            for record, reason, why in draining.movable(self.facts):
                self.notify(record, reason, None, why)

    def notify(self, record: Record, reason: PreemptReason, beneficiary: WorkloadId | None, why: str) -> None:
        """Tell somebody to leave."""
        deadline = self.facts.deadline(record)
        landing = self.facts.records[beneficiary].landing if beneficiary is not None else None
        if landing is not None:
            deadline = min(deadline, after(self.facts.now, landing.grace))
        self.do(BeginCheckpoint(self.cause, record.id, record.incarnation, deadline, reason, beneficiary, why))

    # -- steps 4 and 5 --------------------------------------------------------------------------------------------

    def _start_reserved(self) -> None:
        for record in reserved(self.facts):
            reservation = record.reservation
            assert reservation is not None
            mine = already_kept(self.facts, record)
            if is_complete(record, mine):
                went = words.names(self.facts.records[victim].label for victim in reservation.victims)
                why = f"the GPUs kept for it on {words.places(reservation.leases)} are free"
                why += f" ({went} left)" if went else f"; {record.notice_why}"
                self.start(record, reservation.pool, reservation.leases, why)
                continue
            # Its victims still leave, but enough has become free elsewhere.
            for pool in record.spec.pools:
                rooms, shape = self.facts.rooms.get(pool), record.spec.shape
                until = self.facts.protected_until(record)
                if rooms is None or not rooms.fits(shape, mine, until):
                    continue
                leases = rooms.place_with(shape, mine, self.facts.policy.blocks, until)
                if leases is not None:
                    self.start(
                        record, pool, leases, f"GPUs on {words.places(leases)} became free before its victims had left"
                    )
                    break

    # -- steps 7 to 10 --------------------------------------------------------------------------------------------

    def _start_alone(self) -> bool:
        """Start whoever waits alone, if it fits at once. Says whether the queue needs no other look."""
        record = alone.alone(self.facts) if not self._pools else None
        if record is not None:
            found = alone.at_once(self.facts, record)
            if found is not None:
                self.start(record, record.spec.pools[0], *found)
        return alone.nobody_waits(self.facts)

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
        self._go_without(beyond=False)
        # What is left goes to those whom the take limit held back.
        for choice, pool in rounds:
            here = self._pool(pool)
            if self._acts_beyond(here):
                turn = here.take.beyond(turns.get((choice, pool), {}))
                self._walk(turn, here, to_the_end=True, beyond=True)
        self._go_without(beyond=True)

    def _go_without(self, beyond: bool) -> None:
        """Those who spared their victims for room in a pool that they name later, and did not get it."""
        spared, self._spared = self._spared, []
        for record, here in spared:
            waits = record.phase is Phase.QUEUED and record.reservation is None
            if waits and (beyond or not here.take.holds_back(record.spec.allocation, record.gpus)):
                self._preempt(record, here, spare=False)

    def _has_room_later(self, record: Record, pool: PoolName) -> bool:
        """Whether there is room for it now in a pool that it names after this one: its turn there is still to come."""
        pools = record.spec.pools
        for other in pools[pools.index(pool) + 1 :]:
            there = self._pool(other)
            if there.rooms.fits(record.spec.shape, until=there.until(record.min_runtime)):
                return True
        return False

    def _acts_beyond(self, here: Chances) -> bool:
        """Whether anybody whom the take limit holds back could do something with what is left."""
        turns = [turn for (_, pool), turn in self.facts.waiting.allocated.turns.items() if pool == here.pool]
        if len(self.facts.waiting.allocated.pools()) > 1:
            # The other pools may yet feed the hungry, so that nobody is held back here.
            return any(here.take.beyond(turn) for turn in turns)
        return any(here.acts_beyond(turn) for turn in turns)

    def _walk(self, turn: Turn, here: Chances, to_the_end: bool, beyond: bool = False) -> None:
        walk = Walk(self.facts.ranking, here.shares, turn, here.hopeful)
        judged: set[AllocationPath] = set()  # since the last thing that was done, or is counted on
        while (leaf := walk.leaf()) is not None:
            if not beyond and leaf not in judged:
                judged.add(leaf)
                if not here.acts_in(leaf, walk.groups(leaf)):
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
                judged.clear()
                if not to_the_end and self._is_done(turn, here):
                    return
            elif self._waits_for_release(record, here):
                judged.clear()
                head.skip(record.spec.user)
            elif self._preempt(record, here):
                judged.clear()
                head.skip(record.spec.user)
                if not to_the_end and self._is_done(turn, here):
                    return
            else:
                walk.drop(leaf)

    def _is_done(self, turn: Turn, here: Chances) -> bool:
        """Whether nothing else can be done in the last turn of a pool, nor depends on who is heard in it."""
        return not here.acts(turn) and not (here.coming and self._acts_beyond(here))

    def _rests(self, workload: WorkloadId) -> bool:
        return rests(self.facts.records[workload], self.facts.now)

    def _start_unallocated(self) -> None:
        turns = self.facts.waiting.unallocated.turns
        for choice, pool in sorted(turns):
            turn, here = turns.get((choice, pool), {}), self._pool(pool)
            for workload in order.unallocated(turn, here.shares, here.fits_as_guest, self._rests):
                self._start_on_room(self.facts.records[workload], here)

    def _pool(self, pool: PoolName) -> Chances:
        if pool not in self._pools:
            self._pools[pool] = Chances(self.facts, pool)
        return self._pools[pool]

    def _start_on_room(self, record: Record, here: Chances) -> bool:
        until = here.until(record.min_runtime)
        leases = here.rooms.place(record.spec.shape, self.facts.policy.blocks, until)
        if leases is None:
            return False
        if record.spec.allocated:
            why = alone.was_next(record, here.shares.metric(record.spec.allocation), leases)
        else:
            why = "it is unallocated, and nobody else could use the GPUs"
            why += f"; {words.were(record.gpus)} free on {words.places(leases)}"
        leaves = guest_until((self.facts.nodes[lease.node] for lease in leases), until)
        if leaves is not None:
            why += f", where it is a guest until {words.moment(leaves)}"
        self.start(record, here.pool, leases, why)
        return True

    def _waits_for_release(self, record: Record, here: Chances) -> bool:
        """Whether GPUs that are being released anyway will do: then nobody else need be moved for it."""
        shape, until = record.spec.shape, here.until(record.min_runtime)
        if not here.is_coming(shape, until):
            return False
        leases = here.rooms.place_with(shape, here.coming, self.facts.policy.blocks, until)
        assert leases is not None
        each = asked(shape)
        for lease in leases:
            here.count_on(lease.node, each.beyond(free(self.facts.nodes[lease.node])))
        return True

    def _preempt(self, record: Record, here: Chances, spare: bool = True) -> bool:
        found = room_for(self.facts, here, record)
        if found is None:
            return False
        if spare and self._has_room_later(record, here.pool):
            self._spared.append((record, here))
            return True
        reasons = [(victim, self.why_victim(record, victim, here)) for victim in found.victims]
        ends = here.ends(record)
        validate(self.facts, found, record, ends)
        victims = tuple(victim.record.id for victim in found.victims)
        leaving = words.names(victim.record.label for victim in found.victims)
        why = f"{leaving} must leave {words.places(found.leases)} for it: {reasons[0][1]}"
        debug = any(victim.reason is PreemptReason.DEBUG for victim in found.victims)
        bounded = any(self.facts.nodes[lease.node].bounds for lease in found.leases)
        self.do(Reserve(self.cause, record.id, found.leases, here.pool, victims, why, debug, ends if bounded else None))
        for victim, reason in reasons:
            self.notify(victim.record, victim.reason, record.id, reason)
        self.granted(record, here)
        return True

    def why_victim(self, record: Record, victim: Candidate, here: Chances) -> str:
        """By which right somebody must leave."""
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
        sides = self.facts.ranking.diverge(mine, theirs)
        assert sides is not None
        ours = here.shares.metric_with(sides[0], record.commitment)
        return (
            f"{sides[0]} ({words.metric(ours)} with {record.label}) is under-served against "
            f"{sides[1]} ({words.metric(here.shares.metric(sides[1]))}), and the protection of "
            f"{victim.record.label} has ended"
        )

    def start(self, record: Record, pool: PoolName, leases: tuple[Lease, ...], why: str) -> None:
        """Start it there."""
        checkpoint = record.checkpoint if record.spec.resumable and record.resume_from_checkpoint else None
        held = Held(leases, pool, record.incarnation + 1, self.facts.now, self.facts.protected_until(record))
        counted = record.reservation is not None or record.lands(self.facts.now)
        elsewhere = record.landing is not None and leases != record.landing.leases
        self.do(Start(self.cause, record.id, held, checkpoint.id if checkpoint is not None else None, why))
        self._landings_ended += elsewhere
        # What was kept for it was counted as committed when this pool's metrics were made.
        if pool in self._pools and record.gpus and not counted:
            self.granted(record, self._pools[pool])

    def granted(self, record: Record, here: Chances) -> None:
        """Count what was promised to it."""
        here.granted(record)
        for other in self._pools.values():
            if other is not here:
                other.take.granted_elsewhere()
