"""What is somebody's: their sessions and runs, and where they may submit. The same for panels in Jupyter and for pages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from gpufair.client.overview import Cards, OpenAllocations, card
from gpufair.client.reading import read
from gpufair.client.types import Workload
from gpufair.core.model import Phase
from gpufair.service.web.context import context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import PlainName

router = APIRouter()
Answer = dict[str, Any]
User = Annotated[PlainName | None, Query()]


@router.get("/mine", responses=answers(Cards))
async def mine(request: Request, user: User = None) -> Answer:
    """The caller's live sessions and runs, the newest first; parked ones included."""
    it, whose = context(request), principal(request).acting_for(user)
    found = await it.runtime.views(lambda one: one.spec.user == whose and one.phase is not Phase.ENDED)
    cards = [card(read(Workload, view)) for view in reversed(found)]
    return {"user": whose, "sessions": cards}


@router.get("/allocations", responses=answers(OpenAllocations))
async def allocations(request: Request, user: User = None) -> Answer:
    """Leaves of the budget tree where the caller may submit, in its order."""
    it, whose = context(request), principal(request).acting_for(user)
    return {"user": whose, "allocations": await it.runtime.read(lambda state: list(state.tree.open_to(whose)))}
