"""Who held which GPUs when, kept in the journal's database for some days: what a picture of the past is drawn from.

A row is one stay of a workload on one node, from the grant until its GPUs were free. It is written in the transaction of
the event that it follows from, so it is there after a crash if the event is, and is found without reading the journal.
All functions that are given a connection block (``Store.within``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import sqlalchemy as sa

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Held, PreemptReason
from gpufair.core.record import Workload
from gpufair.core.state import State
from gpufair.core.units import DAY, Instant, NodeName, WorkloadId
from gpufair.service.storage.database import metadata

Writes = Callable[[sa.Connection], None]

KEPT_MS: Final = 8 * DAY  # a week can be looked at, however late in a day
MOST: Final = 20_000  # rows of one answer: 1,000 nodes of 8 GPUs in whole-node and small work over a day
STILL: Final = (1 << 62) - 1  # ``freed_ms`` of what has not been freed: later than everything
# What somebody did with his own; whatever else makes a workload leave is a preemption.
_OWN: Final = frozenset({PreemptReason.PARK, PreemptReason.IDLE, PreemptReason.SHUTDOWN})
NODE_LOST: Final = "node lost"  # beside the reasons of ``PreemptReason``

_stays = sa.Table(
    "stays",
    metadata,
    sa.Column("workload", sa.String(255), primary_key=True),
    sa.Column("incarnation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("node", sa.String(255), primary_key=True),
    sa.Column("gpus", sa.Integer, nullable=False),
    sa.Column("user", sa.String(255), nullable=False),
    sa.Column("allocation", sa.Text, nullable=False),
    sa.Column("granted_ms", sa.BigInteger, nullable=False),
    sa.Column("up_ms", sa.BigInteger, nullable=True),
    sa.Column("protected", sa.Text, nullable=False),  # [[from, until], …] in ms, as JSON
    sa.Column("devices", sa.Text, nullable=False),  # ids, as JSON; [] until the node has told them
    sa.Column("preempted_ms", sa.BigInteger, nullable=True),
    sa.Column("reason", sa.String(64), nullable=False),
    sa.Column("freed_ms", sa.BigInteger, nullable=False, index=True),
)
_open = _stays.c.freed_ms == STILL


@dataclass(frozen=True, slots=True)
class Stay:
    """One workload on GPUs of one node. ``freed_ms`` is ``STILL`` while it holds them."""

    workload: str
    incarnation: int
    node: str
    gpus: int
    user: str
    allocation: str
    granted_ms: int
    up_ms: int | None
    protected: tuple[tuple[int, int], ...]
    devices: tuple[str, ...]
    preempted_ms: int | None  # when it was told to make room, or its node was lost
    reason: str
    freed_ms: int


def of(event: ev.Event, actions: Sequence[act.Action], state: State) -> list[Writes]:
    """What an event and the decisions about it mean for stays, as writes in order."""
    found: list[Writes] = []
    at = event.at
    match event:
        case ev.Released() | ev.Exited() | ev.StartFailed():
            found.append(partial(_free, at, event.workload, event.incarnation))
        case ev.Started():
            found.append(partial(_up, at, event.workload, event.incarnation, event.devices))
        case ev.NodeLost():
            found.append(partial(_lose, at, event.node))
        case _:
            pass
    for action in actions:
        match action:
            case act.Start():
                rows = _rows(state.workload(action.workload), action.held)
                if rows:
                    found.append(partial(_grant, rows))
            case act.Extend():
                found.append(partial(_extend, at, action.workload, action.incarnation, action.protected_until))
            case act.BeginCheckpoint() if action.reason not in _OWN:
                found.append(partial(_preempt, at, action.workload, action.incarnation, action.reason))
            case _:
                pass
    return found


def reconcile(connection: sa.Connection, holding: Iterable[Workload]) -> bool:
    """Agree with what is held at a start. It does already, unless a version that keeps no stays has written the journal.

    Returns: Whether something was missing or too much, and so the past until now is not known whole.
    """
    rows = {_key(row): row for one in holding if one.held is not None for row in _rows(one, one.held)}
    known = {(row.workload, row.incarnation, row.node) for row in connection.execute(sa.select(_stays).where(_open))}
    for workload, incarnation, node in sorted(known - rows.keys()):
        # When it ended nobody noted: rather nothing than something that is not so.
        connection.execute(sa.delete(_stays).where(*_one(workload, incarnation), _stays.c.node == node))
    if missing := [rows[key] for key in sorted(rows.keys() - known)]:
        connection.execute(sa.insert(_stays), missing)
    return known != rows.keys()


def between(
    connection: sa.Connection, since_ms: int, until_ms: int, node: str | None = None
) -> tuple[tuple[Stay, ...], int]:
    """Stays that overlap a period, by grant, and from when on they are all there: ``since_ms``, or later if they are too many."""
    query = (
        sa.select(_stays)
        .where(_stays.c.freed_ms > since_ms, _stays.c.granted_ms < until_ms)
        .order_by(_stays.c.freed_ms.desc(), _stays.c.workload, _stays.c.incarnation, _stays.c.node)
        .limit(MOST + 1)
    )
    rows = connection.execute(query if node is None else query.where(_stays.c.node == node)).all()
    # The last one freed of those left out: after it nothing is missing.
    begin = min(rows[MOST].freed_ms, until_ms) if len(rows) > MOST else since_ms
    found = (_stay(row) for row in rows[:MOST])
    return tuple(sorted(found, key=lambda stay: (stay.granted_ms, stay.workload, stay.node))), begin


def _rows(workload: Workload, held: Held) -> list[dict[str, Any]]:
    protected = [[held.granted_at, held.protected_until]] if held.protected_until > held.granted_at else []
    return [
        {
            "workload": workload.id,
            "incarnation": held.incarnation,
            "node": lease.node,
            "gpus": lease.gpus,
            "user": workload.spec.user,
            "allocation": workload.spec.allocation,
            "granted_ms": held.granted_at,
            "up_ms": None,
            "protected": json.dumps(protected),
            "devices": "[]",
            "preempted_ms": None,
            "reason": "",
            "freed_ms": STILL,
        }
        for lease in held.leases
        if lease.gpus
    ]


def _key(row: dict[str, Any]) -> tuple[str, int, str]:
    return row["workload"], row["incarnation"], row["node"]


def _one(workload: str, incarnation: int) -> tuple[sa.ColumnElement[bool], ...]:
    return _stays.c.workload == workload, _stays.c.incarnation == incarnation


def _grant(rows: list[dict[str, Any]], connection: sa.Connection) -> None:
    # Forgotten here and nowhere else; an index finds that there is mostly nothing to forget.
    connection.execute(sa.delete(_stays).where(_stays.c.freed_ms < rows[0]["granted_ms"] - KEPT_MS))
    connection.execute(sa.insert(_stays), rows)


def _up(
    at: Instant,
    workload: WorkloadId,
    incarnation: int,
    devices: tuple[tuple[NodeName, str], ...],
    connection: sa.Connection,
) -> None:
    for node in sorted({name for name, _ in devices}):
        here = json.dumps([device for name, device in devices if name == node])
        which = (*_one(workload, incarnation), _stays.c.node == node, _open)
        connection.execute(sa.update(_stays).where(*which).values(devices=here))
    # A restore while it runs is told as a start too.
    first = (*_one(workload, incarnation), _stays.c.up_ms.is_(None), _open)
    connection.execute(sa.update(_stays).where(*first).values(up_ms=at))


def _extend(at: Instant, workload: WorkloadId, incarnation: int, until: Instant, connection: sa.Connection) -> None:
    which = (*_one(workload, incarnation), _open)
    for row in connection.execute(sa.select(_stays).where(*which)).all():
        spans = json.loads(row.protected)
        if spans and spans[-1][1] >= at:
            spans[-1][1] = until
        else:
            spans.append([at, until])
        here = (*which, _stays.c.node == row.node)
        connection.execute(sa.update(_stays).where(*here).values(protected=json.dumps(spans)))


def _preempt(at: Instant, workload: WorkloadId, incarnation: int, reason: str, connection: sa.Connection) -> None:
    which = (*_one(workload, incarnation), _open)
    connection.execute(sa.update(_stays).where(*which).values(preempted_ms=at, reason=str(reason)))


def _free(at: Instant, workload: WorkloadId, incarnation: int, connection: sa.Connection) -> None:
    connection.execute(sa.update(_stays).where(*_one(workload, incarnation), _open).values(freed_ms=at))


def _lose(at: Instant, node: NodeName, connection: sa.Connection) -> None:
    which = (_stays.c.node == node, _open)
    lost = {"freed_ms": at, "preempted_ms": at, "reason": NODE_LOST}
    connection.execute(sa.update(_stays).where(*which).values(lost))


def _stay(row: Any) -> Stay:
    return Stay(
        workload=row.workload,
        incarnation=row.incarnation,
        node=row.node,
        gpus=row.gpus,
        user=row.user,
        allocation=row.allocation,
        granted_ms=row.granted_ms,
        up_ms=row.up_ms,
        protected=tuple((begin, end) for begin, end in json.loads(row.protected)),
        devices=tuple(json.loads(row.devices)),
        preempted_ms=row.preempted_ms,
        reason=row.reason,
        freed_ms=row.freed_ms,
    )
