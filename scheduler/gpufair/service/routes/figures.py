"""Figures over a period."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from gpufair.core.pyramid import Pyramid
from gpufair.core.state import State
from gpufair.core.units import Instant
from gpufair.service.context import context
from gpufair.service.figures import delivered_view, pyramid_view
from gpufair.service.problems import BadRequest

router = APIRouter()
Answer = dict[str, Any]
Second = Annotated[float | None, Query(ge=0, le=1e11, allow_inf_nan=False)]


@router.get("/pyramid")
async def pyramid(request: Request, since_s: Second = None, until_s: Second = None) -> Answer:
    """Where GPU time went: availability, occupancy, impact, utilization. By default over the budgets' window."""
    return pyramid_view(await _figures(request, since_s, until_s))


@router.get("/budgets/delivered")
async def delivered(request: Request, since_s: Second = None, until_s: Second = None) -> Answer:
    """What each allocation was owed and charged. By default over the budgets' window."""
    return delivered_view(await _figures(request, since_s, until_s))


async def _figures(request: Request, since_s: float | None, until_s: float | None) -> Sequence[Pyramid]:
    def think(state: State) -> Sequence[Pyramid]:
        end = state.now if until_s is None else Instant(int(until_s * 1000))
        start = end - state.policy.window if since_s is None else int(since_s * 1000)
        if start >= end:
            raise BadRequest(f"since_s {start / 1000:.0f} is not before until_s {end / 1000:.0f}; nothing lies between")
        return state.pyramid(Instant(start), end)

    return await context(request).runtime.think(think)
