"""Notices that are to be sent, kept in the journal's database until they are: at least once, and not for ever.

A row is one notice for one way of sending. It is put there in the transaction of the event that it tells of; a service
that was killed finds it again. All functions block and are given a connection (``Store.within``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from gpufair.service.storage.database import metadata

MOST_WAITING: Final = 10_000  # beyond that the oldest are given up: a channel that is down for long must not fill the disk
FIRST_PAUSE_MS: Final = 5_000
LONGEST_PAUSE_MS: Final = 3_600_000
MOST_TRIES: Final = 20  # about ten hours of them

_outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(512), nullable=False, unique=True),
    sa.Column("channel", sa.String(16), nullable=False),
    sa.Column("notice", sa.Text, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("due_ms", sa.BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Letter:
    """A notice (``Notice.to_dict``) on its way through a channel. ``tries``: how many have failed."""

    channel: str
    notice: dict[str, Any]
    tries: int = 0
    due_ms: int = 0

    @property
    def id(self) -> str:
        """Of the row."""
        return f"{self.notice['id']}.{self.channel}"


def post(connection: sa.Connection, letters: Sequence[Letter]) -> None:
    """Put letters there; one that is there already is not put there twice."""
    rows = {one.id: one for one in letters}
    connection.execute(sa.delete(_outbox).where(_outbox.c.id.in_(list(rows))))
    connection.execute(sa.insert(_outbox), [_row(one) for one in rows.values()])
    waiting = connection.scalar(sa.select(sa.func.count()).select_from(_outbox)) or 0
    if waiting > MOST_WAITING:
        oldest = sa.select(_outbox.c.id).order_by(_outbox.c.due_ms, _outbox.c.seq).limit(waiting - MOST_WAITING)
        connection.execute(sa.delete(_outbox).where(_outbox.c.id.in_(list(connection.scalars(oldest)))))


def due(connection: sa.Connection, channel: str, now_ms: int, limit: int) -> list[Letter]:
    """Letters whose time has come, the longest due first."""
    query = (
        sa.select(_outbox)
        .where(_outbox.c.channel == channel, _outbox.c.due_ms <= now_ms)
        .order_by(_outbox.c.due_ms, _outbox.c.seq)
        .limit(limit)
    )
    return [Letter(row.channel, json.loads(row.notice), row.tries, row.due_ms) for row in connection.execute(query)]


def next_due(connection: sa.Connection, channel: str) -> int | None:
    """When the next one is due, Unix milliseconds."""
    found: int | None = connection.scalar(sa.select(sa.func.min(_outbox.c.due_ms)).where(_outbox.c.channel == channel))
    return found


def sent(connection: sa.Connection, letter: Letter) -> None:
    """It was sent, or is given up."""
    connection.execute(sa.delete(_outbox).where(_outbox.c.id == letter.id))


def postpone(connection: sa.Connection, letter: Letter, now_ms: int) -> bool:
    """Try it again later. False: it has been tried often enough, and is given up."""
    tries = letter.tries + 1
    if tries >= MOST_TRIES:
        sent(connection, letter)
        return False
    when = now_ms + min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (tries - 1))
    connection.execute(sa.update(_outbox).where(_outbox.c.id == letter.id).values(tries=tries, due_ms=when))
    return True


def _row(letter: Letter) -> dict[str, Any]:
    notice = json.dumps(letter.notice)
    return {"id": letter.id, "channel": letter.channel, "notice": notice, "tries": letter.tries, "due_ms": letter.due_ms}
