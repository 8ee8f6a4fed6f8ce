"""What operators tell everybody, with the maintenance that is planned: written by operators, read by all."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field, StringConstraints

from gpufair.client.announcing import Announcement as AnnouncementView
from gpufair.client.announcing import Announcements
from gpufair.core.units import Instant
from gpufair.service.problems import BadRequest
from gpufair.service.storage import announcements
from gpufair.service.storage.announcements import Announcement
from gpufair.service.web.context import context, principal
from gpufair.service.web.contract import answers
from gpufair.service.web.models import Strict
from gpufair.service.workloads.turn import Turn

router = APIRouter(prefix="/announcements")
Answer = dict[str, Any]
MOST_LISTED = 500

Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")
]
# It becomes a link in browsers: nothing but an address of the web may be one.
Address = Annotated[str, StringConstraints(max_length=500, pattern=r"^(https?://[^\s<>\"'\\]+)?$")]
Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
Number = Annotated[int, Path(ge=1, le=2**31 - 1)]


class Announcing(Strict):
    """``POST /announcements``. ``from_s`` (Unix seconds): not before; ``until_s``: not longer than that; ``key``: see submissions."""

    text: Text
    severity: Literal["info", "warning", "critical"] = "info"
    link: Address = ""
    from_s: Moment | None = None
    until_s: Moment | None = None
    key: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{0,64}$")] = ""


@router.get("", responses=answers(Announcements))
async def current(
    request: Request,
    every: Annotated[bool, Query(alias="all")] = False,
    before: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_LISTED)] = 100,
) -> Answer:
    """What is to be seen now: the most severe first, then the newest; and the maintenance that is planned.

    ``all``: also what is coming, over or withdrawn, the newest first; ``before``: those with a smaller number.
    """
    it = context(request)
    told = await it.runtime.noticed()
    if not every:
        return told | {"more": False}
    found = await it.journal.within(partial(announcements.listed, before=before, limit=limit + 1))
    now = it.runtime.now()
    return told | {"announcements": [one.view(now) for one in found[:limit]], "more": len(found) > limit}


@router.post("", status_code=201, responses=answers(AnnouncementView, 201))
async def announce(request: Request, body: Announcing) -> Answer:
    """Tell everybody something, at once or at a time."""
    it, who = context(request), principal(request)

    def step(turn: Turn) -> Answer:
        from_ms = turn.now if body.from_s is None else max(turn.now, _millis(body.from_s))
        until_ms = 0 if body.until_s is None else _millis(body.until_s)
        if body.until_s is not None and until_ms <= from_ms:
            raise BadRequest("it would be over before it is shown; give a later until_s, or none")
        new = Announcement(
            0, body.text, body.severity, body.link, who.name, turn.now, from_ms, until_ms, key=body.key
        )
        return turn.board.post(new, turn.now).view(turn.now)

    return await it.runtime.do(step)


@router.delete("/{number}", responses=answers(AnnouncementView))
async def withdraw(request: Request, number: Number) -> Answer:
    """Take it back: nobody sees it any more."""
    it, who = context(request), principal(request)
    return await it.runtime.do(lambda turn: turn.board.withdraw(number, who.name, turn.now).view(turn.now))


def _millis(at_s: float) -> Instant:
    return Instant(round(at_s * 1000))
