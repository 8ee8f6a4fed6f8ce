"""What people are told of requests for budgets: owners of new ones, and those who asked of what became of theirs.

Nobody has to choose this: who asks wants an answer. Each goes through whichever channel reaches that person.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpufair.core import words
from gpufair.core.units import Instant
from gpufair.service.storage.budget_requests import BudgetRequest, Stage
from gpufair.service.workloads.notices import MAX_TEXT, Notice

_KINDS = {Stage.OPEN: "budget-request", Stage.ACCEPTED: "budget-decision", Stage.REFUSED: "budget-decision"}


def told(one: BudgetRequest, at: int, users: Iterable[str]) -> list[Notice]:
    """One notice for each of ``users`` about where ``one`` stands now."""
    kind, text = _KINDS.get(one.stage, "budget-change"), sentence(one)
    text = text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
    path = next(iter(one.shares), "")
    return [
        Notice(f"budget-request-{one.id}.{one.stage}.{user}", kind, at / 1000, user, text, path)
        for user in sorted(set(users))
    ]


def sentence(one: BudgetRequest) -> str:
    """Where it stands, in a sentence."""
    wish = ", ".join(f"{path} = {share}" for path, share in one.shares.items())
    head, decided = f"request {one.id} of {one.user} ({wish})", one.decision
    by = "" if decided is None else f" by {decided.by}"
    said = "" if decided is None or not decided.words else f": {decided.words}"
    match one.stage:
        case Stage.OPEN:
            return f"{one.user} asks for {wish} (request {one.id}): {one.why}"
        case Stage.ACCEPTED:
            return f"{head} was accepted{by}, and comes into force at {words.moment(Instant(one.from_ms))}{said}"
        case Stage.REFUSED:
            return f"{head} was refused{by}{said}"
        case Stage.WITHDRAWN:
            return f"{head} was withdrawn{by}{said}"
        case Stage.IN_FORCE:
            until = f" until {words.moment(Instant(one.until_ms))}" if one.until_ms else ""
            return f"{head} is in force{until}, as decided{by}{said}"
        case Stage.OVER:
            return f"{head} is over: {one.problem or 'the shares are what they were before'}"
        case Stage.FAILED:
            return f"{head} could not come into force: {one.problem}"
