"""Budgets as a matter to discuss: requests with reasons, decisions, dated changes, and who changed what when and why.

Everybody reads all of it: what one allocation gets, others don't.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field, StringConstraints

from gpufair.client.budgeting import BudgetHistory, BudgetRequests
from gpufair.client.budgeting import BudgetRequest as RequestView
from gpufair.service.budgets import budget_changes
from gpufair.service.budgets.budget_changes import Terms
from gpufair.service.identity.auth import Principal
from gpufair.service.problems import BadRequest, NotFound
from gpufair.service.settings.budgets import share_of
from gpufair.service.storage import budget_history, budget_requests
from gpufair.service.storage.budget_requests import BudgetRequest, Stage
from gpufair.service.web.context import context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import Line, PlainName, Strict

router = APIRouter(prefix="/budgets")
Answer = dict[str, Any]
MOST_SHARES = 500
MOST_LISTED = 500
MAX_PREVIEW_BYTES = 64 << 10

_TEXT = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"
Reasons = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4000, pattern=_TEXT)]
Words = Annotated[str, StringConstraints(strip_whitespace=True, max_length=4000, pattern=_TEXT)]
Share = str | int | float
Shares = Annotated[dict[Line, Share], Field(min_length=1, max_length=MOST_SHARES)]
Gpus = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]  # Unix seconds; 0: at once, or for good
Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{0,64}$")]
Number = Annotated[int, Path(ge=1, le=2**31 - 1)]
Before = Annotated[int, Query(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Query(ge=1, le=MOST_LISTED)]


class Dated(Strict):
    """When it is to hold, the what-if that was looked at, and for whom an operator asks."""

    from_s: Moment | None = None
    until_s: Moment | None = None
    preview: dict[str, Any] | None = None
    user: PlainName | None = None


class Asked(Dated):
    """``POST /budgets/requests``: other shares for some allocations, or so many GPUs for one."""

    shares: Shares | None = None
    allocation: Line | None = None
    gpus: Gpus | None = None
    why: Reasons
    key: Key = ""


class Planned(Dated):
    """``POST /budgets/changes``. ``seen``: the shares of all allocations as they were when it was decided."""

    shares: Shares
    why: Words = ""
    seen: Annotated[dict[Line, Share], Field(max_length=10_000)] | None = None
    key: Key = ""


class Accepted(Dated):
    """``POST /budgets/requests/{number}/accept``; what is left out is as it was asked for."""

    words: Words = ""
    shares: Shares | None = None
    gpus: Gpus | None = None


class Said(Strict):
    """``POST /budgets/requests/{number}/withdraw``."""

    words: Words = ""
    user: PlainName | None = None


class Refused(Said):
    """``POST /budgets/requests/{number}/refuse``."""

    words: Reasons


@router.get("/requests", responses=answers(BudgetRequests))
async def requests(
    request: Request,
    state: Annotated[str, Query(max_length=200)] = "",
    user: Annotated[str, Query(max_length=64)] = "",
    before: Before = 0,
    limit: Limit = 100,
    acting: Annotated[str, Query(max_length=64)] = "",
) -> Answer:
    """The newest first, previews only named. ``state``: only these (with commas between them); ``user``: who asked.

    ``may`` says of each what the caller (or, for an operator, ``acting``) may do with it.
    """
    it, who = context(request), _acting(request, acting or None)
    states = [one for one in state.split(",") if one]
    if unknown := sorted(set(states) - {stage.value for stage in Stage}):
        raise BadRequest(f"{unknown[0][:80]!r} is no state; known are {', '.join(stage.value for stage in Stage)}")
    look = partial(budget_requests.listed, states=states, user=user, before=before, limit=limit + 1)
    found = await it.journal.within(look)
    return {
        "user": who.name,
        "owner": who.plans,
        "requests": [_view(one, who, whole=False) for one in found[:limit]],
        "more": len(found) > limit,
    }


@router.get("/requests/{number}", responses=answers(RequestView))
async def one_request(request: Request, number: Number, acting: Annotated[str, Query(max_length=64)] = "") -> Answer:
    """One request, with the preview that was looked at."""
    it, who = context(request), _acting(request, acting or None)
    found = await it.journal.within(partial(budget_requests.one_of, number=number))
    if found is None:
        raise NotFound(f"there is no request {number}; `gpufair budgets requests --all` lists them")
    return _view(found, who)


@router.post("/requests", status_code=201, responses=answers(RequestView, 201))
async def ask(request: Request, body: Asked) -> Answer:
    """Ask for a change. Whoever decides about it is told."""
    it, who = context(request), _acting(request, body.user)
    if (body.shares is None) == (body.allocation is None or body.gpus is None):
        raise BadRequest('give either "shares", or "allocation" and "gpus"')
    shares = {str(body.allocation): "0"} if body.shares is None else _shares(body.shares)
    terms, owners = _terms(body, shares, body.gpus), it.authenticator.dividers(shares)
    step = partial(budget_changes.ask, user=who.name, terms=terms, why=body.why, key=body.key, owners=owners)
    return _view(await it.runtime.do(step), who)


@router.post("/changes", status_code=201, responses=answers(RequestView, 201))
async def plan(request: Request, body: Planned) -> Answer:
    """Decide other shares at once, or for a time: for those who own what is divided, and operators."""
    it, who = context(request), _acting(request, body.user)
    seen = None if body.seen is None else {path: str(share) for path, share in body.seen.items()}
    terms = _terms(body, _shares(body.shares))
    step = partial(budget_changes.plan, who=who, terms=terms, why=body.why, seen=seen, key=body.key)
    return _view(await it.runtime.do(step), who)


@router.post("/requests/{number}/accept", responses=answers(RequestView))
async def accept(request: Request, number: Number, body: Accepted) -> Answer:
    """Accept it, as it is or amended; it comes into force at its time."""
    it, who = context(request), _acting(request, body.user)
    terms = _terms(body, None if body.shares is None else _shares(body.shares), body.gpus)
    step = partial(budget_changes.accept, number=number, who=who, terms=terms, said=body.words)
    return _view(await it.runtime.do(step), who)


@router.post("/requests/{number}/refuse", responses=answers(RequestView))
async def refuse(request: Request, number: Number, body: Refused) -> Answer:
    """Refuse it, and say why."""
    who = _acting(request, body.user)
    step = partial(budget_changes.refuse, number=number, who=who, said=body.words)
    return _view(await context(request).runtime.do(step), who)


@router.post("/requests/{number}/withdraw", responses=answers(RequestView))
async def withdraw(request: Request, number: Number, body: Said) -> Answer:
    """Take it back before it is in force."""
    who = _acting(request, body.user)
    step = partial(budget_changes.withdraw, number=number, who=who, said=body.words)
    return _view(await context(request).runtime.do(step), who)


@router.get("/history", responses=answers(BudgetHistory))
async def history(request: Request, before: Before = 0, limit: Limit = 100) -> Answer:
    """Who changed what, when and why; the newest first."""
    found = await context(request).journal.within(partial(budget_history.listed, before=before, limit=limit + 1))
    return {"changes": found[:limit], "more": len(found) > limit}


def _acting(request: Request, user: str | None) -> Principal:
    return context(request).authenticator.acting(principal(request), user)


def _shares(given: dict[str, Share]) -> dict[str, str]:
    return {path: share_of(share, path) for path, share in given.items()}


def _terms(body: Dated, shares: dict[str, str] | None, gpus: float | None = None) -> Terms:
    found = body.preview
    if found is not None:
        try:
            size = len(json.dumps(found, allow_nan=False))
        except (ValueError, RecursionError) as err:
            raise BadRequest(f"the preview cannot be kept: {err}") from err
        if size > MAX_PREVIEW_BYTES:
            raise BadRequest(f"the preview has {size:,} bytes; at most {MAX_PREVIEW_BYTES:,} are kept with a request")
    return Terms(shares, gpus, _millis(body.from_s), _millis(body.until_s), found)


def _millis(at_s: float | None) -> int | None:
    return None if at_s is None else round(at_s * 1000)


def _view(one: BudgetRequest, who: Principal, *, whole: bool = True) -> Answer:
    divides = all(who.divides(path) for path in one.shares)
    open_, waits = one.stage is Stage.OPEN, one.stage is Stage.ACCEPTED
    may = {"decide": open_ and divides, "withdraw": (open_ or waits) and (divides or who.name == one.user)}
    return one.view(whole=whole) | {"may": may}
