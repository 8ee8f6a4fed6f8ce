"""What operators tell everybody: each announcement with its time, kept for good.

All of them are rows of the journal's database; those that are not over are in memory as well (``Board``), since everybody
reads them all the time, and are written down in the transaction of the turn that changed them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from gpufair.core.errors import GpufairError
from gpufair.core.units import Instant
from gpufair.service.storage.database import StoreError, metadata

MOST_LIVE: Final = 20  # more than anybody reads
SEVERITIES: Final = ("critical", "warning", "info")  # in the order in which they are shown

_announcements = sa.Table(
    "announcements",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("over_ms", sa.BigInteger, nullable=False),  # from then on nothing comes of it; 0: it stays until withdrawn
    sa.Column("document", sa.Text, nullable=False),
)


class UnknownAnnouncement(GpufairError):
    """There is no such announcement, or it is over."""


class TooManyAnnouncements(GpufairError):
    """There are as many as there may be."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What an operator says to everybody.

    Attributes:
        severity: One of ``SEVERITIES``.
        link: Where there is more to read; "": nowhere.
        from_ms: From when on it is shown.
        until_ms: Until when; 0: until it is withdrawn.
        withdrawn_by: Who took it back; "": nobody.
        key: By which a client that asks again is recognised.
    """

    id: int
    text: str
    severity: str
    link: str
    by: str
    made_ms: int
    from_ms: int
    until_ms: int = 0
    withdrawn_by: str = ""
    withdrawn_ms: int = 0
    key: str = ""

    @property
    def over_ms(self) -> int:
        """From when on nothing comes of it; 0: it stays until somebody withdraws it."""
        return self.withdrawn_ms or self.until_ms

    def state(self, now: Instant) -> str:
        """"coming", "current", "over" or "withdrawn"."""
        if self.withdrawn_ms:
            return "withdrawn"
        if self.until_ms and now >= self.until_ms:
            return "over"
        return "current" if now >= self.from_ms else "coming"

    def view(self, now: Instant) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "id": self.id,
            "state": self.state(now),
            "severity": self.severity,
            "text": self.text,
            "link": self.link,
            "from_s": self.from_ms / 1000,
            "until_s": self.until_ms / 1000 if self.until_ms else None,
            "by": self.by,
            "made_s": self.made_ms / 1000,
            "withdrawn_by": self.withdrawn_by,
            "withdrawn_s": self.withdrawn_ms / 1000 if self.withdrawn_ms else None,
        }


class Board:
    """Those that are not over, and what a turn makes of them.

    Args:
        live: Those of the last commit.
        last: The highest number that one has.
    """

    def __init__(self, live: Mapping[int, Announcement] | None = None, last: int = 0) -> None:
        self._live = dict(live or {})
        self._changed: dict[int, Announcement] = {}
        self._last = last

    def begun(self) -> Board:
        """For a turn: what it changes is dropped with it."""
        return Board(self._live, self._last)

    def current(self, now: Instant) -> list[Announcement]:
        """What everybody is to see now: the most severe first, then the newest."""
        found = [one for one in self._live.values() if one.state(now) == "current"]
        return sorted(found, key=lambda one: (SEVERITIES.index(one.severity), -one.from_ms, -one.id))

    def next_due(self, seen: Instant) -> Instant | None:
        """When another one is to be seen, or one not any more, after the instant ``seen``."""
        moments = (at for one in self._live.values() for at in (one.from_ms, one.until_ms))
        return min((Instant(at) for at in moments if at > seen), default=None)

    def post(self, new: Announcement, now: Instant) -> Announcement:
        """Keep a new one, under the next number. One that was asked for before under its key is that one again.

        Raises:
            TooManyAnnouncements: There are too many already.
        """
        for one in self._live.values():
            if new.key and (one.by, one.key) == (new.by, new.key):
                return one
        self._live = {number: one for number, one in self._live.items() if one.state(now) in {"coming", "current"}}
        if len(self._live) >= MOST_LIVE:
            raise TooManyAnnouncements(
                f"{MOST_LIVE} announcements are shown or coming, more than anybody reads; withdraw one of them first"
            )
        self._last += 1
        return self._put(replace(new, id=self._last))

    def withdraw(self, number: int, by: str, now: Instant) -> Announcement:
        """Take one back.

        Raises:
            UnknownAnnouncement: There is none with this number, or it is over.
        """
        one = self._live.get(number)
        if one is None or one.state(now) not in {"coming", "current"}:
            raise UnknownAnnouncement(
                f"announcement {number} is over, or there is none; `gpufair announce list` shows what there is"
            )
        return self._put(replace(one, withdrawn_by=by, withdrawn_ms=now))

    def writes(self) -> list[Callable[[sa.Connection], None]]:
        """What writes down the changes, within the transaction of the turn."""
        changed = list(self._changed.values())
        return [lambda connection: _write(connection, changed)] if changed else []

    def _put(self, one: Announcement) -> Announcement:
        self._changed[one.id] = self._live[one.id] = one
        return one


def live(connection: sa.Connection, now: Instant) -> Board:
    """What a start begins with."""
    at_all = sa.or_(_announcements.c.over_ms == 0, _announcements.c.over_ms > now)
    found = [_read(text) for text in connection.scalars(sa.select(_announcements.c.document).where(at_all))]
    last = connection.scalar(sa.select(sa.func.max(_announcements.c.id))) or 0
    return Board({one.id: one for one in found}, last)


def listed(connection: sa.Connection, before: int = 0, limit: int = 100) -> list[Announcement]:
    """All there were, the newest first; ``before``: only those with a smaller number (0: all)."""
    query = sa.select(_announcements.c.document).order_by(_announcements.c.id.desc()).limit(limit)
    if before:
        query = query.where(_announcements.c.id < before)
    return [_read(text) for text in connection.scalars(query)]


def _write(connection: sa.Connection, changed: list[Announcement]) -> None:
    for one in changed:
        connection.execute(sa.delete(_announcements).where(_announcements.c.id == one.id))
        row = {"id": one.id, "over_ms": one.over_ms, "document": json.dumps(asdict(one))}
        connection.execute(sa.insert(_announcements), row)


def _read(text: str) -> Announcement:
    try:
        return Announcement(**json.loads(text))
    except (TypeError, ValueError) as err:
        raise StoreError(f"an announcement in the journal is damaged: {err}; restore a backup") from err
