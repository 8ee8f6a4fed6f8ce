"""Tokens that people make for themselves (and operators for others), and who changed what."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from gpufair.client.access import Audit, MadeToken, TokenView, TokenViews
from gpufair.service.identity.auth import Principal
from gpufair.service.problems import Forbidden, NotFound
from gpufair.service.storage import audit
from gpufair.service.storage.tokens import Scope
from gpufair.service.web.context import context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import PlainName, TokenWish
from gpufair.service.workloads.submission import span_of

router = APIRouter()
Answer = dict[str, Any]


@router.get("/tokens", responses=answers(TokenViews))
async def tokens(request: Request, user: Annotated[PlainName | None, Query()] = None) -> Answer:
    """The caller's tokens, or everybody's for who sees everything; the newest first. The tokens themselves nobody knows."""
    it, who = context(request), principal(request)
    chosen = user if who.sees_all else who.name
    if user is not None:
        who.require_owner(user, "the list of tokens")
    return {"tokens": [one.to_dict() for one in it.tokens.of(chosen)]}


@router.post("/tokens", status_code=201, responses=answers(MadeToken, 201))
async def make(request: Request, body: TokenWish) -> Answer:
    """Make a token. It is told this once; it can do no more than the one it was made with, and ends with it."""
    it, who = context(request), principal(request)
    if who.by_hub:
        raise Forbidden("a token of the Hub makes none here, which would outlive it; make another one at the Hub")
    user, scope = who.acting_for(body.user), Scope(body.scope)
    if not who.scope.includes(scope):
        raise Forbidden(f"a token with the scope {who.scope!s} makes none with the scope {scope!s}")
    if not it.authenticator.knows(user):
        raise NotFound(f"there is no user {user!r}; name them in gpufair.toml first")
    lasts = None if body.lasts_s is None else int(span_of(body.lasts_s, "lasts_s"))
    # What an operator makes for somebody else is that person's, and does not end with the operator's.
    parent = who.token if user == who.name else None
    made, token = await it.tokens.create(user, scope, who.name, label=body.label, lasts_ms=lasts, parent=parent)
    return made.to_dict() | {"token": token}


@router.delete("/tokens/{token}", responses=answers(TokenView))
async def revoke(request: Request, token: Annotated[str, Path(pattern=r"^[0-9a-f]{1,16}$")]) -> Answer:
    """Revoke a token, and all that were made with it: from now on they open nothing."""
    it, who = context(request), principal(request)
    found = next((one for one in it.tokens.of(None) if one.id == token and _may_revoke(who, one.user)), None)
    if found is None:
        raise NotFound(f"you have no token {token!r}; `gpufair tokens list` shows which there are")
    if not who.scope.includes(found.scope):
        raise Forbidden(f"a token with the scope {who.scope!s} revokes none with the scope {found.scope!s}")
    await it.tokens.revoke(found)
    return next(one.to_dict() for one in it.tokens.of(None) if one.digest == found.digest)


@router.get("/audit", responses=answers(Audit))
async def changes(
    request: Request,
    user: Annotated[PlainName | None, Query()] = None,
    before: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Answer:
    """Who changed what, the newest first; ``before``: only lines with a smaller number."""
    found = await context(request).journal.within(lambda connection: audit.listed(connection, user, before, limit))
    return {"changes": found}


def _may_revoke(who: Principal, user: str) -> bool:
    return who.operates or user == who.name
