"""A fair tree with decayed usage, as HPC clusters have it: rank decides who starts next, and nobody is told to leave.

Usage halves every ``half_life`` (7 days where the policy names none). Ranks are worked out every 5 minutes, from the usage
by then; in between they stand, whatever starts. At each level of the tree the sibling with less usage per share comes
first, with all that is below it; the researchers of a leaf are siblings with equal shares. Age, size and priority count
for nothing. Whoever is first has a reservation, and others backfill (``Backfill``). Unallocated work is a class of its own
behind everybody else, and is not counted as usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from math import inf
from typing import Final

from gpufair.core.actions import Action
from gpufair.core.events import Event
from gpufair.core.model import Held, Policy
from gpufair.core.units import DAY, MINUTE, AllocationPath, Instant, Millis
from gpufair.sim.policies.backfill import Backfill
from gpufair.sim.policies.item import Item
from gpufair.sim.policies.queue import Class, Rank

REFRESH: Final = Millis(5 * MINUTE)
USUAL_HALF_LIFE: Final = Millis(7 * DAY)

Account = tuple[AllocationPath, str]  # leaf and researcher


class HalfLife(Backfill):
    """Rank by decayed usage.

    Args:
        policy: Beside what every ``Scheduler`` uses: ``half_life``.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self._left = _what_is_left(REFRESH, policy.half_life or USUAL_HALF_LIFE)
        self._refreshed = Instant(0)
        self._accounts: dict[Account, _Use] = {}
        self._places: dict[AllocationPath, int] = {}  # of the leaves, by usage per share when it was refreshed
        self._stale = True  # the places are out of date

    def class_of(self, item: Item) -> Class:
        """Those of one researcher in one leaf; unallocated ones apart."""
        return "" if item.spec.allocated else "unallocated", item.spec.allocation, item.spec.user

    def rank(self, of: Class) -> Rank:
        """The place of the leaf, and in it the researcher with less usage first."""
        unallocated, leaf, user = of
        account = self._accounts.get((AllocationPath(leaf), user))
        return unallocated, self._places[AllocationPath(leaf)], account.usage if account is not None else 0.0, user

    def enqueue(self, item: Item) -> None:
        """It has a rank at once."""
        self._bring_up_to_date()
        super().enqueue(item)

    def handle(self, event: Event) -> Sequence[Action]:
        """Take an event in and decide, by ranks that are at most five minutes old."""
        if event.at >= self._refreshed + REFRESH:
            self._refresh(Instant(event.at // REFRESH * REFRESH))
        return super().handle(event)

    def wakeup(self) -> Instant | None:
        """The time of a reservation, or the next refresh if that can change who is next."""
        promised = super().wakeup()
        if not self.queue:
            return promised
        due = Instant(self._refreshed + REFRESH)
        return due if promised is None else min(promised, due)

    def granted(self, item: Item) -> None:
        """Its GPUs count from now on."""
        super().granted(item)
        self._hold(item, item.gpus)

    def released(self, item: Item, held: Held) -> None:
        """They count no longer."""
        super().released(item, held)
        self._hold(item, -item.gpus)

    def rebudgeted(self) -> None:
        """Usage stays; it is measured against other shares."""
        self._stale = True

    def fill(self) -> None:
        """Start whoever may start."""
        self._bring_up_to_date()
        super().fill()

    # -- usage ----------------------------------------------------------------------------------------------------

    def _hold(self, item: Item, gpus: int) -> None:
        if item.spec.allocated:
            account = self._accounts.setdefault((item.spec.allocation, item.spec.user), _Use(self.now))
            account.count(self.now)
            account.gpus += gpus

    def _refresh(self, until: Instant) -> None:
        if not self._accounts:
            self._refreshed = until
        while self._refreshed < until:
            self._refreshed = Instant(self._refreshed + REFRESH)
            for account in self._accounts.values():
                account.usage *= self._left
                if account.gpus or account.recent:
                    account.count(self._refreshed)
                    account.usage += account.recent
                    account.recent = 0
        self._stale = True

    def _bring_up_to_date(self) -> None:
        if not self._stale:
            return
        self._stale = False
        tree = self.tree
        sums = dict.fromkeys(tree.paths, 0.0)
        for (leaf, _), account in self._accounts.items():
            sums[tree.nearest(leaf)] += account.usage
        for child, parent in tree.upward:
            sums[parent] += sums[child]
        levels = {node.path: sums[node.path] / float(node.share) if node.share else inf for node in tree.nodes()}
        walk = sorted(tree.leaves, key=lambda leaf: [(levels[path], path) for path in tree[leaf].lineage])
        self._places = {leaf: place for place, leaf in enumerate(walk)}
        self.queue.rerank()
        # Nobody can start who could not before, unless somebody else is first now.
        for pool in self.ground.by_pool:
            self.look_again(pool)


class _Use:
    """What one researcher has had in one leaf."""

    __slots__ = ("gpus", "recent", "since", "usage")

    def __init__(self, since: Instant) -> None:
        self.usage = 0.0  # GPU-ms, decayed, as of the last refresh
        self.recent = 0  # GPU-ms between that and ``since``
        self.gpus, self.since = 0, since

    def count(self, until: Instant) -> None:
        """Bring it up to date."""
        self.recent += self.gpus * (until - self.since)
        self.since = until


def _what_is_left(span: Millis, half_life: Millis) -> float:
    """2 ** -(span / half_life), the same on every machine."""
    with localcontext() as exact:
        exact.prec = 40
        return float(Decimal(2) ** (Decimal(-span) / Decimal(half_life)))
