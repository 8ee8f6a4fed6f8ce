"""Who changed what: a line for each request that did, written in the transaction of the change itself.

The line names the entries of the journal that came of it, which say what changed. A request's doer travels in a context
variable, so that no route can forget to say who asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from gpufair.service.storage.database import metadata

_audit = sa.Table(
    "audit",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("user", sa.String(64), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("token", sa.String(16), nullable=False),
    sa.Column("request", sa.String(512), nullable=False),
    sa.Column("first", sa.BigInteger, nullable=False),
    sa.Column("last", sa.BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Doer:
    """Who asks for what. ``token``: the id of theirs, "" for one of the configuration; ``request``: method and path."""

    user: str
    role: str
    token: str
    request: str


doer: ContextVar[Doer | None] = ContextVar("doer", default=None)


def line(at_ms: int, who: Doer, first: int = 0, last: int = 0) -> dict[str, Any]:
    """A line. ``first`` to ``last``: entries of the journal; 0: it is not about workloads, nodes or budgets."""
    return {
        "at_ms": at_ms,
        "user": who.user,
        "role": who.role,
        "token": who.token,
        "request": who.request[:512],
        "first": first,
        "last": last,
    }


def write(lines: Sequence[dict[str, Any]], connection: sa.Connection) -> None:
    """Write lines down, in order."""
    connection.execute(sa.insert(_audit), lines)


def listed(connection: sa.Connection, user: str | None, before: int, limit: int) -> list[dict[str, Any]]:
    """The newest lines first; ``before``: only those with a smaller number (0: all)."""
    query = sa.select(_audit).order_by(_audit.c.number.desc()).limit(limit)
    if before:
        query = query.where(_audit.c.number < before)
    if user is not None:
        query = query.where(_audit.c.user == user)
    return [
        {
            "number": row["number"],
            "at_s": row["at_ms"] / 1000,
            "user": row["user"],
            "role": row["role"],
            "token": row["token"],
            "request": row["request"],
            "entries": [row["first"], row["last"]] if row["first"] else None,
        }
        for row in connection.execute(query).mappings()
    ]
