"""`gpufair checkpoints`: which there are, whether they are whole, which may go, and one as a file to take away."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from gpufair.cli.exits import FAILED, CommandError, NoSuch
from gpufair.cli.find import find
from gpufair.cli.options import AsJson, StateDir, WorkloadId, client, seconds_of
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.words import ago, clean, plural, size

checkpoints = typer.Typer(
    help="Checkpoints of a session: list, verify, remove old ones, take one away.", no_args_is_help=True
)

_NONE = "there are no checkpoints"


@checkpoints.command("list")
def list_checkpoints(workload: WorkloadId, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """List the checkpoints of a session, newest first."""
    with client(state_dir) as service:
        found = service.checkpoints(find(service, workload).id)
    if as_json:
        emit_json({"checkpoints": found})
        return
    now = time.time()
    columns = [Column("ID"), Column("AGE"), Column("SIZE", right=True), Column("NOT SAVED", 1)]
    rows = ((c.id, ago(c.at_s, now), size(c.size_bytes), ", ".join(name for name, _ in c.lost)) for c in found)
    table(columns, rows, _NONE)


@checkpoints.command("restore")
def restore(
    workload: WorkloadId,
    checkpoint: Annotated[str | None, typer.Argument(help="Which; the newest if left out. See `gpufair checkpoints list`.")] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Load a checkpoint into a session that runs: its variables go back to their values of then."""
    with client(state_dir) as service:
        seen = service.restore(find(service, workload).id, checkpoint)
    if as_json:
        emit_json(seen)
    else:
        line(f"{clean(seen.label)} goes back to {checkpoint or 'its newest checkpoint'}, once no cell runs")


@checkpoints.command("verify")
def verify(workload: WorkloadId, as_json: AsJson = False, state_dir: StateDir = None) -> None:
    """Read every checkpoint of a session from end to end. Exits 1 if one is damaged."""
    with client(state_dir) as service:
        found = service.verify_checkpoints(find(service, workload).id)
    if as_json:
        emit_json({"checkpoints": found})
    else:
        columns = [
            Column("ID"),
            Column("STATE"),
            Column("SIZE", right=True),
            Column("ON DISK", 1, right=True),
            Column("REMARK"),
        ]
        rows = (
            (c.id, "whole" if c.ok else "damaged", size(c.size_bytes), size(c.stored_bytes), c.torn or c.reason)
            for c in found
        )
        table(columns, rows, _NONE)
    if not all(c.ok for c in found):
        raise typer.Exit(FAILED)


@checkpoints.command("prune")
def prune(
    workload: WorkloadId,
    keep: Annotated[int, typer.Option("--keep", min=1, help="How many of the newest stay.")] = 2,
    older: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="DURATION", help="Of those remove the older ones too, like 7d; never the newest."
        ),
    ] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Remove old checkpoints of a session, and what saves that died have left."""
    keep_s = 0.0 if older is None else seconds_of(older, "--older-than")
    with client(state_dir) as service:
        gone = service.prune_checkpoints(find(service, workload).id, keep, keep_s)
    if as_json:
        emit_json({"removed": gone})
    else:
        names = f": {', '.join(clean(name) for name in gone)}" if gone else ""
        line(f"{plural(len(gone), 'checkpoint')} removed{names}")


@checkpoints.command("export")
def export(
    workload: WorkloadId,
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="The tar file to write.")],
    checkpoint: Annotated[
        str | None, typer.Option("--id", metavar="CHECKPOINT", help="Which one; else the newest.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
) -> None:
    """Write one checkpoint with all that it needs to a tar file. Unpacked, it can be loaded with its owner's key."""
    if file.exists() and not force:
        raise CommandError(f"{file} is there already; --force replaces it")
    partial = file.with_name(f".{file.name}.partial")
    with client(state_dir) as service:
        found = find(service, workload)
        if checkpoint is None:
            there = service.checkpoints(found.id)
            if not there:
                raise NoSuch(f"{clean(found.label)} has no checkpoint yet; `gpufair sessions checkpoint` makes one")
            checkpoint = there[0].id
        try:
            with open(partial, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as out:
                count = service.export_checkpoint(found.id, checkpoint, out)
            partial.rename(file)
        except OSError as err:
            raise CommandError(f"{file} could not be written: {err.strerror or err}") from err
        finally:
            with suppress(OSError):
                partial.unlink()
    if as_json:
        emit_json({"checkpoint": checkpoint, "file": str(file), "size_bytes": count})
    else:
        line(f"checkpoint {clean(checkpoint)} is in {file}: {size(count)}")
