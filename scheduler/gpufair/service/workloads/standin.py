"""Parked sessions that are open on a CPU node: a *stand-in* runs their kernel until they have GPUs again.

To the core a stand-in is a workload of 0 GPUs like any other, so it is free of charge and none of the core's rules
knows of it. It uses the checkpoints and keys of its session, and whatever it saves is its session's newest checkpoint.
Its session stays parked, or queues for GPUs meanwhile; when those are granted the stand-in saves itself and ends, and
the session is restored on them from what it saved. To everybody outside, session and stand-in are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import UnknownWorkload, WrongPhase
from gpufair.core.model import HOLDING, Kind, Phase, PreemptReason, Shape, WorkloadSpec
from gpufair.core.possible import could_hold
from gpufair.core.record import Workload
from gpufair.core.state import State
from gpufair.core.units import Millis, PoolName, WorkloadId
from gpufair.service.workloads.details import Detail

if TYPE_CHECKING:
    from gpufair.service.workloads.turn import Turn

MARK = "stands_in_for"  # in a stand-in's launch: its session. Requests cannot set it
_MIDDLE = ".cpu-"
_LEAVING = frozenset({Phase.CHECKPOINTING, Phase.STOPPING})
OPEN = "It is open on a CPU node, free of charge, until it has GPUs."
MOVING = "GPUs are granted: the session is saved here and goes on there"


def session_of(spec: WorkloadSpec) -> WorkloadId | None:
    """The session that a stand-in stands in for; None for all others."""
    found = spec.launch.get(MARK)
    return WorkloadId(found) if isinstance(found, str) else None


def of(state: State, detail: Detail) -> Workload | None:
    """The stand-in of the session with this detail; None if it has none that lives."""
    if not detail.stand_in:
        return None
    try:
        found = state.workload(WorkloadId(detail.stand_in))
    except UnknownWorkload:
        return None
    return found if found.phase is not Phase.ENDED else None


def waits_for(state: State, session: WorkloadId) -> bool:
    """Whether a session that was granted GPUs must not start yet: its stand-in has not ended."""
    return any(
        session_of(state.facts.records[one].spec) == session and state.facts.records[one].phase in HOLDING
        for one in state.facts.holding
        if _MIDDLE in one
    )


def open_on_cpu(turn: Turn, session: Workload, pools: tuple[PoolName, ...]) -> None:
    """Start a stand-in. Nothing happens where there is one.

    Raises:
        WrongPhase: The session holds GPUs or has ended, or there is nothing to open.
    """
    if session.phase not in (Phase.PARKED, Phase.QUEUED):
        raise WrongPhase(session.id, session.phase, "be opened on a CPU node", "only a session without GPUs can be")
    if session.checkpoint is None or not session.resume_from_checkpoint or session.spec.kind is not Kind.SESSION:
        raise WrongPhase(session.id, session.phase, "be opened on a CPU node", "it has no variables; resume it")
    detail = turn.detail(session.id)
    if of(turn.state, detail) is not None:
        return
    stand_in = WorkloadId(f"{session.id}{_MIDDLE}{turn.cause()}")
    turn.set_detail(session.id, replace(detail, stand_in=stand_in))
    turn.handle(ev.Submitted(turn.now, turn.cause(), stand_in, spec_of(session, pools, turn.state)))


def spec_of(session: Workload, pools: tuple[PoolName, ...], state: State) -> WorkloadSpec:
    """What a stand-in asks for: the memory of its session, where a node of these pools has so much; it is held to that."""
    shape, nodes = Shape(0, memory_per_node=session.spec.shape.memory_per_node), state.facts.by_pool
    if not any(could_hold(nodes.get(pool, ()), shape) for pool in pools):
        shape = Shape(0)
    return replace(
        session.spec,
        shape=shape,
        min_runtime=Millis(0),
        priority=0,
        pools=pools,
        idle_release=None,
        expected=None,
        movable=False,
        launch=MappingProxyType({**session.spec.launch, MARK: session.id}),
    )


def settle(turn: Turn, touched: Iterable[WorkloadId]) -> None:
    """After an event: end stand-ins that nobody needs, and have those leave whose sessions were granted GPUs."""
    for workload in sorted(set(touched)):
        record = turn.state.facts.records.get(workload)
        if record is None:
            continue
        session = session_of(record.spec) or workload
        stand_in = of(turn.state, turn.detail(session))
        if stand_in is None:
            continue
        owner = turn.state.facts.records.get(session)
        granted = owner is not None and owner.phase in HOLDING
        if owner is None or owner.phase is Phase.ENDED or stand_in.phase is Phase.PARKED:
            needless = True
        else:
            needless = granted and stand_in.phase is Phase.QUEUED
        if needless and stand_in.phase not in _LEAVING:
            turn.handle(ev.Cancelled(turn.now, turn.cause(), stand_in.id))
        elif granted and stand_in.phase in HOLDING - _LEAVING:
            parked = turn.state.facts.records[stand_in.id].parking
            if parked is None:
                turn.handle(ev.ParkRequested(turn.now, turn.cause(), stand_in.id, PreemptReason.PARK))


def followers(action: act.Action, state: State) -> Workload | None:
    """The session that may start now because its stand-in has ended with this action."""
    if not isinstance(action, act.End):
        return None
    session = session_of(state.workload(action.workload).spec)
    if session is None:
        return None
    found = state.workload(session)
    return found if found.phase in (Phase.STARTING, Phase.RESTORING) else None


def shown(view: dict[str, Any], state: State, detail: Detail, detail_of: Mapping[WorkloadId, Detail]) -> dict[str, Any]:
    """The view of a session, with its stand-in's kernel in the place of the one that it does not have."""
    stand_in = of(state, detail)
    if stand_in is None:
        return view | {"on_cpu": False}
    if stand_in.phase not in HOLDING:
        return view | {"on_cpu": view["state"] in (Phase.PARKED, Phase.QUEUED)}
    kernel = detail_of.get(stand_in.id, Detail())
    held = stand_in.held
    return view | {
        "on_cpu": True,
        "state": stand_in.phase.value,
        "leases": [{"node": lease.node, "gpus": lease.gpus} for lease in held.leases] if held else [],
        "devices": [],
        "granted_s": held.granted_at / 1000 if held else None,
        "protected_until_s": None,
        "deadline_s": stand_in.deadline / 1000 if stand_in.deadline and stand_in.phase in _LEAVING else None,
        "busy": stand_in.busy,
        "lost": [list(pair) for pair in stand_in.lost],
        "serving": kernel.serving,
        "kernel_died": kernel.kernel_died,
        "restore_offered": kernel.restore_offered,
        "progress": kernel.progress,
        "reason": kernel.remark or view["reason"],
        "remark": kernel.remark,
    }


def records(record_dir: Path) -> list[Path]:
    """Where the outputs of a session's stand-ins are."""
    found = record_dir.parent.iterdir() if record_dir.parent.is_dir() else ()
    return sorted(path for path in found if path.name.startswith(f"{record_dir.name}{_MIDDLE}"))
