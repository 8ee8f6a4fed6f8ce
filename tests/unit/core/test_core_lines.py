"""Sums that are kept from pass to pass: they are what adding everything up at that instant gives."""

from __future__ import annotations

import random

import pytest

from gpufair.core.ledger import Account, PoolLedger
from gpufair.core.lines import Lines
from gpufair.core.model import Allocation
from gpufair.core.owed import MICRO, Owed
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, Instant, Millis

PATHS = [AllocationPath(path) for path in ("a/x", "a/y", "b")]
WINDOWS = (50, 200, 1_000)
STEPS = (0, 1, 5, 30, 120, 300)


def tree(*paths: str) -> Tree:
    return Tree(Allocation(AllocationPath(path)) for path in paths)


@pytest.mark.parametrize("seed", range(20))
def test_a_line_is_the_figure_as_long_as_it_holds(seed: int) -> None:
    """Charges and demand come and go, leave the window, and the window is edited."""
    draw, account, owed = random.Random(seed), Account(), Owed()
    now, window, charged, wanted = 0, 200, 0, 0
    for _ in range(60):
        now += draw.choice(STEPS)
        window = draw.choice(WINDOWS) if draw.random() < 0.1 else window
        if draw.random() < 0.4:
            more = draw.randint(-charged, 5)
            charged += more
            account.change(Instant(now), more, Millis(window))
        if draw.random() < 0.4:
            more = draw.randint(-wanted, 5)
            wanted += more
            owed.want(Instant(now), more, Millis(window))
        if draw.random() < 0.1:
            owed.limit(Instant(now), draw.randint(0, 9) * MICRO * 7 // 10, Millis(window))
        for line, figure in (
            (account.line(Instant(now), Millis(window)), account.occupancy),
            (owed.line(Instant(now), Millis(window)), owed.within),
        ):
            assert line.since <= now < line.until
            later = min(line.until, now + draw.randint(0, 400))  # where it ends the next one begins at the same value
            for at in (now, later):
                assert figure(Instant(at), Millis(window)) == line.offset + line.slope * at


@pytest.mark.parametrize("seed", range(10))
def test_sums_are_kept_as_everything_changes(seed: int) -> None:
    """Each level, at each instant, also after other budgets and another window; a dropped one counts where it hung."""
    draw, ledger = random.Random(seed), PoolLedger()
    now, window, budgets = 0, Millis(200), tree(*PATHS)
    held = dict.fromkeys(PATHS, 0)
    for _ in range(80):
        now += draw.choice(STEPS)
        path, more = draw.choice(PATHS), draw.randint(0, 3)
        more = more if draw.random() < 0.5 else -min(more, held[path])
        held[path] += more
        ledger.charge(path, "u", Instant(now), more, window)
        if draw.random() < 0.1:
            window = Millis(draw.choice(WINDOWS))
        if draw.random() < 0.1:
            budgets = draw.choice((tree(*PATHS), tree("a/x", "b"), tree("a/x", "a/y", "c")))
        sums = ledger.occupancies(budgets, Instant(now), window)
        for node in budgets.nodes():
            below = [path for path in PATHS if node.path in budgets[budgets.nearest(path)].lineage]
            had = [ledger.account(path).occupancy(Instant(now), window) for path in below]
            assert sums[node.path] == sum(had)


def test_what_was_read_once_may_be_kept() -> None:
    """What a pass grants it counts itself, and must not find again in what was promised before."""
    lines = Lines(tree(*PATHS))
    lines.put(PATHS[0], 100, -2)
    now, kept = lines.at(10), lines.frozen(10)
    lines.put(PATHS[0], 100, -1)
    lines.put(PATHS[2], 7, 0)
    assert [kept[AllocationPath(path)] for path in ("", "a", "a/x", "b")] == [80, 80, 80, 0]
    assert [now[AllocationPath(path)] for path in ("", "a", "a/x", "b")] == [97, 90, 90, 7]
