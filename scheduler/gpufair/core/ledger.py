"""Who was charged how much: exact occupancy over the sliding window.

An account is a piecewise linear function of time, kept as its break points. The occupancy is the charge now less the
charge one window ago, in integers, so usage leaves the window after exactly W.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from gpufair.core.fading import Fading
from gpufair.core.hours import BY_THE_HOUR, Hours, Kept, overlap
from gpufair.core.lines import ENDLESS, Line, PerNode, Sliding, WindowLines
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


class Account(Sliding):
    """What one allocation was charged in one pool. Marks are forgotten some time after they left the window."""

    __slots__ = ("_at", "_gpus", "_head", "_total", "fading", "hours")

    def __init__(self, marks: Iterable[Mark] = (), hours: Hours | None = None, fading: Fading | None = None) -> None:
        super().__init__()
        self.fading = fading  # what counts in place of the window, if that is the policy
        # The marks, field by field: one is made at every start and release.
        self._at: list[int] = []
        self._total: list[int] = []
        self._gpus: list[int] = []
        for mark in marks:
            self._at.append(mark.at)
            self._total.append(mark.total)
            self._gpus.append(mark.gpus)
        self.hours = hours  # until the last change; None keeps no history
        # The last mark at or before the window's start: a hint that only moves forward, no part of the state.
        self._head = 0

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The break points that are kept, oldest first."""
        columns = zip(self._at, self._total, self._gpus, strict=True)
        return tuple(Mark(Instant(at), GpuMillis(total), gpus) for at, total, gpus in columns)

    @property
    def gpus(self) -> int:
        """GPUs charged at present."""
        return self._gpus[-1] if self._gpus else 0

    def charged(self, now: Instant) -> GpuMillis:
        """Everything ever charged, until ``now``, which is not before the last change."""
        if not self._at:
            return GpuMillis(0)
        return GpuMillis(self._total[-1] + self._gpus[-1] * (now - self._at[-1]))

    def change(self, now: Instant, gpus: int, window: Millis) -> None:
        """From ``now`` on charge ``gpus`` more (fewer, if negative)."""
        self.changes += 1
        total, before, at = self.charged(now), self.gpus, self._at
        if before + gpus < 0:
            raise AssertionError("an account cannot be charged for fewer than 0 GPUs")
        if self.hours is not None and at:
            self.hours.add(at[-1], now, before)
        if self.fading is not None:
            self.fading.go_on(now, before)
        if at and at[-1] == now:
            self._gpus[-1] = before + gpus
        else:
            at.append(now)
            self._total.append(total)
            self._gpus.append(before + gpus)
        # Forget here and nowhere else: what is kept then depends on what happened, never on who asked when.
        self._seek(now - window)
        head = self._head
        if head > len(at) // 2:
            for column in (at, self._total, self._gpus):
                del column[:head]
            self._head = 0

    def occupancy(self, now: Instant, window: Millis) -> GpuMillis:
        """Charged in [now - window, now]; with a half-life, what counts of all that was charged."""
        at = self._at
        if not at:
            return GpuMillis(0)
        if self.fading is not None:
            return GpuMillis(self.fading.whole(now, self._gpus[-1]))
        # As in Owed.within: mostly the head is right already.
        start, head = now - window, self._head
        if head >= len(at) or (head and at[head] > start) or (head + 1 < len(at) and at[head + 1] <= start):
            self._seek(start)
            head = self._head
        charged = self._total[-1] + self._gpus[-1] * (now - at[-1]) - self._total[head]
        # Marks older than the first kept one can be gone after the window was widened: their usage stays forgotten.
        return GpuMillis(charged - self._gpus[head] * (start - at[head]) if start > at[head] else charged)

    def line(self, now: Instant, window: Millis) -> Line:
        """``occupancy`` around ``now``, which is not before the last change, if nothing fades."""
        at, gpus = self._at, self._gpus
        if not at:
            return Line(0, 0, 0, now + 1)
        self._seek(now - window)
        head, slope = self._head, gpus[-1]
        offset, begins = self._total[-1] - slope * at[-1] - self._total[head], at[head] + window
        if now < begins:
            return Line(offset, slope, at[-1], begins)
        until = at[head + 1] + window if head + 1 < len(at) else ENDLESS
        return Line(offset + gpus[head] * begins, slope - gpus[head], begins, until)

    def _seek(self, start: int) -> None:
        at = self._at
        head = min(self._head, len(at) - 1)
        while head and at[head] > start:  # the window was widened
            head -= 1
        while head + 1 < len(at) and at[head + 1] <= start:
            head += 1
        self._head = head

    def in_step(self, number: int, now: Instant) -> int:
        """Charged in one step of the history."""
        if self.hours is None or not self._at:
            return 0
        return self.hours.at(number) + self._gpus[-1] * overlap(number, self.hours.kept.step, self._at[-1], now)

    def refine(self, factor: int) -> None:
        """Count in a unit that is ``factor`` times as fine."""
        self.changes += 1
        self._total = [amount * factor for amount in self._total]
        self._gpus = [amount * factor for amount in self._gpus]
        if self.hours is not None:
            self.hours.refine(factor)
        if self.fading is not None:
            self.fading.amount *= factor

    def fade(self, half_life: Millis | None, since: int, now: Instant) -> None:
        """From now on what is charged fades, beginning with what is known since then; or counts by the window."""
        marks = zip(self._at, self._gpus, strict=True)
        self.fading = Fading.begun(half_life, since, now, marks) if half_life is not None else None

    def copy(self) -> Account:
        """An independent copy."""
        twin = Account((), self.hours.copy() if self.hours is not None else None)
        twin.fading = self.fading.copy() if self.fading is not None else None
        twin._at, twin._total, twin._gpus = self._at.copy(), self._total.copy(), self._gpus.copy()
        return twin


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
    switching: GpuMillis = GpuMillis(0)  # of charged and unallocated: starting, restoring, saving and stopping

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
    switching: GpuMillis = GpuMillis(0)

    @property
    def error(self) -> GpuMillis:
        """Must be 0: the sum of what each pool's parts do not account for, each taken without its sign."""
        return GpuMillis(sum(abs(pool.error) for pool in self.pools))


class PoolLedger:
    """Accounts and totals of one pool. GPUs by use are rates, integrated when somebody looks at them or changes them."""

    __slots__ = (
        "_hours",
        "_now",
        "_occupancies",
        "_owed_lines",
        "_rates",
        "_since",
        "_totals",
        "accounts",
        "busy",
        "capacity",
        "half_life",
        "kept",
        "measured",
        "owed",
        "researchers",
    )

    # What the GPUs of a pool can be, in the order of ``NodeRecord.uses``. Of what is unavailable "lost" is a part.
    USES: Final = ("unallocated", "held", "idle", "unavailable", "capacity", "charged", "lost")
    # Beside these, how many of those that are charged or unallocated start, restore, save or stop.
    SWITCHING: Final = "switching"

    def __init__(self, kept: Kept = BY_THE_HOUR, half_life: Millis | None = None) -> None:
        self.kept = kept
        self.half_life = half_life  # None: the window counts
        # Sums over the tree, kept from one pass to the next; no part of the state.
        self._occupancies: WindowLines | None = None
        self._owed_lines: WindowLines | None = None
        self.accounts: dict[AllocationPath, Account] = {}
        # The parts of each leaf's account, by researcher. They order a leaf's own queue and nothing else.
        self.researchers: dict[AllocationPath, dict[str, Account]] = {}
        self.owed: dict[AllocationPath, Owed] = {}
        self.capacity = Account(hours=Hours(kept), fading=self.fading())  # GPUs on nodes that are not lost
        self._now = 0  # how far time has come
        self._rates: dict[str, int] = dict.fromkeys((*self.USES, self.SWITCHING), 0)
        self._since = dict(self._rates)  # how far each of them is integrated
        self._totals = dict(self._rates)
        self._hours = {use: Hours(kept) for use in self._rates}
        # By leaf, of all its work: GPU time over which nodes measured how busy GPUs were, and how much they were.
        self.measured: dict[AllocationPath, Hours] = {}
        self.busy: dict[AllocationPath, Hours] = {}

    def account(self, path: AllocationPath) -> Account:
        """The account of a leaf, opened on first use."""
        if path not in self.accounts:
            self.accounts[path] = Account(hours=Hours(self.kept), fading=self.fading())
        return self.accounts[path]

    def charge(self, path: AllocationPath, user: str, now: Instant, gpus: int, window: Millis) -> None:
        """From ``now`` on charge ``gpus`` more (fewer, if negative) to a leaf, for a researcher."""
        self.account(path).change(now, gpus, window)
        self.charge_researcher(path, user, now, gpus, window)

    def charge_researcher(self, path: AllocationPath, user: str, now: Instant, gpus: int, window: Millis) -> None:
        """The researcher's part of a charge."""
        users = self.researchers.setdefault(path, {})
        if user not in users:
            users[user] = Account(hours=Hours(self.kept), fading=self.fading())
        users[user].change(now, gpus, window)

    def occupancy_of(self, path: AllocationPath, user: str, now: Instant, window: Millis) -> GpuMillis:
        """What a researcher was charged for in a leaf in the window."""
        account = self.researchers.get(path, {}).get(user)
        return account.occupancy(now, window) if account is not None else GpuMillis(0)

    def advance(self, now: Instant, span: int) -> None:
        """Let ``span`` milliseconds from ``now`` on pass at the present rates."""
        if now != self._now:
            self._integrate()
            self._since = dict.fromkeys(self._rates, int(now))
        self._now = now + span

    def change(self, use: str, gpus: int) -> None:
        """From now on so many GPUs more are used like that (fewer, if negative)."""
        self._integrate_one(use)
        self._rates[use] += gpus

    def _integrate(self) -> None:
        for use in self._rates:
            self._integrate_one(use)

    def _integrate_one(self, use: str) -> None:
        since, until, gpus = self._since[use], self._now, self._rates[use]
        if since < until:
            self._since[use] = until
            if gpus:
                self._totals[use] += gpus * (until - since)
                self._hours[use].add(since, until, gpus)

    @property
    def rates(self) -> dict[str, int]:
        """GPUs by use at present. ``change`` changes them."""
        return self._rates

    @property
    def totals(self) -> dict[str, int]:
        """GPU time by use until now."""
        self._integrate()
        return self._totals

    @property
    def hours(self) -> dict[str, Hours]:
        """The same by step of the history."""
        self._integrate()
        return self._hours

    def keep(self, kept: Kept) -> None:
        """From now on history is kept in another way; with another step, it begins anew."""
        if kept == self.kept:
            return
        anew, past = kept.step != self.kept.step, self.hours
        self.kept = kept

        def changed(hours: Hours | None) -> Hours:
            if hours is None or anew:
                return Hours(kept)
            hours.kept = kept
            return hours

        for account in (self.capacity, *self.accounts.values(), *self._researchers()):
            account.hours = changed(account.hours)
        for owed in self.owed.values():
            owed.hours = changed(owed.hours)
        self._hours = {use: changed(hours) for use, hours in past.items()}
        self.measured = {leaf: changed(hours) for leaf, hours in self.measured.items()}
        self.busy = {leaf: changed(hours) for leaf, hours in self.busy.items()}

    def fading(self) -> Fading | None:
        """That of an account which is opened."""
        return Fading(self.half_life) if self.half_life is not None else None

    def fade(self, half_life: Millis | None, since: int, now: Instant) -> None:
        """From now on this half-life counts, beginning with what is known since then; or the window."""
        if half_life == self.half_life:
            return
        self.half_life = half_life
        for account in (self.capacity, *self.accounts.values(), *self._researchers()):
            account.fade(half_life, since, now)
        for owed in self.owed.values():
            owed.fade(half_life, since, now)

    def refine(self, factor: int) -> None:
        """Count what is weighted in a unit that is ``factor`` times as fine."""
        for account in (self.capacity, *self.accounts.values(), *self._researchers()):
            account.refine(factor)
        for owed in self.owed.values():
            owed.refine(factor)

    def _researchers(self) -> Iterator[Account]:
        for users in self.researchers.values():
            yield from users.values()

    def used(self, leaf: AllocationPath, start: int, end: int, measured: int, busy: int) -> None:
        """In [start, end) GPUs of a leaf were measured for so much GPU time and found busy for so much of it."""
        for by_leaf, amount in ((self.measured, measured), (self.busy, busy)):
            if leaf not in by_leaf:
                by_leaf[leaf] = Hours(self.kept)
            by_leaf[leaf].spread(start, end, amount)

    def occupancies(self, tree: Tree, now: Instant, window: Millis) -> PerNode:
        """Occupancy of every tree node: its own account and all below it, dropped allocations included."""
        if self.half_life is not None:
            return Sums(tree, lambda: {path: account.occupancy(now, window) for path, account in self.accounts.items()})
        if self._occupancies is None or not self._occupancies.fits(tree, window):
            self._occupancies = WindowLines(tree, window)
        return self._occupancies.at(self.accounts, now)

    def owed_within(self, tree: Tree, now: Instant, window: Millis) -> PerNode:
        """What every tree node was owed in the window, in millionths of a GPU x ms."""
        if self.half_life is not None:
            return Sums(tree, lambda: {path: owed.within(now, window) for path, owed in self.owed.items()})
        if self._owed_lines is None or not self._owed_lines.fits(tree, window):
            self._owed_lines = WindowLines(tree, window)
        return self._owed_lines.at(self.owed, now)

    def demand(self, tree: Tree, asks: AllocationPath | None = None, gpus: int = 0) -> Sums:
        """How many GPUs every tree node wants at present, if a leaf that ``asks`` wants so many more."""

        def demands() -> dict[AllocationPath, int]:
            found = {leaf: owed.demand for leaf, owed in self.owed.items()}
            if asks is not None:
                found[asks] = found.get(asks, 0) + gpus
            return found

        return Sums(tree, demands)

    def conservation(self, pool: PoolName) -> PoolConservation:
        """Where the pool's GPU time went until the instant to which it was advanced."""
        return PoolConservation(
            pool=pool,
            charged=GpuMillis(self.totals["charged"]),
            unallocated=GpuMillis(self.totals["unallocated"]),
            held=GpuMillis(self.totals["held"]),
            idle=GpuMillis(self.totals["idle"]),
            unavailable=GpuMillis(self.totals["unavailable"]),
            capacity_time=GpuMillis(self.totals["capacity"]),
            switching=GpuMillis(self.totals[self.SWITCHING]),
        )

    def copy(self) -> PoolLedger:
        """An independent copy."""
        twin = PoolLedger(self.kept, self.half_life)
        twin.accounts = {path: account.copy() for path, account in self.accounts.items()}
        twin.researchers = {
            path: {user: account.copy() for user, account in users.items()} for path, users in self.researchers.items()
        }
        twin.owed = {path: owed.copy() for path, owed in self.owed.items()}
        twin.capacity = self.capacity.copy()
        twin._now, twin._since = self._now, dict.fromkeys(self._rates, self._now)
        twin._rates, twin._totals = dict(self._rates), dict(self.totals)
        twin._hours = {use: hours.copy() for use, hours in self.hours.items()}
        twin.measured = {leaf: hours.copy() for leaf, hours in self.measured.items()}
        twin.busy = {leaf: hours.copy() for leaf, hours in self.busy.items()}
        return twin


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
        switching=GpuMillis(sum(pool.switching for pool in each)),
    )
