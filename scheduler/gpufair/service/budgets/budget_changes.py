"""How budgets change: by whoever may, with reasons, at once or at a time; each change is in the history.

All of these are steps of a turn. A dated change is fed at its own time, between the passes before and after it, so a
service that was down at that moment decides as one that was not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from gpufair.core import events as ev
from gpufair.core import words
from gpufair.core.errors import BudgetError, GpufairError
from gpufair.core.model import Allocation
from gpufair.core.state import State
from gpufair.core.tree import Tree, parent_of, with_shares
from gpufair.core.units import AllocationPath, Instant
from gpufair.service.budgets.budget_notices import told
from gpufair.service.identity.auth import Principal
from gpufair.service.problems import BadRequest, Conflict, NotFound
from gpufair.service.settings.budgets import refuse_starved, share_of
from gpufair.service.settings.tables import hint
from gpufair.service.storage import budget_history
from gpufair.service.storage.budget_requests import BudgetRequest, Decision, Stage, Trial

if TYPE_CHECKING:
    from gpufair.service.workloads.turn import Turn

_SHARE_STEP = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked for, or decided. ``None``: as it was asked for; ``from_ms``, ``until_ms`` 0: at once, for good."""

    shares: Mapping[str, str] | None = None
    gpus: float | None = None  # of the one path of ``shares``, whose share it stands for
    from_ms: int | None = None
    until_ms: int | None = None
    preview: dict[str, Any] | None = None


def change(
    turn: Turn, allocations: Sequence[Allocation], by: str, why: str, *, request: int = 0, at: Instant | None = None
) -> None:
    """Put a tree into force, and write down who did it and why.

    Raises:
        BudgetError: It drops the leaf of a live workload; nothing has changed.
    """
    before, when = turn.state.tree, turn.now if at is None else at
    turn.handle(ev.BudgetsApplied(when, turn.cause(), tuple(allocations)))
    if rows := budget_history.difference(before, turn.state.tree):
        turn.write(partial(budget_history.note, at_ms=when, by=by, why=why, request=request, rows=rows))


def ask(turn: Turn, user: str, terms: Terms, why: str, *, key: str = "", owners: Iterable[str] = ()) -> BudgetRequest:
    """File a request; the same one for the same ``key``. ``owners`` are told.

    Raises:
        GpufairError: It makes no sense, or there are too many.
    """
    known = turn.requests.named(user, key)
    if known is not None:
        return known
    made = _new(turn, user, terms, why, key)
    turn.post(told(made, turn.now, set(owners) - {user}))
    return turn.requests.put(made)


def plan(
    turn: Turn, who: Principal, terms: Terms, why: str, *, seen: Mapping[str, str] | None = None, key: str = ""
) -> BudgetRequest:
    """Decide other shares without having been asked: at once, or at a time.

    Args:
        seen: The shares of all allocations, as they were when it was decided; None: whatever they are.

    Raises:
        Forbidden: They are not theirs to decide.
        Conflict: The tree is not what was ``seen``.
    """
    known = turn.requests.named(who.name, key)
    if known is not None:
        return known
    if seen is not None and seen != _shares(turn.state.tree):
        raise Conflict("the budgets were changed meanwhile; look at them again")
    made = _new(turn, who.name, terms, why, key)
    who.require_divider(made.shares)
    return _accept(turn, made, Decision(who.name, turn.now, accepted=True))


def accept(turn: Turn, number: int, who: Principal, terms: Terms, said: str) -> BudgetRequest:
    """Accept an open request, as it is or amended; without a later time it is in force at once.

    Raises:
        Forbidden: The shares are not theirs to decide.
        Conflict: It was decided already.
    """
    one = _open(turn, number)
    who.require_divider(one.shares)
    gpus = one.gpus if terms.gpus is None and terms.shares is None else terms.gpus
    shares = _wish(turn.state, Terms(terms.shares or one.wished, gpus))
    who.require_divider(shares)
    preview = one.preview if terms.preview is None else Trial(who.name, turn.now, terms.preview)
    from_ms = one.from_ms if terms.from_ms is None else terms.from_ms
    until_ms = one.until_ms if terms.until_ms is None else terms.until_ms
    amended = replace(one, shares=shares, from_ms=from_ms, until_ms=until_ms, preview=preview)
    _check_times(turn.now, from_ms, until_ms)
    same = gpus == one.gpus and (gpus is not None or _same(shares, one.wished))
    same = same and (from_ms, until_ms) == (one.from_ms, one.until_ms)
    return _accept(turn, amended, Decision(who.name, turn.now, accepted=True, words=said, amended=not same))


def refuse(turn: Turn, number: int, who: Principal, said: str) -> BudgetRequest:
    """Refuse an open request.

    Raises: As ``accept``.
    """
    one = _open(turn, number)
    who.require_divider(one.shares)
    return _settle(
        turn, replace(one, stage=Stage.REFUSED, decision=Decision(who.name, turn.now, accepted=False, words=said))
    )


def withdraw(turn: Turn, number: int, who: Principal, said: str) -> BudgetRequest:
    """Take a request back that is not in force yet: whoever asked, or whoever may decide it.

    Raises:
        Forbidden: It is neither theirs, nor theirs to decide.
        Conflict: It is in force.
    """
    one = turn.requests[number]
    if one.stage not in {Stage.OPEN, Stage.ACCEPTED}:
        raise Conflict(
            f"request {number} is in force since {words.moment(Instant(one.in_force_ms))}; ask for another change"
        )
    if who.name != one.user:
        who.require_divider(one.shares)
    accepted = one.decision is not None and one.decision.accepted
    decision = Decision(who.name, turn.now, accepted=accepted, words=said)
    return _settle(turn, replace(one, stage=Stage.WITHDRAWN, decision=decision))


def come_due(turn: Turn, at: Instant) -> None:
    """Do what was decided for the time ``at``, which has come."""
    when = Instant(max(at, turn.state.now))
    for one in turn.requests.due_at(at):
        _settle(turn, _begin(turn, one, when) if one.stage is Stage.ACCEPTED else _end(turn, one, when), at=when)


def wanted_share(state: State, path: str, gpus: float) -> str:
    """The share with which ``path`` is entitled to ``gpus`` of the GPUs that are there now.

    Raises:
        BadRequest: Its parent has no more than that, or the share of its siblings is 0.
    """
    node = state.tree[AllocationPath(path)]
    above = state.tree[parent_of(node.path)]
    window = state.policy.window
    total = sum(figures.budget for figures in state.budgets() if figures.path == "") / window if window else 0
    had = float(above.entitlement) * total
    rest = sum((state.tree[one].share for one in above.children if one != node.path), Fraction(0))
    if not 0 <= gpus < had or not rest:
        named = f"{above.path!r}" if above.path else "the whole tree"
        raise BadRequest(
            f"{path!r} can be entitled to less than the {had:.1f} GPUs of {named}, as long as its siblings have a share; "
            f"{gpus:g} cannot be given: ask for a share, or for more further up"
        )
    part = Fraction(gpus) / Fraction(had)
    share = rest * part / (1 - part)
    exact = Decimal(share.numerator) / Decimal(share.denominator)
    return share_of(f"{exact.quantize(_SHARE_STEP, ROUND_HALF_EVEN).normalize():f}", path)


def _new(turn: Turn, user: str, terms: Terms, why: str, key: str) -> BudgetRequest:
    shares = _wish(turn.state, terms)
    from_ms, until_ms = terms.from_ms or 0, terms.until_ms or 0
    _check_times(turn.now, from_ms, until_ms)
    now = _shares(turn.state.tree)
    if _same(shares, {path: now[path] for path in shares}):
        raise BadRequest(f"{', '.join(f'{path} = {share}' for path, share in shares.items())} is what is in force")
    preview = None if terms.preview is None else Trial(user, turn.now, terms.preview)
    number = turn.requests.admit(user)
    return BudgetRequest(
        number, user, turn.now, shares, why, terms.gpus, shares, from_ms, until_ms, preview=preview, key=key
    )


def _wish(state: State, terms: Terms) -> dict[str, str]:
    """The shares of ``terms``, checked against the tree as it is."""
    known = [node.path for node in state.tree.nodes() if node.path]
    shares = dict(terms.shares or {})
    for path in shares:
        if path not in known:
            raise NotFound(f"there is no allocation {path[:80]!r}{hint(path, known)}")
    if terms.gpus is not None:
        if len(shares) != 1:
            raise BadRequest("gpus are asked for one allocation at a time")
        [path] = shares
        shares = {path: wanted_share(state, path, terms.gpus)}
    refuse_starved(Tree(_with(state.tree, shares)))
    return shares


def _accept(turn: Turn, one: BudgetRequest, decision: Decision) -> BudgetRequest:
    decided = replace(one, stage=Stage.ACCEPTED, decision=decision)
    if decided.from_ms > turn.now:
        return _settle(turn, decided)
    return _settle(turn, _in_force(turn, decided, turn.now))


def _begin(turn: Turn, one: BudgetRequest, at: Instant) -> BudgetRequest:
    """Put it into force; where that cannot be done, it has failed and nothing has changed."""
    try:
        return _in_force(turn, one, at)
    except GpufairError as err:
        return replace(one, stage=Stage.FAILED, problem=str(err))


def _in_force(turn: Turn, one: BudgetRequest, at: Instant) -> BudgetRequest:
    tree, now = turn.state.tree, _shares(turn.state.tree)
    if missing := [path for path in one.shares if path not in now]:
        raise BudgetError(f"there is no allocation {missing[0]!r} any more")
    allocations = _with(tree, one.shares)
    refuse_starved(Tree(allocations))
    by = one.decision.by if one.decision is not None else one.user
    change(turn, allocations, by, one.why, request=one.id, at=at)
    before = {path: now[path] for path in one.shares}
    return replace(one, stage=Stage.IN_FORCE, before=before, in_force_ms=at)


def _end(turn: Turn, one: BudgetRequest, at: Instant) -> BudgetRequest:
    """Give back what it changed, but never what somebody has changed since."""
    now = _shares(turn.state.tree)
    back = {
        path: share
        for path, share in one.before.items()
        if path in now and _same({path: now[path]}, {path: one.shares[path]})
    }
    problem = f"{', '.join(sorted(one.before.keys() - back.keys()))} was changed meanwhile, and stays as it is"
    problem = "" if len(back) == len(one.before) else problem
    try:
        allocations = _with(turn.state.tree, back)
        refuse_starved(Tree(allocations))
        by = one.decision.by if one.decision is not None else one.user
        change(turn, allocations, by, f"the time of request {one.id} is over", request=one.id, at=at)
    except GpufairError as err:
        problem = f"the shares stay as they are: {err}"
    return replace(one, stage=Stage.OVER, over_ms=at, problem=problem)


def _settle(turn: Turn, one: BudgetRequest, *, at: Instant | None = None) -> BudgetRequest:
    """Keep it, and tell those who have not done it themselves."""
    by = {one.user} | ({one.decision.by} if one.decision is not None else set())
    # What comes by itself surprises both; of a decision the one who decides knows.
    hear = by if at is not None or one.decision is None else by - {one.decision.by}
    turn.post(told(one, turn.now if at is None else at, hear))
    return turn.requests.put(one)


def _open(turn: Turn, number: int) -> BudgetRequest:
    one = turn.requests[number]
    if one.stage is not Stage.OPEN:
        by = "" if one.decision is None else f" by {one.decision.by}"
        raise Conflict(f"request {number} was accepted already{by}")
    return one


def _check_times(now: Instant, from_ms: int, until_ms: int) -> None:
    if until_ms and until_ms <= max(now, from_ms):
        raise BadRequest("it would end before it begins; give a later until_s, or none")


def _with(tree: Tree, shares: Mapping[str, str]) -> tuple[Allocation, ...]:
    return with_shares(tree.allocations, {AllocationPath(path): share for path, share in shares.items()})


def _same(shares: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Whether these are the same numbers, however they are written."""
    return {path: Fraction(share) for path, share in shares.items()} == {
        path: Fraction(share) for path, share in others.items()
    }


def _shares(tree: Tree) -> dict[str, str]:
    """The share of each allocation, as its owner wrote it; one that is not declared has 1."""
    declared = {str(one.path): one.share for one in tree.allocations}
    return {str(node.path): declared.get(node.path, "1") for node in tree.nodes() if node.path}
