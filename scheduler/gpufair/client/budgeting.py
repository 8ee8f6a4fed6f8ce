"""Requests for budgets, dated changes and their history: what the service answers, and how it is asked."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpufair.client.calls import API, Call
from gpufair.client.marks import one_of, sometimes
from gpufair.client.reading import read


@dataclass(frozen=True, slots=True)
class BudgetDecision:
    """Who decided what. ``amended``: something else was accepted than was asked for."""

    by: str
    at_s: float = 0.0
    accepted: bool = False
    words: str = ""
    amended: bool = False


@dataclass(frozen=True, slots=True)
class BudgetTrial:
    """A what-if that somebody attached; ``found`` (as of ``gpufair whatif --json``) is there where one request is read."""

    by: str
    at_s: float = 0.0
    found: dict[str, Any] | None = field(default=None, metadata=sometimes())


@dataclass(frozen=True, slots=True)
class BudgetRequest:
    """A wish for other shares, and what became of it.

    ``state``: "open", "accepted" (its time has not come), "in_force", "over", "refused", "withdrawn" or "failed".
    ``wished`` was asked for, ``shares`` is what was accepted, ``before`` what it was when that came into force.
    All three are shares by path. ``gpus``: so many GPUs were asked for; null: shares were. ``may``: whether the reader may
    "decide" it, or "withdraw" it.
    """

    id: int
    state: str = field(metadata=one_of("open", "accepted", "in_force", "over", "refused", "withdrawn", "failed"))
    user: str = ""
    asked_s: float = 0.0
    wished: dict[str, str] = field(default_factory=dict)
    gpus: float | None = None
    shares: dict[str, str] = field(default_factory=dict)
    why: str = ""
    from_s: float | None = None
    until_s: float | None = None
    decision: BudgetDecision | None = None
    preview: BudgetTrial | None = None
    before: dict[str, str] = field(default_factory=dict)
    in_force_s: float | None = None
    over_s: float | None = None
    problem: str = ""
    may: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BudgetRequests:
    """A page of them, the newest first. ``user`` is who reads; ``owner``: they own budgets."""

    user: str = ""
    owner: bool = False
    requests: tuple[BudgetRequest, ...] = ()
    more: bool = False


@dataclass(frozen=True, slots=True)
class AllocationThen:
    """An allocation before or after a change; without a share it was not there."""

    share: str | None = None
    entitlement: float | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedAllocation:
    """``change``: "added", "removed" or "changed"."""

    path: str
    change: str = field(metadata=one_of("added", "removed", "changed"))
    before: AllocationThen
    after: AllocationThen


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """One change. ``request``: the number of the one that it fulfilled; ``count``: of allocations, of which some are listed."""

    number: int
    at_s: float = 0.0
    by: str = ""
    why: str = ""
    request: int | None = None
    count: int = 0
    allocations: tuple[ChangedAllocation, ...] = ()


@dataclass(frozen=True, slots=True)
class BudgetHistory:
    """A page of changes, the newest first."""

    changes: tuple[BudgetChange, ...] = ()
    more: bool = False


def requests(states: Iterable[str] = (), user: str = "", before: int = 0, limit: int = 100) -> Call[BudgetRequests]:
    """Requests, the newest first: those in ``states`` (none: all), of ``user``, with a smaller number than ``before``."""
    params = {"state": ",".join(states), "user": user, "before": str(before), "limit": str(limit)}
    return Call("GET", f"{API}/budgets/requests", lambda data: read(BudgetRequests, data), params)


def request(number: int) -> Call[BudgetRequest]:
    """One request, with the preview that was looked at."""
    return Call("GET", f"{API}/budgets/requests/{number}", _request)


def ask(shares: Mapping[str, object] | None = None, why: str = "", **more: object) -> Call[BudgetRequest]:
    """Ask for other shares; or for ``gpus`` of ``allocation``.

    Args:
        more: ``allocation``, ``gpus``, ``from_s``, ``until_s`` (Unix seconds), ``preview``, ``user``.
    """
    # With a key the same request that is sent twice is one.
    body = {"key": uuid.uuid4().hex} | _given(shares=shares, why=why, **more)
    return Call("POST", f"{API}/budgets/requests", _request, json=body)


def plan(shares: Mapping[str, object], why: str = "", **more: object) -> Call[BudgetRequest]:
    """Decide other shares, at once or for a time: for those who own what is divided.

    Args:
        more: ``from_s``, ``until_s``, ``preview``, ``seen`` (the shares of all allocations as they were), ``user``.
    """
    body = _given(shares=shares, why=why, **more)
    # Sent again it would meet the shares that the first one has set, and be refused.
    return Call("POST", f"{API}/budgets/changes", _request, json=body, repeatable=False)


def decide(number: int, verb: str, words: str = "", **more: object) -> Call[BudgetRequest]:
    """``accept``, ``refuse`` or ``withdraw`` a request.

    Args:
        more: Of ``accept``: ``shares``, ``gpus``, ``from_s``, ``until_s``, ``preview``; of all: ``user``.
    """
    path = f"{API}/budgets/requests/{number}/{verb}"
    return Call("POST", path, _request, json=_given(words=words, **more), repeatable=False)


def history(before: int = 0, limit: int = 100) -> Call[BudgetHistory]:
    """Who changed the budgets when and why, the newest first."""
    params = {"before": str(before), "limit": str(limit)}
    return Call("GET", f"{API}/budgets/history", lambda data: read(BudgetHistory, data), params)


def _given(**fields: object) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _request(data: object) -> BudgetRequest:
    return read(BudgetRequest, data)
