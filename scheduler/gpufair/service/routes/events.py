"""The event stream: every live workload, then each change, for as long as somebody listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from gpufair.core.model import Phase
from gpufair.service.identity.auth import Principal
from gpufair.service.problems import TooManyStreams
from gpufair.service.runtime.broadcast import OTHERS, Change, Subscription
from gpufair.service.web.acting import shown
from gpufair.service.web.context import Context, context, principal
from gpufair.service.web.contract import streams
from gpufair.service.web.models import NAME_PATTERN
from gpufair.service.workloads.views import masked

router = APIRouter()
HEARTBEAT_S = 15.0
MAX_STREAMS = 1000
RESUMED = "gpufair-resumed"  # "1": no listing comes, only what was missed


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses=streams("text/event-stream", "`workload` (a Workload), `announcements` (what everybody is to see), `synced` after the first listing, `resync` before another, `others`: what is not yours changed."),
)
async def events(
    request: Request,
    holder: Annotated[int, Query(ge=0, le=1)] = 0,
    user: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
) -> StreamingResponse:
    """Server-sent events, see docs/architecture.md. ``holder=1``: a Jupyter server, which keeps an embedded service.

    ``user``: only that one's workloads; ``others`` then says, once a second at most, that something else has changed.

    Who was cut off and asks with ``Last-Event-ID`` is told only what it missed, as far as that is known still.
    """
    it, who = context(request), principal(request)
    # Anybody's Jupyter server holds: whoever's sessions run here would lose them when the service lingers out.
    if it.runtime.broadcast.listeners >= MAX_STREAMS:
        raise TooManyStreams(f"{MAX_STREAMS} event streams are open already; close some, or ask again later")
    last = request.headers.get("last-event-id", "")
    resumed = it.runtime.broadcast.can_resume(last, user)
    headers = {"x-accel-buffering": "no", RESUMED: str(int(resumed))}
    stream = _stream(it, who, user, last if resumed else None, request.headers.get("authorization"), holder=bool(holder))
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


async def _stream(
    it: Context, who: Principal, user: str | None, last: str | None, shown_token: str | None, *, holder: bool
) -> AsyncIterator[str]:
    async with AsyncExitStack() as stack:
        if holder:
            await stack.enter_async_context(it.lifetime.hold())
        broadcast = it.runtime.broadcast
        resumed = broadcast.resume(last, user) if last is not None else None
        subscription = resumed or broadcast.subscribe(user)
        stack.callback(broadcast.unsubscribe, subscription)
        stack.callback(asyncio.create_task(_at_the_end(it, subscription)).cancel)
        if resumed is None:
            if last is not None:  # too much has happened since the headers were sent
                yield _event("resync", {"at_s": it.runtime.now() / 1000})
            for text in await _listing(it, who, user, subscription.since):
                yield text
        while not it.lifetime.ending.is_set():
            found = await subscription.take(HEARTBEAT_S)
            if not await it.authenticator.still(who, shown_token):
                return  # its token was revoked, or is over
            if None in found:  # some were dropped
                yield _event("resync", {"at_s": it.runtime.now() / 1000})
                for text in await _listing(it, who, user, ""):
                    yield text
                found = found[found.index(None) + 1 :]
            told = (_event("others", {"at_s": it.runtime.now() / 1000}) if one is OTHERS else _told(one, who) for one in found if one)
            yield "".join(told) or ": still here\n\n"


def _told(change: Change, who: Principal) -> str:
    """A change as it is sent. Those who may see the same of it are sent the same text."""
    whole = change.kind != "workload" or who.owns(change.view["user"])
    if whole not in change.texts:
        change.texts[whole] = _event(change.kind, change.view if whole else masked(change.view), change.id)
    return change.texts[whole]


async def _at_the_end(it: Context, subscription: Subscription) -> None:
    await it.lifetime.ending.wait()
    subscription.close()


async def _listing(it: Context, who: Principal, user: str | None, since: str) -> list[str]:
    """All live workloads (of one user) and what everybody is to see, closed by ``synced``, which is as of the change
    ``since`` or later.
    """
    live = await it.runtime.views(
        lambda record: record.phase is not Phase.ENDED and user in (None, record.spec.user)
    )
    texts = [_event("workload", shown(view, who)) for view in live]
    texts.append(_event("announcements", await it.runtime.noticed()))
    return [*texts, _event("synced", {"at_s": it.runtime.now() / 1000}, since)]


def _event(kind: str, data: dict[str, Any], number: str = "") -> str:
    named = f"id: {number}\n" if number else ""
    return f"{named}event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
