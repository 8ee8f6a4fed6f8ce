"""What a pass knows of one pool, and for whom it could do anything at all.

Most events change nothing for those who wait. The pass finds that out here from sums, and then looks at nobody:

- A shape for which there would not be room even if everybody left who may be told to (``hopeful`` is false) cannot be
  started, cannot wait for GPUs that are coming, and nobody can be preempted for it. Rooms, exposed work and coming
  GPUs only shrink while a pass grants, so this holds for the rest of the pass.
- A pass changes something first through some workload, with the metrics as they were at its beginning. If at these
  metrics nobody could start, and nobody could preempt (``acts`` is false), then there is no first one. The same holds
  again after each thing it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from gpufair.core.amount import Amount, Freed
from gpufair.core.coming import coming
from gpufair.core.debug import DebugBudget, is_debug, largest_victim
from gpufair.core.facts import Facts
from gpufair.core.horizon import FOREVER
from gpufair.core.metrics import Metrics
from gpufair.core.model import Shape
from gpufair.core.record import Record
from gpufair.core.rivals import Rivals
from gpufair.core.rooms import Rooms
from gpufair.core.running import Movers, Running, sum_up
from gpufair.core.share import Shares
from gpufair.core.take import TakeLimit
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName, WorkloadId
from gpufair.core.waiting import Group, Turn

NOTHING: Final[Mapping[AllocationPath, int]] = MappingProxyType({})


class Chances:
    """The chances of those who wait for one pool, kept current by the pass as it grants."""

    def __init__(self, facts: Facts, pool: PoolName, shares: Shares | None = None) -> None:
        self.pool = pool
        self._metrics = Metrics(facts, pool, shares)
        self._take: TakeLimit | None = None
        self._debug: DebugBudget | None = None
        self._own: set[AllocationPath] | None = None
        self._moving: set[AllocationPath] | None = None
        self._reach: tuple[int, Movers] | None = None  # as of so many changes of those who run
        self.rooms = facts.rooms.get(pool) or Rooms()
        self.running = facts.running.get(pool) or Running()
        self.coming = coming(facts, pool)
        self._facts = facts
        self._hopeful: dict[Shape, bool] = {}
        self._earliest: dict[Shape, Instant] = {}
        self._spans: dict[Shape, int] = {}
        self._hopeless: set[Shape] = set()
        # (priority, promised GPU time) of those in a leaf who may preempt nobody, or too few for their shape. Who has
        # no more priority and asks for no less protection may not either, as long as nothing is granted.
        self._harmless: dict[tuple[AllocationPath, Shape | None], list[tuple[int, int]]] = {}
        self._fits: dict[tuple[Shape, Instant], bool] = {}  # by shape and end of protection
        self._sum: tuple[tuple[Freed, int, bool], Freed] | None = None  # of what, and it
        self._compared: tuple[int, Rivals] | None = None  # as of so many changes of those who run
        self._fits_debug: dict[tuple[Shape, Instant, tuple[WorkloadId, ...], bool], bool] = {}
        # By shape and end of protection, since the rooms were changed so often.
        self._fits_coming: dict[tuple[Shape, Instant], bool] = {}
        self._rooms_then = self.rooms.changes

    @property
    def shares(self) -> Shares:
        """The metrics."""
        return self._metrics.shares

    @property
    def take(self) -> TakeLimit:
        """Who is beyond his take limit, and who is hungry."""
        if self._take is None:
            self._take = TakeLimit(self._facts, self.pool, self.running, self._metrics)
        return self._take

    @property
    def debug(self) -> DebugBudget:
        """What may still be started under the debug right."""
        if self._debug is None:
            self._debug = DebugBudget(self._facts, self.pool)
        return self._debug

    @property
    def _rivals(self) -> Rivals:
        """Who outranks whom among those who wait and those who may be told to leave."""
        known = self._compared
        if known is None or known[0] != self.running.changes:
            new = Rivals(self._facts.ranking, self.shares, self.running.exposed, self._facts.policy.hysteresis)
            known = self._compared = self.running.changes, new
        return known[1]

    @property
    def _superiors(self) -> set[AllocationPath]:
        """The leaves in which somebody waits with a higher priority than exposed work of the same leaf."""
        if self._own is None:
            tops, exposed = self._facts.waiting.allocated.tops, self.running.exposed
            self._own = {leaf for leaf in exposed if leaf in tops and tops[leaf] > self.running.lowest(leaf)}
        return self._own

    @property
    def _movers(self) -> set[AllocationPath]:
        """These, and the leaves that are ahead of some leaf with exposed work, and those that are hungry while somebody
        is beyond his take limit."""
        if self._moving is None:
            self._moving = self._rivals.ahead() | self._superiors
            if self.take.over:
                self._moving |= self.take.hungry
        return self._moving

    def _in_reach(self, shape: Shape) -> bool:
        """Whether there would be room for a shape if all left whom any leaf may move by rank or by the take limit."""
        known = self._reach
        if known is None or known[0] != self.running.changes:
            exposed, outranked = self.running.exposed, self._rivals.reached(self._facts.waiting.allocated.lines)
            excess = tuple((leaf, gpus) for leaf, gpus in self.take.over.items() if leaf in exposed)
            everybody = tuple(leaf for leaf in exposed if leaf in outranked), None, excess
            known = self._reach = self.running.changes, everybody
        movable = bool(known[1][0] or known[1][2])
        return movable and self.fits_without(known[1], shape, self._later(self.earliest(shape)))

    def granted(self, record: Record) -> None:
        """The pass has started it, or keeps GPUs for it."""
        if record.spec.allocated:
            self.shares.grant(record.spec.allocation, record.commitment, record.spec.user)
            self.take.granted(record.spec.allocation)
        self._hopeful.clear()
        self._harmless.clear()
        self._fits.clear()
        self._fits_debug.clear()
        self._debug = self._own = self._moving = self._reach = self._compared = None

    def hopeful(self, shape: Shape) -> bool:
        """Whether this pass may still start or preempt for a shape, or let it wait for GPUs that are coming."""
        if shape in self._hopeless:
            return False
        known = self._hopeful.get(shape)
        if known is None:
            known = self._hopeful[shape] = self.rooms.fits(shape, self._all(shape.counted), self.earliest(shape))
            if not known:
                self._hopeless.add(shape)
        return known

    def _all(self, rest: bool) -> Freed:
        """What there would be beside what is free if everybody left who may be told to, with all that is coming."""
        freed = self.running.freed()
        if not self.coming:
            return freed
        about = freed, self.coming.taken, rest
        if self._sum is None or self._sum[0] != about:
            self._sum = about, freed.and_also(self.coming, rest=rest)
        return self._sum[1]

    def is_coming(self, shape: Shape, until: Instant | None = None) -> bool:
        """Whether there will be room for a shape once all have left who are leaving anyway: for somebody whose protection
        would end then, or for the shortest that asks for it."""
        if not self.coming:
            return False
        if self._rooms_then != self.rooms.changes:
            self._fits_coming.clear()
            self._rooms_then = self.rooms.changes
        asked = shape, self.earliest(shape) if until is None else until
        known = self._fits_coming.get(asked)
        if known is None:
            known = self._fits_coming[asked] = self.rooms.fits(shape, self.coming, asked[1])
        return known

    def count_on(self, name: NodeName, part: Amount) -> None:
        """Somebody waits for this part of what is coming: it is nobody else's any more."""
        self.rooms.take(self.coming, name, part)
        self._fits_coming.clear()

    def earliest(self, shape: Shape) -> Instant:
        """When the protection of the shortest allocated workload would end that asks for a shape here."""
        if not self.rooms.bounded:
            return FOREVER
        known = self._earliest.get(shape)
        if known is None:
            span = self._shortest(shape)
            known = self._earliest[shape] = self.until(span) if span else FOREVER
        return known

    def _shortest(self, shape: Shape) -> int:
        """The least protection with which allocated work asks for a shape here; 0 if none does."""
        known = self._spans.get(shape)
        if known is None:
            spans = self._facts.waiting.allocated.spans.get((self.pool, shape))
            known = self._spans[shape] = spans.ends[0] if spans is not None else 0
        return known

    def until(self, span: int) -> Instant:
        """When the protection of a workload would end that starts now: after now, even if it has none."""
        return Instant(self._facts.now + max(span, 1)) if self.rooms.bounded else FOREVER

    def ends(self, record: Record) -> Instant:
        """When its protection will have ended if it starts once its victims have left, each with a second grace."""
        return self.ends_after(record.min_runtime)

    def ends_after(self, span: int) -> Instant:
        """The same of a workload that would be protected for ``span``."""
        return self._later(self.until(span))

    def _later(self, until: Instant) -> Instant:
        policy = self._facts.policy
        return Instant(until + 2 * max(policy.grace_session, policy.grace_batch)) if self.rooms.bounded else FOREVER

    def fits_as_guest(self, shape: Shape) -> bool:
        """Whether there is room for unallocated work, which may be told to leave at once."""
        return self.rooms.fits(shape, until=self.until(0))

    def acts(self, turn: Turn) -> bool:
        """Whether anybody of a turn could start or preempt now."""
        hopeful = [(shape, leaves) for shape, leaves in turn.items() if self.hopeful(shape)]
        if any(self._somebody_at_will(shape, leaves) for shape, leaves in hopeful):
            return True
        take = self.take
        if not self.running.exposed:
            return False
        for shape, leaves in hopeful:
            # Most leaves are behind all whom they could move, whatever they ask for.
            some, gpus = self._movers if self._in_reach(shape) else self._superiors, shape.gpus
            if some:
                for leaf, group in leaves.items():
                    if leaf in some and not take.holds_back(leaf, gpus) and self._preempts(leaf, shape, group):
                        return True
            if self._debug_shape(shape):
                for leaf, group in leaves.items():
                    if self._debugs(leaf, shape, group) and not take.holds_back(leaf, gpus):
                        return True
        return False

    def acts_in(self, leaf: AllocationPath, groups: Iterable[tuple[Shape, Group]]) -> bool:
        """Whether anybody of a leaf could."""
        return any(
            group.line and self.hopeful(shape) and self._group_acts(leaf, shape, group) for shape, group in groups
        )

    def _group_acts(self, leaf: AllocationPath, shape: Shape, group: Group) -> bool:
        if self.take.holds_back(leaf, shape.gpus):
            return False
        if self._at_will(shape, self.until(group.claim[0])) or self._preempts(leaf, shape, group):
            return True
        return self._debug_shape(shape) and self._debugs(leaf, shape, group)

    def acts_beyond(self, turn: Turn) -> bool:
        """Whether anybody of a turn whom his limit could hold back could do anything with GPUs that nobody else can
        use."""
        take = self.take
        for shape, leaves in turn.items():
            gpus = shape.gpus
            beyond = [leaf for leaf in leaves if take.is_beyond(leaf, gpus)]
            if not beyond or not self.hopeful(shape):
                continue
            could = self._at_will(shape, self.earliest(shape))
            # Without room only those can act who could move somebody.
            if not could and not self._debug_shape(shape):
                some = self._movers if self._in_reach(shape) else self._superiors
                beyond = [leaf for leaf in beyond if leaf in some]
            for leaf in beyond:
                group = leaves[leaf]
                if could and self._at_will(shape, self.until(group.claim[0])):
                    return True
                if take.holds_back(leaf, gpus):
                    if self._preempts_own(leaf, shape, group):
                        return True
                elif self._group_acts(leaf, shape, group):
                    return True
        return False

    def _preempts(self, leaf: AllocationPath, shape: Shape, group: Group) -> bool:
        """Whether the best claim of a group would move enough: its highest priority with its least promise."""
        if leaf not in self._movers:
            return False
        span, priority = group.claim
        own = leaf in self._superiors and leaf in self.running.exposed and priority > self.running.lowest(leaf)
        if not own and not self._in_reach(shape):
            return False
        excess = self.take.excess(leaf, shape.gpus) if self.take.over else {}
        outranked = self._rivals.outranked(leaf, 0)
        if not own and not excess:
            # Most leaves could not move enough whatever they ask for, and leaves side by side outrank the same ones.
            least = self._later(self.earliest(shape))
            if not outranked or not self.fits_without((outranked, None, ()), shape, least):
                return False
        if outranked:
            outranked = self._rivals.outranked(leaf, span * shape.gpus * self._facts.weights.of(shape.gpu_type))
        if not own and not excess and not outranked:
            return False
        key = outranked, (leaf, priority) if own else None, tuple(excess.items())
        return self.fits_without(key, shape, self.ends_after(span))

    def outranked(self, record: Record) -> tuple[AllocationPath, ...]:
        """The leaves with exposed work that its start would leave its own better than."""
        return self._rivals.outranked(record.spec.allocation, record.commitment)

    def outranks(self, record: Record) -> tuple[AllocationPath, ...]:
        """Those with exposed work that its own leaf is better than, as long as it promises nothing: no fewer."""
        return self._rivals.outranked(record.spec.allocation, 0)

    def movers(self, record: Record, excess: Mapping[AllocationPath, int] = NOTHING) -> Movers:
        """Who makes way for an allocated workload by rank and by priority, and with ``excess`` by the take limit."""
        leaf, priority = record.spec.allocation, record.spec.priority
        own = leaf in self.running.exposed and priority > self.running.lowest(leaf)
        return self.outranked(record), (leaf, priority) if own else None, tuple(excess.items())

    def fits_without(self, key: Movers, shape: Shape, until: Instant) -> bool:
        """Whether there would be room for a shape if these left."""
        return self.rooms.fits(shape, self.running.freed_by(key), until)

    def _preempts_own(self, leaf: AllocationPath, shape: Shape, group: Group) -> bool:
        span, priority = group.claim
        own = leaf in self.running.exposed and priority > self.running.lowest(leaf)
        freed = self.running.freed_by(((), (leaf, priority), ())) if own else None
        return own and self.rooms.fits(shape, freed, self.ends_after(span))

    def _somebody_at_will(self, shape: Shape, leaves: Mapping[AllocationPath, Group]) -> bool:
        """Whether anybody who asks for a shape could start like that. Most often a guest could not, so nobody can."""
        if not self._at_will(shape, self.earliest(shape)):
            return False
        return any(
            self._at_will(shape, self.until(group.claim[0])) and not self.take.holds_back(leaf, shape.gpus)
            for leaf, group in leaves.items()
        )

    def _at_will(self, shape: Shape, until: Instant) -> bool:
        """Whether any allocated workload of a shape whose protection would end then could start, with unallocated work
        out of its way if need be."""
        known = self._fits.get((shape, until))
        if known is None:
            # Whoever moves somebody starts later than on what is free, so he must be done sooner after his start.
            later = self._later(until)
            known = self.rooms.fits(shape, None, until) or (
                bool(self.running.unallocated) and self.rooms.fits(shape, self.running.freed_by_guests(), later)
            )
            self._fits[shape, until] = known
        return known

    def _debug_shape(self, shape: Shape) -> bool:
        """Whether somebody could make way for a shape under the debug right."""
        return (
            bool(self.running.exposed)
            and is_debug(self._facts.policy, self._shortest(shape), shape.gpus)
            and shape.gpus <= self.debug.most
            and self._fits_without_small(shape, self._later(self.earliest(shape)), self.debug.expired, True)
        )

    def _debugs(self, leaf: AllocationPath, shape: Shape, group: Group) -> bool:
        """Whether the shortest of a group could start under the debug right."""
        short = is_debug(self._facts.policy, group.claim[0], shape.gpus)
        return short and self.fits_debug(leaf, shape, self.ends_after(group.claim[0]))

    def fits_debug(self, leaf: AllocationPath, shape: Shape, until: Instant) -> bool:
        """Whether there would be room for a shape if everybody left who may be moved for it under the debug right."""
        gpus, debug = shape.gpus, self.debug
        places = {one: it for one, it in debug.expired.items() if debug.may_leave(leaf, gpus, it)}
        room = debug.allows(leaf, gpus)
        return (room or bool(places)) and self._fits_without_small(shape, until, places, room)

    def _fits_without_small(
        self, shape: Shape, until: Instant, places: Mapping[WorkloadId, Record], small: bool
    ) -> bool:
        """Whether it would if those left whose places may be taken, and, if these count, all who are small enough."""
        asked = shape, until, tuple(places), small
        known = self._fits_debug.get(asked)
        if known is None:
            most = largest_victim(shape.gpus)
            freed = self.running.freed_by_small(most) if small else self.running.freed_by_guests()
            more = {one: it for one, it in places.items() if not small or it.gpus > most}
            if more:
                freed = freed.and_also(sum_up(more), rest=shape.counted)
            known = self._fits_debug[asked] = self.rooms.fits(shape, freed, until)
        return known

    def is_harmless(self, record: Record) -> bool:
        """Whether somebody of its leaf with a better claim found nobody to preempt, and nothing was granted since."""
        return any(
            record.spec.priority <= priority and record.commitment >= promised
            for about in (None, record.spec.shape)
            for priority, promised in self._harmless.get((record.spec.allocation, about), ())
        )

    def found_harmless(self, record: Record, nobody: bool) -> None:
        """It may preempt ``nobody``, or too few for its shape."""
        about = (record.spec.allocation, None if nobody else record.spec.shape)
        self._harmless.setdefault(about, []).append((record.spec.priority, record.commitment))
