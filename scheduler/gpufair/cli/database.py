"""`gpufair db`: the database in which the service keeps its journal. None of it needs a running service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.exits import FAILED
from gpufair.cli.options import AsJson, StateDir, seconds_of
from gpufair.cli.output import emit_json, line, pairs
from gpufair.cli.words import size

if TYPE_CHECKING:
    from gpufair.service.storage.database import Place

database = typer.Typer(help="The journal's database: check, backup, restore, archive, upgrade.", no_args_is_help=True)

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", dir_okay=False, help="The service's; default: gpufair.toml in the XDG places."),
]


@database.command("check")
def check(config: ConfigFile = None, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Read every entry, archived ones too, and say whether all is as it was written; exits with 1 if not. The service may run."""
    upkeep = import_module("gpufair.service.archives.upkeep")
    folder = import_module("gpufair.paths").state_dir(state_dir)
    with _place(config, state_dir) as place:
        found = upkeep.check(place, folder)
    if as_json:
        emit_json(found)
    else:
        versions = ", ".join(f"{core} ({count:,})" for core, count in sorted(found.cores.items()))
        pairs(
            [
                ("database", found.place),
                ("schema", str(found.schema)),
                ("entries", f"{found.first:,} to {found.last:,}" if found.last else "none"),
                ("archived", f"1 to {found.archived:,}, in {', '.join(found.archives)}" if found.archived else "none"),
                ("written by", versions or "–"),
                ("snapshots", ", ".join(f"after {seq:,}" for seq in found.snapshots) or "–"),
                ("rows", ", ".join(f"{name} {count:,}" for name, count in found.rows.items())),
                ("problems", "; ".join(found.problems) or "none"),
            ]
        )
    if found.problems:
        raise typer.Exit(FAILED)


@database.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="Where to; it must not be there yet.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Copy the journal to a SQLite file, as it is at one moment. The service may run."""
    upkeep = import_module("gpufair.service.archives.upkeep")
    with _place(config, state_dir) as place:
        size_bytes = upkeep.backup(place, file)
    if as_json:
        emit_json({"file": str(file), "size_bytes": size_bytes})
    else:
        line(f"{file}: {size(size_bytes)}. Keep a copy of the state folder's `secret` with it, and of the checkpoints")


@database.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="What `gpufair db backup` wrote.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Put a backup into an empty database, SQLite or PostgreSQL, whichever it was taken from. Stop the service first."""
    upkeep = import_module("gpufair.service.archives.upkeep")
    with _place(config, state_dir, alone=True) as place:
        found = upkeep.restore(file, place)
    if as_json:
        emit_json({"place": place.shown, "entries": found.last})
    else:
        line(f"{place.shown} holds the journal up to entry {found.last:,}")


@database.command("archive")
def archive(
    before: Annotated[
        str | None, typer.Option("--before", metavar="DATE", help="Move what is older than this day (UTC), like 2027-01-31.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="DURATION", help="Move what is older; default: [store] keep of the configuration.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", metavar="FILE.jsonl.gz", dir_okay=False,
            help="To which file; default: the one that was used last, at first journal-archive.jsonl.gz in the state folder.",
        ),
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:  # fmt: skip
    """Move old entries to an archive file, to which more can be added later. Nothing is lost, and the service may run."""
    if before is not None and keep is not None:
        raise typer.BadParameter("give either --before or --keep", param_hint="--keep")
    archiving = import_module("gpufair.service.archives.archiving")
    folder = import_module("gpufair.paths").state_dir(state_dir)
    with _place(config, state_dir) as place:
        archiver = archiving.Archiver(place, folder, output)
        last, count = archiver.last(_bound_ms(before, keep, config)), 0
        while last and (moved := archiver.step(last)) is not None:
            archiver.delete(moved)
            count += moved.entries
    archived = archiver.archived()
    if as_json:
        emit_json({"moved": count, "archived": archived.seq, "files": [str(part.path(folder)) for part in archived.parts]})
    elif count:
        where = archived.parts[-1].path(folder)
        line(f"{count:,} entries moved to {where}, up to {archived.seq:,}. Back it up: it is a part of the journal")
    else:
        line("Nothing is old enough (what the oldest snapshot of the state needs stays as well)")


def _bound_ms(before: str | None, keep: str | None, config: Path | None) -> int:
    """Before which instant entries are old."""
    options = import_module("gpufair.service.settings.config")
    store_options = import_module("gpufair.service.settings.store_options")
    now_ms = round(time.time() * 1000)
    latest = now_ms - int(store_options.LEAST_KEPT)
    if before is not None:
        try:
            bound = round(datetime.strptime(before, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() * 1000)
        except ValueError as err:
            raise typer.BadParameter(f"{before!r} is no day; write one like 2027-01-31", param_hint="--before") from err
    elif keep is not None:
        bound = now_ms - round(seconds_of(keep, "--keep") * 1000)
    else:
        kept = options.load_config(options.find_config(config)).store.keep
        if not kept:
            raise typer.BadParameter("the configuration has no [store] keep; give --keep 90d or --before DATE", param_hint="--keep")
        bound = now_ms - kept
    if bound > latest:
        raise typer.BadParameter("the last 8 days always stay: the tour and the history read them", param_hint="--before" if before else "--keep")
    return bound


@database.command("upgrade")
def upgrade(config: ConfigFile = None, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Take over a database of an older version, all or nothing. Stop every service that uses it first."""
    opening = import_module("gpufair.service.storage.database")
    schema = import_module("gpufair.service.storage.schema")
    with _place(config, state_dir, alone=True) as place:
        engine = opening.open_engine(place)
        try:
            with opening.translated(place.shown):
                before, after = schema.upgrade(engine, place.shown)
        finally:
            engine.dispose()
    if as_json:
        emit_json({"place": place.shown, "before": before, "after": after})
    elif before == after:
        line(f"{place.shown} has schema {after} already")
    else:
        line(f"{place.shown}: from schema {before} to {after}" if before else f"{place.shown}: made, schema {after}")


@contextmanager
def _place(config: Path | None, state_dir: Path | None, alone: bool = False) -> Iterator[Place]:
    """Where the service keeps its journal. ``alone``: no service may run in the state folder meanwhile."""
    options = import_module("gpufair.service.settings.config")
    listening = import_module("gpufair.service.lifecycle.listening")
    paths = import_module("gpufair.paths")
    folder = paths.state_dir(state_dir)
    store = options.load_config(options.find_config(config)).store
    if alone:
        paths.private_dir(folder)
        with listening.only_service(folder):
            yield store.place(folder)
    else:
        yield store.existing(folder)
