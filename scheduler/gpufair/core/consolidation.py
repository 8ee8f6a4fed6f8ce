"""Consolidation: sessions that can be restored move to other nodes of their pool, to join free GPUs for one who waits.

Free GPUs that are scattered over nodes are of no use to a workload that needs more of them on one node. If sessions on
a node have room elsewhere now, and moving them loses fewer GPU-seconds than the workload would wait for, they move. It
is no eviction: their new place is kept for them from the notice on, they are never parked for it, they have what was
left of their protection there, and it counts as a preemption for nobody. One move of a pool is in flight at a time, and
nobody is moved twice in the same protection, nor soon after a start, so that nothing goes back and forth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpufair.core import words
from gpufair.core.actions import Reserve
from gpufair.core.amount import Freed
from gpufair.core.chances import Chances
from gpufair.core.coming import coming
from gpufair.core.estimate import Forecasts
from gpufair.core.facts import Facts, left_of
from gpufair.core.horizon import room_for
from gpufair.core.model import Kind, Lease, Phase, PreemptReason, Shape
from gpufair.core.order import Walk
from gpufair.core.placement import admits
from gpufair.core.plan import cheapest, with_horizons
from gpufair.core.preemption import Candidate, candidate, cost_of
from gpufair.core.record import NodeRecord, Record
from gpufair.core.rights import room_for as right_for
from gpufair.core.rooms import Rooms
from gpufair.core.touchdown import Deeds
from gpufair.core.units import CauseId, GpuMillis, Instant, NodeName, PoolName, since

# Who wants one GPU finds it wherever one is free.
SCATTERED_FROM = 2


@dataclass(frozen=True, slots=True)
class Move:
    """One who moves, and where to."""

    who: Candidate
    to: Lease
    ends: Instant | None  # when his protection will have ended there, where horizons make that matter


@dataclass(frozen=True, slots=True)
class Moves:
    """What joins enough GPUs of one node, and the GPU time that it loses."""

    lease: Lease
    moves: tuple[Move, ...]
    loss: GpuMillis


class Consolidation:
    """Moves in one pass.

    Args:
        facts: What is so.
        cause: Carried into every action.
        deeds: The pass.
        pool: What the pass knows of a pool.
    """

    def __init__(self, facts: Facts, cause: CauseId, deeds: Deeds, pool: Callable[[PoolName], Chances]) -> None:
        self._facts, self._cause, self._deeds, self._pool = facts, cause, deeds, pool
        # Known until something is moved.
        self._coming: dict[PoolName, Freed] = {}
        self._fits: dict[tuple[PoolName, Shape, Instant], bool] = {}

    def run(self) -> None:
        """For the first of each pool who is blocked by scattered GPUs alone."""
        facts = self._facts
        if not facts.policy.consolidation:
            return
        looked: set[PoolName] = set()
        for choice, pool in sorted(facts.waiting.allocated.turns):
            if pool in looked:
                continue
            rooms = facts.rooms.get(pool) or Rooms()
            free = rooms.free
            shapes = {
                shape
                for shape in facts.waiting.allocated.turns.get((choice, pool), {})
                if SCATTERED_FROM <= shape.gpus <= free and shape.nodes == 1 and not shape.counted
            }
            if not shapes or self._in_flight(pool):
                continue
            found = self._movable(pool)
            if not found:
                looked.add(pool)
                continue
            last = all(other != pool for later, other in facts.waiting.allocated.turns if later > choice)
            if last and not self._could_join(min(shape.gpus for shape in shapes), pool, found):
                continue
            record = self._first(choice, pool, {shape for shape in shapes if not self._all_will_fit(shape, pool)})
            if record is not None:
                looked.add(pool)
                self._move_for(record, self._pool(pool), found)
                self._coming.clear()
                self._fits.clear()

    def _could_join(self, gpus: int, pool: PoolName, found: dict[NodeName, list[Record]]) -> bool:
        """Whether so many GPUs of a node could be joined, whoever asks: enough may move there, and there is enough
        elsewhere."""
        free = {node.node.name: node.free for node in self._facts.by_pool[pool] if node.free > 0}
        whole = sum(free.values())
        for name, here in found.items():
            missing = gpus - self._facts.nodes[name].free
            if missing <= whole - free.get(name, 0) and missing <= sum([one.gpus for one in here]):
                return True
        return False

    def _in_flight(self, pool: PoolName) -> bool:
        """Whether somebody of a pool is on the move already: two must not count on the same room."""
        leaving = self._facts.leaving.values()
        moving = (PreemptReason.CONSOLIDATION, PreemptReason.MOVED)
        return any(one.notice in moving and one.held is not None and one.held.pool == pool for one in leaving)

    def _movable(self, pool: PoolName) -> dict[NodeName, list[Record]]:
        """Whom one may move, by node."""
        facts, found = self._facts, dict[NodeName, list[Record]]()
        running = facts.running.get(pool)
        if running is None:
            return found
        for record in (running.restorable if facts.policy.consolidate_batch else running.sessions).values():
            if may_move(facts, record) and record.held is not None:
                found.setdefault(record.held.leases[0].node, []).append(record)
        return found

    def _first(self, choice: int, pool: PoolName, shapes: set[Shape]) -> Record | None:
        """The first in the order of the queue for whom nothing else can be done now."""
        facts, here = self._facts, self._pool(pool)
        walk = Walk(
            facts.ranking, here.shares, facts.waiting.allocated.turns.get((choice, pool), {}), shapes.__contains__
        )
        while (leaf := walk.leaf()) is not None:
            step = walk.first(leaf)
            if step is None:
                continue
            head, workload = step
            record = facts.records[workload]
            if record.reservation is not None or record.lands(facts.now):
                head.skip(record.spec.user)
            elif here.take.holds_back(leaf, record.gpus) or not facts.tree[leaf].entitlement:
                walk.drop(leaf)
            elif self._is_blocked(record):
                return record
            else:
                walk.drop(leaf)  # what can be done for one of a class can be done for the others
        return None

    def _is_blocked(self, record: Record) -> bool:
        for pool in record.spec.pools:
            here = self._pool(pool)
            if self._will_fit(record.spec.shape, here, here.until(record.min_runtime)):
                return False
            if right_for(self._facts, here, record) is not None:
                return False
        return True

    def _all_will_fit(self, shape: Shape, pool: PoolName) -> bool:
        """Whether nobody is blocked here who asks for a shape: whoever stays the longest would fit, so all others would.
        Then none of its classes need be looked at."""
        spans, here = self._facts.waiting.allocated.spans.get((pool, shape)), self._pool(pool)
        return spans is not None and self._will_fit(shape, here, here.until(spans.ends[1]))

    def _will_fit(self, shape: Shape, here: Chances, until: Instant) -> bool:
        """Whether there is room for a shape, or will be once all have left who are leaving. All that is coming counts,
        also what the walk has set aside for somebody: it may be for this one."""
        known = self._fits.get((here.pool, shape, until))
        if known is None:
            if here.pool not in self._coming:
                self._coming[here.pool] = coming(self._facts, here.pool)
            rooms = here.rooms
            known = rooms.fits(shape, until=until) or rooms.fits(shape, self._coming[here.pool], until)
            self._fits[here.pool, shape, until] = known
        return known

    # -- the plan -------------------------------------------------------------------------------------------------

    def _move_for(self, record: Record, here: Chances, found: dict[NodeName, list[Record]]) -> None:
        open_nodes = [node for node in self._facts.by_pool[here.pool] if node.free > 0]  # nobody moves to any other
        whole = sum(node.free for node in open_nodes)
        plans = [
            plan
            for name, there in found.items()
            if (plan := self._plan(record, here, self._facts.nodes[name], open_nodes, whole, there))
        ]
        best = min(plans, key=lambda one: (one.loss, len(one.moves), one.lease.node), default=None)
        if best is None:
            return
        wait = self._wait(record, here.pool)
        if best.loss >= record.gpus * wait:
            return
        self._carry_out(record, here, best, wait)

    def _plan(
        self,
        record: Record,
        here: Chances,
        node: NodeRecord,
        open_nodes: list[NodeRecord],
        whole: int,
        there: list[Record],
    ) -> Moves | None:
        """What joins enough GPUs of this node, if some of those who are ``there`` go; None if there is no room elsewhere
        for as many as would have to. ``whole`` is what is free on all nodes."""
        shape = record.spec.shape
        if not admits(node, shape):
            return None
        # Most nodes have too few who may move, or there is too little elsewhere for as many as would have to.
        missing, elsewhere = shape.gpus - node.free, whole - max(0, node.free)
        if elsewhere < missing or sum([one.gpus for one in there]) < missing:
            return None
        others = [other for other in open_nodes if other is not node]
        may = sorted([candidate(self._facts, one, PreemptReason.CONSOLIDATION, 0) for one in there], key=cost_of)
        mobile = [one for one in may if self._place(one.record, here, others, {}) is not None]
        plan = cheapest([node], shape, mobile, (), with_horizons([node], here.ends(record)))
        if plan is None or not plan.victims:
            return None
        taken: dict[NodeName, int] = {}
        moves: list[Move] = []
        # The large ones first: they have the fewest places to go to.
        for one in sorted(plan.victims, key=lambda one: (-one.record.gpus, one.cost)):
            move = self._place(one.record, here, others, taken)
            if move is None:
                return None
            taken[move.node] = taken.get(move.node, 0) + move.gpus
            bounded = bool(self._facts.nodes[move.node].bounds)
            moves.append(Move(one, move, here.ends_after(left_of(self._facts, one.record)) if bounded else None))
        return Moves(plan.leases[0], tuple(moves), GpuMillis(sum(one.loss for one in plan.victims)))

    def _place(
        self, record: Record, here: Chances, nodes: list[NodeRecord], taken: dict[NodeName, int]
    ) -> Lease | None:
        """The tightest other node that has room for one who moves, with so much taken by others who move."""
        until, gpus = here.ends_after(left_of(self._facts, record)), record.gpus
        best: tuple[bool, int, NodeName] | None = None
        for node in nodes:
            name = node.node.name
            room = room_for(node, until) - taken.get(name, 0)
            if room >= gpus and admits(node, record.spec.shape):
                best = min(best or (True, room + 1, name), (bool(node.bounds), room, name))
        return Lease(best[2], gpus) if best is not None else None

    def _wait(self, record: Record, pool: PoolName) -> int:
        """How long it would have to wait else, in milliseconds."""
        facts = self._facts
        if record.landing is not None:
            return since(record.landing.start_by, facts.now)
        at = Forecasts(facts, lambda one: self._pool(one).shares).of(record.spec.allocation, pool).start(record)
        # Nobody knows, if others must end by themselves first: the longest protection that there is.
        return facts.policy.max_min_runtime if at is None else max(0, at - facts.now)

    def _carry_out(self, record: Record, here: Chances, plan: Moves, wait: int) -> None:
        facts, lease = self._facts, plan.lease
        names = words.names(move.who.record.label for move in plan.moves)
        places = words.places(sorted((Lease(name, 0) for name in {move.to.node for move in plan.moves}), key=_by_node))
        cost = f"that loses {words.gpu_time(plan.loss)}, and else it would wait for up to {words.span(wait)}"
        why = f"{names} can move from {lease.node} to {places}: {cost}"
        ends = here.ends(record) if facts.nodes[lease.node].bounds else None
        victims = tuple(move.who.record.id for move in plan.moves)
        self._deeds.do(Reserve(self._cause, record.id, (lease,), here.pool, victims, why, False, ends))
        for move in plan.moves:
            told = (
                f"it is moved to {move.to.node}, where GPUs are kept for it, so that {record.label} "
                f"({words.gpus(record.gpus)}) fits on {lease.node}"
            )
            self._deeds.notify(move.who.record, PreemptReason.CONSOLIDATION, record.id, told)
        for move in plan.moves:
            kept = f"it is moved from {lease.node} to make room for {record.label}"
            self._deeds.do(Reserve(self._cause, move.who.record.id, (move.to,), here.pool, (), kept, False, move.ends))
        self._deeds.granted(record, here)


def may_move(facts: Facts, record: Record) -> bool:
    """Whether somebody who runs may be moved now."""
    held, policy = record.held, facts.policy
    # Most are protected, and their owners do not allow it.
    if held is None or not (record.spec.movable or facts.exposed(record)):
        return False
    if record.phase is not Phase.RUNNING or record.debug:
        return False
    if record.spec.kind is not Kind.SESSION and not policy.consolidate_batch:
        return False
    if facts.now < held.granted_at + policy.consolidation_rest or facts.now < (record.settles_until or 0):
        return False
    # If it was extended, it could not ask for as much again.
    return left_of(facts, record) <= record.spec.min_runtime


def _by_node(lease: Lease) -> NodeName:
    return lease.node
