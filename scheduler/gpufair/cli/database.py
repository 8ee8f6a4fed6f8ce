"""`gpufair db`: the database in which the service keeps its journal. None of it needs a running service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpufair.cli.exits import FAILED
from gpufair.cli.options import AsJson, StateDir
from gpufair.cli.output import emit_json, line, pairs
from gpufair.cli.words import size

if TYPE_CHECKING:
    from gpufair.service.database import Place

database = typer.Typer(help="The journal's database: check, backup, restore, upgrade.", no_args_is_help=True)

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", dir_okay=False, help="The service's; default: gpufair.toml in the XDG places."),
]


@database.command("check")
def check(config: ConfigFile = None, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Read every entry and say whether all is as it was written; exits with 1 if not. The service may run."""
    upkeep = import_module("gpufair.service.upkeep")
    with _place(config, state_dir) as place:
        found = upkeep.check(place)
    if as_json:
        emit_json(found)
    else:
        versions = ", ".join(f"{core} ({count:,})" for core, count in sorted(found.cores.items()))
        pairs(
            [
                ("database", found.place),
                ("schema", str(found.schema)),
                ("entries", f"{found.first:,} to {found.last:,}" if found.last else "none"),
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
    upkeep = import_module("gpufair.service.upkeep")
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
    upkeep = import_module("gpufair.service.upkeep")
    with _place(config, state_dir, alone=True) as place:
        found = upkeep.restore(file, place)
    if as_json:
        emit_json({"place": place.shown, "entries": found.last})
    else:
        line(f"{place.shown} holds the journal up to entry {found.last:,}")


@database.command("upgrade")
def upgrade(config: ConfigFile = None, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Take over a database of an older version, all or nothing. Stop every service that uses it first."""
    opening = import_module("gpufair.service.database")
    schema = import_module("gpufair.service.schema")
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
    options = import_module("gpufair.service.config")
    listening = import_module("gpufair.service.listening")
    paths = import_module("gpufair.paths")
    folder = paths.state_dir(state_dir)
    store = options.load_config(options.find_config(config)).store
    if alone:
        paths.private_dir(folder)
        with listening.only_service(folder):
            yield store.place(folder)
    else:
        yield store.existing(folder)
