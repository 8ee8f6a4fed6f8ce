"""Questions about the future. Each is answered on a copy of the state, in a thread, and only a few at a time."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from gpufair.core.units import HOUR, Millis, after
from gpufair.service.context import context, principal
from gpufair.service.foreseen import coaching_view, preview_view
from gpufair.service.models import Question
from gpufair.service.submission import span_of, spec_of

router = APIRouter()
Answer = dict[str, Any]
MAX_HOURS = 7 * 24


@router.get("/preview")
async def preview(
    request: Request, hours: Annotated[float, Query(gt=0, le=MAX_HOURS, allow_inf_nan=False)] = 8.0
) -> Answer:
    """Who runs next and who is preempted when in the next hours, if nothing new arrives."""
    it = context(request)
    async with it.thinking:
        state = await it.runtime.read(lambda state: state.copy())
        until = after(it.runtime.now(), Millis(int(hours * HOUR)))
        return await asyncio.to_thread(lambda: preview_view(state.preview(until)))


@router.post("/coach")
async def coach(request: Request, body: Question) -> Answer:
    """What a submission would mean for the wait, as it is and with other protections and shapes. Changes nothing."""
    it = context(request)
    user = principal(request).acting_for(body.user)
    spans = None if body.min_runtimes_s is None else [span_of(one, "min_runtimes_s") for one in body.min_runtimes_s]
    async with it.thinking:
        state = await it.runtime.read(lambda state: state.copy())
        spec = spec_of(body.wanted({}), user, it.config, state.tree)
        seen = await asyncio.to_thread(lambda: coaching_view(state.coach(spec, spans)))
    return {"now_s": it.runtime.now() / 1000, "allocation": spec.allocation} | seen
