"""What people ask of the budgets, and what was decided: each request with its reasons, its decision and its time.

A request that was accepted is a dated change of the tree. All of them are rows of the journal's database; those that may
still change anything are in memory as well, since a turn decides by them (``Requests``), and are written down in its
transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

import sqlalchemy as sa

from gpufair.core.errors import GpufairError
from gpufair.core.units import Instant
from gpufair.service.storage.database import StoreError, metadata

MOST_OPEN: Final = 1000
MOST_OPEN_OF_ONE: Final = 20

_requests = sa.Table(
    "budget_requests",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("person", sa.String(64), nullable=False),  # "user" is a word of SQL
    sa.Column("document", sa.Text, nullable=False),
)


class UnknownRequest(GpufairError):
    """There is no such request, or none of which anything can still come."""


class TooManyRequests(GpufairError):
    """There are as many open requests as there may be."""


class Stage(StrEnum):
    """How far a request has come."""

    OPEN = "open"  # nobody has decided
    ACCEPTED = "accepted"  # its time has not come
    IN_FORCE = "in_force"
    OVER = "over"  # it was in force until a time that has come
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    FAILED = "failed"  # at its time the tree was another one, and it could not come into force


@dataclass(frozen=True, slots=True)
class Decision:
    """Who decided what, and in which words."""

    by: str
    at_ms: int
    accepted: bool
    words: str = ""
    amended: bool = False  # something else was accepted than was asked for


@dataclass(frozen=True, slots=True)
class Trial:
    """A what-if that somebody looked at before deciding (or asking): their word, not the service's."""

    by: str
    at_ms: int
    found: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """A wish for other shares.

    Attributes:
        wished: The shares that were asked for, by path.
        gpus: So many GPUs were asked for (of the one path in ``wished``); None: shares were.
        shares: What was accepted; as ``wished`` until then.
        from_ms: When it is to come into force; 0: when it is accepted.
        until_ms: When the shares go back to what they were; 0: never.
        before: What the shares were when it came into force.
        problem: Why it failed, or what of it could not be taken back.
        key: By which a client that asks again is recognised.
    """

    id: int
    user: str
    asked_ms: int
    wished: Mapping[str, str]
    why: str
    gpus: float | None = None
    shares: Mapping[str, str] = field(default_factory=dict)
    from_ms: int = 0
    until_ms: int = 0
    stage: Stage = Stage.OPEN
    decision: Decision | None = None
    preview: Trial | None = None
    before: Mapping[str, str] = field(default_factory=dict)
    in_force_ms: int = 0
    over_ms: int = 0
    problem: str = ""
    key: str = ""

    @property
    def live(self) -> bool:
        """Whether anything can still come of it."""
        return self.stage in {Stage.OPEN, Stage.ACCEPTED} or (self.stage is Stage.IN_FORCE and self.until_ms > 0)

    @property
    def due(self) -> Instant | None:
        """When it comes into force, or ends."""
        if self.stage is Stage.ACCEPTED:
            return Instant(self.from_ms)
        return Instant(self.until_ms) if self.stage is Stage.IN_FORCE and self.until_ms else None

    def view(self, *, whole: bool = True) -> dict[str, Any]:
        """As the API shows it; without ``whole`` the preview is only named."""
        preview = None
        if self.preview is not None:
            preview = {"by": self.preview.by, "at_s": self.preview.at_ms / 1000}
            preview |= {"found": self.preview.found} if whole else {}
        decided = self.decision
        return {
            "id": self.id,
            "state": self.stage.value,
            "user": self.user,
            "asked_s": self.asked_ms / 1000,
            "wished": dict(self.wished),
            "gpus": self.gpus,
            "shares": dict(self.shares),
            "why": self.why,
            "from_s": _seconds(self.from_ms),
            "until_s": _seconds(self.until_ms),
            "decision": None
            if decided is None
            else {
                "by": decided.by,
                "at_s": decided.at_ms / 1000,
                "accepted": decided.accepted,
                "words": decided.words,
                "amended": decided.amended,
            },
            "preview": preview,
            "before": dict(self.before),
            "in_force_s": _seconds(self.in_force_ms),
            "over_s": _seconds(self.over_ms),
            "problem": self.problem,
        }


class Requests:
    """The live requests, and what a turn makes of them.

    Args:
        live: Those of the last commit.
        last: The highest number that a request has.
    """

    def __init__(self, live: Mapping[int, BudgetRequest] | None = None, last: int = 0) -> None:
        self._live = dict(live or {})
        self._changed: dict[int, BudgetRequest] = {}
        self.last = last

    def begun(self) -> Requests:
        """For a turn: what it changes is dropped with it."""
        return Requests(self._live, self.last)

    def __getitem__(self, number: int) -> BudgetRequest:
        """A live one.

        Raises:
            UnknownRequest: There is none with this number, or nothing can come of it any more.
        """
        try:
            return self._live[number]
        except KeyError:
            if 0 < number <= self.last:
                raise UnknownRequest(
                    f"request {number} is settled; `gpufair budgets requests {number}` shows how"
                ) from None
            raise UnknownRequest(f"there is no request {number}; `gpufair budgets requests` lists them") from None

    def named(self, user: str, key: str) -> BudgetRequest | None:
        """The one that this user asked for under this key."""
        return next((one for one in self._live.values() if key and (one.user, one.key) == (user, key)), None)

    def next_due(self) -> Instant | None:
        """When the first of the dated changes comes."""
        return min((one.due for one in self._live.values() if one.due is not None), default=None)

    def due_at(self, at: Instant) -> list[BudgetRequest]:
        """Those whose time is ``at``, in their order."""
        return [one for number, one in sorted(self._live.items()) if one.due == at]

    def put(self, one: BudgetRequest) -> BudgetRequest:
        """Keep it, new or changed."""
        self._changed[one.id] = one
        self.last = max(self.last, one.id)
        if one.live:
            self._live[one.id] = one
        else:
            self._live.pop(one.id, None)
        return one

    def admit(self, user: str) -> int:
        """The number of a new request of ``user``'s.

        Raises:
            TooManyRequests: There are too many already.
        """
        of_all = [one for one in self._live.values() if one.stage is Stage.OPEN]
        if sum(one.user == user for one in of_all) >= MOST_OPEN_OF_ONE:
            raise TooManyRequests(f"{user!r} has {MOST_OPEN_OF_ONE} open requests; withdraw one of them first")
        if len(of_all) >= MOST_OPEN:
            raise TooManyRequests(f"{MOST_OPEN} requests are open; their owners have to decide some of them first")
        return self.last + 1

    def writes(self) -> list[Callable[[sa.Connection], None]]:
        """What writes down the changes, within the transaction of the turn."""
        changed = list(self._changed.values())
        return [lambda connection: _write(connection, changed)] if changed else []


def live(connection: sa.Connection) -> Requests:
    """What a start begins with."""
    stages = (Stage.OPEN, Stage.ACCEPTED, Stage.IN_FORCE)
    rows = connection.execute(
        sa.select(_requests.c.document).where(_requests.c.state.in_([one.value for one in stages]))
    )
    found = (_read(row.document) for row in rows)
    last = connection.scalar(sa.select(sa.func.max(_requests.c.id))) or 0
    return Requests({one.id: one for one in found if one.live}, last)


def one_of(connection: sa.Connection, number: int) -> BudgetRequest | None:
    """The request with this number."""
    found = connection.scalar(sa.select(_requests.c.document).where(_requests.c.id == number))
    return None if found is None else _read(found)


def listed(
    connection: sa.Connection, states: Sequence[str] = (), user: str = "", before: int = 0, limit: int = 100
) -> list[BudgetRequest]:
    """The newest first.

    Args:
        states: Only these; empty: all.
        user: Only what they have asked for; "": everybody's.
        before: Only those with a smaller number; 0: all.
    """
    query = sa.select(_requests.c.document).order_by(_requests.c.id.desc()).limit(limit)
    if states:
        query = query.where(_requests.c.state.in_(list(states)))
    if user:
        query = query.where(_requests.c.person == user)
    if before:
        query = query.where(_requests.c.id < before)
    return [_read(document) for document in connection.scalars(query)]


def _write(connection: sa.Connection, changed: Sequence[BudgetRequest]) -> None:
    connection.execute(sa.delete(_requests).where(_requests.c.id.in_([one.id for one in changed])))
    rows = [
        {"id": one.id, "state": one.stage.value, "person": one.user, "document": json.dumps(asdict(one))}
        for one in changed
    ]
    connection.execute(sa.insert(_requests), rows)


def _read(document: str) -> BudgetRequest:
    try:
        data = json.loads(document)
        decision, preview = data.pop("decision"), data.pop("preview")
        return BudgetRequest(
            **data | {"stage": Stage(data["stage"])},
            decision=None if decision is None else Decision(**decision),
            preview=None if preview is None else Trial(**preview),
        )
    except (TypeError, KeyError, ValueError) as err:
        raise StoreError(f"a request for budgets in the journal is damaged: {err}; restore a backup") from err


def _seconds(millis: int) -> float | None:
    return millis / 1000 if millis else None
