"""Amounts as Kubernetes writes them: ``500m`` of a core, ``1Gi`` of memory, ``1e3``. Exact, like Kubernetes' own."""

from __future__ import annotations

import functools
import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

_SUFFIXES: Final = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{suffix: Fraction(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(2 ** (10 * power)) for power, suffix in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(
    r"([+-]?)(\d{1,30}\.?\d{0,30}|\.\d{1,30})(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
EXAMPLES: Final = "500m, 2, 1.5Gi or 1e3"


@lru_cache(maxsize=4096)  # the same few amounts stand on thousands of pods
def _parsed(text: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    sign, digits, exponent, suffix = match.groups()
    amount = Fraction(digits.rstrip(".")) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])
    return -amount if sign == "-" else amount


def parse_quantity(value: object) -> Fraction:
    """The amount that ``value`` names, in its own unit (cores, bytes, devices).

    Raises:
        ValueError: It names none. The text says what is allowed; it does not name a place.

    Examples:
        >>> parse_quantity("500m"), parse_quantity("1Gi"), parse_quantity("1e3"), parse_quantity(2)
        (Fraction(1, 2), Fraction(1073741824, 1), Fraction(1000, 1), Fraction(2, 1))
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        # YAML reads a bare 2 as a number; NaN and infinities are no amounts.
        value = repr(value)
    amount = _parsed(value) if isinstance(value, str) else None
    if amount is None:
        raise ValueError(f"{str(value)[:60]!r} is no amount; Kubernetes writes them like {EXAMPLES}")
    return amount


def known_quantity(value: object) -> Fraction:
    """Like ``parse_quantity``, with 0 for what is absent or no amount: one odd object must not hide a whole cluster."""
    return _known(value) if isinstance(value, str) else _read(value)


def _read(value: object) -> Fraction:
    try:
        return max(Fraction(0), parse_quantity(value))
    except ValueError:
        return Fraction(0)


# All nodes of a cluster say the same few amounts, many times a second.
_known = functools.lru_cache(maxsize=4096)(_read)
