"""The pass as plainly as it can be written: it looks at everything, every time, and remembers nothing.

``gpufair.core.decide`` must decide exactly as this does; ``test_reference_laws`` compares them. Sums over all who hold
GPUs, every class of every leaf, every node: slow, and easy to check against docs/policy.md by eye.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import combinations
from math import inf

from gpufair.core import words
from gpufair.core.actions import Action, BeginCheckpoint, Reserve, Start, Unreserve
from gpufair.core.admission import check, is_stale
from gpufair.core.commit import commit
from gpufair.core.events import (
    ActivityReported,
    CheckpointDone,
    CheckpointFailed,
    Event,
    ExtensionRequested,
    SafePointReached,
    Started,
    TimePassed,
    UtilizationReported,
)
from gpufair.core.facts import LEAVING, STAYING, Facts
from gpufair.core.fading import full_span
from gpufair.core.ledger import PoolLedger
from gpufair.core.model import Held, Hungry, Lease, Phase, Policy, PreemptReason, Shape
from gpufair.core.placement import admits
from gpufair.core.plan import Plan, plan, validate
from gpufair.core.preemption import Candidate, Cost, loss
from gpufair.core.record import NodeRecord, Record
from gpufair.core.recording import record_event
from gpufair.core.sessions import idle_until, judge_extension
from gpufair.core.settle import overdue, settle
from gpufair.core.share import Denominators, Shares
from gpufair.core.tree import ROOT, Tree
from gpufair.core.units import HOUR, AllocationPath, CauseId, GpuMillis, Instant, Millis, NodeName, PoolName, WorkloadId
from gpufair.core.waiting import Line, Queues, Ticket, WaitClass

REPORTS = (
    TimePassed,
    Started,
    ActivityReported,
    CheckpointDone,
    CheckpointFailed,
    SafePointReached,
    UtilizationReported,
)


def handle(facts: Facts, event: Event) -> list[Action]:
    """One event in, actions out, as ``gpufair.core.engine`` does it."""
    check(event, facts)
    if is_stale(event, facts):
        return []
    if isinstance(event, ExtensionRequested):
        judge_extension(facts, facts.record(event.workload), event.min_runtime, event.at)
    due = next_wakeup(facts)
    facts.advance(event.at)
    if isinstance(event, REPORTS) and (due is None or event.at < due):
        record_event(event, facts)
        return []  # what is said in between decides nothing
    return Pass(facts, event.cause, partial(commit, facts=facts)).run(record_event(event, facts))


Commit = Callable[[Action], None]


class PoolPass:
    """What a pass knows of one pool, computed when first needed and kept current as GPUs are granted."""

    def __init__(self, facts: Facts, pool: PoolName) -> None:
        self.facts, self.pool = facts, pool
        self.shares = shares_of(facts, pool)
        self.exposed = Exposed(facts, pool)
        self.coming = coming(facts, pool)


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
        self._spared: list[tuple[Record, PoolPass]] = []

    def run(self, touched: Iterable[WorkloadId]) -> list[Action]:
        """Decide. ``touched`` are the workloads that the event was about."""
        for workload in touched:
            self._settle(workload)
        self._keep_deadlines()
        self._release_idle()
        self._give_up_reservations()
        self._drain()
        self._start_plain()
        self._start_reserved()
        self._walk_allocated()
        self._start_unallocated()
        self._move()
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

    def _release_idle(self) -> None:
        facts = self.facts
        ends = [(end, one.id) for one in facts.holding.values() if (end := idle_until(one)) is not None]
        for end, workload in sorted(ends):
            if end <= facts.now:
                record = facts.records[workload]
                idle = words.span(record.spec.idle_release or 0)
                self._notify(
                    record, PreemptReason.IDLE, None, f"it has run no cell for {idle}: its GPUs are given back"
                )

    def _give_up_reservations(self) -> None:
        for record in _reserved(self.facts):
            if self._void(record):
                self._do(Unreserve(self.cause, record.id))

    def _void(self, record: Record) -> bool:
        reservation = record.reservation
        assert reservation is not None
        shape = record.spec.shape
        nodes = [self.facts.nodes[lease.node] for lease in reservation.leases]
        if shape.block and len({node.node.labels.get(shape.block) for node in nodes}) > 1:
            return True
        for node in nodes:
            # A node that came back smaller, or as another one, cannot keep what it promised.
            if not admits(node, shape) or node.node.pool != reservation.pool:
                return True
            if any(left < 0 for left in free_on(self.facts, node)):
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
            if record.phase not in STAYING:
                continue
            if self.facts.exposed(record):
                self._notify(record, PreemptReason.DRAIN, None, "its node is cordoned and its protection has ended")
                continue
            for node, deadline, force in drains(self.facts, record):
                ended = f"{node} was to be empty by {words.moment(deadline)}"
                if deadline <= self.facts.now and record.spec.movable:
                    self._notify(record, PreemptReason.MOVED, None, f"{ended}, and its owner allows it to be moved")
                    break
                if deadline <= self.facts.now and force:
                    self._notify(record, PreemptReason.FORCED, None, f"{ended}, and an operator forces it")
                    break

    def _move(self) -> None:
        """One in each pool whose owner allows it goes where there is room."""
        for pool in self.facts.pools():
            here = sorted(
                one.id
                for one in self.facts.holding.values()
                if one.held is not None and one.held.pool == pool and one.spec.movable
            )
            if any(self.facts.records[one].notice is PreemptReason.MOVED for one in here):
                continue
            for workload in here:
                record = self.facts.records[workload]
                assert record.held is not None
                nodes = [self.facts.nodes[lease.node] for lease in record.held.leases]
                closed = [node.node.name for node in nodes if node.cordoned or node.lost]
                wanted = record.phase is Phase.RUNNING and any(node.cordoned and not node.lost for node in nodes)
                places = [place(self.facts, other, record.spec.shape) for other in record.spec.pools] if wanted else []
                found = next((leases for leases in places if leases is not None), None)
                if found is not None:
                    room = f"{words.places(found)} had room"
                    why = f"{closed[0]} is to be emptied, its owner allows it to be moved, and {room}"
                    self._notify(record, PreemptReason.MOVED, None, why)
                    break

    def _notify(self, record: Record, reason: PreemptReason, beneficiary: WorkloadId | None, why: str) -> None:
        deadline = self.facts.deadline(record)
        self._do(BeginCheckpoint(self.cause, record.id, record.incarnation, deadline, reason, beneficiary, why))

    # -- steps 4 and 5 --------------------------------------------------------------------------------------------

    def _start_plain(self) -> None:
        waiting = [one for one in self.facts.records.values() if one.phase is Phase.QUEUED and not one.gpus]
        choices = {(choice, pool) for one in waiting for choice, pool in enumerate(one.spec.pools)}
        for choice, pool in sorted(choices):
            left = [one for one in waiting if choice < len(one.spec.pools) and one.spec.pools[choice] == pool]
            while left := [one for one in left if one.phase is Phase.QUEUED]:
                record = first_of_plain(self.facts, left)
                leases = place(self.facts, pool, record.spec.shape)
                if leases is None:
                    left.remove(record)
                else:
                    why = f"it needs no GPUs, and {words.places(leases)} had the fewest workloads"
                    self._start(record, pool, leases, why)

    def _start_reserved(self) -> None:
        for record in _reserved(self.facts):
            reservation = record.reservation
            assert reservation is not None
            mine = {lease.node: kept_on(self.facts, lease.node, record) for lease in reservation.leases}
            if all(mine[lease.node] == asked_of(record) for lease in reservation.leases):
                went = words.names(self.facts.records[victim].label for victim in reservation.victims)
                why = f"the GPUs kept for it on {words.places(reservation.leases)} are free ({went} left)"
                self._start(record, reservation.pool, reservation.leases, why)
                continue
            # Its victims still leave, but enough has become free elsewhere.
            for pool in record.spec.pools:
                leases = place(self.facts, pool, record.spec.shape, mine)
                if leases is not None:
                    self._start(
                        record, pool, leases, f"GPUs on {words.places(leases)} became free before its victims had left"
                    )
                    break

    # -- steps 6 and 7 --------------------------------------------------------------------------------------------

    def _walk_allocated(self) -> None:
        for choice, pool in self._rounds(allocated=True):
            here = self._pool(pool)
            self._walk(Walk(self.facts, pool, choice, here.shares), here, beyond=False)
        self._go_without(beyond=False)
        # What is left goes to those whom the take limit held back.
        for choice, pool in self._rounds(allocated=True):
            here = self._pool(pool)
            walk = Walk(self.facts, pool, choice, here.shares, partial(is_beyond, here))
            self._walk(walk, here, beyond=True)
        self._go_without(beyond=True)

    def _go_without(self, beyond: bool) -> None:
        """Nobody is evicted for those who find room in another pool; who did not get it has his turn again."""
        spared, self._spared = self._spared, []
        for record, here in spared:
            waits = record.phase is Phase.QUEUED and record.reservation is None
            if waits and (beyond or not holds_back(here, record.spec.allocation, record.gpus)):
                self._preempt(record, here, again=True)

    def _walk(self, walk: Walk, here: PoolPass, beyond: bool) -> None:
        while (step := walk.next()) is not None:
            leaf, head, workload = step
            record = self.facts.records[workload]
            if record.reservation is not None:
                head.skip(record.spec.user)
            elif not beyond and holds_back(here, leaf, record.gpus):
                walk.close(leaf, head)
            elif self._start_on_room(record, here):
                pass  # it has left the list
            elif self._waits_for_release(record, here) or self._preempt(record, here):
                head.skip(record.spec.user)
            else:
                walk.close(leaf, head)

    def _start_unallocated(self) -> None:
        for choice, pool in self._rounds(allocated=False):
            here = self._pool(pool)
            for workload in unallocated(self.facts, pool, choice, here.shares):
                self._start_on_room(self.facts.records[workload], here)

    def _rounds(self, allocated: bool) -> list[tuple[int, PoolName]]:
        """(choice, pool): everybody's first choice in each pool by name, then the second choices, and so on."""
        side = self.facts.waiting.allocated.lines if allocated else self.facts.waiting.unallocated.lines
        named = {(choice, pool) for line in side.values() for key in line for choice, pool in enumerate(key.pools)}
        return sorted(named)

    def _pool(self, pool: PoolName) -> PoolPass:
        if pool not in self._pools:
            self._pools[pool] = PoolPass(self.facts, pool)
        return self._pools[pool]

    def _start_on_room(self, record: Record, here: PoolPass) -> bool:
        leases = place(self.facts, here.pool, record.spec.shape)
        if leases is None:
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
        leases = place(self.facts, here.pool, record.spec.shape, here.coming) if here.coming else None
        if leases is None:
            return False
        for lease in leases:
            free = free_on(self.facts, self.facts.nodes[lease.node])
            taken = [max(0, want - max(0, has)) for want, has in zip(asked_of(record), free, strict=True)]
            if any(taken):
                before = here.coming.get(lease.node, NOTHING)
                here.coming[lease.node] = three(has - part for has, part in zip(before, taken, strict=True))
        return True

    def _preempt(self, record: Record, here: PoolPass, again: bool = False) -> bool:
        leaf = record.spec.allocation
        ordinary = candidates(self.facts, here.shares, here.exposed, record)
        if holds_back(here, leaf, record.gpus):
            rights = [[one for one in ordinary if one.reason is not PreemptReason.RANK]]
        else:
            rights = [ordinary, *beyond_limits(self.facts, here, record), debug_candidates(self.facts, here, record)]
        found = None
        for possible in rights:
            found = plan(self.facts, possible, record, here.pool) if possible else None
            if found is not None and keeps_limits(here, found):
                break
            found = None
        if found is None:
            return False
        later = record.spec.pools[record.spec.pools.index(here.pool) + 1 :]
        if not again and any(place(self.facts, pool, record.spec.shape) is not None for pool in later):
            self._spared.append((record, here))
            return True
        reasons = [(victim, self._why_victim(record, victim, here)) for victim in found.victims]
        validate(self.facts, found, record)
        victims = tuple(victim.record.id for victim in found.victims)
        leaving = words.names(victim.record.label for victim in found.victims)
        why = f"{leaving} must leave {words.places(found.leases)} for it: {reasons[0][1]}"
        debug = any(victim.reason is PreemptReason.DEBUG for victim in found.victims)
        self._do(Reserve(self.cause, record.id, found.leases, here.pool, victims, why, debug))
        for victim, reason in reasons:
            self._notify(victim.record, victim.reason, record.id, reason)
        here.shares.grant(leaf, record.commitment, record.spec.user)
        return True

    def _why_victim(self, record: Record, victim: Candidate, here: PoolPass) -> str:
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
                f"{theirs} holds more than the {words.gpus(take_limit(here, theirs))} of its take limit while {mine} "
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

    def _start(self, record: Record, pool: PoolName, leases: tuple[Lease, ...], why: str) -> None:
        checkpoint = record.checkpoint if record.spec.resumable and record.resume_from_checkpoint else None
        held = Held(leases, pool, record.incarnation + 1, self.facts.now, self.facts.protected_until(record))
        had_reservation = record.reservation
        self._do(Start(self.cause, record.id, held, checkpoint.id if checkpoint is not None else None, why))
        # A reservation was counted as committed when this pool's metrics were made.
        if pool in self._pools and record.spec.allocated and record.gpus and had_reservation is None:
            self._pools[pool].shares.grant(record.spec.allocation, record.commitment, record.spec.user)


def _reserved(facts: Facts) -> list[Record]:
    return sorted(facts.reserved.values(), key=_reservation_order)


def _reservation_order(record: Record) -> int:
    return record.reservation.order if record.reservation is not None else 0


@dataclass(slots=True, eq=False)
class Head:
    """How far a pass has come in one class of one leaf."""

    key: WaitClass
    queues: Queues
    passed: dict[str, int] = field(default_factory=dict)  # how many of a researcher's have had their turn and wait on

    def first(self, had: Callable[[str], int]) -> tuple[int, Ticket] | None:
        """The next of its class, with what the researcher has had; None when nobody is left."""
        passed = self.passed
        return min(
            (
                (had(user), tickets[passed.get(user, 0)])
                for user, tickets in self.queues.items()
                if passed.get(user, 0) < len(tickets)
            ),
            default=None,
        )

    def skip(self, user: str) -> None:
        """The first of this researcher has had its turn and waits on."""
        self.passed[user] = self.passed.get(user, 0) + 1


class Walk:
    """Who is next among the allocated workloads that name ``pool`` as their ``choice``-th pool.

    The metrics may change between two steps, as the pass grants GPUs; the next step then goes by the new ones.
    """

    def __init__(
        self,
        facts: Facts,
        pool: PoolName,
        choice: int,
        shares: Shares,
        only: Callable[[AllocationPath, int], bool] = lambda leaf, gpus: True,
    ) -> None:
        self._tree, self._shares = facts.ranking, shares
        self._heads: dict[AllocationPath, list[Head]] = {}
        self._open: dict[AllocationPath, int] = {}
        for leaf in sorted(facts.waiting.allocated.lines):
            heads = [
                head
                for head in _heads(facts.waiting.allocated.lines[leaf], pool, choice)
                if only(leaf, head.key.gpus_per_node * head.key.nodes)
            ]
            if heads:
                self._heads[leaf] = heads
                self._count(leaf, len(heads))

    def next(self) -> tuple[AllocationPath, Head, WorkloadId] | None:
        """Who is first in the best leaf; None when all are done. The caller starts it, skips it or closes its class."""
        while self._open.get(ROOT):
            path = ROOT
            while not self._heads.get(path):
                path = min(
                    (child for child in self._tree[path].children if self._open.get(child)),
                    key=lambda child: (self._shares.metric(child), child),
                )
            found = self._first(path)
            if found is not None:
                return path, *found
        return None

    def _first(self, leaf: AllocationPath) -> tuple[Head, WorkloadId] | None:
        had = partial(self._shares.had, leaf)
        best: tuple[tuple[int, int, Ticket], Head] | None = None
        for head in tuple(self._heads[leaf]):
            first = head.first(had)
            if first is None:
                self.close(leaf, head)
                continue
            rank = (head.key.urgency, *first)
            if best is None or rank < best[0]:
                best = rank, head
        return (best[1], best[0][2].workload) if best is not None else None

    def close(self, leaf: AllocationPath, head: Head) -> None:
        """Nobody else of this class can start in this pass, or nobody is left."""
        self._heads[leaf].remove(head)
        self._count(leaf, -1)

    def _count(self, leaf: AllocationPath, more: int) -> None:
        for path in self._tree[leaf].lineage:
            self._open[path] = self._open.get(path, 0) + more


def _heads(line: Line, pool: PoolName, choice: int) -> list[Head]:
    return [Head(key, line[key]) for key in sorted(line) if len(key.pools) > choice and key.pools[choice] == pool]


def first_of_plain(facts: Facts, waiting: Iterable[Record]) -> Record:
    """Of those without GPUs: from the root the sibling who had the least of its part of CPUs and memory; in a leaf
    priority, then the researcher who had the least, then submission."""
    tree, now = facts.ranking, facts.now
    had: dict[tuple[AllocationPath, str], int] = {}
    for leaf, users in facts.cpu_use.accounts.items():
        for user, account in users.items():
            had[leaf, user] = account.occupancy(now, HOUR) + account.gpus * HOUR

    def rank(record: Record) -> tuple[object, ...]:
        leaf, user = record.spec.allocation, record.spec.user
        line: list[tuple[Fraction | float, str]] = []
        for path in tree[leaf].lineage[1:]:
            below, entitled = tree.leaves_below(path), tree[path].entitlement
            has = sum(part for (other, _), part in had.items() if other in below)
            line.append((has / entitled if entitled else inf, path))
        return line, -record.spec.priority, had.get((leaf, user), 0), record.submitted_at, record.id

    return min(waiting, key=rank)


def unallocated(facts: Facts, pool: PoolName, choice: int, shares: Shares) -> Iterator[WorkloadId]:
    """Unallocated work: by their leaf's metric, leaves of equal metric by submission. The caller starts it, or its
    class is closed."""
    side = facts.waiting.unallocated.lines
    ranked: dict[float, list[list[Ticket]]] = {}
    for leaf in sorted(side):
        for head in _heads(side[leaf], pool, choice):
            ranked.setdefault(shares.metric(leaf), []).extend(head.queues.values())
    for metric in sorted(ranked):
        open_classes = ranked[metric]
        while True:
            first = [(ready[0], tickets) for tickets in open_classes if (ready := _rested(facts, tickets))]
            if not first:
                break
            ticket, tickets = min(first)
            before = len(tickets)
            yield ticket.workload
            if len(tickets) == before:
                open_classes.remove(tickets)


def _rested(facts: Facts, tickets: list[Ticket]) -> list[Ticket]:
    """Those who may start again after their last preemption."""
    return [one for one in tickets if (facts.records[one.workload].not_before or 0) <= facts.now]


class Exposed:
    """Workloads of a pool that could be told to leave at this moment, by leaf. Made once per pass."""

    def __init__(self, facts: Facts, pool: PoolName) -> None:
        self.unallocated: list[Record] = []
        self.by_leaf: dict[AllocationPath, list[Record]] = {}
        for record in staying(facts, pool):
            if not record.spec.allocated:
                self.unallocated.append(record)
            elif facts.exposed(record):
                self.by_leaf.setdefault(record.spec.allocation, []).append(record)


def candidates(facts: Facts, shares: Shares, exposed: Exposed, record: Record) -> list[Candidate]:
    """Everybody whom ``record`` may preempt now, the cheapest first."""
    if not record.spec.allocated:
        return []
    leaf = record.spec.allocation
    found = [_candidate(facts, victim, PreemptReason.UNALLOCATED, 0) for victim in exposed.unallocated]
    found += [
        _candidate(facts, victim, PreemptReason.PRIORITY, 1)
        for victim in exposed.by_leaf.get(leaf, ())
        if record.spec.priority > victim.spec.priority
    ]
    outranked = [
        (shares.metric(other), other)
        for other, victims in exposed.by_leaf.items()
        # A leaf all of whose exposed work was told to leave earlier in this pass is no measure for the bands.
        if any(victim.phase in STAYING for victim in victims)
        and shares.outranks(leaf, other, record.commitment, facts.policy.hysteresis)
    ]
    for other, level in _bands(facts.policy, outranked).items():
        found += [_candidate(facts, victim, PreemptReason.RANK, level) for victim in exposed.by_leaf[other]]
    return sorted((one for one in found if one.record.phase in STAYING), key=_cost)


def take_limit(here: PoolPass, leaf: AllocationPath) -> int:
    """GPUs that a leaf may hold while another is hungry."""
    policy = here.facts.policy
    assert policy.take_limit is not None
    capacity = sum(node.node.gpus for node in here.facts.by_pool.get(here.pool, ()) if not node.lost)
    return max(
        policy.take_least, int(Fraction(str(policy.take_limit)) * here.facts.ranking[leaf].entitlement * capacity)
    )


def held(here: PoolPass, leaf: AllocationPath, leaving: bool = True) -> int:
    """GPUs that a leaf holds in a pool, or that are kept for it; those that it is giving back if they count."""
    return sum(
        record.gpus
        for record in here.facts.records.values()
        if record.spec.allocation == leaf
        and record.spec.allocated
        and (of := record.held or record.reservation) is not None
        and of.pool == here.pool
        and (leaving or record.phase not in LEAVING)
    )


def is_beyond(here: PoolPass, leaf: AllocationPath, gpus: int) -> bool:
    """Whether so many GPUs more would take a leaf beyond its limit."""
    if here.facts.policy.take_limit is None:
        return False
    return held(here, leaf) > 0 and held(here, leaf) + gpus > take_limit(here, leaf)


def hungry(here: PoolPass, leaf: AllocationPath) -> bool:
    """Whether a leaf is."""
    waits = any(
        record.phase is Phase.QUEUED
        and record.reservation is None
        and record.gpus
        and record.spec.allocated
        and record.spec.allocation == leaf
        and here.pool in record.spec.pools
        for record in here.facts.records.values()
    )
    if here.facts.policy.hungry is Hungry.METRIC:
        return waits and here.shares.metric(leaf) < 1
    capacity = sum(node.node.gpus for node in here.facts.by_pool.get(here.pool, ()) if not node.lost)
    return waits and held(here, leaf) < here.facts.ranking[leaf].entitlement * capacity


def holds_back(here: PoolPass, leaf: AllocationPath, gpus: int) -> bool:
    """Whether a leaf may not start so many more, because another one is hungry."""
    return is_beyond(here, leaf, gpus) and any(
        hungry(here, other) for other in here.facts.ranking.leaves if other != leaf
    )


def excess(here: PoolPass, leaf: AllocationPath) -> int:
    """What a leaf keeps beyond its limit."""
    return held(here, leaf, leaving=False) - take_limit(here, leaf)


def beyond_limits(facts: Facts, here: PoolPass, record: Record) -> Iterator[list[Candidate]]:
    """Whom a workload of a hungry leaf may move beside those it outranks: first any, then no more than is beyond."""
    leaf = record.spec.allocation
    if facts.policy.take_limit is None or not hungry(here, leaf) or is_beyond(here, leaf, record.gpus):
        return
    ordinary = candidates(facts, here.shares, here.exposed, record)
    outranked = {one.record.spec.allocation for one in ordinary if one.reason is PreemptReason.RANK}
    beyond = [
        victim
        for other, victims in here.exposed.by_leaf.items()
        for victim in victims
        if other != leaf and other not in outranked and victim.phase in STAYING and victim.gpus <= excess(here, other)
    ]
    leaves = outranked | {victim.spec.allocation for victim in beyond}
    levels = _bands(facts.policy, ((here.shares.metric(other), other) for other in leaves))
    found = [
        _candidate(facts, one.record, one.reason, levels[one.record.spec.allocation])
        if one.reason is PreemptReason.RANK
        else one
        for one in ordinary
    ]
    taken = [_candidate(facts, one, PreemptReason.TAKE_LIMIT, levels[one.spec.allocation]) for one in beyond]
    if not taken:
        return
    yield sorted([*found, *taken], key=_cost)
    left = {other: excess(here, other) for other in leaves}
    kept = []
    for one in sorted(taken, key=_cost):
        if one.record.gpus <= left[one.record.spec.allocation]:
            left[one.record.spec.allocation] -= one.record.gpus
            kept.append(one)
    yield sorted([*found, *kept], key=_cost)


def keeps_limits(here: PoolPass, found: Plan) -> bool:
    """Whether a plan leaves each leaf what its take limit grants it, where nothing else takes that."""
    sums: dict[AllocationPath, int] = {}
    for victim in found.victims:
        if victim.reason is PreemptReason.TAKE_LIMIT:
            leaf = victim.record.spec.allocation
            sums[leaf] = sums.get(leaf, 0) + victim.record.gpus
    return all(gpus <= excess(here, leaf) for leaf, gpus in sums.items())


def debug_candidates(facts: Facts, here: PoolPass, record: Record) -> list[Candidate]:
    """Whom a debug workload may tell to leave for its debug right: small work, whatever its rank; and unallocated."""
    policy, leaf = facts.policy, record.spec.allocation
    if not 0 < record.min_runtime <= policy.debug_min_runtime or record.gpus > policy.debug_gpus:
        return []
    under = [
        other
        for other in facts.records.values()
        if other.debug and here.pool == (other.held or other.reservation or here).pool
    ]
    capacity = sum(node.node.gpus for node in facts.by_pool.get(here.pool, ()) if not node.lost)
    bound = min(policy.debug_most * capacity, max(policy.debug_gpus, policy.debug_share * capacity))
    handed_over = {victim for other in under if other.reservation is not None for victim in other.reservation.pending}

    def stays_within(victim: Record) -> bool:
        rest = [other for other in under if other.id not in handed_over and other is not victim]
        mine = [other for other in rest if other.spec.allocation == leaf]
        all_of_it = record.gpus + sum(other.gpus for other in rest)
        return all_of_it <= bound and record.gpus + sum(other.gpus for other in mine) <= policy.debug_gpus

    found = [_candidate(facts, victim, PreemptReason.UNALLOCATED, 0) for victim in here.exposed.unallocated]
    small = [
        victim
        for victims in here.exposed.by_leaf.values()
        for victim in victims
        if (victim.gpus <= record.gpus + 1 or victim in under) and victim.phase in STAYING and stays_within(victim)
    ]
    levels = _bands(
        facts.policy, ((here.shares.metric(other), other) for other in {victim.spec.allocation for victim in small})
    )
    for victim in small:
        other = victim.spec.allocation
        if other == leaf and record.spec.priority > victim.spec.priority:
            found.append(_candidate(facts, victim, PreemptReason.PRIORITY, 1))
        elif here.shares.outranks(leaf, other, record.commitment, policy.hysteresis):
            found.append(_candidate(facts, victim, PreemptReason.RANK, levels[other]))
        else:
            found.append(_candidate(facts, victim, PreemptReason.DEBUG, levels[other]))
    return sorted((one for one in found if one.record.phase in STAYING), key=_cost)


def _cost(candidate: Candidate) -> Cost:
    return candidate.cost


def _bands(policy: Policy, outranked: Iterable[tuple[float, AllocationPath]]) -> dict[AllocationPath, int]:
    """The level of each leaf: the most over-served and all within a quarter of it first."""
    levels: dict[AllocationPath, int] = {}
    level, top = 1, inf
    for metric, leaf in sorted(outranked, key=lambda pair: (-pair[0], pair[1])):
        if level == 1 or metric < top * (1 - policy.victim_band):
            level, top = level + 1, metric
        levels[leaf] = level
    return levels


def _candidate(facts: Facts, victim: Record, reason: PreemptReason, level: int) -> Candidate:
    return Candidate(victim, reason, level, loss(facts, victim), int(victim.busy), facts.grace(victim))


def shares_of(facts: Facts, pool: PoolName) -> Shares:
    """The metrics of a pool as of now. Reservations count as committed: they will start."""
    commitment: dict[AllocationPath, int] = {}
    promised: dict[tuple[AllocationPath, str], int] = {}

    def promise(record: Record, amount: int) -> None:
        leaf, user = record.spec.allocation, record.spec.user
        commitment[leaf] = commitment.get(leaf, 0) + amount
        promised[leaf, user] = promised.get((leaf, user), 0) + amount

    for record in facts.holding.values():
        held = record.held
        if held is None or held.pool != pool or record.phase not in STAYING or not record.spec.allocated:
            continue
        left = held.protected_until - facts.now
        if left > 0:
            promise(record, left * record.rate)
    for record in facts.reserved.values():
        if record.reservation is not None and record.reservation.pool == pool:
            promise(record, record.commitment)
    ledger = facts.ledgers.get(pool) or PoolLedger()

    def had(leaf: AllocationPath, user: str) -> int:
        committed = promised.get((leaf, user), 0) if facts.policy.commitment else 0
        return ledger.occupancy_of(leaf, user, facts.now, facts.policy.window) + committed

    now, window = facts.now, facts.policy.window
    owed = {leaf: account.within(now, window) for leaf, account in ledger.owed.items()}
    wanted = {leaf: account.demand for leaf, account in ledger.owed.items()}
    denominators = Denominators(
        tree=facts.ranking,
        banking=facts.policy.banking,
        newcomer=facts.policy.newcomer,
        capacity=facts.worth(pool),
        elapsed=ledger.capacity.occupancy(now, window),
        window=full_span(facts.policy),
        owed=summed(facts.ranking, owed),
        demand=summed(facts.ranking, wanted),
    )
    return Shares(
        tree=facts.ranking,
        occupancy=occupancies(ledger, facts.ranking, facts.now, facts.policy.window),
        commitment=summed(facts.ranking, commitment),
        capacity=facts.capacity(pool),
        window=full_span(facts.policy),
        count_commitment=facts.policy.commitment,
        researchers=had,
        denominators=denominators,
    )


def summed(tree: Tree, own: dict[AllocationPath, int]) -> dict[AllocationPath, int]:
    """A figure of the leaves for every tree node."""
    result = dict.fromkeys((node.path for node in tree.nodes()), 0)
    for leaf, amount in own.items():
        for path in tree[tree.nearest(leaf)].lineage:
            result[path] += amount
    return result


def staying(facts: Facts, pool: PoolName) -> Iterator[Record]:
    """Workloads that run in a pool and hold GPUs and have not been told to leave, by id."""
    for workload in sorted(facts.holding):
        record = facts.holding[workload]
        if record.phase in STAYING and record.gpus and record.held is not None and record.held.pool == pool:
            yield record


Three = tuple[int, int, int]  # GPUs, CPUs, bytes of memory
NOTHING: Three = (0, 0, 0)
NOT_COUNTED = 10**30


def three(parts: Iterable[int]) -> Three:
    """GPUs, CPUs and memory from three numbers."""
    gpus, cpus, memory = parts
    return gpus, cpus, memory


def asked_of(record: Record) -> Three:
    """What a workload takes of each of its nodes."""
    shape = record.spec.shape
    return shape.gpus_per_node, shape.cpus_per_node, shape.memory_per_node


def owned_by(node: NodeRecord) -> Three:
    """All that a node has."""
    cpus, memory = node.node.cpus, node.node.memory
    return node.node.gpus, NOT_COUNTED if cpus is None else cpus, NOT_COUNTED if memory is None else memory


def counts(node: NodeRecord, amount: Three) -> Three:
    """An amount without what the node does not count."""
    return three(0 if has == NOT_COUNTED else part for has, part in zip(owned_by(node), amount, strict=True))


def kept_on(facts: Facts, name: NodeName, owner: Record) -> Three:
    """What is free already of what is reserved for a workload on one node."""
    assert owner.reservation is not None
    node, here = facts.nodes[name], list(asked_of(owner))
    for victim in owner.reservation.pending:
        if victim in node.holders:
            here = [has - part for has, part in zip(here, counts(node, asked_of(facts.records[victim])), strict=True)]
    return three(max(0, has) for has in here)


def free_on(facts: Facts, node: NodeRecord) -> Three:
    """What is neither held nor kept on an open node."""
    taken = [asked_of(facts.records[holder]) for holder in node.holders]
    taken += [kept_on(facts, node.node.name, facts.records[owner]) for owner in node.claims]
    return three(has - sum(part[index] for part in taken) for index, has in enumerate(owned_by(node)))


def place(
    facts: Facts, pool: PoolName, shape: Shape, extra: dict[NodeName, Three] | None = None
) -> tuple[Lease, ...] | None:
    """The best of all sets of nodes on which a shape has room, with ``extra`` there as well: every set is looked at."""
    wanted = (shape.gpus_per_node, shape.cpus_per_node, shape.memory_per_node)
    rooms: dict[NodeName, int] = {}
    for node in facts.by_pool.get(pool, ()):
        more = (extra or {}).get(node.node.name, NOTHING)
        free = three(has + part for has, part in zip(free_on(facts, node), more, strict=True))
        if admits(node, shape) and all(has >= want for has, want in zip(free, wanted, strict=True) if want):
            rooms[node.node.name] = free[0]
    sets = [names for names in combinations(sorted(rooms), shape.nodes) if _one_value(facts, names, shape.block)]
    best = min(sets, key=lambda names: _looseness(facts, rooms, names, shape), default=None)
    return tuple(Lease(name, shape.gpus_per_node) for name in best) if best is not None else None


def _one_value(facts: Facts, names: tuple[NodeName, ...], label: str) -> bool:
    """Whether nodes lie in one block of a label."""
    values = {facts.nodes[name].node.labels.get(label) for name in names}
    return not label or (len(values) == 1 and None not in values)


def _looseness(
    facts: Facts, rooms: dict[NodeName, int], names: tuple[NodeName, ...], shape: Shape
) -> tuple[object, ...]:
    """The smaller, the better a set of nodes suits: in a block of an early label, which is tight; then itself tight."""
    labels = (*facts.policy.blocks, "") if shape.nodes > 1 else ("",)
    rank = next(rank for rank, label in enumerate(labels) if _one_value(facts, names, label))
    shared = [label for label in (shape.block, labels[rank]) if label]
    mine = [facts.nodes[names[0]].node.labels[label] for label in shared]
    inside = [name for name in rooms if [facts.nodes[name].node.labels.get(label) for label in shared] == mine]
    return (
        rank,
        sum(rooms[name] for name in inside),
        mine,
        sorted(_tightness(facts, rooms, name, shape) for name in names),
    )


def _tightness(facts: Facts, rooms: dict[NodeName, int], name: NodeName, shape: Shape) -> tuple[int, int, NodeName]:
    node = facts.nodes[name]
    if shape.gpus_per_node:
        return rooms[name], 0, name
    return int(node.node.gpus > 0), len(node.holders), name


def coming(facts: Facts, pool: PoolName) -> dict[NodeName, Three]:
    """What of each open node is being released and no reservation waits for.

    A workload that overstays its deadline is not counted on: whoever waits may then move somebody else.
    """
    surplus: dict[NodeName, Three] = {}
    for record in facts.holding.values():
        if record.phase not in LEAVING or record.held is None or record.held.pool != pool:
            continue
        if record.deadline is None or record.deadline <= facts.now:
            continue
        for lease in record.held.leases:
            if facts.nodes[lease.node].open:
                before = surplus.get(lease.node, NOTHING)
                surplus[lease.node] = three(has + part for has, part in zip(before, asked_of(record), strict=True))
    found: dict[NodeName, Three] = {}
    for name, released in sorted(surplus.items()):
        amount = released
        for owner in map(facts.records.__getitem__, facts.nodes[name].claims):
            awaited = [want - has for want, has in zip(asked_of(owner), kept_on(facts, name, owner), strict=True)]
            amount = three(has - part for has, part in zip(amount, awaited, strict=True))
        found[name] = three(max(0, part) for part in amount)
    return {name: amount for name, amount in found.items() if any(amount)}


def occupancies(ledger: PoolLedger, tree: Tree, now: Instant, window: Millis) -> dict[AllocationPath, GpuMillis]:
    """Occupancy of every tree node: its own account and all below it, dropped allocations included."""
    result = dict.fromkeys((node.path for node in tree.nodes()), 0)
    for path in sorted(ledger.accounts):
        occupancy = ledger.accounts[path].occupancy(now, window)
        if occupancy:
            for above in tree[tree.nearest(path)].lineage:
                result[above] += occupancy
    return {path: GpuMillis(occupancy) for path, occupancy in result.items()}


def drains(facts: Facts, record: Record) -> Iterator[tuple[NodeName, Instant, bool]]:
    """The nodes of a workload that are to be empty by a moment, with it, and whether by force."""
    for lease in record.held.leases if record.held is not None else ():
        drain = facts.nodes[lease.node].drain
        if drain is not None and drain.deadline is not None and not facts.nodes[lease.node].lost:
            yield lease.node, drain.deadline, drain.force


def next_wakeup(facts: Facts) -> Instant | None:
    """The earliest moment at which a pass could decide something; None if only an event can.

    A protection that ends matters to somebody who could preempt, or to a drain. The grid matters while somebody waits
    who could preempt by rank: the window slides, so the ranks change with time alone. It is finer in a pool in which a
    checkpoint is in flight.
    """
    waiting_pools = {pool for line in facts.waiting.allocated.lines.values() for key in line for pool in key.pools}
    # Those with a reservation need no grid, but they wait for victims to leave.
    somebody_waits = facts.waiting.length > 0
    cordoned = {workload for node in facts.nodes.values() if node.cordoned for workload in node.holders}
    moments: list[int] = [end for one in facts.holding.values() if (end := idle_until(one)) is not None]
    moments += [
        one.not_before
        for one in facts.records.values()
        if one.phase is Phase.QUEUED and one.not_before is not None and one.not_before > facts.now
    ]
    # Pools in which time alone can change a decision, and those in which a checkpoint is in flight.
    sliding: set[PoolName] = set()
    saving: set[PoolName] = set()
    for record in facts.holding.values():
        held = record.held
        assert held is not None
        if record.phase in STAYING:
            wanted = record.gpus > 0 and held.pool in waiting_pools
            if held.protected_until > facts.now:
                if wanted or record.id in cordoned:
                    moments.append(held.protected_until)
                for _, deadline, force in drains(facts, record):
                    if facts.now < deadline < held.protected_until and (force or record.spec.movable):
                        moments.append(deadline)
            elif wanted and record.spec.allocated:
                sliding.add(held.pool)
            continue
        if record.phase is Phase.CHECKPOINTING:
            saving.add(held.pool)
        # A stop has no further deadline, but once it is late nobody counts on its GPUs any more.
        due = record.phase is Phase.CHECKPOINTING or (record.phase is Phase.STOPPING and somebody_waits)
        if due and record.deadline is not None:
            if record.phase is Phase.CHECKPOINTING and record.deadline <= facts.now:
                moments.append(facts.now + 1)  # a grace of nothing is over at the next instant
            elif record.deadline > facts.now:
                moments.append(record.deadline)
    policy = facts.policy
    for pool in sliding:
        grid = min(policy.grid, policy.grid_checkpoint) if pool in saving else policy.grid
        moments.append((facts.now // grid + 1) * grid)
    return Instant(min(moments)) if moments else None
