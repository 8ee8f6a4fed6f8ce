"""Pages for people who open no notebook: what JupyterLab's panel shows, to look at, behind a login.

A browser shows its token (or the code of a link) once and gets a cookie, which opens nothing but questions: see ``gate``.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from gpufair.client.access import Link
from gpufair.core.units import HOUR
from gpufair.service.identity.links import LASTS_S
from gpufair.service.problems import Forbidden, NotFound, Unauthorized
from gpufair.service.storage.audit import Doer, doer
from gpufair.service.storage.tokens import Scope
from gpufair.service.web.context import context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.gate import address_of, cookie_name, cookie_of, of_our_page
from gpufair.service.web.models import Login

router = APIRouter(include_in_schema=False)
api = APIRouter(prefix="/dashboard")
STATIC: Final = Path(__file__).parents[1] / "static"  # the front end's build puts them there
FILES: Final = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
}
SESSION: Final = 12 * HOUR
SESSION_BY_HUB: Final = HOUR  # nobody tells us when the Hub's token is revoked
# Nothing from elsewhere, nothing inline, in nobody's frame.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
NOT_BUILT: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>GPU Fair Share</title>
<h1>The pages are not part of this installation</h1>
<p>The scheduler runs, but its front end was not built. In a checkout run <code>make install</code>, which needs Node; or
install the wheel, which has it. Until then <code>gpufair status</code>, <code>gpufair queue</code> and
<code>gpufair budgets</code> show the same in a terminal.</p></html>
"""


@router.get("/")
@router.get("/dashboard")
async def to_page() -> RedirectResponse:
    """Where a person with a browser wants to go."""
    # Relative, for whoever comes through a proxy that has the service under some other path.
    return RedirectResponse("dashboard/", status_code=303)


@router.get("/dashboard/")
async def page() -> Response:
    """The page. It holds nothing that is anybody's; what it shows it asks for."""
    return await _file("index.html")


@router.get("/dashboard/{file}")
async def file(file: str) -> Response:
    """What the page is made of."""
    if file not in FILES or file == "index.html":
        raise NotFound(f"the pages have no file {file[:80]!r}")
    return await _file(file)


@router.post("/dashboard/login")
async def login(request: Request, body: Login) -> Response:
    """Exchange a token, or the code of a link, for a cookie that lasts for a working day."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    if not of_our_page(headers, certainly=True):
        # Another page could otherwise have its reader look at somebody else's sessions and take them for their own.
        raise Forbidden("only the service's own page may log in")
    it = context(request)
    who, address = None, address_of(request.scope)
    with contextlib.suppress(Unauthorized):
        who = it.links.redeem(body.code) if body.code else await it.authenticator.admit(f"Bearer {body.token}", address)
    if who is None or not await it.authenticator.still(who):
        it.authenticator.attempts.wrong(address, body.code or f"Bearer {body.token}")
        raise Unauthorized
    doer.set(Doer(who.name, str(who.role), "" if who.token is None else who.token.id, "POST /dashboard/login"))
    lasts = SESSION_BY_HUB if who.by_hub else SESSION
    _, cookie = await it.tokens.create(
        who.name, Scope.READ, who.name, label="browser", lasts_ms=lasts, parent=who.token, page=True
    )
    answer = Response(status_code=204)
    answer.set_cookie(
        cookie_name(headers),
        cookie,
        max_age=lasts // 1000,
        httponly=True,
        samesite="strict",
        secure=urlsplit(headers.get("origin", "")).scheme == "https",
    )
    return answer


@router.post("/dashboard/logout")
async def logout(request: Request) -> Response:
    """Forget a browser."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    if not of_our_page(headers, certainly=True):
        raise Forbidden("only the service's own page may log out")
    it, answer = context(request), Response(status_code=204)
    answer.delete_cookie(cookie_name(headers))
    if (found := it.tokens.find(cookie_of(headers) or "")) is not None and found.page:
        await it.tokens.revoke(found)
    return answer


@api.post("/links", responses=answers(Link))
async def link(request: Request) -> dict[str, object]:
    """A path that opens the page, logged in, once and within a minute."""
    code = context(request).links.make(principal(request))
    # Behind the #, so that no server or proxy on the way is ever told.
    return {"path": f"/dashboard/#code={code}", "lasts_s": LASTS_S}


async def _file(name: str) -> Response:
    try:
        data = await asyncio.to_thread((STATIC / name).read_bytes)
    except FileNotFoundError:
        return Response(NOT_BUILT, status_code=503, media_type="text/html", headers={"Content-Security-Policy": POLICY})
    return Response(
        data, media_type=FILES[name], headers={"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}
    )
