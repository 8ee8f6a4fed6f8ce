"""Work that waits for other work: the core withholds it from the queue until all that it names has ended.

What it still waits for is in its detail, and is changed in the turn in which something ends, so that both are committed
together. Only workloads that exist can be waited for, so nothing ever waits for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpufair.core import events as ev
from gpufair.core.errors import InvalidSpec
from gpufair.core.model import Kind, Outcome, Phase, WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import WorkloadId
from gpufair.service.workloads.details import Detail

if TYPE_CHECKING:
    from gpufair.service.workloads.turn import Turn

_SHOWN = 3


def submit(
    turn: Turn, workload: WorkloadId, spec: WorkloadSpec, after: Iterable[str] = (), after_any: Iterable[str] = ()
) -> None:
    """Submit a workload; withheld if it is to wait for others. What has ended already counts at once.

    Args:
        after: Those that have to end well.
        after_any: Those that have to end.

    Raises:
        UnknownWorkload: One of those does not exist.
        InvalidSpec: It is a session, which starts when its user touches it; or what the core says.
    """
    detail = replace(turn.detail(workload), after=tuple(dict.fromkeys(after)), after_any=tuple(dict.fromkeys(after_any)))
    over = [one for one in detail.awaited if turn.state.workload(WorkloadId(one)).phase is Phase.ENDED]
    if detail.awaited and spec.kind is not Kind.BATCH:
        raise InvalidSpec("a session cannot wait for others; ask for batch work, or leave after and after_any out")
    turn.handle(ev.Submitted(turn.now, turn.cause(), workload, spec, withheld=bool(detail.awaited)))
    if detail.awaited:
        turn.set_detail(workload, detail)
    for one in over:
        _hear(turn, workload, WorkloadId(one))


def settle(turn: Turn, ended: WorkloadId) -> None:
    """Tell those who wait for it that a workload has ended."""
    for workload in sorted(one for one in turn.waiting() if ended in turn.detail(one).awaited):
        _hear(turn, workload, ended)


def waits_for(state: State, detail: Detail) -> str:
    """What a withheld workload waits for, in words; "" for all others."""
    parts = [
        f"{_listed(state, named)} to {how}"
        for named, how in ((detail.after, "end well"), (detail.after_any, "end"))
        if named
    ]
    return " and for ".join(parts)


def _hear(turn: Turn, workload: WorkloadId, ended: WorkloadId) -> None:
    """One that it waits for has ended."""
    if turn.state.workload(workload).phase is not Phase.PARKED:
        return  # it has heard of another one that did not end well
    detail, outcome = turn.detail(workload), turn.state.workload(ended).outcome
    if ended in detail.after and outcome is not Outcome.COMPLETED:
        label = turn.state.facts.label(ended)
        how = "was cancelled" if outcome is Outcome.CANCELLED else f"has {outcome}"
        why = f"never started, as {label}, which was to end well before it, {how}"
        turn.handle(ev.Cancelled(turn.now, turn.cause(), workload, why))
        return
    left = replace(detail, after=_without(detail.after, ended), after_any=_without(detail.after_any, ended))
    turn.set_detail(workload, left)
    if not left.awaited:
        turn.handle(ev.ResumeRequested(turn.now, turn.cause(), workload))


def _without(named: tuple[str, ...], one: str) -> tuple[str, ...]:
    return tuple(each for each in named if each != one)


def _listed(state: State, named: Sequence[str]) -> str:
    labels = [state.facts.label(WorkloadId(one)) for one in named[:_SHOWN]]
    if len(named) > _SHOWN:
        labels.append(f"{len(named) - _SHOWN} more")
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
