"""`gpufair whatif`: the live state played forward twice, as it is and with other budgets or options."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.options import AsJson, Setting, StateDir, client, complete_allocation, seconds_of, settings_of
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.progress import progress
from gpufair.cli.snapshots import read_snapshot
from gpufair.cli.words import NOTHING, clean, clock, gpu_time, percent, span

if TYPE_CHECKING:
    from gpufair.core.model import Allocation
    from gpufair.core.state import State
    from gpufair.sim.whatif import Account, Change, Comparison, Past

_MOST_HOURS = 24 * 14


def whatif(
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            "-b",
            metavar="PATH=SHARE",
            help="Another share for an allocation; may be repeated.",
            autocompletion=complete_allocation,
        ),
    ] = None,
    budgets: Annotated[
        Path | None, typer.Option("--budgets", metavar="FILE", dir_okay=False, help="Another budgets file altogether.")
    ] = None,
    request: Annotated[
        int | None,
        typer.Option("--request", metavar="NUMBER", min=1, help="What is asked for in a request (`gpufair budgets requests`)."),
    ] = None,
    setting: Setting = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="DURATION", help="Another window; short for --set window=….")
    ] = None,
    hours: Annotated[float, typer.Option("--hours", min=0.1, max=_MOST_HOURS, help="How far to play.")] = 24.0,
    from_live: Annotated[
        bool, typer.Option("--from-live", help="Begin with what the service has now (the default).")
    ] = False,
    snapshot: Annotated[
        Path | None,
        typer.Option("--snapshot", metavar="FILE", dir_okay=False, help="Begin with a file of `gpufair snapshot`."),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option("--journal", metavar="FILE", help="With --snapshot: whose past submissions come again."),
    ] = None,
    past: Annotated[
        str | None,
        typer.Option("--past", metavar="DURATION", help="How far back submissions are taken from; default: 1d."),
    ] = None,
    no_arrivals: Annotated[bool, typer.Option("--no-arrivals", help="Nobody submits anything.")] = False,
    seed: Annotated[int, typer.Option("--seed", help="Of what is drawn.")] = 0,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Say who would gain and who would lose by other budgets or options, starting from what runs and waits now.

    The same hours are played twice on a copy: as it is, and changed. The submissions of the recent past come again, at the
    same time of the day. Nothing is changed, and nothing of it is a promise.
    """
    if snapshot is not None and from_live:
        raise typer.BadParameter("give either --from-live or --snapshot", param_hint="--snapshot")
    if journal is not None and snapshot is None:
        raise typer.BadParameter("it goes with --snapshot; the service knows its own past", param_hint="--journal")
    far = seconds_of(past, "--past") if past is not None else 86400.0
    settings = [*(setting or ()), *([f"window={window}"] if window is not None else ())]
    if request is not None:
        budget = [*(budget or ()), *_wished(request, state_dir)]
    if not (budget or budgets or settings):
        raise typer.BadParameter("nothing is changed: give --budget PATH=SHARE, --budgets FILE, --request, --set or --window")
    if snapshot is not None:
        state = read_snapshot(snapshot).state
        seen = _of_journal(journal, state, far) if journal is not None and not no_arrivals else None
    else:
        state, seen = _live(state_dir, 0.0 if no_arrivals else far)
    _compare(state, seen, _change(state, budget or [], budgets, settings), hours, seed, as_json=as_json)


def _wished(request: int, state_dir: Path | None) -> list[str]:
    with client(state_dir) as service:
        return [f"{path}={share}" for path, share in service.budget_request(request).shares.items()]


def _compare(state: State, seen: Past | None, change: Change, hours: float, seed: int, *, as_json: bool) -> None:
    from gpufair.sim.whatif import NONE, whatif  # noqa: PLC0415  # the simulator is not needed by other commands

    with progress("playing", 2 * hours) as advance:
        found = whatif(state, change, hours, seen or NONE, seed=seed, progress=advance)
    if as_json:
        emit_json(_plain(found))
    else:
        _tell(found, arrivals=seen is not None)


def _live(state_dir: Path | None, far: float) -> tuple[State, Past | None]:
    from gpufair.cli.snapshots import to_now  # noqa: PLC0415  # brings the simulator
    from gpufair.sim.whatif.past import KINDS  # noqa: PLC0415  # as above

    with client(state_dir) as service:
        handed = to_now(service.snapshot(), "the service")
        if not far:
            return handed.state, None
        records: list[dict[str, Any]] = []
        more, last, since_s = True, 0, handed.state.now / 1000 - far
        while more:
            page = service.timeline_page(last, since_s=since_s, kinds=KINDS)
            if not records and (known := page.get("archived_until_s")) and known > since_s:
                typer.echo(f"what was before {clock(known, handed.state.now / 1000)} is in the journal's archive and not looked at", err=True)
            more, last = bool(page.get("more")) and bool(page.get("last")), int(page.get("last") or 0)
            records += page["records"]
    return handed.state, _past(records, handed.state, far)


def _of_journal(journal: Path, state: State, far: float) -> Past:
    from gpufair.service.archives.archive import open_archive  # noqa: PLC0415  # brings the database
    from gpufair.service.storage.timeline import records  # noqa: PLC0415  # as above

    with open_archive(journal) as archive:
        entries = (entry for entry in archive.since(round(state.now - far * 1000)) if entry.at_ms <= state.now)
        return _past(records(entries), state, far)


def _past(records: list[dict[str, Any]], state: State, far: float) -> Past:
    from gpufair.core.units import Instant  # noqa: PLC0415  # with the rest
    from gpufair.sim.whatif import look_back  # noqa: PLC0415  # as above

    return look_back(records, Instant(state.now - round(far * 1000)), state.now)


def _change(state: State, shares: list[str], budgets: Path | None, settings: list[str]) -> Change:
    from gpufair.core.tree import with_shares  # noqa: PLC0415  # as above
    from gpufair.service.settings.budgets import read_budgets  # noqa: PLC0415  # with the rest
    from gpufair.sim.whatif import Change  # noqa: PLC0415  # as above

    allocations: tuple[Allocation, ...] | None = None
    if budgets is not None:
        allocations = read_budgets(budgets).allocations
    if shares:
        allocations = with_shares(allocations or state.tree.allocations, _shares(shares, state))
    return Change(allocations, settings_of(settings, state.policy) if settings else None)


def _shares(given: list[str], state: State) -> dict[Any, str]:
    from gpufair.service.settings.budgets import share_of  # noqa: PLC0415  # with the rest
    from gpufair.service.settings.tables import hint  # noqa: PLC0415  # as above

    known = [node.path for node in state.tree.nodes() if node.path]
    shares: dict[Any, str] = {}
    for text in given:
        path, equals, share = (part.strip() for part in text.partition("="))
        if not equals:
            raise typer.BadParameter(f"{text!r} is no PATH=SHARE, like language/pretrain=40", param_hint="--budget")
        if path not in known:
            raise CommandError(
                f"there is no allocation {path!r}{hint(path, known).removesuffix('?')}; known are {', '.join(known[:12])}"
            )
        shares[path] = share_of(share, path)
    return shares


def _tell(found: Comparison, *, arrivals: bool) -> None:
    now, until = found.now / 1000, found.until / 1000
    came = f"{found.arrivals:,} submissions of the past come again" if arrivals else "nobody submits anything"
    line(f"From {clock(now, now)} to {clock(until, now)}, {came}. As it is → as it would be:\n")
    columns = [
        Column("ALLOCATION"),
        Column("ENTITLED", 1),
        Column("GPUS HELD", 0),
        Column("DELIVERED", 0),
        Column("WAIT P50", 1),
        Column("WAIT MAX", 2),
        Column("STILL WAIT", 3),
        Column("PREEMPTED", 3),
        Column("METRIC", 2),
        Column(""),
    ]
    after = {one.path: one for one in found.after.accounts}
    both = [(was, after[was.path]) for was in found.before.accounts if was.path in after]
    rows = [_row(was, becomes, found.gain(was.path)) for was, becomes in both]
    table(columns, rows, "no allocation is defined")
    for verdict, sign in (("Gain", 1), ("Lose", -1)):
        named = [was.path for was, _ in both if found.gain(was.path) == sign]
        if named:
            line(f"{verdict}: {clean(', '.join(named), 1000)}")
    line(
        f"Protected now: {found.protected} workloads; {found.kept} keep what they were granted."
        if found.protected
        else "Nobody is protected now."
    )


_VERDICTS = {1: "gains", -1: "loses", 0: ""}


def _row(was: Account, becomes: Account, gain: int) -> tuple[str, ...]:
    def pair(text: Any) -> str:
        before, after = text(was), text(becomes)
        return before if before == after else f"{before} → {after}"

    def wait(part: float) -> Any:
        def said(one: Account) -> str:
            found = one.wait(part)
            return NOTHING if found is None else span(found / 1000)

        return said

    return (
        was.path,
        pair(lambda one: percent(one.entitlement)),
        pair(lambda one: f"{one.held:.1f}"),
        pair(lambda one: gpu_time(one.allocated / 1000)),
        pair(wait(0.5)),
        pair(wait(1.0)),
        pair(lambda one: str(one.waiting)),
        pair(lambda one: str(one.preemptions)),
        pair(lambda one: f"{one.metric:.3f}"),
        _VERDICTS[gain],
    )


def _plain(found: Comparison) -> dict[str, Any]:
    after = {one.path: one for one in found.after.accounts}
    return {
        "now_s": found.now / 1000,
        "until_s": found.until / 1000,
        "arrivals": found.arrivals,
        "protected": found.protected,
        "protections_kept": found.kept,
        "protected_preemptions": found.before.protected_preemptions + found.after.protected_preemptions,
        "allocations": [
            {
                "path": one.path,
                "verdict": _VERDICTS[found.gain(one.path)] if one.path in after else "",
                "before": _figures(one),
                "after": _figures(after[one.path]) if one.path in after else None,
            }
            for one in found.before.accounts
        ],
    }


def _figures(one: Account) -> dict[str, Any]:
    waits = {name: one.wait(part) for name, part in (("p50", 0.5), ("p90", 0.9), ("max", 1.0))}
    return {
        "entitlement": one.entitlement,
        "gpus_held": one.held,
        "delivered_gpu_s": one.allocated / 1000,
        "unallocated_gpu_s": one.unallocated / 1000,
        "wait_s": {name: None if wait is None else wait / 1000 for name, wait in waits.items()},
        "waits": len(one.waits),
        "still_waiting": one.waiting,
        "preemptions": one.preemptions,
        "metric": one.metric if math.isfinite(one.metric) else None,
    }
