"""Units of the core: exact integers, so that a ledger adds up to the last millisecond.

An ``Instant`` is milliseconds since the Unix epoch; a ``Millis`` is a span of time. GPU time is counted in
``GpuMillis`` (one GPU for one millisecond). Seconds and hours exist at the edges only, with the unit in the name.
"""

from __future__ import annotations

from typing import NewType

Instant = NewType("Instant", int)
Millis = NewType("Millis", int)
GpuMillis = NewType("GpuMillis", int)

WorkloadId = NewType("WorkloadId", str)
AllocationPath = NewType("AllocationPath", str)  # "language/pretrain"; "" is the root
NodeName = NewType("NodeName", str)
PoolName = NewType("PoolName", str)
CauseId = NewType("CauseId", str)

SECOND = Millis(1000)
MINUTE = Millis(60 * SECOND)
HOUR = Millis(60 * MINUTE)
DAY = Millis(24 * HOUR)


def after(instant: Instant, span: Millis) -> Instant:
    """The instant ``span`` later (earlier, if negative)."""
    return Instant(instant + span)


def since(instant: Instant, earlier: Instant) -> Millis:
    """The span from ``earlier`` to ``instant``; negative if it lies the other way."""
    return Millis(instant - earlier)
