"""The steps of a pass that are about landings: which are void, who lands now, and who is granted one.

A landing is used in one of three ways. Its owner starts by the ordinary rules, wherever there is room. Or its own nodes
are free, or can be made free by its ordinary rights, before its time. Or its time comes: then everybody who is ready
for it leaves, whatever the ranks are by then. From that moment nobody else starts on what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from gpufair.core import words
from gpufair.core.actions import Action, DropLanding, GrantLanding
from gpufair.core.chances import Chances
from gpufair.core.facts import STAYING, Facts
from gpufair.core.horizon import room_for, surplus
from gpufair.core.landing import Approach, could_land, gpus_of, to_leave
from gpufair.core.model import Lease, PreemptReason, Shape
from gpufair.core.order import Walk
from gpufair.core.placement import admits
from gpufair.core.plan import cheapest, with_horizons
from gpufair.core.preemption import Candidate, candidates, cost_of, rights
from gpufair.core.record import Landing, NodeRecord, Record
from gpufair.core.units import AllocationPath, CauseId, Instant, PoolName, WorkloadId
from gpufair.core.waiting import Turn

# A single GPU is had in its turn as soon as one is free; what is larger could wait for ever for enough at once.
LARGER_THAN: Final = 1


class Deeds(Protocol):
    """What a pass can do, for its parts."""

    def do(self, action: Action) -> None:
        """Decide and apply."""

    def start(self, record: Record, pool: PoolName, leases: tuple[Lease, ...], why: str) -> None:
        """Start somebody."""

    def notify(self, record: Record, reason: PreemptReason, beneficiary: WorkloadId | None, why: str) -> None:
        """Tell somebody to leave."""

    def granted(self, record: Record, here: Chances) -> None:
        """Count what was promised to it."""

    def why_victim(self, record: Record, victim: Candidate, here: Chances) -> str:
        """By which right somebody must leave."""


class Touchdown:
    """Landings in one pass.

    Args:
        facts: What is so.
        cause: Carried into every action.
        deeds: The pass.
        pool: What the pass knows of a pool.
    """

    def __init__(self, facts: Facts, cause: CauseId, deeds: Deeds, pool: Callable[[PoolName], Chances]) -> None:
        self._facts, self._cause, self._deeds, self._pool = facts, cause, deeds, pool

    # -- landings that are there ----------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Drop those that cannot come true. Only nodes and budgets that change make it so."""
        if not self._facts.landings_in_doubt:
            return
        for record in tuple(self._facts.landed.values()):
            why = self._void(record)
            if why:
                self._deeds.do(DropLanding(self._cause, record.id, f"its landing cannot come true: {why}"))
        self._facts.landings_in_doubt = False

    def _void(self, record: Record) -> str:
        landing, facts = record.landing, self._facts
        assert landing is not None
        if not facts.tree[record.spec.allocation].entitlement:
            return f"{record.spec.allocation} has no share any more"
        for lease in landing.leases:
            node = facts.nodes[lease.node]
            if not admits(node, record.spec.shape) or node.node.pool != landing.pool:
                return f"{lease.node} does not take it any more"
            if node.closes_at is not None and landing.start_by + record.min_runtime > node.closes_at:
                return f"{lease.node} is to be closed at {words.moment(node.closes_at)}, before it could be done"
            if any(bound.slack < 0 for bound in node.bounds if bound.owner == record.id):
                return f"{lease.node} has become too small"
        return ""

    def use(self) -> bool:
        """Let owners start, or make room for them, on their own nodes. Says whether that changed anything for others."""
        changed = False
        for record in tuple(self._facts.landed.values()):
            landing = record.landing
            if landing is None or record.reservation is not None:
                continue
            if landing.at <= self._facts.now:
                changed = self._land(record, landing) or changed
            elif self._is_near(landing):
                changed = self._early(record, landing) or changed
        return changed

    def _nodes(self, landing: Landing) -> list[NodeRecord]:
        return [self._facts.nodes[lease.node] for lease in landing.leases]

    def _is_near(self, landing: Landing) -> bool:
        """Whether its nodes would be free if all left who may be told to."""
        running = self._facts.running.get(landing.pool)
        freed = running.freed().gpus if running is not None else {}
        nodes = self._facts.nodes
        return all(nodes[lease.node].free + freed.get(lease.node, 0) >= lease.gpus for lease in landing.leases)

    def _early(self, record: Record, landing: Landing) -> bool:
        facts, until = self._facts, self._facts.protected_until(record)
        wanted, where = record.spec.shape.gpus_per_node, words.places(landing.leases)
        if all(room_for(node, until, record.id) >= wanted for node in self._nodes(landing)):
            why = f"the GPUs of its landing on {where} are free already"
            self._deeds.start(record, landing.pool, landing.leases, why)
            return True
        here = self._pool(landing.pool)
        nodes = self._nodes(landing)
        if not self._may_clear(record, nodes, here):
            return False
        right = rights(facts, here.shares, here.running, record)
        ends = Instant(until + 2 * landing.grace)
        measure = with_horizons(nodes, ends, record.id)
        found = cheapest(nodes, record.spec.shape, candidates(facts, here.shares, right), (), measure)
        if found is None:
            return False
        reasons = [(victim, self._deeds.why_victim(record, victim, here)) for victim in found.victims]
        leaving = words.names(victim.record.label for victim in found.victims)
        gone = {victim.record.id for victim in found.victims}
        staying = {one: None for node in nodes for one, gpus in node.holders.items() if gpus}
        why = f"{leaving} must leave {where} for it before the time of its landing: {reasons[0][1]}"
        self._deeds.do(
            GrantLanding(
                cause=self._cause,
                workload=record.id,
                leases=landing.leases,
                pool=landing.pool,
                at=facts.now,
                start_by=min(landing.start_by, Instant(facts.now + 2 * landing.grace)),
                grace=landing.grace,
                staying=tuple((one, facts.records[one].incarnation) for one in sorted(staying) if one not in gone),
                why=why,
            )
        )
        for victim, reason in reasons:
            self._deeds.notify(victim.record, victim.reason, record.id, reason)
        self._deeds.granted(record, here)
        return True

    def _may_clear(self, record: Record, nodes: list[NodeRecord], here: Chances) -> bool:
        """Whether there would be room on each of these nodes if all left whom it may preempt by rank or priority."""
        # Most could not whatever they promised, and that is known of a leaf for all of its work.
        return self._clears(record, nodes, here, here.outranks(record)) and self._clears(
            record, nodes, here, here.outranked(record)
        )

    def _clears(
        self, record: Record, nodes: list[NodeRecord], here: Chances, outranked: tuple[AllocationPath, ...]
    ) -> bool:
        """The same if these leaves are outranked."""
        records, running, mine = self._facts.records, here.running, record.spec
        for node in nodes:
            room = node.free
            for holder, gpus in node.holders.items():
                leaf = records[holder].spec.allocation
                exposed = holder in running.exposed.get(leaf, ())
                lower = leaf == mine.allocation and mine.priority > records[holder].spec.priority
                if holder in running.unallocated or (exposed and (lower or leaf in outranked)):
                    room += gpus
            if room < mine.shape.gpus_per_node:
                return False
        return True

    def _land(self, record: Record, landing: Landing) -> bool:
        """Its time has come: start it if its nodes are free; else whoever stands in its way and is ready leaves."""
        nodes, wanted, where = self._nodes(landing), record.spec.shape.gpus_per_node, words.places(landing.leases)
        if all(node.free - self._before(node, landing) >= wanted for node in nodes):
            why = f"the time of its landing has come, and its GPUs on {where} are free"
            self._deeds.start(record, landing.pool, landing.leases, why)
            return True
        rooms = {node.node.name: node.free + self._coming(node, landing) for node in nodes}
        if all(room >= wanted for room in rooms.values()):
            return False
        ready = sorted(self._ready(nodes, landing), key=cost_of)
        found = cheapest(nodes, record.spec.shape, ready, (), gpus_of(rooms))
        if found is None:
            if not any(holder in self._facts.leaving for node in nodes for holder in node.holders):
                why = f"its landing cannot come true: not enough is free on {where}, and nobody there is to leave"
                self._deeds.do(DropLanding(self._cause, record.id, why))
            return False
        for victim in found.victims:
            why = f"{record.label} lands on {where} now, and the protection of {victim.record.label} has ended"
            self._deeds.notify(victim.record, PreemptReason.LANDING, record.id, why)
        return False

    def _coming(self, node: NodeRecord, landing: Landing) -> int:
        """GPUs of a node that are being released for it, those for whom landed before it aside."""
        return surplus(self._facts, node, counted_on=True).gpus - self._before(node, landing)

    def _before(self, node: NodeRecord, landing: Landing) -> int:
        """GPUs of a node that are for those whose time came before."""
        gpus = 0
        for owner, needed in node.landings.items():
            other = self._facts.records[owner].landing
            if other is not None and (other.at, other.order) < (landing.at, landing.order):
                gpus += needed
        return gpus

    def _ready(self, nodes: list[NodeRecord], landing: Landing) -> Iterator[Candidate]:
        facts, staying = self._facts, frozenset(landing.staying)
        there = {holder: None for node in nodes for holder, gpus in node.holders.items() if gpus}
        for holder in there:
            record = facts.records[holder]
            if record.phase in STAYING and (holder, record.incarnation) not in staying and facts.exposed(record):
                yield to_leave(facts, record)

    # -- new landings ---------------------------------------------------------------------------------------------

    def grant(self) -> bool:
        """Grant them in the order of the queue. Says whether anybody landed at once."""
        facts = self._facts
        if not facts.policy.landings:
            return False
        landed, full = False, set[PoolName]()
        for choice, pool in sorted(facts.waiting.allocated.turns):
            if pool in full:
                continue
            turn = facts.waiting.allocated.turns.get((choice, pool), {})
            if min((shape.gpus for shape in turn if _is_large(shape)), default=0) > self._left(pool):
                full.add(pool)
                continue
            landed = self._grant_in(turn, self._pool(pool), full) or landed
        return landed

    def _left(self, pool: PoolName) -> float:
        """GPUs that further landings may hold. If there is none yet the first may hold any number."""
        facts = self._facts
        held = [record.gpus for (where, _), record in facts.landed.items() if where == pool]
        return facts.policy.landing_share * facts.capacity(pool) - sum(held) if held else float("inf")

    def _grant_in(self, turn: Turn, here: Chances, full: set[PoolName]) -> bool:
        facts, landed = self._facts, False
        have = {leaf for where, leaf in facts.landed if where == here.pool}
        walk = Walk(facts.ranking, here.shares, turn, _is_large, have)
        nowhere: set[Shape] = set()
        while (leaf := walk.leaf()) is not None:
            step = walk.first(leaf)
            if step is None:
                continue
            head, workload = step
            record = facts.records[workload]
            shape = record.spec.shape
            if not facts.tree[leaf].entitlement:
                walk.done(leaf)
                continue
            if record.reservation is not None or record.landing is not None:
                head.skip(record.spec.user)
                continue
            if here.is_coming(shape, here.until(record.min_runtime)):
                walk.drop(leaf)  # nor does anybody else of its class need one: nothing changes before the leaf is done
                continue
            if record.gpus > self._left(here.pool):
                # Who comes first and needs much would never have his turn if smaller ones went on before him.
                full.add(here.pool)
                return landed
            if shape not in nowhere:
                landing = self._find(record, here)
                if landing is not None:
                    self._deeds.do(landing)
                    if landing.at <= facts.now:
                        self._deeds.granted(record, here)
                        # The deed has written it down: what was read of the record before is no longer so.
                        here_now = facts.records[workload].landing
                        if here_now is not None:
                            self._land(record, here_now)
                        landed = True
                    walk.done(leaf)
                    continue
                nowhere.add(shape)
            walk.drop(leaf)
        return landed

    def _find(self, record: Record, here: Chances) -> GrantLanding | None:
        nodes = self._facts.by_pool.get(here.pool, ())
        if not could_land(nodes, record.spec.shape):
            return None
        return Approach(self._facts, here.shares, record, here.pool).landing(self._cause)


def _is_large(shape: Shape) -> bool:
    return shape.gpus > LARGER_THAN
