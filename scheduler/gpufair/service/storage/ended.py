"""Workloads that ended a while ago: a table of their own, outside of snapshots, that is read when somebody asks.

A row is the core's record of one, as ``State.drop`` gave it, and the service's detail. It is durable before any snapshot
is written without that workload. ``seq`` is the entry after which that snapshot is taken: what was recovered from an
older one drops the workload in the end. All functions block (``Store.within``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from gpufair.core.codec import MalformedRecord, decode, encode
from gpufair.core.record import Record
from gpufair.service.storage.database import StoreError, metadata

_AT_ONCE: Final = 500  # ids of one query

_ended = sa.Table(
    "ended",
    metadata,
    sa.Column("workload", sa.String(255), primary_key=True),
    sa.Column("seq", sa.BigInteger, nullable=False, index=True),
    sa.Column("submitted_ms", sa.BigInteger, nullable=False),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("notebook", sa.String(64), nullable=False),  # digest of its path, which may be long; "" if there is none
    sa.Column("listed", sa.Boolean, nullable=False),  # False: a stand-in, of which nobody hears
    sa.Column("unit", sa.BigInteger, nullable=False),  # parts of a GPU in which ``record`` counts its charge
    sa.Column("record", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
    sa.Index("ix_ended_order", "submitted_ms", "workload"),
    sa.Index("ix_ended_whose", "user", "notebook", "submitted_ms"),
)


@dataclass(frozen=True, slots=True)
class Ended:
    """One of them. ``detail``: what the service knows of it beside the core's record."""

    record: Record
    unit: int
    detail: Mapping[str, Any]
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of them, in the order of submission: the first ``most`` behind ``after``, of a user, of a document."""

    after: tuple[int, str] = (-1, "")  # (submitted at, id)
    user: str | None = None
    notebook: str | None = None
    most: int = _AT_ONCE


def write(connection: sa.Connection, seq: int, those: Sequence[Ended]) -> int:
    """Write them down, in the place of what was written of them before. Returns how many are new."""
    ids = [one.record.id for one in those]
    known = connection.execute(sa.delete(_ended).where(_ended.c.workload.in_(ids))).rowcount
    if those:
        connection.execute(sa.insert(_ended), [_row(one, seq) for one in those])
    return len(those) - known


def find(connection: sa.Connection, workloads: Collection[str]) -> list[Ended]:
    """Those of ``workloads`` that are there.

    Raises:
        StoreError: One is damaged.
    """
    ids = sorted(workloads)
    pieces = (ids[first : first + _AT_ONCE] for first in range(0, len(ids), _AT_ONCE))
    return [_of(row) for piece in pieces for row in _rows(connection, _all.where(_ended.c.workload.in_(piece)))]


def page(connection: sa.Connection, wanted: Wanted) -> list[Ended]:
    """The next ones to be listed.

    Raises:
        StoreError: One is damaged.
    """
    at, workload = wanted.after
    later = sa.or_(_ended.c.submitted_ms > at, sa.and_(_ended.c.submitted_ms == at, _ended.c.workload > workload))
    # The first comparison is the one for which there is an index.
    query = _all.where(_ended.c.submitted_ms >= at, later, _ended.c.listed)
    if wanted.user is not None:
        query = query.where(_ended.c.user == wanted.user)
    if wanted.notebook is not None:
        query = query.where(_ended.c.notebook == _digest(wanted.notebook))
    query = query.order_by(_ended.c.submitted_ms, _ended.c.workload).limit(wanted.most)
    return [_of(row) for row in _rows(connection, query)]


def count(connection: sa.Connection) -> int:
    """How many there are."""
    return connection.scalar(sa.select(sa.func.count()).select_from(_ended)) or 0


def since(connection: sa.Connection, seq: int) -> Iterator[tuple[str, int]]:
    """Those that left the state at an entry from ``seq`` on, and at which."""
    query = sa.select(_ended.c.workload, _ended.c.seq).where(_ended.c.seq >= seq)
    return ((row.workload, row.seq) for row in connection.execute(query))


_all = sa.select(_ended.c.workload, _ended.c.unit, _ended.c.record, _ended.c.detail, _ended.c.listed)


def _row(one: Ended, seq: int) -> dict[str, Any]:
    spec = one.record.spec
    notebook = spec.launch.get("notebook")
    return {
        "workload": one.record.id,
        "seq": seq,
        "submitted_ms": one.record.submitted_at,
        "user": spec.user,
        "notebook": _digest(notebook) if isinstance(notebook, str) else "",
        "listed": one.listed,
        "unit": one.unit,
        "record": _text(encode(one.record)),
        "detail": _text(one.detail),
    }


def _rows(connection: sa.Connection, query: sa.Select[Any]) -> Iterable[sa.RowMapping]:
    return connection.execute(query).mappings()


def _of(row: sa.RowMapping) -> Ended:
    try:
        record = decode(json.loads(row["record"]))
        if not isinstance(record, Record):
            raise TypeError(type(record).__name__)
        return Ended(record, int(row["unit"]), json.loads(row["detail"]), bool(row["listed"]))
    except (MalformedRecord, ValueError, TypeError, KeyError) as err:
        why = f"what is kept of the ended workload {row['workload']!r} is damaged: {err}"
        raise StoreError(f"{why}; restore the journal from a backup") from err


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _digest(notebook: str) -> str:
    return hashlib.sha256(notebook.encode()).hexdigest()
