"""`gpufair demo`: the main job on one machine, with figures; `gpufair lab`: the same set-up in JupyterLab."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from gpufair.cli.demo.lab import Lab
from gpufair.core.errors import GpufairError

# 20 s: from its grant Ria's notebook starts (3 s), imports scikit-learn (2-6 s cold) and trains (1 s) inside it.
PROTECTION_S = 20


def run(as_json: bool = False, html: Path | None = None) -> int:
    """Play the demo; 0 if every check held, 1 if one did not or a step failed.

    Args:
        as_json: Print the result as JSON on standard output; the story goes to standard error.
        html: Where to write the timeline; ``demo-output/timeline.html`` if None.
    ``$GPUFAIR_DEMO_JSON`` names a file that gets the JSON as well.
    """
    from gpufair.cli.demo.history import History
    from gpufair.cli.demo.scenario import Scenario
    from gpufair.cli.demo.timeline import as_html, as_text

    folder = Path(tempfile.mkdtemp(prefix="gpufair-demo-"))

    def say(line: str) -> None:
        print(line, file=sys.stderr if as_json else sys.stdout, flush=True)

    scenario = Scenario(Lab(folder, PROTECTION_S), say)
    try:
        report = asyncio.run(scenario.run())
        failure = ""
    except GpufairError as err:
        report, failure = scenario.report, str(err)
        report.checks["ran_to_its_end"] = False
        say(f"the demo stopped: {failure}\n(its files are kept in {folder})")
    result = report.as_json()
    if target := os.environ.get("GPUFAIR_DEMO_JSON"):
        Path(target).write_text(json.dumps(result, indent=2) + "\n")
    if report.records:
        history = History.read(report.records)
        until_ms = round(report.records[-1]["at_s"] * 1000)
        marks = history.marks(report.records, report.names)
        page = html or Path("demo-output") / "timeline.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        facts = {name.replace("_", " "): _figure(value) for name, value in report.figures.items()}
        page.write_text(
            as_html("A session moves", history.spans(report.names, report.teams, until_ms), marks, facts),
            encoding="utf-8",
        )
        say(f"\n{as_text(marks)}\n")
        say(f"timeline: {page}")
    for name, held in report.checks.items():
        say(f"{'ok    ' if held else 'FAILED'}  {name.replace('_', ' ')}")
    for name, value in report.figures.items():
        say(f"        {name} = {_figure(value)}")
    if as_json:
        print(json.dumps(result))
    if report.ok:
        shutil.rmtree(folder, ignore_errors=True)
        say("the demo held: a session moved to another node under the same kernel id and lost nothing")
    return 0 if report.ok else 1


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}".rstrip("0").rstrip(".")


def lab() -> int:
    """Open JupyterLab on the demo's set-up, with protections long enough to look around; ends with JupyterLab."""
    folder = Path(os.environ.get("GPUFAIR_LAB_DIR", "demo-output/lab")).absolute()
    place = Lab(folder, protection_s=120, alone=True)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.write()
    print(
        f"JupyterLab on {place.notebooks}; pick a kernel that begins with 'Digits' or 'Baseline'. Stop it with Ctrl-C."
    )
    command = [sys.executable, "-m", "jupyter", "lab", f"--ServerApp.root_dir={place.notebooks}"]
    if os.geteuid() == 0:
        command.append("--ServerApp.allow_root=True")
    os.execve(sys.executable, command, {**os.environ, **place.environment()})
