"""Spans of time as people write them: ``30s``, ``15m``, ``8h``, ``7d``."""

from __future__ import annotations

import re

from gpufair.core.units import DAY, HOUR, MINUTE, SECOND, Millis

_UNITS = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_DURATION = re.compile(r"\s*(\d{1,12})(?:\.(\d{1,3}))?\s*(ms|s|m|h|d)\s*")
_PLAIN = re.compile(r"\s*\d+(\.\d*)?\s*")
EXAMPLES = "30s, 15m, 8h or 7d"


def parse_duration(value: object) -> Millis:
    """The span that ``value`` names, exact to the millisecond.

    Raises:
        ValueError: ``value`` is no duration. The text says what is allowed; it does not name a place.

    Examples:
        >>> parse_duration("15m")
        900000
        >>> parse_duration("1.5s")
        1500
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        # A ValueError for callers' sake: what stands in a file is a wrong value, whatever its type.
        raise ValueError(f"expected a duration like {EXAMPLES}, got {_kind(value)}")
    if not isinstance(value, str) or _PLAIN.fullmatch(value):
        number = str(value).strip()
        raise ValueError(
            f'{number} has no unit; did you mean "{number}s" or "{number}m"? Write durations like {EXAMPLES}'
        )
    match = _DURATION.fullmatch(value)
    if match is None:
        raise ValueError(f"{value!r} is no duration; write one like {EXAMPLES}")
    whole, part, unit = match.groups()
    thousandths = int(whole) * 1000 + int((part or "0").ljust(3, "0"))
    span, rest = divmod(thousandths * _UNITS[unit], 1000)
    if rest:
        raise ValueError(f"{value!r} is finer than a millisecond; write a duration like {EXAMPLES}")
    return Millis(span)


def format_duration(span: Millis) -> str:
    """``span`` >= 0 in the largest unit that keeps it exact.

    Examples:
        >>> format_duration(Millis(90_000))
        '90s'
        >>> format_duration(Millis(8 * 3_600_000))
        '8h'
    """
    for unit, size in reversed(_UNITS.items()):
        if span and span % size == 0:
            return f"{span // size}{unit}"
    return "0s"


def _kind(value: object) -> str:
    names = {bool: "a boolean", list: "a list", dict: "a table"}
    return names.get(type(value), type(value).__name__)
