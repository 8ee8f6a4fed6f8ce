"""Workloads: submit, look, end, park and resume; why they wait, and what they wrote."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

from gpufair.client.answers import Workloads
from gpufair.client.reasons import Explanation
from gpufair.client.types import LogPage
from gpufair.client.types import Workload as WorkloadView
from gpufair.core import events as ev
from gpufair.core.explain.resting import first
from gpufair.core.model import HOLDING, Phase, PreemptReason, Shape
from gpufair.core.record import Workload
from gpufair.core.units import WorkloadId
from gpufair.service.insight.closed_nodes import closed_nodes
from gpufair.service.insight.explained import explanation_view
from gpufair.service.insight.outputs import MAX_PAGE_BYTES, log_of
from gpufair.service.problems import BadRequest
from gpufair.service.storage.ended import Wanted
from gpufair.service.web.acting import Answer, Fields, Id, act, listed, owned, require_kernel, shown
from gpufair.service.web.context import Context, context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import Extension, Nothing, PlainName, Resume, Submission
from gpufair.service.web.pages import Cursor, Key, Limit, cut, place
from gpufair.service.workloads import dependencies, moving, notices, pools, retries, standin, time_limit
from gpufair.service.workloads.submission import span_of, spec_of
from gpufair.service.workloads.turn import Turn

router = APIRouter(prefix="/workloads")


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
        spec = spec_of(wanted, user, it.config, turn.state.facts)
        dependencies.submit(turn, workload, spec, body.after, body.after_any)
        return True, turn.state.advice(spec)

    async with it.turn(user):
        (new, warnings), view = await it.runtime.do_to(workload, step, map(WorkloadId, (*body.after, *body.after_any)))
    if not new:
        response.status_code = 200
    if body.notify and not told.channels(user):
        warnings = (*warnings, f"nobody is told anything: [notifications] of the service knows no address of {user}")
    return view | {"warnings": list(warnings)}


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

    most = None if limit is None else limit + 1
    found = await it.runtime.views(wanted, most)
    if not holding and state in (None, Phase.ENDED) and (notebook is None or user is None or who.owns(user)):
        whose = user if notebook is None or who.sees_all else who.name
        asked = Wanted((-1, "") if begun is None else (int(begun[0]), str(begun[1])), whose, notebook)
        found = await _with_past(it, found, asked, most)
    told, following = cut(found, _key, limit)
    shown_ones = listed((view for view in told if view["leases"] or not holding), who, fields)
    return {"workloads": shown_ones, "next": following}


def _key(view: Answer) -> Key:
    return [round(view["submitted_s"] * 1000), view["id"]]


async def _with_past(it: Context, found: list[Answer], asked: Wanted, most: int | None) -> list[Answer]:
    """Those of the state and those that ended long ago, in one order. One may have left the state in between."""
    known = {view["id"]: view for view in found}
    count = 0
    while most is None or count < most:
        page = await it.runtime.past(asked)
        known |= {view["id"]: view for view in page}
        count += len(page)
        if len(page) < asked.most:
            break
        at, last = _key(page[-1])
        asked = replace(asked, after=(int(at), str(last)))
    return sorted(known.values(), key=_key)[:most]


@router.get("/{workload}", responses=answers(WorkloadView))
async def one(request: Request, workload: Id) -> Answer:
    """One workload."""
    return shown(await context(request).runtime.view(WorkloadId(workload)), principal(request))


@router.delete("/{workload}", responses=answers(WorkloadView))
async def end(request: Request, workload: Id) -> Answer:
    """End it, without a checkpoint. One that has ended already is answered as it is."""

    who = principal(request)

    def step(turn: Turn, known: Workload) -> None:
        if known.phase is not Phase.ENDED:
            why = "" if who.name == known.spec.user else "cancelled by an operator"
            turn.handle(ev.Cancelled(turn.now, turn.cause(), known.id, why))

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

    def step(turn: Turn, known: Workload) -> None:
        if wanted.on_cpu:
            there = pools.usual(it.config, turn.state.facts, Shape(0), {})
            require_kernel(known, "be opened on a CPU node")
            if known.phase not in HOLDING:
                standin.open_on_cpu(turn, known, there)
            elif (told := moving.ask(turn, known, there)) is not None:
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


@router.get("/{workload}/why", responses=answers(Explanation))
async def why(request: Request, workload: Id) -> Answer:
    """Why it is where it is, from the same state that decided."""

    name, it = WorkloadId(workload), context(request)
    await it.runtime.view(name)
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
    if closed := await it.runtime.read(lambda state: closed_nodes(state, name, lambda node: it.hub.health(node)["problems"])):
        answer["sentence"] += f" {closed}"
    if remark := str(seen["remark"]).rstrip("."):
        nodes = await it.runtime.read(lambda state: frozenset(state.facts.nodes))
        answer["sentence"] = f"{first(remark, nodes)} {answer['sentence']}"
    return answer


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
