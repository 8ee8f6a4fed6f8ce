"""The four priorities of the old way, and who asks for which.

A priority of 100 and more says urgent, any other above 0 high, below 0 low. A workload that says nothing (priority 0) asks
for what people ask for where asking is free: 60 % for high, 10 % for urgent, 25 % for normal and 5 % for low. Nine of ten
ask not to be preempted. What a workload asks for is drawn from its id alone, so that it is the same in every run and on
every machine. Unallocated work is low and can be preempted.
"""

from __future__ import annotations

from enum import IntEnum
from hashlib import blake2b
from typing import Final

from gpufair.core.model import WorkloadSpec
from gpufair.core.units import WorkloadId


class Level(IntEnum):
    """How urgent somebody says that his work is."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    URGENT = 3


# Of 100 who say nothing: up to where each level goes.
_DRAWN: Final = ((10, Level.URGENT), (70, Level.HIGH), (95, Level.NORMAL), (100, Level.LOW))
_OPT_OUT: Final = 90  # of 100
# From which priority on. It counts inside an allocation only, for debug work and sessions by default: somebody waits.
_SAID: Final = ((100, Level.URGENT), (1, Level.HIGH))


def level_of(workload: WorkloadId, spec: WorkloadSpec) -> Level:
    """How urgent it is said to be."""
    if not spec.allocated or spec.priority < 0:
        return Level.LOW
    if spec.priority:
        return next(level for least, level in _SAID if spec.priority >= least)
    drawn = _draw("level", workload)
    return next(level for end, level in _DRAWN if drawn < end)


def opts_out(workload: WorkloadId, spec: WorkloadSpec) -> bool:
    """Whether its owner wants it not to be preempted."""
    return spec.allocated and _draw("opt out", workload) < _OPT_OUT


def _draw(what: str, workload: WorkloadId) -> int:
    """One of 100. (Checksums of texts that differ in their beginning alone would depend on each other.)"""
    return int.from_bytes(blake2b(f"{what} {workload}".encode(), digest_size=8).digest()) % 100
