"""Whose task runs next in a shared CPU pool."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpufair.cpu.turns import STEPS, Charged, Whom, next_turn

ADA, BO, CY = Whom("vision", "ada"), Whom("vision", "bo"), Whom("language", "cy")
SHARES = {"vision": Fraction(3, 4), "language": Fraction(1, 4)}


def test_the_allocation_furthest_below_its_share_comes_first_then_its_poorest_user_then_who_came_first() -> None:
    """The order of the rule, one criterion after the other."""
    everybody = {ADA: 1, BO: 2, CY: 3}
    assert next_turn(everybody, {ADA: 290, CY: 100}, {}, SHARES) == BO
    assert next_turn(everybody, {ADA: 310, CY: 100}, {}, SHARES) == CY
    assert next_turn(everybody, {ADA: 100, BO: 90, CY: 100}, {}, SHARES) == BO
    assert next_turn({ADA: 2, BO: 1}, {}, {}, SHARES) == BO
    assert next_turn({}, {}, {}, SHARES) is None


def test_who_has_no_share_has_what_nobody_else_wants() -> None:
    """Also those who do not say who they are."""
    stranger, other = Whom("", "client-1"), Whom("gone", "dee")
    assert next_turn({stranger: 1, CY: 2}, {CY: 10**9}, {}, SHARES) == CY
    assert next_turn({stranger: 1, other: 2}, {stranger: 5}, {}, SHARES) == other
    assert next_turn({stranger: 1}, {stranger: 10**9}, {}, SHARES) == stranger


def test_a_quota_counts_a_users_tasks_in_all_allocations() -> None:
    """Else two allocations would be two quotas."""
    elsewhere = Whom("language", "ada")
    assert next_turn({ADA: 1}, {}, {elsewhere: 2}, SHARES, quota=2) is None
    assert next_turn({ADA: 1, BO: 2}, {}, {elsewhere: 2}, SHARES, quota=2) == BO
    assert next_turn({ADA: 1}, {}, {elsewhere: 2}, SHARES) == ADA


def test_worker_time_leaves_with_the_window() -> None:
    """Part after part, and nothing is left of who had only that."""
    books = Charged(STEPS * 10)
    books.add(ADA, 0, 25)
    books.add(ADA, 5, 15)  # another thread, at the same time
    books.add(BO, 1000, 1010)
    assert dict(books.totals(1010)) == {ADA: 35, BO: 10}
    assert books.totals(STEPS * 10 + 9)[ADA] == 20, "the first step has left"
    assert dict(books.totals(STEPS * 10 + 29)) == {BO: 10}
    with pytest.raises(ValueError, match="0 ms"):
        Charged(0)


def test_what_was_charged_survives_the_process() -> None:
    """A pool that was killed would otherwise owe everybody the same."""
    books = Charged(STEPS * 10)
    for _ in range(3):
        books.add(ADA, 7, 29)
    later = Charged(STEPS * 20)  # configured anew in between
    later.load(books.dump())
    assert dict(later.totals(30)) == {ADA: 66}
    with pytest.raises(ValueError, match="nobody"):
        later.load([["vision", "ada", "soon", 1]])
