"""Questions about the future. Each is answered on a copy of the state, in a thread, and only a few at a time."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from gpufair.core.units import HOUR, Millis, after
from gpufair.service.context import context
from gpufair.service.foreseen import preview_view

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
