"""Questions about the future."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from gpufair.client.insight import Coaching, Preview
from gpufair.core.state import State
from gpufair.core.units import HOUR, Millis, after
from gpufair.service.insight.foreseen import coaching_view, preview_view
from gpufair.service.web.context import context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import Question
from gpufair.service.workloads.submission import span_of, spec_of

router = APIRouter()
Answer = dict[str, Any]
MAX_HOURS = 7 * 24


@router.get("/preview", responses=answers(Preview))
async def preview(
    request: Request, hours: Annotated[float, Query(gt=0, le=MAX_HOURS, allow_inf_nan=False)] = 8.0
) -> Answer:
    """Who runs next and who is preempted when in the next hours, if nothing new arrives."""
    span = Millis(int(hours * HOUR))
    return await context(request).runtime.think(lambda state: preview_view(state.preview(after(state.now, span))))


@router.post("/coach", responses=answers(Coaching))
async def coach(request: Request, body: Question) -> Answer:
    """What a submission would mean for the wait, as it is and with other protections and shapes. Changes nothing."""
    it = context(request)
    user = principal(request).acting_for(body.user)
    spans = None if body.min_runtimes_s is None else [span_of(one, "min_runtimes_s") for one in body.min_runtimes_s]

    def think(state: State) -> Answer:
        spec = spec_of(body.wanted({}), user, it.config, state.facts)
        said = coaching_view(state.coach(spec, spans))
        warnings = list(state.advice(spec))
        return {"now_s": state.now / 1000, "allocation": spec.allocation, "warnings": warnings} | said

    return await it.runtime.think(think)
