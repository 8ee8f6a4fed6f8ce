"""Why somebody holds GPUs: since when and until when, who could preempt him, and for whom he is leaving."""

from __future__ import annotations

from gpufair.core import words
from gpufair.core.draining import outlook
from gpufair.core.explain.answer import Explanation
from gpufair.core.explain.resting import first, preemption
from gpufair.core.explain.threat import Found, first_threat
from gpufair.core.facts import Facts
from gpufair.core.model import Phase, PreemptReason
from gpufair.core.reading import Reading
from gpufair.core.record import Record


def staying(reading: Reading, record: Record) -> Explanation:
    """Why a workload runs, and who comes next."""
    facts = reading.facts
    held = record.held
    assert held is not None
    verb = {Phase.STARTING: "It is starting", Phase.RESTORING: "It is being restored"}.get(record.phase, "It runs")
    begin = f"{verb} on {words.places(held.leases)} since {words.moment(held.granted_at)}"
    if not record.spec.allocated and record.gpus:
        begin += ", unallocated: any allocated workload may preempt it at any time"
    elif facts.now < held.protected_until:
        begin += f", protected until {words.moment(held.protected_until)}"
    else:
        begin += f"; its protection ended at {words.moment(held.protected_until)}"
    found = first_threat(reading, record)
    comparison = found.comparison if found is not None else None
    return Explanation(
        workload=record.id,
        phase=record.phase,
        position=None,
        sentence=f"{begin}.{outlook(facts, record)} {_next(facts, record, found)} It was started because {record.reason}.",
        level=(comparison.theirs.path, comparison.mine.path) if comparison else None,
        mine=comparison.theirs if comparison else None,
        theirs=comparison.mine if comparison else None,
        threat=found.threat if found is not None else None,
    )


def _next(facts: Facts, record: Record, found: Found | None) -> str:
    """Who could preempt it, when, and what it would lose."""
    if found is None:
        lost = " It cannot be saved: when it must leave, what it has is lost." if not record.spec.resumable else ""
        return f"Nobody who waits now could preempt it.{lost}"
    by, threat = found.by, found.threat
    when = " from then on" if threat.earliest > facts.now else " now"
    whom, where = by.label, by.spec.allocation
    match threat.right:
        case PreemptReason.RANK:
            said = f"{whom} could preempt it{when}: {found.comparison}"
        case PreemptReason.PRIORITY:
            said = f"{whom} could preempt it{when}: it has priority {by.spec.priority} in {where}"
        case PreemptReason.TAKE_LIMIT:
            said = f"{whom} could preempt it{when}: {record.spec.allocation} holds more than its take limit"
        case PreemptReason.LANDING:
            said = f"{whom} ({where}) lands there at {words.moment(threat.earliest)}, and may need its GPUs then"
        case PreemptReason.DEBUG:
            said = f"{whom} ({where}) could preempt it{when} under the debug right"
        case _:
            said = f"{whom} ({where}) could preempt it{when}"
    return f"{said}.{_loss(record, threat.loses)}"


def _loss(record: Record, loses: int) -> str:
    if record.spec.resumable or not loses:
        return ""
    return f" It cannot be resumed, so it would lose {words.gpu_time(loses)} of work."


def leaving(reading: Reading, record: Record) -> Explanation:
    """For whom a workload leaves, and until when."""
    facts = reading.facts
    whom = f" for {facts.label(record.beneficiary)}" if record.beneficiary is not None else ""
    deadline = words.moment(record.deadline or facts.now)
    if record.phase is Phase.CHECKPOINTING:
        begin = f"It was told to leave{whom} and saves its state; it must have left by {deadline}"
    else:
        begin = f"It was told to stop{whom}; its GPUs are held until its processes are really gone"
    if record.reservation is not None:
        begin += f". It goes on on {words.places(record.reservation.leases)}, where GPUs are kept for it"
    return Explanation(
        workload=record.id,
        phase=record.phase,
        position=None,
        sentence=f"{begin}. {first(record.reason, facts.nodes)}",
        preempted=preemption(record),
    )
