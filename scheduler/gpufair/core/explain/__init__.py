"""Why a workload is where it is, computed from the same state that decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from gpufair.core.change import Change
from gpufair.core.explain.allocation import AllocationExplanation, Level, explain_allocation
from gpufair.core.explain.answer import Explanation, Holder, Preemption, Threat
from gpufair.core.explain.holding import leaving, staying
from gpufair.core.explain.queued import queued
from gpufair.core.explain.resting import resting
from gpufair.core.model import Phase
from gpufair.core.reading import Reading
from gpufair.core.record import Record


def explain(reading: Reading, record: Record) -> Explanation:
    """Explain one workload."""
    return _EXPLAINERS[record.phase](reading, record)


_EXPLAINERS: Final[Mapping[Phase, Callable[[Reading, Record], Explanation]]] = MappingProxyType(
    {
        Phase.QUEUED: queued,
        Phase.STARTING: staying,
        Phase.RESTORING: staying,
        Phase.RUNNING: staying,
        Phase.CHECKPOINTING: leaving,
        Phase.STOPPING: leaving,
        Phase.PARKED: resting,
        Phase.ENDED: resting,
    }
)

__all__ = [
    "AllocationExplanation",
    "Change",
    "Explanation",
    "Holder",
    "Level",
    "Preemption",
    "Threat",
    "explain",
    "explain_allocation",
]
