"""Reports of agents as events of the core and changes of the service's details.

A report may come twice and late. One about an earlier incarnation changes nothing; the core looks at that itself, and
here it is looked at before any detail is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpufair.core import events as ev
from gpufair.core.errors import GpufairError, UnknownWorkload
from gpufair.core.model import HOLDING, CheckpointRef, Outcome, Phase, Utilization
from gpufair.core.record import Workload
from gpufair.core.units import Instant, Millis, NodeName, WorkloadId
from gpufair.service.nodes import fields
from gpufair.service.nodes.dispatch import Dispatcher, hosts
from gpufair.service.workloads import moving, retries, standin, time_limit
from gpufair.service.workloads.details import KEPT_CHECKPOINTS, Busy, Parts, checkpoint_dict
from gpufair.service.workloads.turn import Turn
from gpufair.wire import Report, WireError

_log = logging.getLogger(__name__)

TERMINAL = frozenset({"released", "exited", "start_failed"})

# A user's command, and which reports answer it.
ANSWERS = {
    "serving": {"restart"},
    "restored": {"restore"},
    "restore_failed": {"restore"},
    "checkpointed": {"save"},
    "checkpoint_failed": {"save"},
    "held": {moving.COMMAND},
    "not_held": {moving.COMMAND},
}


def parts_of(turn: Turn, workload: Workload) -> Parts:
    """What is known of the parts of its present start."""
    known = turn.detail(workload.id).parts
    return known if known is not None and known.incarnation == workload.incarnation else Parts(workload.incarnation)


class ReportReader:
    """Takes reports in, at their turn."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def take(self, turn: Turn, node: str, report: Report) -> None:
        """Take one report in.

        Raises:
            WireError: It is not well formed.
        """
        handler = _HANDLERS.get(report.kind)
        if handler is None:
            return  # of a newer agent
        try:
            workload = turn.state.workload(WorkloadId(report.workload))
        except UnknownWorkload:
            return  # forgotten since it ended
        if workload.incarnation != report.incarnation:
            return
        leased = workload.held is not None and any(lease.node == node for lease in workload.held.leases)
        if not leased and report.kind != "checkpointed":
            # Released already; only a checkpoint that is late still counts.
            return
        if answered := ANSWERS.get(report.kind):
            detail = turn.detail(workload.id)
            pending = tuple(one for one in detail.pending if one.kind not in answered)
            turn.set_detail(workload.id, replace(detail, pending=pending))
        handler(self, turn, node, workload, report)

    def measured(self, turn: Turn, node: str, reports: Sequence[Report]) -> None:
        """Take in how busy GPUs were. Many workloads are one event: a large cluster reports about each every minute."""
        samples: dict[WorkloadId, Utilization] = {}
        span = Millis(0)
        for report in reports:
            if report.kind != "utilization":
                continue
            workload = WorkloadId(report.workload)
            try:
                took, sample, devices = fields.sample(report)
                known = turn.state.workload(workload)
            except WireError as err:
                _log.warning("a report of node %s about %s is left out: %s", node, report.workload[:80], err)
                continue
            except UnknownWorkload:
                continue
            if known.incarnation != report.incarnation:
                continue
            if workload in samples or (samples and took != span):
                _measure(turn, node, span, samples)  # of another minute
            span, samples[workload] = took, sample
            # For those who look: told to everybody, each minute of each workload would drown what is news.
            detail = turn.detail(workload)
            kept = tuple(one for one in detail.busy if one.node != node)
            now = tuple(Busy(node, device, fraction, turn.now) for device, fraction in devices)
            turn.set_detail(workload, replace(detail, busy=kept + now), durable=False, news=False)
        _measure(turn, node, span, samples)

    def gone(self, turn: Turn, node: str, workload: Workload, why: str = "") -> None:
        """The node says that it doesn't run a workload which, by the state, holds GPUs there. ``why``: for its owner."""
        self._part_gone(turn, node, workload, "released", {"busy": workload.busy, "why": why})

    def final_word(self, turn: Turn, node: str, report: Report) -> None:
        """All processes of a workload on a node have ended, and said this. It holds its GPUs until they are free as well.

        Raises:
            WireError: It is no report of an end.
        """
        try:
            workload = turn.state.workload(WorkloadId(report.workload))
        except UnknownWorkload:
            return
        if workload.incarnation != report.incarnation or workload.phase not in HOLDING:
            return
        parts = parts_of(turn, workload)
        said = {node: (report.kind, _ended(report))} | parts.said
        turn.set_detail(workload.id, replace(turn.detail(workload.id), parts=replace(parts, said=said)))

    # -- one method for each kind ---------------------------------------------------------------------------------

    def _serving(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        devices = fields.strings(report, "devices")
        generation = fields.integer(report, "generation")
        detail = turn.detail(workload.id)
        connection = report.body.get("connection") or None
        if connection is not None and not isinstance(connection, dict):
            raise WireError("serving: connection has to be an object")
        places = hosts(workload)
        first = workload.phase in (Phase.STARTING, Phase.RESTORING)
        session = self._session(turn, workload)
        if session is not workload and (first or generation != detail.generation):
            # Of session and stand-in, whoever compares generations must take this kernel for a new one of the session.
            known = turn.detail(session.id)
            turn.set_detail(session.id, replace(known, generation=known.generation + 1, died_of=""))
        if not first and generation != detail.generation:
            moving.give_up(turn, workload.id, "its kernel was restarted; ask again")
            detail = turn.detail(workload.id)
        if node == places[0]:
            # A kernel that died while it was restored has nothing, and its owner is offered what was saved once more.
            restored = first and workload.phase is Phase.RESTORING and report.body.get("restored") is not False
            turn.set_detail(
                workload.id,
                replace(
                    detail,
                    generation=generation,
                    serving=True,
                    kernel_died=False,
                    warning="" if first or generation != detail.generation else detail.warning,
                    died_of="" if first or generation != detail.generation else detail.died_of,
                    not_restored="" if first or generation != detail.generation else detail.not_restored,
                    connection=connection,
                    progress=None,
                    # A repeat (an agent that came back) says nothing new about what the kernel has.
                    restore_offered=(
                        workload.checkpoint is not None and not restored
                        if first or generation != detail.generation
                        else detail.restore_offered
                    ),
                ),
            )
        if not first:
            return
        parts = parts_of(turn, workload)
        parts = replace(parts, up=parts.up | {node: devices})
        if len(places) > 1:
            turn.set_detail(workload.id, replace(turn.detail(workload.id), parts=parts))
        if all(place in parts.up for place in places):
            pairs = tuple((NodeName(place), device) for place in places for device in parts.up[place])
            lost = (*fields.pairs(report, "lost"), *detail.unsaved)
            turn.handle(ev.Started(turn.now, turn.cause(), workload.id, workload.incarnation, pairs, lost))
            turn.set_detail(workload.id, replace(turn.detail(workload.id), unsaved=(), up_at_ms=int(turn.now)))

    def _progress(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        fraction = report.body.get("fraction", 0.0)
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise WireError("progress: fraction has to be a number from 0 to 1")
        progress = {"step": str(report.body.get("step", ""))[:64], "fraction": float(fraction)}
        turn.set_detail(workload.id, replace(turn.detail(workload.id), progress=progress), durable=False)

    def _gpu_use(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        since_s = None if report.body.get("unused_since_s") is None else fields.number(report, "unused_since_s")
        since_ms = 0 if since_s is None else min(int(since_s * 1000), int(turn.now))
        turn.set_detail(workload.id, replace(turn.detail(workload.id), unused_since_ms=since_ms), durable=False)
        turn.touched.add(workload.id)  # nothing may be new but the time: it may be long enough now to be worth a word

    def _activity(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        # An idle report after an idle one says that a cell came and went: the session was active in between.
        busy = report.body.get("busy") is True
        turn.handle(ev.ActivityReported(turn.now, turn.cause(), workload.id, workload.incarnation, busy))

    def _kernel_died(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        detail = turn.detail(workload.id)
        if fields.integer(report, "generation") >= detail.generation:
            offered = workload.checkpoint is not None
            died = replace(detail, serving=False, connection=None, restore_offered=offered, kernel_died=True)
            turn.set_detail(workload.id, replace(died, warning="", died_of=fields.reason(report)))
            session = self._session(turn, workload)
            turn.set_detail(session.id, replace(turn.detail(session.id), died_of=fields.reason(report)))
        if workload.busy:
            turn.handle(ev.ActivityReported(turn.now, turn.cause(), workload.id, workload.incarnation, False))

    def _remark(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        warning = str(report.body.get("text") or "")[:fields.LONGEST]
        turn.set_detail(workload.id, replace(turn.detail(workload.id), warning=warning))

    def _checkpointed(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        body = report.body
        checkpoint = CheckpointRef(
            id=fields.text(report, "id"),
            sequence=fields.integer(report, "sequence"),
            at=Instant(int(fields.number(report, "at_s") * 1000)),
            size_bytes=fields.integer(report, "size_bytes"),
            duration=Millis(int(fields.number(report, "duration_s") * 1000)),
            lost=fields.pairs(report, "lost"),
        )
        if "/" in checkpoint.id or checkpoint.id.startswith("."):
            raise WireError(f"checkpointed: {str(body['id'])[:80]!r} is no name of a checkpoint")
        if workload.checkpoint is not None and checkpoint.sequence <= workload.checkpoint.sequence:
            return
        turn.handle(ev.CheckpointDone(turn.now, turn.cause(), workload.id, workload.incarnation, checkpoint))
        session = self._session(turn, workload)
        if session is not workload:
            turn.handle(ev.CheckpointDone(turn.now, turn.cause(), session.id, session.incarnation, checkpoint))
        detail = turn.detail(session.id)
        kept = (*detail.checkpoints, checkpoint_dict(checkpoint))[-KEPT_CHECKPOINTS:]
        turn.set_detail(session.id, replace(detail, checkpoints=kept))
        detail = turn.detail(workload.id)
        turn.set_detail(workload.id, replace(detail, restore_offered=False, progress=None, not_saved=None))

    def _checkpoint_failed(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        reason = fields.reason(report)
        turn.handle(ev.CheckpointFailed(turn.now, turn.cause(), workload.id, workload.incarnation, reason))
        failed = {"at_s": turn.now / 1000, "reason": reason}
        turn.set_detail(workload.id, replace(turn.detail(workload.id), progress=None, not_saved=failed))

    def _held(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        if (more := moving.held(turn, workload, fields.number(report, "until_s"))) is not None:
            turn.after(lambda: self._dispatcher.tell(workload, more.kind, workload.incarnation, more.args))

    def _not_held(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        if workload.phase is Phase.RUNNING:  # else it leaves anyway, and is opened when it has
            moving.give_up(turn, workload.id, fields.reason(report) or "its kernel could not be saved")

    def _preflight(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        told = {"at_s": turn.now / 1000, **fields.preflight(report)}
        turn.set_detail(workload.id, replace(turn.detail(workload.id), preflight=told), durable=False)

    def _restored(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        # Told as a start: it is the same statement about what the session now has.
        lost = fields.pairs(report, "lost")
        turn.handle(ev.Started(turn.now, turn.cause(), workload.id, workload.incarnation, workload.devices, lost))
        told = replace(turn.detail(workload.id), restore_offered=False, progress=None, not_restored="")
        turn.set_detail(workload.id, told)

    def _restore_failed(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        why = f"the checkpoint was not restored: {fields.reason(report)}"
        turn.set_detail(workload.id, replace(turn.detail(workload.id), progress=None, not_restored=why))

    def _over(self, turn: Turn, node: str, workload: Workload, report: Report) -> None:
        self._part_gone(turn, node, workload, report.kind, _ended(report))

    _start_failed = _released = _exited = _over

    @staticmethod
    def _session(turn: Turn, workload: Workload) -> Workload:
        """Whose state this workload works on: of a stand-in its session's, else its own."""
        session = standin.session_of(workload.spec)
        return workload if session is None else turn.state.workload(session)

    # -- gangs ----------------------------------------------------------------------------------------------------

    def _part_gone(self, turn: Turn, node: str, workload: Workload, kind: str, body: dict[str, Any]) -> None:
        """One process is gone; when all are, the core hears the worst that was said."""
        if workload.phase not in HOLDING:
            return
        parts = parts_of(turn, workload)
        kind, body = parts.said.get(node, (kind, body))  # its processes knew better than who only saw them gone
        if unsaved := body.get("unsaved"):
            # The user hears of it with the next start, together with what the restore could not bring back.
            session = self._session(turn, workload)
            unsaved = tuple((str(cell), str(why)) for cell, why in unsaved)
            turn.set_detail(session.id, replace(turn.detail(session.id), unsaved=unsaved))
        if why := body.get("why"):
            for one in {workload.id, self._session(turn, workload).id}:
                turn.set_detail(one, replace(turn.detail(one), died_of=str(why)))
        parts = replace(parts, gone={node: (kind, body)} | parts.gone)  # its first word is the one that it had to say
        places = hosts(workload)
        missing = [place for place in places if place not in parts.gone]
        turn.set_detail(workload.id, replace(turn.detail(workload.id), parts=parts if missing else None))
        if missing:
            for place in missing if parts.failed else ():
                # A gang stops whole: without one of its parts the others only wait for it.
                self._dispatcher.channel(place).send("stop", workload.id, workload.incarnation)
            return
        retries.end(turn, workload, _last_word(turn, workload, [parts.gone[place] for place in places]))


def _ended(report: Report) -> dict[str, Any]:
    """The body of a report of an end. Raises ``WireError``."""
    if report.kind == "start_failed":
        return {"reason": fields.reason(report)}
    if report.kind == "released":
        unsaved = [list(pair) for pair in fields.pairs(report, "unsaved")]
        why = str(report.body.get("why") or "")[:fields.LONGEST]
        more = {"unsaved": unsaved, "why": why}
        return {"busy": report.body.get("busy") is True} | {key: value for key, value in more.items() if value}
    if report.kind != "exited":
        raise WireError(f"{report.kind[:80]!r} is no end; that is one of {', '.join(sorted(TERMINAL))}")
    outcome = report.body.get("outcome")
    if outcome not in (Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT):
        raise WireError("exited: outcome has to be 'completed', 'failed' or 'timed out'")
    return {"outcome": outcome, "reason": fields.reason(report)}


def _measure(turn: Turn, node: str, span: Millis, samples: dict[WorkloadId, Utilization]) -> None:
    if not samples:
        return
    try:
        turn.handle(ev.UtilizationReported(turn.now, turn.cause(), NodeName(node), span, tuple(samples.values())))
    except GpufairError as err:
        _log.warning("what node %s measured is left out: %s", node, err)
    samples.clear()


def _last_word(turn: Turn, workload: Workload, said: list[tuple[str, dict[str, Any]]]) -> ev.Event:
    """The event that sums up how all parts of a workload ended."""
    kinds = {kind for kind, _ in said}
    head = (turn.now, turn.cause(), workload.id, workload.incarnation)
    failures = [body["reason"] for kind, body in said if kind == "exited" and body["outcome"] == Outcome.FAILED]
    leaving = workload.phase in (Phase.CHECKPOINTING, Phase.STOPPING)
    timed_out = any(kind == "exited" and body["outcome"] == Outcome.TIMED_OUT for kind, body in said)
    if timed_out or (kinds == {"released"} and time_limit.left_of(workload.spec, turn.ran(workload.id, turn.now)) == 0):
        return ev.Exited(*head, Outcome.TIMED_OUT, time_limit.why(workload.spec))
    if failures and not (leaving and len(said) > 1):
        return ev.Exited(*head, Outcome.FAILED, failures[0])
    if kinds == {"exited"} and not failures:
        return ev.Exited(*head, Outcome.COMPLETED, said[0][1]["reason"])
    if "start_failed" in kinds:
        return ev.StartFailed(*head, next(body["reason"] for kind, body in said if kind == "start_failed"))
    return ev.Released(*head, busy=any(body.get("busy", False) for _, body in said))


_HANDLERS: dict[str, Callable[[ReportReader, Turn, str, Workload, Report], None]] = {
    name.removeprefix("_"): getattr(ReportReader, name)
    for name in (
        "_serving",
        "_progress",
        "_gpu_use",
        "_activity",
        "_kernel_died",
        "_remark",
        "_checkpointed",
        "_checkpoint_failed",
        "_held",
        "_not_held",
        "_preflight",
        "_restored",
        "_restore_failed",
        "_start_failed",
        "_released",
        "_exited",
    )
}
