"""Arrays: one command submitted for every combination of values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from gpufair.cli.exits import USAGE, CommandError

MOST: Final = 10_000  # of one array


class BadArray(CommandError):
    """What was asked for is no array."""

    exit_code = USAGE


@dataclass(frozen=True, slots=True)
class Member:
    """One of an array: its place, and the value of each name."""

    index: int
    size: int
    values: tuple[tuple[str, str], ...]

    def fill(self, text: str) -> str:
        """``text`` with ``{name}`` replaced by this member's value, and ``{index}`` by its place."""
        for name, value in (*self.values, ("index", str(self.index))):
            text = text.replace(f"{{{name}}}", value)
        return text

    def label(self, name: str) -> str:
        """Its name in lists."""
        told = ",".join(f"{key}={value}" for key, value in self.values)
        return f"{name}[{told}]"

    def environment(self) -> dict[str, str]:
        """What a program may read in place of its arguments."""
        return {"GPUFAIR_ARRAY_INDEX": str(self.index), "GPUFAIR_ARRAY_SIZE": str(self.size)}


def members(arrays: Sequence[str]) -> list[Member]:
    """All combinations of ``NAME=VALUE,VALUE…``; values may be a range of whole numbers, ``0-9``.

    Raises:
        BadArray: One is not written like that, a name comes twice, or there are too many.
    """
    axes: dict[str, list[str]] = {}
    for array in arrays:
        name, equals, values = array.partition("=")
        if not equals or not name.isidentifier() or name == "index" or not values:
            raise BadArray(f"--array {array!r}: write it as NAME=VALUE,VALUE, like lr=0.1,0.01, or seed=0-9")
        if name in axes:
            raise BadArray(f"--array {name} is there twice; put all of its values into one")
        axes[name] = [one for part in values.split(",") for one in _range(part)]
    size = prod(map(len, axes.values()))
    if size > MOST:
        raise BadArray(f"the array has {size} members and may have {MOST}; submit it in parts")
    combinations = product(*([(name, value) for value in values] for name, values in axes.items()))
    return [Member(index, size, values) for index, values in enumerate(combinations)]


def _range(part: str) -> list[str]:
    first, dash, last = part.partition("-")
    if not (dash and first.isdigit() and last.isdigit()):
        return [part]
    if int(last) - int(first) >= MOST:
        raise BadArray(f"{part} are more than {MOST} values; submit it in parts")
    if int(first) > int(last):
        raise BadArray(f"{part} counts backwards; write {last}-{first}")
    return [str(number) for number in range(int(first), int(last) + 1)]
