"""Values of traces: from texts to numbers, spans and instants, refused with a reason where they make no sense."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from types import MappingProxyType
from typing import Final

from gpufair.core.units import Instant, Millis

MOST_SECONDS: Final = 1e11  # the year 5138: Unix times fit, microseconds by mistake don't
MOST_GPUS: Final = 1_000_000
MOST_NUMBER: Final = 1e300  # sums of a few stay finite
LONGEST_TEXT: Final = 256
NONE: Final = frozenset({"", "none", "null", "nan", "na", "n/a", "unknown"})
BOOLEANS: Final[Mapping[str, bool]] = MappingProxyType(
    dict.fromkeys(("true", "yes", "1"), True) | dict.fromkeys(("false", "no", "0"), False)
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_ELAPSED: Final = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,2})(?:\.(\d{1,6}))?", re.ASCII)
_ELAPSED_HOURS: Final = re.compile(r"(\d{1,6})-(\d{1,2})", re.ASCII)


class Wrong(ValueError):  # never leaves this package: it becomes a bad row
    """A value makes no sense; the text says why."""


def number(text: str, what: str) -> float:
    """A decimal number. Raises ``Wrong``."""
    try:
        value = float(text)
    except ValueError:
        raise Wrong(f"{what} is {shown(text)}: not a number" if text.strip() else f"{what} is empty") from None
    if isfinite(value) and abs(value) > MOST_NUMBER:
        raise Wrong(f"{what} is {shown(text)}: too large")
    if not isfinite(value) or "_" in text:
        raise Wrong(f"{what} is {shown(text)}: not a number")
    return value


def millis(text: str, what: str) -> Millis:
    """Seconds >= 0, rounded to milliseconds. Raises ``Wrong``."""
    seconds = number(text, what)
    if not 0 <= seconds <= MOST_SECONDS:
        raise Wrong(f"{what} is {shown(text)}: {'negative' if seconds < 0 else 'too large for seconds'}")
    return Millis(round(seconds * 1000))


def gpu_count(text: str, what: str = "gpus") -> float:
    """GPUs >= 0, fractions allowed. Raises ``Wrong``."""
    gpus = number(text, what)
    if not 0 <= gpus <= MOST_GPUS:
        raise Wrong(f"{what} is {shown(text)}: {'negative' if gpus < 0 else 'too many'}")
    return gpus


def whole(text: str, what: str, least: int, most: int) -> int:
    """A whole number (``2.0`` is one) within bounds. Raises ``Wrong``."""
    value = number(text, what)
    if value != int(value):
        raise Wrong(f"{what} is {shown(text)}: not a whole number")
    if not least <= value <= most:
        raise Wrong(f"{what} is {shown(text)}: not between {least:,} and {most:,}")
    return int(value)


def nodes(text: str, what: str = "nodes") -> int:
    """A number of machines. Raises ``Wrong``."""
    return whole(text, what, 1, MOST_GPUS)


def priority(text: str, what: str = "priority") -> int:
    """A priority. Raises ``Wrong``."""
    return whole(text, what, -(2**53), 2**53)


def name(text: str, what: str) -> str:
    """A short printable text without space around it. Raises ``Wrong``."""
    text = text.strip()
    if len(text) > LONGEST_TEXT:
        raise Wrong(f"{what} has {len(text):,} characters, more than {LONGEST_TEXT}")
    if not text.isprintable():
        raise Wrong(f"{what} is {shown(text)}: it holds characters that can't be shown")
    return text


def instant(text: str, what: str) -> Instant:
    """A date with a time, or Unix seconds. One without a zone is taken as UTC. Raises ``Wrong``."""
    text = text.strip()
    try:
        if text.isdecimal() or text.replace(".", "", 1).isdecimal():
            return Instant(millis(text, what))
        at = datetime.fromisoformat(text)
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        value = (at - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError) as err:
        if isinstance(err, Wrong):
            raise
        raise Wrong(f"{what} is {shown(text)}: not a date with a time") from None
    if value < 0:
        raise Wrong(f"{what} is {shown(text)}: before 1970")
    return Instant(value)


def elapsed(text: str, what: str) -> Millis:
    """A span as Slurm writes it: ``[days-][hours:]minutes:seconds[.fraction]``, or ``days-hours``. Raises ``Wrong``."""
    text = text.strip()
    if short := _ELAPSED_HOURS.fullmatch(text):
        return Millis((int(short[1]) * 24 + int(short[2])) * 3_600_000)
    match = _ELAPSED.fullmatch(text)
    if match is None:
        raise Wrong(f"{what} is {shown(text)}: not a span like 2-03:04:05")
    days, hours, minutes, seconds, fraction = match.groups()
    if int(seconds) > 59 or (hours is not None and int(minutes) > 59) or (days is not None and int(hours or 0) > 23):
        raise Wrong(f"{what} is {shown(text)}: not a span like 2-03:04:05")
    total = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes)) * 60 + int(seconds)
    if total > MOST_SECONDS:
        raise Wrong(f"{what} is {shown(text)}: too long")
    return Millis(total * 1000 + int((fraction or "0").ljust(3, "0")[:3]))


def shown(text: str, most: int = 40) -> str:
    """A value as an error quotes it: short, and harmless to a terminal."""
    text = text if len(text) <= most else text[: most - 1] + "…"
    return repr(text) if text.isprintable() else ascii(text)
