"""Every invariant of docs/policy.md has laws named after its number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LAST = 25


def laws() -> dict[int, list[str]]:
    """The tests of each number."""
    found: dict[int, list[str]] = {number: [] for number in range(1, LAST + 1)}
    for path in sorted(HERE.glob("test_*.py")):
        for number, name in re.findall(r"^def (?:test_p(\d\d)_(\w+))\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[int(number)].append(f"{path.stem}::{name}")
    return found


@pytest.mark.parametrize("number", range(1, LAST + 1))
def test_an_invariant_has_laws(number: int) -> None:
    """A number without any would be a promise that nobody looks after."""
    assert laws()[number], f"no test_p{number:02d}_… under tests/property"
