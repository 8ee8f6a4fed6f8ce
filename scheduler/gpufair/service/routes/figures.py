"""Figures over a period."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from gpufair.client.insight import BudgetsOverTime, Deliveries, GpuHistory
from gpufair.client.insight import Pyramid as PyramidOfPools
from gpufair.core.pyramid import Pyramid
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, Instant
from gpufair.service.insight.figures import delivered_view, over_time_view, pyramid_view
from gpufair.service.problems import BadRequest, NotFound
from gpufair.service.settings.tables import hint
from gpufair.service.web.context import context
from gpufair.service.web.contract import answers
from gpufair.service.web.models import NAME_PATTERN

router = APIRouter()
Answer = dict[str, Any]
MOST_BINS = 1000
MOST_FIGURES = 100_000  # of one kind in one answer: 500 allocations, 200 bins
MOST_HOURS = 168.0  # a week
Second = Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False)]


@router.get("/pyramid", responses=answers(PyramidOfPools))
async def pyramid(request: Request, since_s: Second = None, until_s: Second = None) -> Answer:
    """Where GPU time went: availability, occupancy, impact, utilization. By default over the budgets' window."""
    return pyramid_view(await _figures(request, since_s, until_s))


@router.get("/budgets/delivered", responses=answers(Deliveries))
async def delivered(request: Request, since_s: Second = None, until_s: Second = None) -> Answer:
    """What each allocation was owed and charged. By default over the budgets' window."""
    return delivered_view(await _figures(request, since_s, until_s))


@router.get("/budgets/over-time", responses=answers(BudgetsOverTime))
async def over_time(
    request: Request,
    allocation: Annotated[str | None, Query(max_length=512)] = None,
    since_s: Second = None,
    until_s: Second = None,
    bins: Annotated[int, Query(ge=1, le=MOST_BINS)] = 168,
) -> Response:
    """What each allocation, or one, was owed and charged over time, in at most so many bins of whole hours."""
    only = None if allocation is None else AllocationPath(allocation)

    def think(state: State) -> bytes:
        known = [node.path for node in state.tree.nodes() if node.path]
        if only is not None and only not in known:
            raise NotFound(f"there is no allocation {allocation!r:.80}{hint(only, known)}")
        start, end = _period(state, since_s, until_s)
        most = max(1, min(bins, MOST_FIGURES // len(known))) if only is None and known else bins
        return json.dumps(over_time_view(state.over_time(start, end, most, only))).encode()

    return Response(await context(request).runtime.think(think), media_type="application/json")


@router.get("/history", responses=answers(GpuHistory))
async def history(
    request: Request,
    hours: Annotated[float, Query(gt=0, le=MOST_HOURS, allow_inf_nan=False)] = 6.0,
    node: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
) -> Response:
    """GPU × time: who held which GPU in the last hours, on all nodes or on one."""
    it = context(request)
    body = await it.history.answer(it.journal, it.runtime, it.hub, hours, node)
    return Response(body, media_type="application/json")


async def _figures(request: Request, since_s: float | None, until_s: float | None) -> Sequence[Pyramid]:
    return await context(request).runtime.think(lambda state: state.pyramid(*_period(state, since_s, until_s)))


def _period(state: State, since_s: float | None, until_s: float | None) -> tuple[Instant, Instant]:
    """What was asked for; by default the budgets' window until now."""
    end = state.now if until_s is None else Instant(int(until_s * 1000))
    start = end - state.policy.window if since_s is None else int(since_s * 1000)
    if start >= end:
        raise BadRequest(f"since_s {start / 1000:.0f} is not before until_s {end / 1000:.0f}; nothing lies between")
    return Instant(start), end
