"""`gpufair drill`: does it really go on where it was? Tried here and now, before long protection is asked for."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gpufair.cli.exits import FAILED, CommandError, Wrong
from gpufair.cli.notebook_run import NOTEBOOK, NotebookRun
from gpufair.cli.options import AsJson, seconds_of
from gpufair.cli.output import Column, emit_json, line, table
from gpufair.cli.rehearsal import KILL, NOTICE, Cut, Take, outputs, read, runner
from gpufair.cli.words import plural
from gpufair.client.notebooks import NotebookJob, prepare

_BOOT_S = 120.0
_SHOWN = 60  # characters of a difference
_ANEW = 0.85  # a last start that takes so much of the undisturbed time has not gone on, but begun again


def drill(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="What would be submitted: a program after `--`, or a notebook.")
    ],
    cuts: Annotated[int, typer.Option("--cuts", min=1, max=50, help="How often it is cut short: by notice, then by kill.")] = 2,
    grace: Annotated[str, typer.Option("--grace", metavar="DURATION", help="Between the notice and the kill.")] = "20s",
    limit: Annotated[
        str, typer.Option("--limit", metavar="DURATION", help="The longest that an undisturbed run may take.")
    ] = "10m",
    cells: Annotated[int | None, typer.Option("--cells", min=1, help="Only so many cells of the notebook.")] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", metavar="NAME VALUE", help="A parameter of the notebook; NAME=VALUE will do as well."),
    ] = None,
    kernel: Annotated[str | None, typer.Option("--kernel", help="Of the notebook; by default the one it names.")] = None,
    as_json: AsJson = False,
) -> None:
    """Rehearse being preempted: run it once undisturbed, once cut short and started again, and compare.

    It runs on this machine, in this folder, without the scheduler, twice: what it writes elsewhere is written twice. A
    notebook must show the same under every cell; a program must end with the same last line, and sooner than from its beginning.
    Exits 1 if it does not.
    """
    grace_s, limit_s = seconds_of(grace, "--grace"), seconds_of(limit, "--limit")
    notebook = command[0].endswith(NOTEBOOK)
    if not notebook and (parameter or kernel or cells):
        raise Wrong("--parameter, --kernel and --cells belong to a notebook; a program takes its own arguments after `--`")
    with tempfile.TemporaryDirectory(prefix="gpufair-drill-") as name:
        folder = Path(name)
        if notebook:
            run = NotebookRun(command, parameter or [], kernel or "")
            found = _notebook(folder, run, cells, cuts, grace_s, limit_s)
        else:
            found = _program(folder, command, cuts, grace_s, limit_s)
    if as_json:
        emit_json(found)
    else:
        _tell(found, what=command[0])
    if not found["resumes"]:
        raise typer.Exit(FAILED)


def _notebook(
    folder: Path, run: NotebookRun, cells: int | None, cuts: int, grace_s: float, limit_s: float
) -> dict[str, Any]:
    source = _first(run.source, cells)

    def made(name: str) -> Take:
        job = NotebookJob(str(folder / f"{name}{NOTEBOOK}"), run.parameters, run.kernel)
        return Take(runner(prepare(source, job, name)), folder / name)

    found = _compared(made, lambda take: "gpufair: cell " in take.said(), cuts, grace_s, limit_s)
    calm, cut = (outputs(folder / f"{name}{NOTEBOOK}") for name in ("calm", "cut"))
    result = read(folder / f"cut{NOTEBOOK}")
    facts = result["metadata"].get("gpufair", {})
    seen = [
        {
            "cell": number + 1,
            "runs": cell["metadata"].get("gpufair", {}).get("runs", 0),
            "same": calm[number : number + 1] == cut[number : number + 1],
            "undisturbed": _brief(calm[number : number + 1], cut[number : number + 1]),
            "cut": _brief(cut[number : number + 1], calm[number : number + 1]),
        }
        for number, cell in enumerate(result["cells"])
        if cell["cell_type"] == "code"
    ]
    return found | {
        "resumes": found["code"] == 0 and all(cell["same"] for cell in seen),
        "cells": seen,
        "unsaved": facts.get("unsaved", {}) | facts.get("lost", {}),
    }


def _program(folder: Path, command: list[str], cuts: int, grace_s: float, limit_s: float) -> dict[str, Any]:
    takes: dict[str, Take] = {}

    def made(name: str) -> Take:
        takes[name] = Take(command, folder / name)
        return takes[name]

    found = _compared(made, lambda _: True, cuts, grace_s, limit_s)
    calm, cut = (takes[name].last_line() for name in ("calm", "cut"))
    anew = bool(found["cuts"]) and found["last_start_s"] > _ANEW * found["undisturbed_s"]
    resumes = found["code"] == 0 and calm == cut and not anew
    return found | {"resumes": resumes, "began_anew": anew, "undisturbed": calm, "cut": cut}


def _compared(
    made: Callable[[str], Take], begun: Callable[[Take], bool], cuts: int, grace_s: float, limit_s: float
) -> dict[str, Any]:
    """Both runs; what they took. Raises: CommandError: It fails, or takes too long, even undisturbed."""
    with made("calm") as calm:
        _say("undisturbed, to compare with")
        since = _started(calm, begun)
        if not calm.wait(limit_s):
            raise CommandError(f"it did not end within {limit_s:g} s; --limit allows more, --cells takes a part of a notebook")
        whole_s = time.monotonic() - since
        if calm.ended:
            raise CommandError(f"it fails undisturbed already, with exit code {calm.ended}:\n{calm.tail()}")
    done: list[Cut] = []
    with made("cut") as cut:
        for number in range(cuts):
            since = _started(cut, begun)
            if cut.wait(whole_s / (cuts + 1)):
                break  # it needs no more
            how = KILL if number % 2 else NOTICE
            _say(f"cut {number + 1} of {cuts}, by {how}")
            done.append(cut.cut(how, whole_s / (cuts + 1), grace_s))
        else:
            _say("to its end")
            since = _started(cut, begun)
        if not cut.wait(_BOOT_S + 2 * limit_s):
            raise CommandError(f"after {plural(len(done), 'cut')} it did not end within {2 * limit_s:g} s:\n{cut.tail()}")
        last_s = time.monotonic() - since
        code, tail = cut.ended, cut.tail()
    late = [one for one in done if one.how == NOTICE and one.left_s is None]
    return {
        "undisturbed_s": whole_s,
        "last_start_s": last_s,
        "cuts": done,
        "too_slow": len(late),
        "code": code,
        "tail": tail if code else "",
    }


def _started(take: Take, begun: Callable[[Take], bool]) -> float:
    """Start it, and wait until it works, not only boots; since when (monotonic)."""
    take.start()
    take.wait(_BOOT_S, lambda: begun(take))
    return time.monotonic()


def _tell(found: dict[str, Any], what: str) -> None:
    for number, one in enumerate(found["cuts"], 1):
        left = "killed at once" if one.how == KILL else "had to be killed" if one.left_s is None else f"left in {one.left_s:.1f} s"
        line(f"Cut {number} after {one.after_s:.1f} s, by {one.how}: {left}")
    if found["code"]:
        line(f"After that it ended with exit code {found['code']}:\n{found['tail']}")
    if "cells" in found:
        columns = [Column("CELL", right=True), Column("RUNS", right=True), Column("UNDISTURBED"), Column("CUT SHORT")]
        rows = [(str(c["cell"]), str(c["runs"]), c["undisturbed"], c["cut"]) for c in found["cells"] if not c["same"]]
        if rows:
            line("These cells show something else (a time, or chance without a seed, differs always):")
            table(columns, rows, "")
        again = [str(c["cell"]) for c in found["cells"] if c["runs"] > 1]
        if again:
            line(f"Ran again: {', '.join(again)}. What such a cell does outside of the notebook may be done twice.")
        for name, reason in found["unsaved"].items():
            line(f"Not saved: {name}: {reason}")
    elif found["began_anew"]:
        line(
            f"Its last start took {found['last_start_s']:.1f} s, the undisturbed run {found['undisturbed_s']:.1f} s: it began "
            "anew. Save what is done in a function for gpufair.on_preempt, and load that at the start."
        )
    elif not found["resumes"] and not found["code"]:
        line(f"Undisturbed it ended with {found['undisturbed']!r}, cut short with {found['cut']!r}.")
    if found["too_slow"]:
        line("It did not leave within the grace: save at gpufair.safe_point(), or in less time.")
    verdict = "goes on where it was" if found["resumes"] else "does NOT go on where it was"
    line(f"{what} {verdict}: {plural(len(found['cuts']), 'cut')}, {found['undisturbed_s']:.1f} s undisturbed.")


def _first(source: bytes, cells: int | None) -> bytes:
    if cells is None:
        return source
    notebook = json.loads(source)
    kept, left = [], cells
    for cell in notebook["cells"]:
        left -= cell.get("cell_type") == "code"
        if left < 0:
            break
        kept.append(cell)
    return json.dumps(notebook | {"cells": kept}).encode()


def _brief(mine: list[Any], other: list[Any]) -> str:
    """Where two outputs begin to differ; of this one."""
    here, there = (json.dumps(one, ensure_ascii=False) for one in (mine, other))
    at = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
    return "" if here == there else here[max(at - 20, 0) : at + _SHOWN - 20]


def _say(text: str) -> None:
    typer.echo(f"gpufair: {text}", err=True)
