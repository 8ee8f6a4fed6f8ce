"""Why somebody holds no GPUs and does not wait for any: parked or ended. And how he lost those that he had."""

from __future__ import annotations

from collections.abc import Container

from gpufair.core.commit import PREEMPTIONS
from gpufair.core.explain.answer import Explanation, Preemption
from gpufair.core.model import Phase
from gpufair.core.reading import Reading
from gpufair.core.record import Record


def resting(reading: Reading, record: Record) -> Explanation:
    """Why a workload is parked, or how it ended."""
    lost = preemption(record)
    whom = f" Its GPUs went to {reading.facts.label(lost.by)}: {lost.why}." if lost is not None else ""
    return Explanation(
        workload=record.id,
        phase=record.phase,
        position=None,
        sentence=f"{first(record.reason, reading.facts.nodes)}{whom}",
        preempted=lost if record.phase is Phase.PARKED else None,
    )


def preemption(record: Record) -> Preemption | None:
    """How it lost its GPUs when it last had some; None if it was not preempted."""
    if record.beneficiary is None or record.notice not in PREEMPTIONS:
        return None
    return Preemption(record.beneficiary, record.notice, record.notice_why)


def first(reason: str, nodes: Container[str] = ()) -> str:
    """A reason as a sentence; the name of a node stays as it is."""
    if reason.partition(" ")[0].rstrip(",:;") in nodes:
        return f"{reason}."
    return f"{reason[:1].upper()}{reason[1:]}."
