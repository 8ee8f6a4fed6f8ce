"""What each allocation was owed and charged: one sweep over the changes of demand and entitlement of each leaf."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpufair.core.delivery import LEAST_GPUS
from gpufair.core.owed import MICRO
from gpufair.core.tree import ancestors
from gpufair.core.units import AllocationPath, GpuMillis, Instant, PoolName
from gpufair.sim.measures.cluster import Cluster
from gpufair.sim.measures.figures import Account, Deliveries, worst_of
from gpufair.sim.measures.period import Hourly, Period
from gpufair.sim.measures.stints import held, never_started, queued, spent
from gpufair.sim.story import Life, Stint

Changes = dict[int, int]  # by how many units the demand changes at an instant


@dataclass(slots=True)
class Totals:
    """GPU-milliseconds of all allocations, not weighted."""

    allocated: int = 0
    unallocated: int = 0
    switching: int = 0
    lost: int = 0
    lost_for_good: int = 0
    useful: int = 0


@dataclass(slots=True)
class _Sums:
    """Those of one leaf, or of all leaves below a node, in units; what is owed in millionths of them."""

    entitled: int = 0
    owed: int = 0
    charged: int = 0
    capped: int = 0
    hourly: int = 0
    lost: int = 0
    switching: int = 0
    useful: int = 0
    net: int = 0
    unallocated: int = 0
    granule: int = 0

    def add(self, other: _Sums) -> None:
        self.entitled += other.entitled
        self.owed += other.owed
        self.charged += other.charged
        self.capped += other.capped
        self.hourly += other.hourly
        self.lost += other.lost
        self.switching += other.switching
        self.useful += other.useful
        self.net += other.net
        self.unallocated += other.unallocated
        self.granule = max(self.granule, other.granule)

    def account(self, path: AllocationPath, leaf: bool, unit: int) -> Account:
        return Account(
            path=path,
            leaf=leaf,
            entitled=GpuMillis(self.entitled // (MICRO * unit)),
            owed=GpuMillis(self.owed // (MICRO * unit)),
            charged=GpuMillis(self.charged // unit),
            capped=GpuMillis(self.capped // (MICRO * unit)),
            hourly=GpuMillis(self.hourly // (MICRO * unit)),
            lost=GpuMillis(self.lost // unit),
            switching=GpuMillis(self.switching // unit),
            useful=GpuMillis(self.useful // unit),
            net=GpuMillis(self.net // (MICRO * unit)),
            unallocated=GpuMillis(self.unallocated // unit),
            granule=GpuMillis(self.granule // unit),
        )


@dataclass(slots=True)
class _Pool:
    """One leaf in one pool."""

    charged: Hourly
    demand: Changes = field(default_factory=lambda: defaultdict(int))
    spoilt: int = 0  # of what was charged: lost, or spent on switching


class _Leaf:
    """One leaf while its jobs are gone through."""

    def __init__(self, path: AllocationPath, cluster: Cluster, period: Period, end: Instant, totals: Totals) -> None:
        self._path, self._cluster, self._period, self._end, self._totals = path, cluster, period, end, totals
        self._pools: dict[PoolName, _Pool] = {}
        self._sums = _Sums()

    def _pool(self, name: PoolName) -> _Pool:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = _Pool(Hourly(self._period))
        return pool

    def take(self, life: Life) -> None:
        """Count one job."""
        spec = life.job.spec
        if never_started(life) or not spec.shape.gpus:
            return
        if spec.allocated and life.submitted is not None:
            if life.submitted < self._period.end and (life.ended is None or life.ended >= self._period.start):
                granule = spec.shape.gpus * self._cluster.weights.of(spec.shape.gpu_type) * spec.min_runtime
                self._sums.granule = max(self._sums.granule, granule)
            self._wait(life)
        for stint in life.stints:
            if stint.granted >= self._period.end or (stint.freed is not None and stint.freed <= self._period.start):
                continue
            for gpus, units, over in held(stint, self._cluster, self._end):
                self._hold(life, stint, gpus, units, over)

    def _hold(self, life: Life, stint: Stint, gpus: int, units: int, over: int) -> None:
        """It held GPUs until ``over``."""
        spec, period, totals, sums = life.job.spec, self._period, self._totals, self._sums
        went = spent(stint, period, over)
        kept = went.worked - went.lost
        totals.switching += gpus * went.switching
        totals.lost += gpus * went.lost
        totals.useful += gpus * kept
        if not spec.resumable:
            totals.lost_for_good += gpus * went.lost
        if not spec.allocated:
            totals.unallocated += gpus * went.held
            sums.unallocated += units * went.held
            return
        totals.allocated += gpus * went.held
        sums.switching += units * went.switching
        sums.lost += units * went.lost
        sums.useful += units * kept
        pool = self._pool(stint.pool)
        pool.spoilt += units * (went.switching + went.lost)
        pool.charged.add(stint.granted, over, units)
        pool.demand[stint.granted] += units
        pool.demand[over] -= units

    def _wait(self, life: Life) -> None:
        """It was demand while it waited, in the pool that could hold it."""
        shape = life.job.spec.shape
        units = shape.gpus * self._cluster.weights.of(shape.gpu_type)
        turns = self._cluster.turns(shape, life.job.spec.pools)
        for start, end in queued(life, self._end):
            for since, until, pool in turns:
                begun, over = max(start, since), min(end, until)
                if pool is not None and begun < over:
                    demand = self._pool(pool).demand
                    demand[begun] += units
                    demand[over] -= units

    def close(self) -> _Sums:
        """Its sums, once all its jobs have been counted."""
        for name in self._cluster.pools:
            pool = self._pools.get(name)
            ceilings = self._cluster.ceilings(name, self._path)
            self._sums.entitled += _integral(ceilings, self._period)
            if pool is None:
                continue
            charged, owed = pool.charged.amounts(), _owed(pool.demand, ceilings, self._period).amounts()
            due, had = sum(owed), sum(charged)
            self._sums.charged += had
            self._sums.owed += due
            self._sums.capped += min(had * MICRO, due)
            self._sums.net += min(max(0, had - pool.spoilt) * MICRO, due)
            self._sums.hourly += sum(min(one * MICRO, other) for one, other in zip(charged, owed, strict=True))
        return self._sums


def _integral(steps: Sequence[tuple[Instant, int]], period: Period) -> int:
    ends = [at for at, _ in steps[1:]] + [period.end]
    return sum(rate * period.overlap(at, end) for (at, rate), end in zip(steps, ends, strict=True))


def _owed(demand: Changes, ceilings: Sequence[tuple[Instant, int]], period: Period) -> Hourly:
    """The lesser of what was wanted and what the leaf is entitled to."""
    owed = Hourly(period)
    limits: dict[int, int] = dict(ceilings)
    wanted = ceiling = rate = 0
    since: int = period.start
    for at in sorted({*(at for at, change in demand.items() if change), *limits}):
        wanted += demand.get(at, 0)
        ceiling = limits.get(at, ceiling)
        now = min(wanted * MICRO, ceiling)
        if now != rate:
            if rate:
                owed.add(since, at, rate)
            since, rate = at, now
    if rate:
        owed.add(since, period.end, rate)
    return owed


def deliver(lives: Iterable[Life], cluster: Cluster, period: Period, end: Instant) -> tuple[Deliveries, Totals]:
    """What was delivered of what was owed, and what the held GPU time was spent on."""
    by_leaf: dict[AllocationPath, list[Life]] = {leaf: [] for leaf in cluster.leaves}
    for life in lives:
        by_leaf.setdefault(life.job.spec.allocation, []).append(life)
    totals = Totals()
    sums: dict[AllocationPath, _Sums] = {AllocationPath(""): _Sums()}
    for path in sorted(by_leaf):
        leaf = _Leaf(path, cluster, period, end, totals)
        for life in by_leaf[path]:
            leaf.take(life)
        own = leaf.close()
        for one in (*ancestors(path), path):
            sums.setdefault(one, _Sums()).add(own)
    unit = cluster.weights.unit
    accounts = tuple(sums[path].account(path, path in by_leaf, unit) for path in sorted(sums))
    return Deliveries(accounts, worst_of(accounts, period, LEAST_GPUS)), totals
