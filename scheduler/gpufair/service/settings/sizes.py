"""Amounts of memory as people write them: ``512MB``, ``64GiB``."""

from __future__ import annotations

import re

_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SIZE = re.compile(r"\s*(\d{1,9})(?:\.(\d{1,3}))?\s*([A-Za-z]{1,3})\s*")
_KNOWN = {unit.lower(): size for unit, size in _UNITS.items()}
EXAMPLES = "512MB, 64GiB or 1.5TiB"
MAX_SIZE = 1 << 50


def parse_size(value: object) -> int:
    """Bytes that ``value`` names, rounded down. Capital letters mean the same as small ones.

    Raises:
        ValueError: ``value`` is no size. The text says what is allowed; it does not name a place.

    Examples:
        >>> parse_size("64GiB"), parse_size("1.5 kb")
        (68719476736, 1500)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{value} has no unit; did you mean "{value}GiB"? Write sizes like {EXAMPLES}')
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[3].lower() not in _KNOWN:
        raise ValueError(f"{value!r} is no size; write one like {EXAMPLES}")
    whole, part, unit = match.groups()
    size = (int(whole) * 1000 + int((part or "0").ljust(3, "0"))) * _KNOWN[unit.lower()] // 1000
    if size > MAX_SIZE:
        raise ValueError(f"{value!r} is more than any machine has; write a size like {EXAMPLES}")
    return size


def format_size(size: int) -> str:
    """``size`` >= 0 in the largest unit that keeps it exact.

    Examples:
        >>> format_size(64 * 2**30), format_size(1500), format_size(0)
        ('64GiB', '1500B', '0B')
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return f"{size}B"
