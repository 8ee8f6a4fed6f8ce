"""The old way: urgent, high, normal, low; and opting out of preemption, up to a limit of GPUs per team.

Whoever is more urgent starts first, then whoever was submitted first. Who does not fit makes room: he may have those told
to leave that are less urgent and have not opted out, the least urgent first, of these the last to start. What they leave is
kept for him. If that does not free enough, he waits, and whoever fits starts before him: nothing is kept for large work.

A team is an allocation. The GPUs of its workloads that have opted out are at most its entitlement to the cluster. Who
wants to opt out is preemptible while the limit is reached, and has opted out as soon as it allows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpufair.core.actions import Reserve, Unreserve
from gpufair.core.amount import Freed, asked, left
from gpufair.core.model import Held, Lease, Phase, Policy, PreemptReason, Shape
from gpufair.core.placement import place
from gpufair.core.units import AllocationPath, Instant, NodeName, PoolName, WorkloadId
from gpufair.core.waiting import Ticket
from gpufair.sim.policies.item import Item
from gpufair.sim.policies.levels import Level, level_of, opts_out
from gpufair.sim.policies.queue import Class, Line, Queue, Rank
from gpufair.sim.policies.scheduler import Scheduler


@dataclass(slots=True)
class Claim:
    """GPUs kept for somebody while those who hold them leave."""

    owner: Item
    pool: PoolName
    leases: tuple[Lease, ...]
    kept: dict[NodeName, int] = field(default_factory=dict)  # free already


@dataclass(slots=True)
class Team:
    """Who of an allocation has opted out, or would if the limit allowed it."""

    out: int = 0  # GPUs of those who have
    willing: list[tuple[Instant, WorkloadId]] = field(default_factory=list)  # by start


class Exposed:
    """Who of a pool can be preempted, level by level."""

    def __init__(self) -> None:
        self.by_level: dict[Level, dict[WorkloadId, Item]] = {level: {} for level in Level}
        self._gpus: dict[Level, dict[NodeName, int]] = {level: {} for level in Level}
        self._leases: dict[WorkloadId, tuple[Lease, ...]] = {}  # as counted, though a node may have been lost since
        self._totals: dict[Level, int] = dict.fromkeys(Level, 0)
        self._freed: dict[Level, Freed] = {}

    def add(self, level: Level, item: Item) -> None:
        """It can be."""
        assert item.held is not None
        self.by_level[level][item.id] = item
        self._leases[item.id] = item.held.leases
        self._count(level, item.held.leases, 1)

    def remove(self, level: Level, item: Item) -> None:
        """It cannot be any more."""
        if self.by_level[level].pop(item.id, None) is not None:
            self._count(level, self._leases.pop(item.id), -1)

    def below(self, level: Level) -> int:
        """GPUs of all who are less urgent."""
        return sum(gpus for other, gpus in self._totals.items() if other < level)

    def freed(self, most: Level, shape: Shape) -> Freed:
        """What would be free if all left who are at most so urgent; CPUs and memory only if the shape counts them."""
        known = self._freed.get(most)
        if known is None:
            gpus: dict[NodeName, int] = {}
            for level, nodes in self._gpus.items():
                for node, count in nodes.items() if level <= most else ():
                    gpus[node] = gpus.get(node, 0) + count
            known = self._freed[most] = Freed(gpus, rest={})
        return Freed(known.gpus, rest=self._rest(most)) if shape.counted else known

    def _count(self, level: Level, leases: Sequence[Lease], sign: int) -> None:
        nodes = self._gpus[level]
        for lease in leases:
            nodes[lease.node] = nodes.get(lease.node, 0) + sign * lease.gpus
            self._totals[level] += sign * lease.gpus
        self._freed.clear()

    def _rest(self, most: Level) -> dict[NodeName, tuple[int, int]]:
        rest: dict[NodeName, tuple[int, int]] = {}
        for level, items in self.by_level.items():
            for item in items.values() if level <= most else ():
                theirs = item.spec.shape
                for lease in item.held.leases if item.held is not None and theirs.counted else ():
                    cpus, memory = rest.get(lease.node, (0, 0))
                    rest[lease.node] = cpus + theirs.cpus_per_node, memory + theirs.memory_per_node
        return rest


class Priority(Scheduler):
    """Urgency, and preemption of whoever is less urgent."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.queue = Queue(_rank)
        self._out: dict[WorkloadId, None] = {}  # have opted out, and have not been told to leave
        self._teams: dict[AllocationPath, Team] = {}
        self._limits: dict[AllocationPath, int] = {}
        self._exposed: dict[PoolName, Exposed] = {}
        self._claims: dict[WorkloadId, Claim] = {}  # in the order in which they were made
        self._goings = 1  # counts when more may have become possible for those for whom nothing could be done
        self._protected_preemptions = 0

    @property
    def protected_preemptions(self) -> int:
        """How often somebody was preempted who had opted out. Must be 0."""
        return self._protected_preemptions

    # -- what the life of workloads tells -------------------------------------------------------------------------

    def enqueue(self, item: Item) -> None:
        """It waits with those who are as urgent."""
        self.queue.add(item, _class(item))

    def dequeue(self, item: Item) -> None:
        """It does not wait any more; what was kept for it is not."""
        claim = self._claims.get(item.id)
        if claim is None:
            self.queue.remove(item, _class(item))
        else:
            self._drop(claim)

    def granted(self, item: Item) -> None:
        """It can be preempted, unless it wants to opt out and may."""
        assert item.held is not None
        self._exposed.setdefault(item.held.pool, Exposed()).add(_level(item), item)
        if opts_out(item.id, item.spec):
            leaf = item.spec.allocation
            insort(self._teams.setdefault(leaf, Team()).willing, (self.now, item.id))
            self._let_opt_out(leaf)

    def leaving(self, item: Item, held: Held) -> None:
        """It has been told to leave, or is gone: nobody else can have it told so, and its limit is another's."""
        self._exposed[held.pool].remove(_level(item), item)
        team = self._teams.get(item.spec.allocation)
        if team is None:
            return
        if item.id in self._out:
            del self._out[item.id]
            team.out -= item.gpus
            self._let_opt_out(item.spec.allocation)
            return
        entry = (held.granted_at, item.id)
        at = bisect_left(team.willing, entry)
        if team.willing[at : at + 1] == [entry]:
            del team.willing[at]

    def released(self, item: Item, held: Held) -> None:
        """What it held goes to those for whom it is kept, then to anybody."""
        self.leaving(item, held)
        for claim in self._claims.values():
            self._keep(claim)
        left_over = any(self.ground.nodes[lease.node].free > 0 for lease in held.leases)
        self._goings += left_over or item.spec.shape.counted

    def rebudgeted(self) -> None:
        """Teams have other limits; who has opted out stays so."""
        self._limits.clear()
        for leaf in self._teams:
            self._let_opt_out(leaf)

    def rebuilt(self) -> None:
        """A node came, went, closed or opened: what is kept on it may not come true."""
        self._goings += 1
        self._limits.clear()
        for claim in tuple(self._claims.values()):
            nodes = [self.ground.nodes[lease.node] for lease in claim.leases]
            if any(not node.open or node.free < 0 or node.node.pool != claim.pool for node in nodes):
                self._drop(claim)
                self.act(Unreserve(self.cause, claim.owner.id))
                self.enqueue(claim.owner)

    # -- opting out -----------------------------------------------------------------------------------------------

    def limit(self, leaf: AllocationPath) -> int:
        """GPUs that may have opted out in an allocation: what it is entitled to, in whole GPUs."""
        known = self._limits.get(leaf)
        if known is None:
            capacity = sum(self.ground.capacity(pool) for pool in self.ground.by_pool)
            numerator, denominator = self.tree.ratio(leaf) if leaf in self.tree else (0, 1)
            known = self._limits[leaf] = capacity * numerator // denominator
        return known

    def _let_opt_out(self, leaf: AllocationPath) -> None:
        team, limit = self._teams[leaf], self.limit(leaf)
        if team.out >= limit or not team.willing:
            return
        still = []
        for entry in team.willing:
            item = self.items[entry[1]]
            if team.out + item.gpus > limit or item.held is None:
                still.append(entry)
                continue
            team.out += item.gpus
            self._out[item.id] = None
            self._exposed[item.held.pool].remove(_level(item), item)
        team.willing = still

    # -- who starts -----------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Start whoever may start, or let him make room, the most urgent first."""
        for claim in tuple(self._claims.values()):
            if self._is_complete(claim):
                self.start(claim.owner, claim.pool, claim.leases, "those who held its GPUs have left")
        for one in self.queue:
            level = Level(int(one[0]))
            while (line := self._next(one)) is not None:
                first = line.first()
                assert first is not None
                item = self.items[first.workload]
                if not self._start(item) and not self._make_room(item, level):
                    line.looked_at = self._goings

    def _next(self, of: Class) -> Line | None:
        """The line with the first of those for whom there may be something to do."""
        best: tuple[Ticket, Line] | None = None
        for line in self.queue.lines(of).values():
            if line.looked_at < self._goings:
                ticket = line.first()
                if ticket is not None and (best is None or ticket < best[0]):
                    best = ticket, line
        return best[1] if best is not None else None

    def _start(self, item: Item) -> bool:
        for pool in item.spec.pools:
            leases = self.ground.place(item.spec.shape, pool)
            if leases is not None:
                self.start(item, pool, leases, f"of those who fit none is more urgent ({_level(item).name.lower()})")
                return True
        return False

    def _make_room(self, item: Item, level: Level) -> bool:
        shape = item.spec.shape
        for pool in item.spec.pools:
            exposed, rooms = self._exposed.get(pool), self.ground.rooms.get(pool)
            if exposed is None or rooms is None:
                continue
            if self.ground.free[pool] + exposed.below(level) < shape.gpus:
                continue
            for most in Level:
                if most >= level or not exposed.by_level[most]:
                    continue
                freed = exposed.freed(most, shape)
                if rooms.fits(shape, freed):
                    leases = place(self.ground.by_pool[pool], shape, self.policy.blocks, freed)
                    if leases is not None:
                        self._evict(item, pool, leases, self._victims(exposed, most, leases, shape))
                        return True
        return False

    def _victims(self, exposed: Exposed, most: Level, leases: Sequence[Lease], shape: Shape) -> list[Item]:
        """Who has to leave these nodes: the least urgent first, of these the last to start, and nobody in vain."""
        chosen: list[Item] = []
        wanted = {lease.node for lease in leases}
        there = [
            (level, item)
            for level in Level
            if level <= most
            for item in reversed(exposed.by_level[level].values())
            if item.held is not None and any(lease.node in wanted for lease in item.held.leases)
        ]
        for _, item in there:
            if self._frees(chosen, leases, shape):
                break
            # Nobody leaves who has nothing where something is missing.
            chosen.append(item)
        for item in tuple(reversed(chosen)):
            others = [other for other in chosen if other is not item]
            if self._frees(others, leases, shape):
                chosen = others
        return chosen

    def _frees(self, victims: Sequence[Item], leases: Sequence[Lease], shape: Shape) -> bool:
        need = asked(shape)
        for lease in leases:
            room = left(self.ground.nodes[lease.node])
            for victim in victims:
                for theirs in victim.held.leases if victim.held is not None else ():
                    if theirs.node == lease.node:
                        room += asked(victim.spec.shape)
            if not room >= need:
                return False
        return True

    def _evict(self, item: Item, pool: PoolName, leases: tuple[Lease, ...], victims: Sequence[Item]) -> None:
        self.queue.remove(item, _class(item))
        claim = self._claims[item.id] = Claim(item, pool, leases)
        mine = _level(item).name.lower()
        why = f"it is {mine}, and {len(victims)} less urgent that have not opted out make room"
        self.act(Reserve(self.cause, item.id, leases, pool, tuple(victim.id for victim in victims), why))
        for victim in victims:
            self._protected_preemptions += victim.id in self._out
            theirs = _level(victim).name.lower()
            why = f"{item.label} is {mine}, and it is {theirs} and has not opted out"
            self.notify(victim, PreemptReason.PRIORITY, item.id, why)
        self._keep(claim)

    # -- what is kept ---------------------------------------------------------------------------------------------

    def _keep(self, claim: Claim) -> None:
        for lease in claim.leases:
            missing = lease.gpus - claim.kept.get(lease.node, 0)
            more = min(missing, self.ground.nodes[lease.node].free)
            if more > 0:
                claim.kept[lease.node] = claim.kept.get(lease.node, 0) + more
                self.ground.keep(lease.node, more)

    def _drop(self, claim: Claim) -> None:
        del self._claims[claim.owner.id]
        self._goings += 1
        for node, gpus in claim.kept.items():
            self.ground.keep(node, -gpus)

    def _is_complete(self, claim: Claim) -> bool:
        shape = claim.owner.spec.shape
        if claim.owner.phase is not Phase.QUEUED or sum(claim.kept.values()) < shape.gpus:
            return False
        if not shape.counted:
            return True
        rest = [self.ground.nodes[lease.node] for lease in claim.leases]
        return all(n.cpus_left >= shape.cpus_per_node and n.memory_left >= shape.memory_per_node for n in rest)


def _level(item: Item) -> Level:
    return level_of(item.id, item.spec)


def _class(item: Item) -> Class:
    return (str(int(_level(item))),)


def _rank(of: Class) -> Rank:
    return (-int(of[0]),)
