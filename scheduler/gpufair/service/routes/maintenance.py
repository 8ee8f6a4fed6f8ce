"""Planned maintenance: nodes that will be closed, known in time to everybody who starts something there."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from gpufair.client.answers import Plans
from gpufair.core import events as ev
from gpufair.core.model import Maintenance
from gpufair.core.state import State
from gpufair.core.units import Instant, NodeName
from gpufair.service.problems import BadRequest, NotFound
from gpufair.service.web.context import context
from gpufair.service.web.contract import answers
from gpufair.service.web.models import ID_PATTERN, Closure
from gpufair.service.workloads.turn import Turn
from gpufair.service.workloads.views import maintenance_view

router = APIRouter(prefix="/maintenance")
Answer = dict[str, Any]


@router.get("", responses=answers(Plans))
async def plans(request: Request) -> Answer:
    """What is planned, the first first."""
    return await context(request).runtime.read(_plans)


@router.post("", status_code=201, responses=answers(Plans, 201))
async def plan(request: Request, body: Closure) -> Answer:
    """Close nodes at a time: until then only what is done by then starts there, then they are cordoned."""
    it = context(request)
    name = body.id or uuid.uuid4().hex[:8]

    def step(turn: Turn) -> None:
        at = Instant(round(body.at_s * 1000))
        if at < turn.now:
            raise BadRequest("at_s lies in the past; to empty a node now, drain it")
        planned = Maintenance(name, tuple(NodeName(node) for node in sorted(set(body.nodes))), at)
        turn.handle(ev.MaintenancePlanned(turn.now, turn.cause(), planned))

    await it.runtime.do(step)
    return await it.runtime.read(_plans)


@router.delete("/{plan}", responses=answers(Plans))
async def cancel(request: Request, plan: Annotated[str, Path(pattern=ID_PATTERN)]) -> Answer:
    """Take a plan back whose time has not come."""
    it = context(request)

    def step(turn: Turn) -> None:
        if plan not in turn.state.facts.maintenance:
            known = ", ".join(turn.state.facts.maintenance) or "none"
            raise NotFound(f"there is no planned maintenance {plan!r}; planned are {known}")
        turn.handle(ev.MaintenanceCancelled(turn.now, turn.cause(), plan))

    await it.runtime.do(step)
    return await it.runtime.read(_plans)


def _plans(state: State) -> Answer:
    return {"plans": maintenance_view(state)}
