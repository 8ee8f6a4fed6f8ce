"""`gpufair announce`: tell everybody something, in their panels, on the pages and at `gpufair status`."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.options import AsJson, StateDir, client, complete_announcement, instant_of, seconds_of
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import NOTHING, clean, clock, moment

if TYPE_CHECKING:
    from gpufair.client.announcing import Announcement, Announcements

announce = typer.Typer(help="Announcements: tell everybody something, list, withdraw.", no_args_is_help=True)


class Severity(StrEnum):
    """How it is shown."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


@announce.command("say")
def say(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What everybody is told, up to 1000 characters.")],
    severity: Annotated[Severity, typer.Option("--severity", help="How it is shown.")] = Severity.INFO,
    link: Annotated[str, typer.Option("--link", metavar="URL", help="Where there is more to read.")] = "",
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="From when on: 08:00, or 2027-01-31T08:00; default: at once."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Until when; default: until it is withdrawn.")
    ] = None,
    lasts: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="For how long: 8h, 2d.")] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Tell everybody something. For operators."""
    if until is not None and lasts is not None:
        raise typer.BadParameter("say either --until or --for", param_hint="--for")
    now = time.time()
    from_s = None if begin is None else instant_of(begin, "--from", now)
    until_s = None if until is None else instant_of(until, "--until", from_s or now)
    if lasts is not None:
        until_s = (from_s or now) + seconds_of(lasts, "--for")
    with client(state_dir) as service:
        made = service.announce(text, severity.value, link, from_s, until_s)
    if as_json:
        emit_json(made)
    else:
        line(f"announcement {made.id}, {_shown(made, now)}")


@announce.command("list")
def list_announcements(
    every: Annotated[bool, typer.Option("--all", help="Also what is over or was withdrawn.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """List what everybody is told, now and later."""
    with client(state_dir) as service:
        found = service.announcements(every=True, limit=500)
    announcements = [one for one in found.announcements if every or one.state in {"current", "coming"}]
    if as_json:
        emit_json({"announcements": announcements, "maintenance": found.maintenance})
        return
    now = time.time()
    columns = [
        Column("NO.", right=True),
        Column("STATE"),
        Column("SEVERITY", 2),
        Column("FROM", 3),
        Column("UNTIL", 1),
        Column("BY", 4),
        Column("TEXT"),
    ]
    rows = [
        (
            str(one.id),
            one.state,
            one.severity,
            clock(one.from_s, now),
            NOTHING if one.until_s is None else clock(one.until_s, now),
            one.by,
            clean(f"{one.text} {one.link}".rstrip(), 120),
        )
        for one in announcements
    ]
    table(columns, rows, "nothing is announced")
    for text in planned(found, now):
        line(text)


@announce.command("withdraw")
def withdraw(
    number: Annotated[
        int,
        typer.Argument(metavar="NUMBER", min=1, help="As `list` shows it.", autocompletion=complete_announcement),
    ],
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Take one back: nobody sees it any more. For operators."""
    with client(state_dir) as service:
        gone = service.withdraw_announcement(number)
    if as_json:
        emit_json(gone)
    else:
        line(f"announcement {gone.id} is withdrawn")


def news(found: Announcements, now: float) -> list[tuple[str, str]]:
    """What everybody is told, as `gpufair status` shows it: a name and a text for each."""
    said = [(one.severity, " ".join(filter(None, (one.text, one.link)))) for one in found.announcements]
    return said + [("maintenance", text) for text in planned(found, now)]


def planned(found: Announcements, now: float) -> list[str]:
    """A sentence for each maintenance that is planned."""
    sentences = []
    for plan in found.maintenance:
        nodes = ", ".join(clean(node) for node in plan.nodes[:8]) + (", …" if len(plan.nodes) > 8 else "")
        verb = "closes" if len(plan.nodes) == 1 else "close"
        sentences.append(f"{nodes} {verb} for maintenance {moment(plan.at_s, now)}")
    return sentences


def _shown(made: Announcement, now: float) -> str:
    begin = f"shown from {clock(made.from_s, now)}" if made.state == "coming" else "shown now"
    end = "it is withdrawn" if made.until_s is None else clock(made.until_s, now)
    return f"{begin} until {end}"
