"""A part of a list of weights that comes to a given sum: even over the list, and as close as the weights allow."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor
from random import Random
from typing import Final

_CLOSE: Final = 0.0005  # of the sum asked for: good enough to stop at
_FAR: Final = 0.005  # not good enough to keep: a few weights, one of them large
_TRIES: Final = 50


def sample(weights: Sequence[int], target: int, draw: Random) -> list[int]:
    """Indices, rising, whose weights come to about ``target``.

    It goes through the list with an even step from a random start, so each index is as likely as any other and a list
    that was sorted is represented evenly; then single ones are put in or taken out, in random order, while that brings
    the sum nearer. Where one large weight stands in the way of that, those are taken in random order that still fit.
    A target above the sum of all gives all, one below 0 none.
    """
    total = sum(weights)
    if target <= 0 or not total:
        return []
    if target >= total:
        return list(range(len(weights)))
    part, at = target / total, draw.random()
    taken = [floor(at + part * (index + 1)) > floor(at + part * index) for index in range(len(weights))]
    order = list(range(len(weights)))
    draw.shuffle(order)
    missing = _mend(weights, taken, order, target)
    for _ in range(_TRIES):
        if abs(missing) <= _FAR * target:
            break
        draw.shuffle(order)
        fitting = _fitting(weights, order, target)
        lacks = _mend(weights, fitting, order, target)
        if abs(lacks) < abs(missing):
            taken, missing = fitting, lacks
    return [index for index, take in enumerate(taken) if take]


def _fitting(weights: Sequence[int], order: Sequence[int], target: int) -> list[bool]:
    taken, left = [False] * len(weights), target
    for index in order:
        if weights[index] <= left:
            taken[index] = True
            left -= weights[index]
    return taken


def _mend(weights: Sequence[int], taken: list[bool], order: Sequence[int], target: int) -> int:
    """Put in and take out single ones while that helps; what is missing then."""
    missing = target - sum(weight for weight, take in zip(weights, taken, strict=True) if take)
    for index in order:
        if abs(missing) <= _CLOSE * target:
            break
        change = -weights[index] if taken[index] else weights[index]
        if abs(missing - change) < abs(missing):
            taken[index] = not taken[index]
            missing -= change
    return missing
