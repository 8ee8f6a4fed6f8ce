"""Moving a running session to a CPU node, at its owner's wish: saved, parked and opened there in one step.

It gives its GPUs back only when all of it is in a checkpoint and its kernel stands still; else it stays where it is and
says why. The wish is in its detail, committed with all that follows from it, so it outlives the service at any point:
``hold`` is repeated to an agent that comes back, and the session is opened in the very turn in which it is parked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpufair.core import events as ev
from gpufair.core.admission import check_spec
from gpufair.core.errors import GpufairError, WrongPhase
from gpufair.core.model import Kind, Phase, PreemptReason
from gpufair.core.record import Workload
from gpufair.core.units import PoolName, WorkloadId
from gpufair.service.workloads import standin
from gpufair.service.workloads.details import Detail, Move, Pending

if TYPE_CHECKING:
    from gpufair.service.workloads.turn import Turn

COMMAND = "hold"
HOLD_S = 30.0  # a report and the notice that answers it take a second; a service that was killed asks again
_ASKED = "move to a CPU node"


def ask(turn: Turn, session: Workload, pools: tuple[PoolName, ...]) -> Pending | None:
    """Note the wish. Asked twice it is one.

    Returns: The command for its kernel; None if it need not be told anything.

    Raises:
        WrongPhase: It has no GPUs, or cannot be saved (now).
        GpufairError: No node could take it without GPUs.
    """
    detail = turn.detail(session.id)
    if session.spec.kind is not Kind.SESSION:
        raise WrongPhase(session.id, f"a {session.spec.kind} workload", _ASKED, "only sessions can be")
    if not session.spec.shape.gpus:
        raise WrongPhase(session.id, session.phase, _ASKED, "and it has no GPUs: it is on one already")
    if not session.spec.resumable:
        raise WrongPhase(session.id, session.phase, _ASKED, "its kernel cannot save its variables; start one on a CPU")
    if session.phase in (Phase.STARTING, Phase.RESTORING):
        raise WrongPhase(session.id, session.phase, _ASKED, "ask again when it runs, or park it")
    if session.phase is Phase.RUNNING and detail.kernel_died:
        raise WrongPhase(session.id, "without a kernel", _ASKED, "the kernel died: restart it first, or park it")
    check_spec(standin.spec_of(session, pools, turn.state), turn.state.facts)
    if detail.moves:
        return None
    wish = replace(detail, move=Move(turn.now, tuple(str(pool) for pool in pools)))
    if session.phase is not Phase.RUNNING:  # on its way out already: what is saved is opened
        turn.set_detail(session.id, wish)
        return None
    return _held(turn, session, wish)


def again(turn: Turn, session: Workload) -> Pending:
    """Have it held once more: it stood still for as long as was asked, and nobody was there to see it."""
    return _held(turn, session, turn.detail(session.id))


def give_up(turn: Turn, session: WorkloadId, why: str = "") -> None:
    """The wish is no more. ``why``: it failed, and its owner is told."""
    detail = turn.detail(session)
    if detail.moves and detail.move is not None:
        pending = tuple(one for one in detail.pending if one.kind != COMMAND)
        failed = replace(detail.move, failed=why) if why else None
        turn.set_detail(session, replace(detail, move=failed, pending=pending))


def held(turn: Turn, session: Workload, until_s: float) -> Pending | None:
    """All of it is saved and it begins no cell until then. Returns: What to tell its kernel, if that has been too long."""
    if not turn.detail(session.id).moves or session.phase is not Phase.RUNNING:
        return None
    if turn.now / 1000 >= until_s:
        return again(turn, session)
    turn.handle(ev.ParkRequested(turn.now, turn.cause(), session.id, PreemptReason.PARK))
    return None


def settle(turn: Turn, touched: Iterable[WorkloadId]) -> None:
    """After an event: open what has been parked, and park what would be queued for GPUs that it does not want."""
    for workload in sorted(set(touched)):
        detail, record = turn.detail(workload), turn.state.facts.records.get(workload)
        if record is None or detail.move is None or not detail.moves:
            continue
        if record.phase is Phase.QUEUED:
            turn.handle(ev.ParkRequested(turn.now, turn.cause(), workload, PreemptReason.PARK))
        elif record.phase is Phase.PARKED:
            turn.set_detail(workload, replace(detail, move=None))
            pools = tuple(PoolName(pool) for pool in detail.move.pools)
            try:
                standin.open_on_cpu(turn, turn.state.workload(workload), pools)
            except GpufairError as err:
                turn.set_detail(workload, replace(turn.detail(workload), move=replace(detail.move, failed=str(err))))


def view(move: Move | None) -> dict[str, Any] | None:
    """As the API shows it."""
    return None if move is None else {"at_s": move.at_ms / 1000, "failed": move.failed or None}


def _held(turn: Turn, session: Workload, wish: Detail) -> Pending:
    wait_s = turn.state.facts.grace(turn.state.facts.record(session.id)) / 1000
    command = Pending(COMMAND, session.incarnation, {"wait_s": wait_s, "hold_s": HOLD_S})
    others = tuple(pending for pending in wish.pending if pending.kind != COMMAND)
    turn.set_detail(session.id, replace(wish, pending=(*others, command)))
    return command
