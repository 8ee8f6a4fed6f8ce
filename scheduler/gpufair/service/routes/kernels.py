"""The kernel of a workload: reach it, restart and interrupt it, save and restore it, see what it put out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Body, Request

from gpufair.client.answers import Executions
from gpufair.client.answers import Preflight as PreflightAnswer
from gpufair.client.types import Connection
from gpufair.client.types import Workload as WorkloadView
from gpufair.core import events as ev
from gpufair.core.errors import WrongPhase
from gpufair.core.model import HOLDING, Phase
from gpufair.core.record import Workload
from gpufair.service.problems import NotFound
from gpufair.service.routes.checkpoints import checkpoints
from gpufair.service.web.acting import Answer, Id, act, command, owned, require_running
from gpufair.service.web.context import context
from gpufair.service.web.contract import answers
from gpufair.service.web.models import Nothing, Restoring
from gpufair.service.workloads import standin
from gpufair.service.workloads.turn import Turn

router = APIRouter(prefix="/workloads")


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


@router.get("/{workload}/preflight", responses=answers(PreflightAnswer))
async def preflight(request: Request, workload: Id) -> Answer:
    """The last answer of its kernel in this stay, with all variables; only for its owner."""
    known = await owned(request, workload)
    return {"preflight": context(request).runtime.detail(known.id).preflight}


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
