"""Fields of a report, read strictly: each is of its type and no larger than allowed, or the report is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpufair.core.model import Utilization
from gpufair.core.units import GpuMillis, Millis, WorkloadId
from gpufair.wire import Report, WireError

MAX_NAMES = 1000  # of lost variables and devices in one report
MAX_DEVICE = 128  # characters of a device
LONGEST = 2000  # characters of a reason


def text(report: Report, key: str) -> str:
    """A string that is not empty. Raises ``WireError``."""
    value = report.body.get(key)
    if not isinstance(value, str) or not value or len(value) > 256:
        raise WireError(f"{report.kind}: {key} has to be a string of at most 256 characters")
    return value


def reason(report: Report) -> str:
    """Why, as far as it was said; cut to ``LONGEST``."""
    return str(report.body.get("reason") or "")[:LONGEST]


def integer(report: Report, key: str) -> int:
    """An integer that is not negative. Raises ``WireError``."""
    value = report.body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise WireError(f"{report.kind}: {key} has to be an integer >= 0")
    return value


def number(report: Report, key: str) -> float:
    """A number that is not negative. Raises ``WireError``."""
    value = report.body.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e13:
        raise WireError(f"{report.kind}: {key} has to be a number >= 0")
    return float(value)


def strings(report: Report, key: str) -> tuple[str, ...]:
    """A list of strings; none where it is left out. Raises ``WireError``."""
    value = report.body.get(key) or []
    if not isinstance(value, list) or len(value) > MAX_NAMES or not all(isinstance(item, str) for item in value):
        raise WireError(f"{report.kind}: {key} has to be a list of strings")
    return tuple(value)


def pairs(report: Report, key: str) -> tuple[tuple[str, str], ...]:
    """A list of [name, reason], each cut to its limit; none where it is left out. Raises ``WireError``."""
    value = report.body.get(key) or []
    if not isinstance(value, list) or not all(isinstance(item, list | tuple) and len(item) == 2 for item in value):
        raise WireError(f"{report.kind}: {key} has to be a list of [name, reason]")
    return tuple((str(name)[:256], str(why)[:LONGEST]) for name, why in value[:MAX_NAMES])


def sample(report: Report) -> tuple[Millis, Utilization, list[tuple[str, float]]]:
    """How busy GPUs were: over which span, in all, and each device. Raises ``WireError``."""
    span = Millis(int(number(report, "span_s") * 1000))
    given = report.body.get("gpus")
    if span <= 0 or not isinstance(given, list) or not 0 < len(given) <= MAX_NAMES:
        raise WireError("utilization: span_s has to be above 0, and gpus a list of [device, fraction]")
    busy, devices = 0, []
    for item in given:
        value = item[1] if isinstance(item, list | tuple) and len(item) == 2 else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise WireError("utilization: gpus has to be a list of [device, fraction from 0 to 1]")
        busy += int(value * span)
        devices.append((str(item[0])[:MAX_DEVICE], float(value)))
    return span, Utilization(WorkloadId(report.workload), GpuMillis(len(given) * span), GpuMillis(busy)), devices


def preflight(report: Report) -> dict[str, Any]:
    """What a kernel says that a checkpoint would be like. Raises ``WireError``."""
    body = report.body
    if "reason" in body:
        return {"parkable": False, "reason": reason(report)}
    figures = {key: number(report, key) for key in ("size_bytes", "seconds", "bytes_per_s", "taken_s", "left_out")}
    variables = body.get("variables")
    if not isinstance(variables, list) or not all(isinstance(one, dict) for one in variables):
        raise WireError("preflight: variables has to be a list of objects")
    shown = [
        {
            **{key: str(one.get(key, ""))[:LONGEST] for key in ("name", "kind", "state", "reason")},
            **{key: number(replace(report, body=one), key) for key in ("size_bytes", "seconds")},
        }
        for one in variables[:MAX_NAMES]
    ]
    known = {key: body.get(key) is True for key in ("parkable", "measured")}
    return {**known, **figures, "variables": shown}
