"""`gpufair budgets request|requests|accept|refuse|withdraw|set|history`: budgets are asked for, decided, and remembered."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.options import AsJson, StateDir, client, complete_allocation, instant_of
from gpufair.cli.output import Column, emit_json, line, pairs, table
from gpufair.cli.words import NOTHING, clean, clock, moment, percent, plural

if TYPE_CHECKING:
    from gpufair.client.budgeting import BudgetRequest, ChangedAllocation

MAX_PREVIEW_BYTES = 64 << 10
_LIVE = ("open", "accepted")
_STATES = {"accepted": "accepted, coming", "in_force": "in force"}

Number = Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="As `requests` shows it.")]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="When it begins, like 08:00 or 2027-01-31T08:00; default: at once."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="When it ends again; default: never.")]
Why = Annotated[str, typer.Option("--why", metavar="REASONS", help="The reasons, for everybody to read.")]
Words = Annotated[str, typer.Option("--words", metavar="TEXT", help="What you say to it.")]
Preview = Annotated[
    str | None,
    typer.Option(
        "--preview",
        metavar="FILE",
        help="What `gpufair whatif --json` said of it, to be kept with it; - reads standard input.",
    ),
]
PathShares = Annotated[
    list[str], typer.Argument(metavar="PATH=SHARE...", help="Other shares.", autocompletion=complete_allocation)
]


def request(
    shares: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH[=SHARE]...", help="Which share; or, with --gpus, of what.", autocompletion=complete_allocation
        ),
    ],
    why: Why,
    gpus: Annotated[float | None, typer.Option("--gpus", min=0, help="How many GPUs it is to be entitled to.")] = None,
    begin: From = None,
    end: Until = None,
    preview: Preview = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Ask for other shares, with reasons; whoever owns what is divided decides."""
    more: dict[str, Any] = _when(begin, end) | {"preview": _preview(preview)}
    if gpus is None:
        more["shares"] = _shares(shares)
    elif len(shares) != 1 or "=" in shares[0]:
        raise typer.BadParameter("with --gpus name one allocation, without a share", param_hint="PATH")
    else:
        more |= {"allocation": shares[0], "gpus": gpus}
    with client(state_dir) as service:
        _tell(service.ask_budget(why=why, **more), as_json=as_json)


def requests(
    number: Annotated[int | None, typer.Argument(metavar="NUMBER", min=1, help="Show all of one.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Those that are settled as well.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """List what is asked for and what was decided for later, or show one request with its preview."""
    with client(state_dir) as service:
        if number is not None:
            one = service.budget_request(number)
            emit_json(one) if as_json else _show(one)
            return
        found = service.budget_requests(() if every else _LIVE, limit=500)
    if as_json:
        emit_json(found)
        return
    now = time.time()
    columns = [
        Column("NO.", right=True),
        Column("STATE"),
        Column("WHO"),
        Column("WHAT"),
        Column("FROM", 2),
        Column("UNTIL", 3),
        Column("WHY", 1),
    ]
    rows = [
        (
            str(one.id),
            _state(one),
            one.user,
            _what(one),
            _at(one.from_s, now),
            _at(one.until_s, now),
            clean(one.why, 60),
        )
        for one in found.requests
    ]
    table(columns, rows, "nothing is asked for; `gpufair budgets requests --all` shows what was")


def accept(
    number: Number,
    shares: Annotated[
        list[str] | None,
        typer.Option("--share", metavar="PATH=SHARE", help="Another share than was asked for; may be repeated."),
    ] = None,
    words: Words = "",
    begin: From = None,
    end: Until = None,
    preview: Preview = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Accept a request, as it is or amended: it comes into force at its time, or at once."""
    more = _when(begin, end) | {"preview": _preview(preview), "shares": _shares(shares) if shares else None}
    with client(state_dir) as service:
        _tell(service.decide_budget(number, "accept", words, **more), as_json=as_json)


def refuse(
    number: Number,
    words: Annotated[str, typer.Option("--words", metavar="TEXT", help="Why not, for everybody to read.")],
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Refuse a request, and say why."""
    with client(state_dir) as service:
        _tell(service.decide_budget(number, "refuse", words), as_json=as_json)


def withdraw(number: Number, words: Words = "", as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Take a request back that is not in force yet; an owner calls off a change that was decided for later."""
    with client(state_dir) as service:
        _tell(service.decide_budget(number, "withdraw", words), as_json=as_json)


def set_shares(
    shares: PathShares,
    why: Why = "",
    begin: From = None,
    end: Until = None,
    preview: Preview = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Put other shares into force, at once or at a time, for good or until then; for those who own what is divided."""
    more = _when(begin, end) | {"preview": _preview(preview)}
    with client(state_dir) as service:
        _tell(service.plan_budget(_shares(shares), why, **more), as_json=as_json)


def history(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=500, help="How many changes.")] = 20,
    before: Annotated[int, typer.Option("--before", min=0, help="Only those before this number.")] = 0,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Show who changed the budgets when and why, the last change first."""
    with client(state_dir) as service:
        found = service.budget_history(before, limit)
    if as_json:
        emit_json(found)
        return
    now = time.time()
    for one in found.changes:
        of = f" (request {one.request})" if one.request else ""
        line(
            f"{one.number}. {clock(one.at_s, now)}, {clean(one.by)}{of}{': ' + clean(one.why, 2000) if one.why else ''}"
        )
        for changed in one.allocations[:20]:
            line(f"   {clean(changed.path)}: {_changed(changed)}")
        if one.count > 20:
            line(f"   and {one.count - 20:,} more; `--json` has them")
    if not found.changes:
        line("the budgets have not been changed")
    if found.more:
        line(f"there are earlier ones: `gpufair budgets history --before {found.changes[-1].number}`")


def _changed(one: ChangedAllocation) -> str:
    if one.change == "removed":
        return f"removed (its share was {one.before.share})"
    said = []
    if one.before.share != one.after.share:
        shares = one.after.share if one.change == "added" else f"{one.before.share} → {one.after.share}"
        was = "" if one.before.entitlement is None else f"{percent(one.before.entitlement)} → "
        said.append(f"share {shares} ({was}{percent(one.after.entitlement or 0.0)})")
    if one.before.members != one.after.members:
        said.append(f"members {', '.join(one.before.members) or 'all'} → {', '.join(one.after.members) or 'all'}")
    return ("added with " if one.change == "added" else "") + "; ".join(clean(text) for text in said)


def _show(one: BudgetRequest) -> None:
    now, decided = time.time(), one.decision
    rows = [
        ("Request", f"{one.id}, {_state(one)}"),
        ("Asked", f"by {one.user}, {moment(one.asked_s, now)}"),
        ("For", _what(one)),
        ("Why", one.why),
        ("From", _at(one.from_s, now, "at once")),
        ("Until", _at(one.until_s, now, "for good")),
    ]
    if decided is not None:
        verdict = "accepted" if decided.accepted else "refused" if one.state == "refused" else "withdrawn"
        rows.append(
            (
                "Decided",
                f"{verdict}{', amended,' if decided.amended else ''} by {decided.by}, {moment(decided.at_s, now)}",
            )
        )
        rows += [("Words", decided.words)] if decided.words else []
    rows += (
        [("In force", f"since {moment(one.in_force_s, now)}; before: {_pairs(one.before)}")] if one.in_force_s else []
    )
    rows += [("Problem", one.problem)] if one.problem else []
    pairs(rows)
    if one.preview is not None:
        line(f"\nWhat {clean(one.preview.by)} looked at, {moment(one.preview.at_s, now)}:")
        _show_preview(one.preview.found or {})


def _show_preview(found: dict[str, Any]) -> None:
    """What is attached is somebody's word: whatever is not as expected is left out."""
    rows = []
    for one in found.get("allocations") or ():
        if not isinstance(one, dict):
            continue
        sides = [side for name in ("before", "after") if isinstance(side := one.get(name), dict)]
        entitled = [percent(part) for side in sides if isinstance(part := side.get("entitlement"), float)]
        held = [f"{count:.1f}" for side in sides if isinstance(count := side.get("gpus_held"), int | float)]
        rows.append((str(one.get("path")), " → ".join(entitled), " → ".join(held), str(one.get("verdict") or "")))
    table([Column("ALLOCATION"), Column("ENTITLED"), Column("GPUS HELD", 1), Column("")], rows, "it has no allocations")


def _tell(one: BudgetRequest, *, as_json: bool) -> None:
    if as_json:
        emit_json(one)
        return
    now, what = time.time(), f"request {one.id} ({_what(one)})"
    until = f" until {moment(one.until_s, now)}" if one.until_s else ""
    match one.state:
        case "open":
            line(
                f"{what} is open: whoever owns what it divides is asked; `gpufair budgets requests {one.id}` shows its state"
            )
        case "accepted":
            line(f"{what} is accepted, and comes into force {moment(one.from_s, now)}{until}")
        case "in_force":
            line(f"{what} is in force{until}")
        case state:
            line(f"{what} is {state}")


def _state(one: BudgetRequest) -> str:
    return _STATES.get(one.state, one.state)


def _what(one: BudgetRequest) -> str:
    shares = _pairs(one.shares)
    if one.gpus is not None:
        shares += f" (asked for {one.gpus:g} GPUs)"
    elif one.shares != one.wished:
        shares += f" (asked for {_pairs(one.wished)})"
    return shares


def _pairs(shares: dict[str, Any]) -> str:
    return clean(", ".join(f"{path}={share}" for path, share in shares.items()))


def _at(at_s: float | None, now: float, otherwise: str = NOTHING) -> str:
    return moment(at_s, now) if at_s else otherwise


def _shares(given: list[str]) -> dict[str, str]:
    shares = {}
    for text in given:
        path, equals, share = (part.strip() for part in text.partition("="))
        if not equals or not path or not share:
            raise typer.BadParameter(f"{text!r} is no PATH=SHARE, like language/pretrain=40", param_hint="PATH=SHARE")
        shares[path] = share
    return shares


def _when(begin: str | None, end: str | None) -> dict[str, float | None]:
    now = time.time()
    return {
        "from_s": None if begin is None else instant_of(begin, "--from", now),
        "until_s": None if end is None else instant_of(end, "--until", now),
    }


def _preview(file: str | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_PREVIEW_BYTES + 1)
        else:
            with Path(file).open("rb") as source:
                data = source.read(MAX_PREVIEW_BYTES + 1)
        found = json.loads(data) if len(data) <= MAX_PREVIEW_BYTES else None
    except (OSError, ValueError, RecursionError) as err:
        raise typer.BadParameter(f"{file} cannot be read as JSON: {err}", param_hint="--preview") from err
    if not isinstance(found, dict):
        size = plural(MAX_PREVIEW_BYTES >> 10, "KiB").removesuffix("s")
        raise CommandError(f"{file} is no preview: give what `gpufair whatif --json` said, at most {size}")
    return found
