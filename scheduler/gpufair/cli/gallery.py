"""`gpufair gallery`: finished notebooks of a folder on one page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from gpufair.cli.exits import CommandError
from gpufair.cli.options import AsJson
from gpufair.cli.output import emit_json, line
from gpufair.cli.words import clean, plural

_SHOWN = 5


def gallery(
    folder: Annotated[Path, typer.Argument(help="Where the output notebooks are; the folders in it count too.")],
    out: Annotated[Path, typer.Option("--out", "-o", dir_okay=False, help="The page.")] = Path("gallery.html"),
    megabytes: Annotated[
        int, typer.Option("--megabytes", min=1, max=2000, help="How much of the cells it holds at most, over all runs.")
    ] = 128,
    as_json: AsJson = False,
) -> None:
    """Show the runs of a folder's notebooks as one HTML file: a table to sort, and each run's cells with their outputs."""
    # Notebooks are read by the floor above this one, as where they run: in a process of their own.
    argv = [sys.executable, "-m", "jupyter_gpufair.batch.gallery", str(folder), str(out), str(megabytes)]
    done = subprocess.run(argv, capture_output=True, check=False)
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CommandError(f"the gallery was not made (exit status {done.returncode}): {clean(last) or 'it said nothing'}") from None
    if "error" in told:
        raise CommandError(told["error"])
    if as_json:
        emit_json(told)
        return
    line(f"{told['page']} shows {plural(len(told['runs']), 'run')} ({told['size_bytes'] / 1e6:.1f} MB)")
    for what in ("skipped", "left_out"):
        for one in told[what][:_SHOWN]:
            line(f"{what.replace('_', ' ')}: {clean(one['path'])}: {clean(one['reason'])}")
        if len(told[what]) > _SHOWN:
            line(f"{what.replace('_', ' ')}: … {len(told[what])} in all; the page names them")
