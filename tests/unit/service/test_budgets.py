"""A wrong budgets file is refused with its line, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.core.errors import BudgetError
from gpufair.core.model import Allocation
from gpufair.core.units import AllocationPath
from gpufair.service.settings.budgets import MAX_BUDGETS_BYTES, budgets_from_json, parse_budgets, read_budgets


def test_a_good_file_is_read_exactly() -> None:
    """Parents are implied; shares keep the digits that were written."""
    budgets = parse_budgets(
        b'users = ["ria", "bo"]\n[[allocation]]\npath = "language/pretrain"\nshare = 70\nmembers = ["ria"]\n[[allocation]]\npath = "vision"\nshare = 0.1\n[[allocation]]\npath="x"\n'
    )
    assert budgets.allocations == (
        Allocation(AllocationPath("language/pretrain"), "70", ("ria",)),
        Allocation(AllocationPath("vision"), "0.1"),
        Allocation(AllocationPath("x"), "1"),
    )
    assert budgets.leaves == ("language/pretrain", "vision", "x")


A = "[[allocation]]\npath = 'a'\n"
BAD = [
    ("", 1, ["no [[allocation]]"]),
    ("[[alocation]]\npath = 'a'\n", 1, ["alocation", "did you mean 'allocation'"]),
    (A + "shares = 2\n", 3, ["'shares'", "did you mean 'share'"]),
    (A + "share = -1\n", 3, ["-1", "negative"]),
    (A + "share = inf\n", 3, ["inf", "not a number"]),
    (A + "share = nan\n", 3, ["nan", "not a number"]),
    (A + "share = true\n", 3, ["not a number"]),
    (A + "share = 'a lot'\n", 3, ["a lot", "not a number"]),
    (A + "share = 1e300\n", 3, ["out of range"]),
    (A + "share = 1e-300\n", 3, ["out of range"]),
    (A + "share = []\n", 3, ["not a number"]),
    (A + "members = 'ria'\n", 3, ["list of user names"]),
    (A + "members = [1]\n", 3, ["list of user names"]),
    (A + "members = ['../x']\n", 3, ["no user name"]),
    (A + "members = ['ria', 'ria']\n", 3, ["twice"]),
    ("users = ['maria', 'bo']\n" + A + "\nmembers = ['bo',\n 'mria']\n", 5, ["'mria'", "did you mean 'maria'", "bo"]),
    ("users = 'bo'\n" + A, 1, ["list of user names"]),
    (A + A, 4, ["already declared on line 2"]),
    ("[[allocation]]\nshare = 1\n", 1, ["no path"]),
    ("[[allocation]]\npath = ''\n", 2, ["empty segment"]),
    ("[[allocation]]\npath = 'a//b'\n", 2, ["a//b", "empty segment"]),
    ("[[allocation]]\npath = '/a'\n", 2, ["empty segment"]),
    ("[[allocation]]\npath = 'a b'\n", 2, ["no name"]),
    ("[[allocation]]\npath = 3\n", 2, ["expected a string"]),
    ("[[allocation]]\npath = '" + "/".join("abcdefghijklmnopqr") + "'\n", 2, ["levels"]),
    (A + "share = 0\n[[allocation]]\npath='b'\nshare = 0\n", 5, ["all shares", "at the top", "a, b"]),
    ("[[allocation]]\npath = 'p/a'\nshare = 0\n", 2, ["all shares below 'p'"]),
    ("allocation = 3\n", 1, ["no [[allocation]]"]),
    ("allocation = [3]\n", 1, ["table"]),
    (A + "share = \n", 3, ["not valid TOML"]),
]


@pytest.mark.parametrize(("text", "line", "words"), BAD)
def test_a_bad_file_names_line_and_remedy(text: str, line: int, words: list[str]) -> None:
    """The table of everything that budget owners get wrong."""
    with pytest.raises(BudgetError) as caught:
        parse_budgets(text.encode(), file="b.toml")
    assert caught.value.line == line, str(caught.value)
    assert str(caught.value).startswith(f"b.toml, line {line}: ")
    for word in words:
        assert word in str(caught.value)


def test_members_are_checked_against_the_configured_users() -> None:
    """Without a list in the file, the config's list counts; without any, anybody may be named."""
    text = (A + "members = ['zoe']\n").encode()
    assert parse_budgets(text).allocations[0].members == ("zoe",)
    with pytest.raises(BudgetError, match="'zoe' of 'a' is not a known user"):
        parse_budgets(text, users=("ada",))


def test_size_and_encoding_are_limited(tmp_path: Path) -> None:
    """What isn't a budgets file is refused before it is parsed."""
    with pytest.raises(BudgetError, match="larger than"):
        parse_budgets(b"#" * (MAX_BUDGETS_BYTES + 1))
    with pytest.raises(BudgetError, match=r"line 2: is not UTF-8"):
        parse_budgets(b"# x\n\xff")
    with pytest.raises(BudgetError, match="cannot be read"):
        read_budgets(tmp_path / "absent.toml")
    with pytest.raises(BudgetError, match=r"not valid TOML|nested too deeply"):
        parse_budgets(b"x = " + b"[" * 100_000)


def test_json_is_read_by_the_same_rules() -> None:
    """The API takes both; JSON has no lines."""
    assert budgets_from_json({"allocation": [{"path": "a", "share": "0.30"}]}).allocations == (
        Allocation(AllocationPath("a"), "0.30"),
    )
    bad: list[object] = [
        None,
        [],
        {},
        {"allocation": [{"path": "a", "share": -1}]},
        {"allocation": [{"path": "a"}], "x": 1},
    ]
    for data in bad:
        with pytest.raises(BudgetError) as caught:
            budgets_from_json(data)
        assert caught.value.line is None
