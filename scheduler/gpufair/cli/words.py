"""Figures as people read them. Pure: ``now`` comes in, in Unix seconds."""

from __future__ import annotations

import datetime as dt
import re

from gpufair.client.overview import moves, withheld
from gpufair.client.types import Workload

NOTHING = "–"
# Sentences of the scheduler name moments in UTC, the same for everybody; who reads them here lives in one time zone.
_UTC = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?Z")
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def clean(text: str, longest: int = 300) -> str:
    """``text`` without control characters: names and reasons come from others and must not steer a terminal."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def span(seconds: float) -> str:
    """A span of time in its two largest units.

    Examples:
        >>> span(7500), span(0.25), span(61)
        ('2 h 5 min', '0.2 s', '1 min 1 s')
    """
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    left = round(seconds)
    for at, (size, unit) in enumerate(_UNITS):
        if left >= size:
            whole, rest = divmod(left, size)
            # Only the next unit may follow: "3 d 20 s" would claim an exactness that nobody wants to read.
            smaller = _UNITS[at + 1] if at + 1 < len(_UNITS) else None
            if smaller and rest // smaller[0]:
                return f"{whole} {unit} {rest // smaller[0]} {smaller[1]}"
            return f"{whole} {unit}"
    return "0 s"


def clock(instant: float, now: float) -> str:
    """A moment in local time; the date only if it is another day.

    Examples:
        >>> clock(0.0, 0.0).count(":")
        2
    """
    when, today = dt.datetime.fromtimestamp(instant).astimezone(), dt.datetime.fromtimestamp(now).astimezone()
    return when.strftime("%H:%M:%S" if when.date() == today.date() else "%a %d %b %H:%M")


def moment(instant: float | None, now: float) -> str:
    """A moment and how far it is: ``14:05:00 (in 12 min)``."""
    if instant is None:
        return NOTHING
    away = instant - now
    if abs(away) < 1:
        return f"{clock(instant, now)} (now)"
    return f"{clock(instant, now)} ({'in ' + span(away) if away > 0 else span(-away) + ' ago'})"


def localised(sentence: str, now: float) -> str:
    """A sentence of the scheduler with its moments in local time.

    Examples:
        >>> localised("held until 1970-01-01 00:01:00.500Z.", 0.0) == f"held until {clock(60.5, 0.0)} (in 1 min)."
        True
    """
    return _UTC.sub(lambda found: moment(dt.datetime.fromisoformat(found[0]).timestamp(), now), sentence)


def ago(instant: float | None, now: float) -> str:
    """How long ago."""
    return NOTHING if instant is None else span(max(0.0, now - instant))


def size(count: float) -> str:
    """Bytes in decimal units.

    Examples:
        >>> size(1536), size(0), size(2.5e9)
        ('1.5 kB', '0 B', '2.5 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def gpu_time(gpu_seconds: float) -> str:
    """GPU time in GPU-hours, small amounts in finer units.

    Examples:
        >>> gpu_time(7200), gpu_time(90), gpu_time(12)
        ('2.0 GPU-h', '1.5 GPU-min', '12 GPU-s')
    """
    if abs(gpu_seconds) >= 3600:
        return f"{gpu_seconds / 3600:,.1f} GPU-h"
    return f"{gpu_seconds / 60:.1f} GPU-min" if abs(gpu_seconds) >= 60 else f"{gpu_seconds:.0f} GPU-s"


def percent(fraction: float) -> str:
    """A fraction of the whole."""
    return f"{fraction * 100:.1f} %"


def metric(value: float | None) -> str:
    """The fair-share metric with its meaning: below 1 is under-served.

    Examples:
        >>> metric(0.42), metric(0.000_016_5), metric(0.0)
        ('0.420 (under-served)', '0.000017 (under-served)', '0.000 (under-served)')
    """
    if value is None:
        return NOTHING
    # A week's budget is large: two sessions of a minute differ far behind the point, and that is what decides.
    return (f"{value:.6f}" if 0 < value < 0.01 else f"{value:.3f}") + (" (under-served)" if value < 1 else " (over-served)" if value > 1 else "")


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 11th."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def plural(count: int, noun: str) -> str:
    """``1 workload``, ``2 workloads``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shape(workload: Workload) -> str:
    """GPUs asked for: ``2``, ``4 × 8``, ``1 A100``, ``cpu``."""
    if not workload.gpus:
        return "cpu"
    count = str(workload.gpus) if workload.nodes == 1 else f"{workload.nodes} × {workload.gpus}"
    return f"{count} {workload.gpu_type}".strip()


def starts(workload: Workload, now: float) -> str:
    """When it starts: ``by`` is binding, ``~`` an estimate."""
    if workload.start_by_s is not None:
        return f"by {moment(workload.start_by_s, now)}"
    return NOTHING if workload.estimate_s is None else f"~ {moment(workload.estimate_s, now)}"


def protection(workload: Workload, now: float) -> str:
    """How long it stays protected; work without GPUs needs no protection."""
    if workload.protected_until_s is None or not workload.leases or not workload.gpus:
        return NOTHING
    left = workload.protected_until_s - now
    return span(left) if left > 0 else "over"


def what(workload: Workload) -> str:
    """State with what makes it one: ``running, busy``, ``queued, 2nd``, ``ended, failed``."""
    more = ""
    if workload.on_cpu and workload.state == "running":
        place = f", queued {ordinal(workload.position)}" if workload.position is not None else ""
        return f"open on a CPU node{place}"
    if waits := withheld(workload):
        return waits
    if workload.state == "queued" and workload.position is not None:
        more = ordinal(workload.position)
    elif workload.state == "running":
        more = "kernel died" if workload.kernel_died else "busy" if workload.busy else "idle"
        if moves(workload):
            more = "moving to a CPU node"
        elif workload.suggestion is not None and workload.suggestion.kind == "move_to_cpu":
            more += ", GPUs not used"
        if workload.kind != "session":  # a batch workload is not idle because no cell runs
            more = ""
    elif workload.state == "ended" and workload.outcome:
        more = workload.outcome
    elif workload.progress is not None and workload.state in {"checkpointing", "restoring"}:
        more = f"{workload.progress.fraction:.0%}"
    return f"{workload.state}, {more}" if more else workload.state
