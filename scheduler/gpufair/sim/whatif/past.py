"""What people submitted in the recent past, and how long it ran: read off the events and decisions of a service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from gpufair.core.codec import MalformedRecord, decode
from gpufair.core.events import Amended
from gpufair.core.model import Kind, Outcome, WorkloadSpec
from gpufair.core.units import SECOND, Instant, Millis, WorkloadId
from gpufair.sim.job import Burst

# Names of events and decisions that are looked at: a reader of a timeline need not ask for the rest.
KINDS: Final = frozenset(
    (
        *("Submitted", "Amended", "Started", "ActivityReported", "ResumeRequested", "Released", "Exited"),
        *("BeginCheckpoint", "Stop", "Requeue", "Park", "End"),
    )
)
LEAST: Final = SECOND  # what ran at all worked for so long


@dataclass(slots=True)
class Seen:
    """One workload of the past.

    ``bursts``: of a session, what its user did so far; the last one is open while he works or thinks.
    """

    spec: WorkloadSpec | None  # None: it was submitted before the past began
    submitted: Instant | None
    work: Millis = Millis(0)  # done so far, what was lost again included
    bursts: list[Burst] = field(default_factory=list)
    ended: Instant | None = None
    outcome: Outcome | None = None
    up: Instant | None = None  # it works since then
    busy: bool = False
    thinks_since: Instant | None = None
    burst: int = 0  # work in the burst that is open

    @property
    def whole(self) -> bool:
        """Whether all of it was seen, from its submission to an end that was its own."""
        return self.submitted is not None and self.outcome is not None and self.work > 0


@dataclass(frozen=True)
class Past:
    """Everything that was seen between two instants, by workload, in order of submission."""

    since: Instant
    until: Instant
    seen: Mapping[WorkloadId, Seen] = field(default_factory=dict)

    @property
    def span(self) -> Millis:
        """How far it reaches back."""
        return Millis(self.until - self.since)


def look_back(records: Iterable[Mapping[str, Any]], since: Instant, until: Instant) -> Past:
    """What the timeline of a service says about the time between two instants.

    Args:
        records: Of ``GET /api/v1/timeline``, in order; of other kinds than ``KINDS`` nothing is asked.
        since: When the past begins.
        until: When it ends: the present.

    Raises:
        GpufairError: A record is none.
    """
    seen: dict[WorkloadId, Seen] = {}
    for record in records:
        try:
            at = Instant(round(record["at_s"] * 1000))
            if since <= at <= until and record["kind"] in KINDS:
                _note(seen, at, record)
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise MalformedRecord("timeline", f"a record is damaged ({err!r})") from err
    for one in seen.values():
        _pause(one, until)
    return Past(since, until, seen)


def _note(seen: dict[WorkloadId, Seen], at: Instant, record: Mapping[str, Any]) -> None:
    kind, workload = record["kind"], WorkloadId(record["workload"])
    if kind == "Submitted":
        seen[workload] = Seen(_spec(record["spec"]), at)
        return
    one = seen.setdefault(workload, Seen(None, None))
    match kind:
        case "Amended":
            if one.spec is not None:
                one.spec = _amendment(record).of(one.spec)
        case "Started":
            one.up = at
        case "ActivityReported":
            _active(one, at, busy=bool(record["busy"]))
        case "ResumeRequested":
            _thought(one, at)
        case "End":
            _pause(one, at)
            _close(one, at)
            one.ended, one.outcome, one.up = at, Outcome(record["outcome"]), None
        case _:
            _pause(one, at)
            one.up = None


def _spec(plain: Mapping[str, Any]) -> WorkloadSpec:
    spec = decode({**plain, "launch": {}})
    if not isinstance(spec, WorkloadSpec):
        raise MalformedRecord("timeline", "a submission has no spec")
    return spec


def _amendment(record: Mapping[str, Any]) -> Amended:
    names = {each.name for each in fields(Amended)} - {"at"}
    event = decode({"type": "Amended", "at": 0} | {name: record[name] for name in names if name in record})
    if not isinstance(event, Amended):
        raise MalformedRecord("timeline", "an amendment is none")
    return event


def _works(one: Seen) -> bool:
    session = one.spec is not None and one.spec.kind is Kind.SESSION
    return one.up is not None and (one.busy or not session)


def _pause(one: Seen, at: Instant) -> None:
    """What it did until now is counted."""
    if _works(one) and one.up is not None:
        one.work = Millis(one.work + at - one.up)
        one.burst += at - one.up
        one.up = at


def _active(one: Seen, at: Instant, *, busy: bool) -> None:
    if busy and not one.busy:
        _thought(one, at)
        one.busy, one.up = True, at
    elif not busy and one.busy:
        _pause(one, at)
        one.busy, one.thinks_since = False, at
        one.bursts.append(Burst(Millis(max(LEAST, one.burst)), Millis(0)))
        one.burst = 0


def _thought(one: Seen, at: Instant) -> None:
    """Its user is back."""
    if one.thinks_since is not None and one.bursts:
        one.bursts[-1] = Burst(one.bursts[-1].work, Millis(at - one.thinks_since))
    one.thinks_since = None


def _close(one: Seen, at: Instant) -> None:
    if one.burst:
        one.bursts.append(Burst(Millis(max(LEAST, one.burst)), Millis(0)))
        one.burst = 0
    _thought(one, at)
