"""What people are told of their workloads, and by which of their words they chose to hear it.

A pure rule: one event with the actions decided, and what the state then says, give the notices. They are written down in
the transaction that writes the event down (``outbox``), so one that was due is sent whatever happens afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core import words
from gpufair.core.model import Outcome, Phase, PreemptReason, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import Instant, WorkloadId
from gpufair.service.workloads import standin
from gpufair.wire import NOTIFY

KEY: Final = "notify"  # in a launch: a list of these words
ALL: Final = "all"
MAX_TEXT = 1000
# Told to leave by its own wish, or for want of anything to do: nobody is taken by surprise.
_OWN: Final = frozenset({PreemptReason.PARK, PreemptReason.IDLE, PreemptReason.SHUTDOWN})


@dataclass(frozen=True, slots=True)
class Notice:
    """Something for one person. ``id`` is the same whenever it is sent again.

    ``deadline_s`` (Unix seconds): until when a preempted workload has to have left.
    """

    id: str
    kind: str
    at_s: float
    user: str
    text: str
    allocation: str
    workload: str = ""
    name: str = ""
    outcome: str = ""
    deadline_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As it is sent, and kept until then."""
        return asdict(self)


def chosen(spec: WorkloadSpec) -> frozenset[str]:
    """What its owner wants to hear."""
    found = spec.launch.get(KEY)
    return frozenset(word for word in found if isinstance(word, str)) if isinstance(found, list | tuple) else frozenset()


def wanted(kind: str, words_: Collection[str]) -> bool:
    """Whether who chose these words wants to hear of this. A failure is an end too."""
    return kind in words_ or ALL in words_ or (kind == "failed" and "end" in words_)


def of(event: ev.Event, actions: Iterable[act.Action], state: State) -> list[Notice]:
    """The notices of one event, in the order in which things happened."""
    found = []
    if isinstance(event, ev.Started):
        again = event.incarnation > 1
        where = ", ".join(sorted({node for node, _ in event.devices}))
        told = f"runs again, start {event.incarnation}" if again else "has started"
        told += f", on {where}" if where else ""
        if event.lost:
            told += f"; not brought back: {', '.join(name for name, _ in event.lost[:5])}"
        found += _notice(state, event, event.workload, "restored" if again else "start", told)
    for action in actions:
        match action:
            case act.BeginCheckpoint() if action.reason not in _OWN:
                left = words.span(max(0, action.deadline - event.at))
                told = f"has to leave by {words.moment(action.deadline)} (within {left}): {action.why}"
                found += _notice(state, event, action.workload, "preempted", told, deadline=action.deadline)
            case act.Requeue() | act.Park() if isinstance(event, ev.NodeLost):
                found += _notice(state, event, action.workload, "preempted", f"has lost its node {event.node}: {action.why}")
            case act.End() if not (isinstance(event, ev.Cancelled) and not event.why):
                kind = "failed" if action.outcome in {Outcome.FAILED, Outcome.TIMED_OUT} else "end"
                told = f"has {action.outcome.value}" if action.outcome is not Outcome.CANCELLED else "was cancelled"
                why = f": {action.why}" if action.why and action.outcome is not Outcome.COMPLETED else ""
                found += _notice(state, event, action.workload, kind, told + why, outcome=action.outcome.value)
            case _:
                pass
    return found


def budget_used_up(state: State, path: str, used: float, at: Instant) -> list[Notice]:
    """For each who asked to hear of it, and has something that runs or waits in this allocation.

    Args:
        used: Charged and committed, as a part of the budget.
    """
    live = [one for one in state.facts.records.values() if one.spec.allocation == path and one.phase is not Phase.ENDED]
    users = sorted({one.spec.user for one in live if wanted("budget", chosen(one.spec))})
    text = f"{path} has used {words.percent(used)} of its budget: what is not protected may be preempted sooner"
    return [Notice(f"{path}.{at}.{user}.budget", "budget", at / 1000, user, text, path) for user in users]


def words_of(given: Sequence[str]) -> list[str]:
    """The words, each once, in their usual order."""
    return [word for word in NOTIFY if word in given]


def _notice(
    state: State,
    event: ev.Event,
    workload: WorkloadId,
    kind: str,
    told: str,
    *,
    outcome: str = "",
    deadline: Instant | None = None,
) -> list[Notice]:
    record = state.facts.records.get(workload)
    if record is None or standin.session_of(record.spec) or not wanted(kind, chosen(record.spec)):
        return []
    label = record.spec.name or str(workload)[:8]
    text = f"{label} {told}"
    return [
        Notice(
            id=f"{workload}.{record.incarnation}.{kind}",
            kind=kind,
            at_s=event.at / 1000,
            user=record.spec.user,
            text=text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…",
            allocation=str(record.spec.allocation),
            workload=str(workload),
            name=record.spec.name,
            outcome=outcome,
            deadline_s=None if deadline is None else deadline / 1000,
        )
    ]
