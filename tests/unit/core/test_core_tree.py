"""The budget tree: entitlements, members, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gpufair.core.errors import BudgetError
from gpufair.core.model import Allocation
from gpufair.core.tree import ROOT, Tree
from gpufair.core.units import AllocationPath as Path


def tree(*declared: tuple[str, str, tuple[str, ...]]) -> Tree:
    return Tree(Allocation(Path(path), share, members) for path, share, members in declared)


def test_an_entitlement_is_the_product_of_shares_along_the_path() -> None:
    """70 % of a half, exactly: no float comes near a budget."""
    one = tree(("language/pretrain", "70", ()), ("language/eval", "30", ()), ("vision", "1", ()))
    assert one[Path("language")].share == 1
    assert one[Path("language/pretrain")].entitlement == Fraction(7, 20)
    assert one[ROOT].entitlement == 1
    assert one.leaves == ("language/eval", "language/pretrain", "vision")


def test_siblings_without_any_share_are_entitled_to_nothing() -> None:
    """Two zeros are not a half each."""
    one = tree(("a", "0", ()), ("b", "0", ()))
    assert one[Path("a")].entitlement == 0


def test_decimal_shares_are_exact() -> None:
    """0.1 is a tenth."""
    assert tree(("a", "0.1", ()), ("b", "0.2", ()))[Path("a")].entitlement == Fraction(1, 3)


def test_members_come_from_the_nearest_ancestor_that_names_any() -> None:
    """A project may be narrower than its programme; where nobody is named, everybody may."""
    one = tree(("a", "1", ("ria",)), ("a/x", "1", ()), ("a/y", "1", ("max",)), ("b", "1", ()))
    assert one.allows("ria", Path("a/x"))
    assert not one.allows("ria", Path("a/y"))
    assert one.allows("max", Path("a/y"))
    assert one.allows("anybody", Path("b"))
    assert not one.allows("ria", Path("a")), "not a leaf"
    assert one.open_to("max") == ("a/y", "b")


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ([("a", "1", ()), ("a", "2", ())], "declared twice"),
        ([("a", "-1", ())], "negative"),
        ([("a", "much", ())], "not a number"),
        ([("a", "1/0", ())], "not a number"),
        ([("", "1", ())], "not valid"),
        ([("a//b", "1", ())], "not valid"),
        ([("/a", "1", ())], "not valid"),
        ([("a/ b", "1", ())], "not valid"),
    ],
)
def test_a_bad_tree_is_refused_with_the_reason(declared: list[tuple[str, str, tuple[str, ...]]], said: str) -> None:
    """People write these by hand."""
    with pytest.raises(BudgetError, match=said):
        tree(*declared)


def test_two_leaves_diverge_below_their_lowest_common_ancestor() -> None:
    """It is there that ranks are compared."""
    one = tree(("a/x", "1", ()), ("a/y", "1", ()), ("b", "1", ()))
    assert one.diverge(Path("a/x"), Path("a/y")) == ("a/x", "a/y")
    assert one.diverge(Path("a/x"), Path("b")) == ("a", "b")
    assert one.diverge(Path("b"), Path("b")) is None


def test_a_dropped_allocation_is_found_at_what_is_left_of_it() -> None:
    """Usage of a dropped project stays with its programme."""
    one = tree(("a/x", "1", ()))
    assert one.nearest(Path("a/gone/deep")) == "a"
    assert one.nearest(Path("gone")) == ROOT
