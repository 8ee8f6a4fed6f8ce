"""Workloads: submit, look, act."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response

from gpufair.client.answers import Checkpoints, Executions, Workloads
from gpufair.client.answers import Preflight as PreflightAnswer
from gpufair.client.types import Connection, Explanation, LogPage
from gpufair.client.types import Workload as WorkloadView
from gpufair.core import events as ev
from gpufair.core.errors import WrongPhase
from gpufair.core.model import HOLDING, Phase, PreemptReason
from gpufair.core.record import Workload
from gpufair.core.units import WorkloadId
from gpufair.service.identity.auth import Principal
from gpufair.service.insight import kept
from gpufair.service.insight.explained import explanation_view
from gpufair.service.insight.outputs import MAX_PAGE_BYTES, log_of
from gpufair.service.problems import BadRequest, Forbidden, NotFound
from gpufair.service.web.context import Context, context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import ID_PATTERN, Extension, Nothing, PlainName, Restoring, Resume, Submission
from gpufair.service.web.pages import Cursor, Key, Limit, cut, place
from gpufair.service.workloads import dependencies, moving, notices, retries, standin, time_limit
from gpufair.service.workloads.details import Pending
from gpufair.service.workloads.submission import pools_for, span_of, spec_of
from gpufair.service.workloads.turn import Turn
from gpufair.service.workloads.views import masked

router = APIRouter(prefix="/workloads")
Id = Annotated[str, Path(pattern=ID_PATTERN)]
Answer = dict[str, Any]
Fields = Annotated[str | None, Query(max_length=1024)]


@router.post("", status_code=201, responses=answers(WorkloadView) | answers(WorkloadView, 201))
async def submit(request: Request, response: Response, body: Submission) -> Answer:
    """Ask for a workload. An id that exists answers 200 with what it names, if it is the caller's."""
    it, who = context(request), principal(request)
    user = who.acting_for(body.user)
    workload = WorkloadId(body.id or uuid.uuid4().hex)
    launch = body.launch.model_dump()
    for key in ("notebook", "kernel_name"):
        if (value := getattr(body, key)) is not None:
            launch[key] = value
    for key in (time_limit.KEY, retries.KEY, retries.PAUSE_KEY):
        if (given := getattr(body, key)) is not None:
            if body.launch.type != "command":
                raise BadRequest(f"{key} is for commands and batch notebooks, not for kernels; leave it out")
            launch[key] = given
    told = it.config.notifications
    if body.notify is not None:
        launch[notices.KEY] = notices.words_of(body.notify)
    wanted = body.wanted(launch)

    def step(turn: Turn) -> tuple[bool, tuple[str, ...]]:
        if workload in turn.state.facts.records:
            spec = turn.state.workload(workload).spec
            who.require_owner(spec.user, f"workload id {workload!r} is taken; it")
            return False, turn.state.advice(spec)
        spec = spec_of(wanted, user, it.config, turn.state.tree)
        dependencies.submit(turn, workload, spec, body.after, body.after_any)
        return True, turn.state.advice(spec)

    new, warnings = await it.runtime.do(step)
    if not new:
        response.status_code = 200
    if body.notify and not told.channels(user):
        warnings = (*warnings, f"nobody is told anything: [notifications] of the service knows no address of {user}")
    return await it.runtime.view(workload) | {"warnings": list(warnings)}


@router.get("", responses=answers(Workloads))
async def listing(
    request: Request,
    state: Annotated[str | None, Query(max_length=32)] = None,
    user: Annotated[PlainName | None, Query()] = None,
    notebook: Annotated[str | None, Query(max_length=4096)] = None,
    holding: bool = False,
    fields: Fields = None,
    limit: Limit = None,
    cursor: Cursor = None,
) -> Answer:
    """All workloads, or those in one state, of one user, of one document of the caller's, and that hold something.

    The first submitted first.
    """
    it, who = context(request), principal(request)
    begun = place(cursor, (int, str))
    phases = {phase.value for phase in Phase}
    if state is not None and state not in phases:
        raise BadRequest(f"there is no state {state!r}; states are {', '.join(sorted(phases))}")

    def wanted(record: Workload) -> bool:
        mine = notebook is None or (record.spec.launch.get("notebook") == notebook and who.owns(record.spec.user))
        # A session without a place of its own may have a stand-in that holds one.
        held = not holding or record.held is not None or it.runtime.detail(record.id).stand_in != ""
        key: Key = [record.submitted_at, record.id]
        later = begun is None or key > begun
        return later and mine and held and state in (None, record.phase) and user in (None, record.spec.user)

    found = await it.runtime.views(wanted, None if limit is None else limit + 1)
    told, following = cut(found, lambda view: [round(view["submitted_s"] * 1000), view["id"]], limit)
    shown_ones = listed((view for view in told if view["leases"] or not holding), who, fields)
    return {"workloads": shown_ones, "next": following}


@router.get("/{workload}", responses=answers(WorkloadView))
async def one(request: Request, workload: Id) -> Answer:
    """One workload."""
    return shown(await context(request).runtime.view(WorkloadId(workload)), principal(request))


@router.delete("/{workload}", responses=answers(WorkloadView))
async def end(request: Request, workload: Id) -> Answer:
    """End it, without a checkpoint. One that has ended already is answered as it is."""

    def step(turn: Turn, known: Workload) -> None:
        if known.phase is not Phase.ENDED:
            turn.handle(ev.Cancelled(turn.now, turn.cause(), known.id))

    return await act(request, workload, step)


@router.post("/{workload}/park", status_code=202, responses=answers(WorkloadView, 202))
async def park(request: Request, workload: Id, body: Annotated[Nothing | None, Body()] = None) -> Answer:
    """Checkpoint a session and give its GPUs back."""

    def step(turn: Turn, known: Workload) -> None:
        moving.give_up(turn, known.id)
        if (there := standin.of(turn.state, turn.detail(known.id))) is not None:
            turn.handle(ev.ParkRequested(turn.now, turn.cause(), there.id, PreemptReason.PARK))
            if known.phase is Phase.PARKED:
                return
        turn.handle(ev.ParkRequested(turn.now, turn.cause(), known.id, PreemptReason.PARK))

    return await act(request, workload, step)


@router.post("/{workload}/resume", status_code=202, responses=answers(WorkloadView, 202))
async def resume(request: Request, workload: Id, body: Annotated[Resume | None, Body()] = None) -> Answer:
    """Queue a parked session again, or let a queued one ask for less protection at its next start.

    Or open it on a CPU node; one that holds GPUs is saved and gives them back first.
    """
    it = context(request)
    wanted = body or Resume()
    part = None if wanted.slice_s is None else span_of(wanted.slice_s, "slice_s")
    pools = pools_for(it.config, 0)

    def step(turn: Turn, known: Workload) -> None:
        if wanted.on_cpu:
            require_kernel(known, "be opened on a CPU node")
            if known.phase not in HOLDING:
                standin.open_on_cpu(turn, known, pools)
            elif (told := moving.ask(turn, known, pools)) is not None:
                turn.after(lambda: it.hub.send(known, told.kind, told.args))
            return
        moving.give_up(turn, known.id)
        turn.handle(ev.ResumeRequested(turn.now, turn.cause(), known.id, wanted.from_checkpoint, part))

    return await act(request, workload, step)


@router.post("/{workload}/dismiss", status_code=202, responses=answers(WorkloadView, 202))
async def dismiss(request: Request, workload: Id, body: Annotated[Nothing | None, Body()] = None) -> Answer:
    """Say no to what is suggested about it, until it starts anew."""

    def step(turn: Turn, known: Workload) -> None:
        turn.set_detail(known.id, replace(turn.detail(known.id), stays=True))

    return await act(request, workload, step)


@router.post("/{workload}/extend", status_code=202, responses=answers(WorkloadView, 202))
async def extend(request: Request, workload: Id, body: Extension) -> Answer:
    """Protect it longer, if as a submission of this moment it would come first."""
    span = span_of(body.min_runtime_s, "min_runtime_s")

    def step(turn: Turn, known: Workload) -> None:
        turn.handle(ev.ExtensionRequested(turn.now, turn.cause(), known.id, span))

    return await act(request, workload, step)


@router.post("/{workload}/restart", status_code=202, responses=answers(WorkloadView, 202))
async def restart(request: Request, workload: Id, body: Annotated[Nothing | None, Body()] = None) -> Answer:
    """A new kernel without the old one's variables: on the same GPUs if it has some, else when it gets some."""
    it = context(request)

    def step(turn: Turn, known: Workload) -> None:
        if known.phase in (Phase.RUNNING, Phase.RESTORING):
            # The kernel it replaces: a command that is repeated after a crash restarts only once.
            command(it, turn, known, "restart", {"generation": turn.detail(known.id).generation})
            turn.set_detail(known.id, replace(turn.detail(known.id), serving=False, connection=None))
        elif known.phase is not Phase.STARTING:  # that one is new anyway
            turn.handle(ev.ResumeRequested(turn.now, turn.cause(), known.id, from_checkpoint=False))

    return await act(request, workload, step, kernel=True)


@router.post("/{workload}/checkpoint", status_code=202, responses=answers(WorkloadView, 202))
async def checkpoint(request: Request, workload: Id, body: Annotated[Nothing | None, Body()] = None) -> Answer:
    """Checkpoint it and go on."""
    it = context(request)

    def step(turn: Turn, known: Workload) -> None:
        require_running(known, "checkpoint", "only a running one has something new to save")
        command(it, turn, known, "save", {})

    return await act(request, workload, step, kernel=True)


@router.post("/{workload}/preflight", status_code=202, responses=answers(WorkloadView, 202))
async def ask_preflight(request: Request, workload: Id, body: Annotated[Nothing | None, Body()] = None) -> Answer:
    """Ask its kernel what a checkpoint would be like. Answered when no cell runs: look at ``preflight.at_s``."""
    it = context(request)

    def step(turn: Turn, known: Workload) -> None:
        require_running(known, "preflight", "what it has was saved as far as that is possible")
        turn.after(lambda: it.hub.send(known, "preflight"))

    return await act(request, workload, step, kernel=True)


@router.post("/{workload}/restore", status_code=202, responses=answers(WorkloadView, 202))
async def restore(request: Request, workload: Id, body: Annotated[Restoring | None, Body()] = None) -> Answer:
    """Load the last checkpoint, or an older one that is still there, into the running kernel."""
    it = context(request)
    wanted = None if body is None else body.checkpoint
    if wanted is not None:
        there = [one["id"] for one in (await checkpoints(request, workload))["checkpoints"]]
        if wanted not in there:
            raise NotFound(f"workload {workload!r} has no checkpoint {wanted!r} (any more); it has: {', '.join(there) or 'none'}")

    def step(turn: Turn, known: Workload) -> None:
        require_running(known, "restore", "resume it; it is then restored as it starts")
        session = standin.session_of(known.spec) or known.id
        last = turn.state.workload(session).checkpoint
        if last is None:
            raise WrongPhase(known.id, known.phase, "restore", "and it has no checkpoint yet")
        command(it, turn, known, "restore", {"id": wanted or last.id})

    return await act(request, workload, step, kernel=True)


@router.post("/{workload}/interrupt", status_code=202, responses=answers(WorkloadView, 202))
async def interrupt(request: Request, workload: Id, body: Annotated[Nothing | None, Body()] = None) -> Answer:
    """As the user's interrupt button. Where nothing runs there is nothing to interrupt, and that is no error."""
    it = context(request)

    def step(turn: Turn, known: Workload) -> None:
        if known.phase in (Phase.RUNNING, Phase.CHECKPOINTING):
            turn.after(lambda: it.hub.send(known, "interrupt"))

    return await act(request, workload, step, kernel=True)


@router.get("/{workload}/why", responses=answers(Explanation))
async def why(request: Request, workload: Id) -> Answer:
    """Why it is where it is, from the same state that decided."""

    name, it = WorkloadId(workload), context(request)
    detail = it.runtime.detail(name)
    answer = await it.runtime.think(lambda state: explanation_view(state, state.explain(name), len(state.queue())))
    if awaited := await it.runtime.read(lambda state: dependencies.waits_for(state, detail)):
        answer["sentence"] = f"It waits for {awaited}; then it is queued."
    elif detail.retry_at_ms:
        spec = await it.runtime.read(lambda state: state.workload(name).spec)
        answer["sentence"] += f" It waits for {retries.waits_for(spec, detail)}."
    if await it.runtime.read(lambda state: standin.of(state, detail)) is not None:
        answer["sentence"] = f"{standin.OPEN} {answer['sentence']}"
    seen = shown(await it.runtime.view(name), principal(request))
    if seen["suggestion"] is not None:
        answer["sentence"] += f" {seen['suggestion']['text']} (gpufair sessions resume {name[:8]} --on-cpu)"
    if remark := str(seen["remark"]):
        answer["sentence"] = f"{remark[0].upper()}{remark[1:].rstrip('.')}. {answer['sentence']}"
    return answer


@router.get("/{workload}/connection", responses=answers(Connection))
async def connection(request: Request, workload: Id) -> Answer:
    """How to reach its kernel; only for its owner."""
    it = context(request)
    known = await owned(request, workload)
    detail = it.runtime.detail(known.id)
    there = await it.runtime.read(lambda state: standin.of(state, detail))
    kernel = detail if there is None or there.phase not in HOLDING else it.runtime.detail(there.id)
    return {
        "key": it.secrets.kernel_key(known.id),
        "incarnation": known.incarnation,
        "generation": detail.generation,
        "serving": kernel.serving,
        "connection": kernel.connection or {},
    }


@router.get("/{workload}/outputs", responses=answers(Executions))
async def outputs(request: Request, workload: Id) -> Answer:
    """Its recorded executions with their outputs, oldest first; only for its owner."""
    it = context(request)
    known = await owned(request, workload)
    folder = it.dispatcher.record_dir(known.id)

    def recorded() -> list[Answer]:
        folders = [folder, *standin.records(folder)]
        found = [execution for one in folders for execution in it.outputs.of(one)]
        if len(folders) == 1:
            return found
        # A cell that left with its session goes on in another folder: the last of its runs is told, as within one.
        runs = {run["msg_id"]: run for run in sorted(found, key=lambda run: float(run["started_s"]))}
        return list(runs.values())

    return {"executions": await asyncio.to_thread(recorded)}


@router.get("/{workload}/preflight", responses=answers(PreflightAnswer))
async def preflight(request: Request, workload: Id) -> Answer:
    """The last answer of its kernel in this stay, with all variables; only for its owner."""
    known = await owned(request, workload)
    return {"preflight": context(request).runtime.detail(known.id).preflight}


@router.get("/{workload}/log", responses=answers(LogPage))
async def log(
    request: Request,
    workload: Id,
    after: Annotated[int, Query(ge=-(1 << 40), le=1 << 50)] = 0,
    limit: Annotated[int, Query(ge=4, le=MAX_PAGE_BYTES)] = MAX_PAGE_BYTES,
    rank: Annotated[int, Query(ge=0, lt=4096)] = 0,
) -> Answer:
    """A piece of what a command wrote, over all of its starts, on its node ``rank``; only for its owner.

    ``after``: where it begins, in bytes; negative: so many before the end. The next piece begins at the answer's ``after``.
    """
    it = context(request)
    known = await owned(request, workload)
    # Asked before the file is read: what was written before it ended is in a piece that says ``ended``.
    ended = known.phase is Phase.ENDED
    page = await asyncio.to_thread(log_of, it.dispatcher.record_dir(known.id), rank, after, limit)
    return {**page, "ended": ended}


@router.get("/{workload}/checkpoints", responses=answers(Checkpoints))
async def checkpoints(request: Request, workload: Id) -> Answer:
    """Its checkpoints that are still there, newest first; only for its owner."""
    it = context(request)
    known = await owned(request, workload)
    reported = it.runtime.detail(known.id).checkpoints
    directory = it.dispatcher.checkpoint_dir(known.spec.user, known.id)
    return {"checkpoints": await asyncio.to_thread(kept.present, directory, reported)}


# -- shared -------------------------------------------------------------------------------------------------------


def shown(view: Answer, who: Principal) -> Answer:
    """A Workload object as far as ``who`` may see it."""
    return view if who.owns(view["user"]) else masked(view)


def listed(views: Iterable[Answer], who: Principal, fields: str | None) -> list[Answer]:
    """Workload objects as far as ``who`` may see them; with ``fields`` ("id,user") only those of them that there are."""
    found = (shown(view, who) for view in views)
    if fields is None:
        return list(found)
    wanted = fields.split(",")
    return [{name: view[name] for name in wanted if name in view} for view in found]


async def owned(request: Request, workload: str) -> Workload:
    """A workload of the caller's.

    Raises:
        UnknownWorkload: There is none.
        Forbidden: It is somebody else's.
    """
    known = await context(request).runtime.read(lambda state: state.workload(WorkloadId(workload)))
    principal(request).require_owner(known.spec.user, f"workload {workload!r}")
    return known


async def act(
    request: Request, workload: str, step: Callable[[Turn, Workload], None], *, kernel: bool = False
) -> Answer:
    """Run ``step`` on a workload of the caller's; answer with what became of it.

    Args:
        kernel: It is about the kernel: on the stand-in where that runs it.
    """
    it, who = context(request), principal(request)

    def checked(turn: Turn) -> None:
        known = turn.state.workload(WorkloadId(workload))
        who.require_owner(known.spec.user, f"workload {workload!r}")
        there = standin.of(turn.state, turn.detail(known.id)) if kernel else None
        step(turn, known if there is None or there.phase not in HOLDING else there)

    await it.runtime.do(checked)
    return await it.runtime.view(WorkloadId(workload))


def require_running(known: Workload, asked: str, instead: str) -> None:
    """Refuse what only a running kernel can do.

    Raises:
        WrongPhase: It doesn't run.
        Forbidden: It is no kernel.
    """
    require_kernel(known, asked)
    if known.phase is not Phase.RUNNING:
        raise WrongPhase(known.id, known.phase, asked, instead)


def require_kernel(known: Workload, asked: str) -> None:
    """Refuse what only kernels can do. Raises ``Forbidden``."""
    if known.spec.launch.get("type") != "kernel":
        raise Forbidden(f"workload {known.id!r} is a command: only kernels can be asked to {asked}")


def command(it: Context, turn: Turn, known: Workload, kind: str, args: Answer) -> None:
    """Send a user's command once it is durable; until a report answers it, it is repeated to an agent that comes back."""
    detail = turn.detail(known.id)
    others = tuple(pending for pending in detail.pending if pending.kind != kind)
    turn.set_detail(known.id, replace(detail, pending=(*others, Pending(kind, known.incarnation, args))))
    turn.after(lambda: it.hub.send(known, kind, args))
