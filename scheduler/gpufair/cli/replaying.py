"""`gpufair replay`: decide a journal anew with the core of this version, and compare to the byte."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpufair.cli.exits import FAILED, CommandError
from gpufair.cli.options import AsJson
from gpufair.cli.output import emit_json, line, pairs
from gpufair.cli.progress import progress
from gpufair.cli.results import check_writable, whole
from gpufair.cli.snapshots import read_file
from gpufair.cli.words import clean, span

if TYPE_CHECKING:
    from gpufair.service.archives.archive import Archive
    from gpufair.service.archives.replayed import Difference, Replayed

_LONGEST = 2000  # characters of one action that are shown to people; --json has all


def replay(
    journal: Annotated[
        Path,
        typer.Argument(
            metavar="JOURNAL", help="journal.sqlite, a copy of it, the state folder it lies in, or an exported journal."
        ),
    ],
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SNAPSHOT",
            help="Begin with a snapshot: 'last', the number of an entry after which the journal keeps one, "
            "or a file written by `gpufair snapshot`.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            dir_okay=False,
            help="Write the journal as JSON, without what is private; as a trace, if FILE ends in .csv or .csv.gz.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decide a journal anew and compare with what was recorded; exits with 0 only if all is the same.

    The journal is only read: that of a running service may be named as well.
    """
    from gpufair.service.archives import replayed  # noqa: PLC0415  # brings the database
    from gpufair.service.archives.archive import open_archive  # noqa: PLC0415  # as above

    check_writable({"--export": export}, (journal, begin))
    with open_archive(journal) as archive:
        if export is not None:
            _export(archive, journal, export)
        start, after = _start(archive, begin)
        with progress("replaying", archive.last - after) as advance:
            found = replayed.replay(archive.entries(after), start, after, lambda seq: advance(seq - after))
    if as_json:
        emit_json(_plain(found))
    else:
        _tell(found)
    if not found.same:
        raise typer.Exit(FAILED)


def _start(archive: Archive, begin: str | None) -> tuple[dict[str, Any] | None, int]:
    """The state to begin with, and the entry that it was taken after."""
    if begin is None:
        return None, 0
    kept = archive.snapshots()
    if begin == "last" or begin.isdigit():
        known = ", ".join(str(seq) for seq in kept) or "none"
        if begin == "last" and not kept:
            raise CommandError("the journal keeps no snapshot; leave --from out to begin with its first entry")
        seq = kept[-1] if begin == "last" else int(begin)
        snapshot = archive.snapshot(seq)
        if snapshot is None:
            raise CommandError(
                f"the journal keeps no whole snapshot after entry {seq}; it keeps them after: {known}. "
                "Name one of these, or leave --from out"
            )
        return json.loads(snapshot.text()), seq
    data = read_file(Path(begin))
    return data["state"], data["seq"]


def _export(archive: Archive, journal: Path, path: Path) -> None:
    from gpufair.service.archives.archive import write_export  # noqa: PLC0415  # as above

    if path.name.endswith((".csv", ".csv.gz")):
        from gpufair.sim import read_trace, write_csv  # noqa: PLC0415  # only an export needs the simulator

        trace = read_trace(journal, "journal")
        with whole(path) as fresh:
            write_csv(trace, fresh)
        typer.echo(f"{len(trace.rows):,} jobs written to {path}", err=True)
        return
    with whole(path) as fresh, fresh.open("w", encoding="utf-8") as out:
        count = write_export((kept.entry for kept in archive.entries()), out)
    typer.echo(f"{count:,} entries written to {path}", err=True)


def _tell(found: Replayed) -> None:
    if found.started_at is None or found.ended_at is None:
        line("The journal holds no entry" + (f" after {found.began_after}." if found.began_after else "."))
        return
    first = found.began_after + 1
    rows = [
        ("entries", f"{first} to {first + found.events - 1} ({found.events:,} events, {found.actions:,} decisions)"),
        ("over", span((found.ended_at - found.started_at) / 1000)),
        ("decided by", ", ".join(f"gpufair {clean(core or '?')} ({count:,})" for core, count in found.cores.items())),
        ("options", ", ".join(f"{clean(digest or '?')} ({count:,})" for digest, count in found.policies.items())),
        ("decided anew by", f"gpufair {metadata.version('jupyter-gpufair')}"),
        ("protected", f"{found.protected_preemptions} of the preempted were protected"),
    ]
    pairs(rows)
    if found.damaged:
        some = ", ".join(str(seq) for seq in found.damaged[:8]) + (", …" if len(found.damaged) > 8 else "")
        line(f"\nNot as they were written (their digests do not fit): {some}.")
    if found.differences:
        _tell_difference(found.differences[0])
    if found.stopped:
        line(f"\nStopped: {found.stopped}.")
    if found.same:
        line(f"\nIdentical: all {found.actions:,} decisions are the recorded ones, to the byte.")
    elif found.differing:
        line(f"\n{found.differing:,} of {found.events:,} events are decided differently.")


def _tell_difference(one: Difference) -> None:
    line(f"\nThe first difference is at entry {one.entry.seq}:")
    line(f"  {_short(one.entry.event)}")
    recorded, decided = one.pair
    line(f"recorded  {_short(json.dumps(recorded)) if recorded is not None else 'no (further) decision'}")
    line(f"now       {_short(json.dumps(decided)) if decided is not None else 'no (further) decision'}")
    if one.error:
        line(f"because   {clean(one.error, _LONGEST)}")


def _short(text: str) -> str:
    return clean(text, _LONGEST)


def _plain(found: Replayed) -> dict[str, Any]:
    first = found.differences[0] if found.differences else None
    return {
        "identical": found.same,
        "from": found.began_after,
        "events": found.events,
        "decisions": found.actions,
        "started_s": found.started_at and found.started_at / 1000,
        "ended_s": found.ended_at and found.ended_at / 1000,
        "differing": found.differing,
        "damaged": found.damaged,
        "stopped": found.stopped,
        "cores": found.cores,
        "policies": found.policies,
        "core": metadata.version("jupyter-gpufair"),
        "protected_preemptions": found.protected_preemptions,
        "first_difference": first
        and {
            "seq": first.entry.seq,
            "event": first.entry.event,
            "recorded": first.entry.actions,
            "decided": first.decided,
            "error": first.error,
        },
    }
