"""Words for the sentences that explain decisions. Everything is exact and the same in every time zone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from math import inf

from gpufair.core.model import Lease, Shape
from gpufair.core.units import Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(instant: Instant) -> str:
    """An instant in UTC, like 2026-11-29 16:11:32Z; milliseconds only where there are some."""
    when = _EPOCH + timedelta(milliseconds=instant)
    whole = when.strftime("%Y-%m-%d %H:%M:%S")
    return f"{whole}.{instant % 1000:03d}Z" if instant % 1000 else f"{whole}Z"


def span(millis: int) -> str:
    """A span of time in its largest whole unit, like 15 min."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if millis >= size and millis % size == 0:
            return f"{millis // size} {unit}"
    return f"{millis / 1000:g} s"


def metric(value: float) -> str:
    """A fair-share metric, like m 0.123."""
    if 0 < value < 0.0001:
        return f"m {value:.8f}".rstrip("0")  # people do not read 1.653e-05
    return "m ∞" if value == inf else f"m {value:.4g}"


def gpus(count: int) -> str:
    """A number of GPUs."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def gpu_time(millis: float) -> str:
    """An amount of GPU time, like 1.25 GPU h or 1,344 GPU h."""
    hours = millis / 3_600_000
    return f"{hours:,.0f} GPU h" if abs(hours) >= 999.5 else f"{hours:.3g} GPU h"


def ordinal(place: int) -> str:
    """A place counted from 1, like 2nd."""
    ending = "th" if place % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{ending}"


def percent(part: float) -> str:
    """A part of something, like 12 %."""
    return f"{100 * part:.3g} %"


def protection(millis: int) -> str:
    """How long a min_runtime protects, like "8 h of protection"; 0 protects nobody."""
    return f"{span(millis)} of protection" if millis else "no protection (unallocated)"


def were(count: int) -> str:
    """A number of GPUs as the subject of a past sentence."""
    return f"{gpus(count)} {'was' if count == 1 else 'were'}"


def shape(asked: Shape) -> str:
    """A shape, like 2 nodes × 8 GPUs (a100)."""
    kind = f" ({asked.gpu_type})" if asked.gpu_type else ""
    per_node = f"{gpus(asked.gpus_per_node)}{kind}"
    if asked.cpus_per_node:
        per_node += f" + {asked.cpus_per_node} CPUs"
    if asked.memory_per_node:
        per_node += f" + {memory(asked.memory_per_node)}"
    said = per_node if asked.nodes == 1 else f"{asked.nodes} nodes × {per_node}"
    if asked.block:
        said += f" in one {asked.block}"
    if asked.where:
        said += f" where {names(f'{label} is {value}' for label, value in asked.where)}"
    return f"{said} not on {names(asked.exclude)}" if asked.exclude else said


def memory(size: int) -> str:
    """An amount of memory, like 64 GiB, exact."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size and size % (1 << power) == 0:
            return f"{size >> power} {unit}"
    return f"{size} bytes"


def places(leases: Iterable[Lease]) -> str:
    """The nodes of some leases; long lists are cut."""
    return names(lease.node for lease in leases)


def names(items: Iterable[str]) -> str:
    """Names joined by commas; long lists are cut."""
    every = list(items)
    shown = ", ".join(every[:4])
    return f"{shown} and {len(every) - 4} more" if len(every) > 4 else shown
