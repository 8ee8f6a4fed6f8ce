"""Who was charged how much: exact occupancy over the sliding window.

An account is a piecewise linear function of time, kept as its break points. The occupancy is the charge now less the
charge one window ago, in integers, so usage leaves the window after exactly W.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gpufair.core.owed import Owed
from gpufair.core.share import Sums
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, GpuMillis, Instant, Millis, PoolName


@dataclass(frozen=True, slots=True)
class Mark:
    """From ``at`` on, ``gpus`` were charged; ``total`` had been charged until then."""

    at: Instant
    total: GpuMillis
    gpus: int


class Account:
    """What one allocation was charged in one pool. Marks are forgotten some time after they left the window."""

    __slots__ = ("_head", "_marks")

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self._marks: list[Mark] = list(marks)
        # The last mark at or before the window's start: a hint that only moves forward, no part of the state.
        self._head = 0

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The break points that are kept, oldest first."""
        return tuple(self._marks)

    @property
    def gpus(self) -> int:
        """GPUs charged at present."""
        return self._marks[-1].gpus if self._marks else 0

    def charged(self, now: Instant) -> GpuMillis:
        """Everything ever charged, until ``now``, which is not before the last change."""
        if not self._marks:
            return GpuMillis(0)
        last = self._marks[-1]
        return GpuMillis(last.total + last.gpus * (now - last.at))

    def change(self, now: Instant, gpus: int, window: Millis) -> None:
        """From ``now`` on charge ``gpus`` more (fewer, if negative)."""
        mark = Mark(now, self.charged(now), self.gpus + gpus)
        if mark.gpus < 0:
            raise AssertionError("an account cannot be charged for fewer than 0 GPUs")
        if self._marks and self._marks[-1].at == now:
            self._marks.pop()
        self._marks.append(mark)
        # Forget here and nowhere else: what is kept then depends on what happened, never on who asked when.
        self._seek(now - window)
        if self._head > len(self._marks) // 2:
            del self._marks[: self._head]
            self._head = 0

    def occupancy(self, now: Instant, window: Millis) -> GpuMillis:
        """Charged in [now - window, now]."""
        if not self._marks:
            return GpuMillis(0)
        start = now - window
        self._seek(start)
        first = self._marks[self._head]
        # Marks older than the first kept one can be gone after the window was widened: their usage stays forgotten.
        before = first.total + first.gpus * max(0, start - first.at)
        return GpuMillis(self.charged(now) - before)

    def _seek(self, start: int) -> None:
        marks = self._marks
        head = min(self._head, len(marks) - 1)
        while head and marks[head].at > start:  # the window was widened
            head -= 1
        while head + 1 < len(marks) and marks[head + 1].at <= start:
            head += 1
        self._head = head

    def copy(self) -> Account:
        """An independent copy."""
        return Account(self._marks)


@dataclass(frozen=True, slots=True)
class PoolConservation:
    """Where all GPU time of one pool went, in exact GPU-milliseconds (invariant P7)."""

    pool: PoolName
    charged: GpuMillis
    unallocated: GpuMillis
    held: GpuMillis  # free, kept for a beneficiary whose victims are still leaving
    idle: GpuMillis
    unavailable: GpuMillis  # cordoned and free, or lost
    capacity_time: GpuMillis

    @property
    def error(self) -> GpuMillis:
        """Must be 0: what the parts do not account for."""
        parts = self.charged + self.unallocated + self.held + self.idle + self.unavailable
        return GpuMillis(self.capacity_time - parts)


@dataclass(frozen=True, slots=True)
class Conservation:
    """Where all GPU time went: totals over the pools, and each pool."""

    charged: GpuMillis
    unallocated: GpuMillis
    held: GpuMillis
    idle: GpuMillis
    unavailable: GpuMillis
    capacity_time: GpuMillis
    pools: tuple[PoolConservation, ...]

    @property
    def error(self) -> GpuMillis:
        """Must be 0: the sum of what each pool's parts do not account for, each taken without its sign."""
        return GpuMillis(sum(abs(pool.error) for pool in self.pools))


class PoolLedger:
    """Accounts and totals of one pool. GPUs by use are rates, integrated as time passes."""

    __slots__ = ("accounts", "capacity", "owed", "rates", "researchers", "totals")

    # What the GPUs of a pool can be, apart from charged, which the accounts count by themselves.
    USES = ("unallocated", "held", "idle", "unavailable", "capacity")

    def __init__(self) -> None:
        self.accounts: dict[AllocationPath, Account] = {}
        # The parts of each leaf's account, by researcher. They order a leaf's own queue and nothing else.
        self.researchers: dict[AllocationPath, dict[str, Account]] = {}
        self.owed: dict[AllocationPath, Owed] = {}
        self.capacity = Account()  # GPUs on nodes that are not lost
        self.rates: dict[str, int] = dict.fromkeys(self.USES, 0)
        self.totals: dict[str, int] = dict.fromkeys(self.USES, 0)

    def account(self, path: AllocationPath) -> Account:
        """The account of a leaf, opened on first use."""
        return self.accounts.setdefault(path, Account())

    def charge(self, path: AllocationPath, user: str, now: Instant, gpus: int, window: Millis) -> None:
        """From ``now`` on charge ``gpus`` more (fewer, if negative) to a leaf, for a researcher."""
        self.account(path).change(now, gpus, window)
        self.charge_researcher(path, user, now, gpus, window)

    def charge_researcher(self, path: AllocationPath, user: str, now: Instant, gpus: int, window: Millis) -> None:
        """The researcher's part of a charge."""
        self.researchers.setdefault(path, {}).setdefault(user, Account()).change(now, gpus, window)

    def occupancy_of(self, path: AllocationPath, user: str, now: Instant, window: Millis) -> GpuMillis:
        """What a researcher was charged for in a leaf in the window."""
        account = self.researchers.get(path, {}).get(user)
        return account.occupancy(now, window) if account is not None else GpuMillis(0)

    def advance(self, span: int) -> None:
        """Let ``span`` milliseconds pass at the present rates."""
        for use, gpus in self.rates.items():
            if gpus:
                self.totals[use] += gpus * span

    def occupancies(self, tree: Tree, now: Instant, window: Millis) -> Sums:
        """Occupancy of every tree node: its own account and all below it, dropped allocations included."""
        return _sums(tree, self.accounts, lambda account: account.occupancy(now, window))

    def owed_within(self, tree: Tree, now: Instant, window: Millis) -> Sums:
        """What every tree node was owed in the window, in millionths of a GPU x ms."""
        return _sums(tree, self.owed, lambda owed: owed.within(now, window))

    def demand(self, tree: Tree) -> Sums:
        """How many GPUs every tree node wants at present."""
        return _sums(tree, self.owed, lambda owed: owed.demand)

    def conservation(self, pool: PoolName, now: Instant) -> PoolConservation:
        """Where the pool's GPU time went until ``now``, to which the totals have been advanced."""
        return PoolConservation(
            pool=pool,
            charged=GpuMillis(sum(account.charged(now) for account in self.accounts.values())),
            unallocated=GpuMillis(self.totals["unallocated"]),
            held=GpuMillis(self.totals["held"]),
            idle=GpuMillis(self.totals["idle"]),
            unavailable=GpuMillis(self.totals["unavailable"]),
            capacity_time=GpuMillis(self.totals["capacity"]),
        )

    def copy(self) -> PoolLedger:
        """An independent copy."""
        twin = PoolLedger()
        twin.accounts = {path: account.copy() for path, account in self.accounts.items()}
        twin.researchers = {
            path: {user: account.copy() for user, account in users.items()} for path, users in self.researchers.items()
        }
        twin.owed = {path: owed.copy() for path, owed in self.owed.items()}
        twin.capacity = self.capacity.copy()
        twin.rates = dict(self.rates)
        twin.totals = dict(self.totals)
        return twin


A = TypeVar("A")


def _sums(tree: Tree, accounts: Mapping[AllocationPath, A], amount: Callable[[A], int]) -> Sums:
    """A figure of the accounts for every tree node; dropped allocations count where they hung."""
    strays: dict[AllocationPath, list[A]] = {}
    for path, account in accounts.items():
        if path not in tree:
            strays.setdefault(tree.nearest(path), []).append(account)

    def own(path: AllocationPath) -> int:
        account = accounts.get(path)
        mine = amount(account) if account is not None else 0
        return mine + sum(amount(stray) for stray in strays.get(path, ())) if strays else mine

    return Sums(tree, own)


def sum_up(pools: Iterable[PoolConservation]) -> Conservation:
    """Add the pools up."""
    each = tuple(pools)
    return Conservation(
        charged=GpuMillis(sum(pool.charged for pool in each)),
        unallocated=GpuMillis(sum(pool.unallocated for pool in each)),
        held=GpuMillis(sum(pool.held for pool in each)),
        idle=GpuMillis(sum(pool.idle for pool in each)),
        unavailable=GpuMillis(sum(pool.unavailable for pool in each)),
        capacity_time=GpuMillis(sum(pool.capacity_time for pool in each)),
        pools=each,
    )
