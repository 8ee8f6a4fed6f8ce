"""The live state, for those who try budgets and options on a copy of it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from gpufair.client.answers import Snapshot
from gpufair.service.insight.handed_out import snapshot_text
from gpufair.service.web.context import context, principal
from gpufair.service.web.contract import answers

router = APIRouter()


@router.get("/snapshot", response_model=None, responses=answers(Snapshot))
async def snapshot(request: Request) -> Response:
    """The whole state after the last entry of the journal, without how anything is run; budget owners and operators."""
    it, who = context(request), principal(request)
    text = await it.runtime.write_down(lambda state, seq: snapshot_text(state, seq, it.runtime.now(), it.version, names=who.sees_all))
    return Response(text, media_type="application/json")
