"""What it costs to submit many runs at once, and to run a notebook so that it can be preempted."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.core_world import cpu_scale
from tests.bench.result import Result
from tests.cut_notebooks import Played, written
from tests.integration.service.rig import Rig

RUNS, LIMIT_S = 500, 5.0
CELLS = 200


def batch_sweep() -> Result:
    """`gpufair submit --array seed=0-499`: from the command to its end, durable, with the start of Python in it."""
    with tempfile.TemporaryDirectory(prefix="gpufair-bench-") as folder:
        rig = Rig(Path(folder))
        try:
            rig.start()
            rig.submit("first", "sleep 600")  # holds the GPU, so that all others wait
            asked = ["--state-dir", str(rig.state), "--array", f"seed=0-{RUNS - 1}", "--json"]
            before, begun = cpu_scale(), time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "gpufair.cli", "submit", *asked, "--", "true"],
                check=True, capture_output=True, cwd=folder,
            )  # fmt: skip
            taken = time.perf_counter() - begun
            waiting = len(rig.ask("GET", "/queue")["workloads"])
            assert waiting == RUNS, f"{waiting} wait"
        finally:
            rig.clean()
    scale = (before + cpu_scale()) / 2
    return Result(taken, f"s for {RUNS} runs", LIMIT_S * scale, notes={"limit_unscaled": LIMIT_S, "cpu_scale": scale})


def batch_notebook() -> Result:
    """A notebook of 200 cells with a checkpoint after each, beside plain papermill: what it takes beyond 1.05 times that."""
    begin, step = "import random\nloss, seen = [1.0], {}", "seen[len(loss)] = lot * random.random()\nloss.append(0.9 * loss[-1])\nprint(loss[-1])"
    source = written("lot = 0", begin, *[step] * (CELLS - 2))
    with tempfile.TemporaryDirectory(prefix="gpufair-bench-") as folder:
        root = Path(folder)
        (root / "in.ipynb").write_bytes(source)
        plain = [sys.executable, "-m", "papermill", "in.ipynb", "plain.ipynb", "-p", "lot", "7", "--no-progress-bar"]
        begun = time.perf_counter()
        subprocess.run(plain, check=True, capture_output=True, cwd=folder)
        plain_s = time.perf_counter() - begun
        played = Played(root / "ours", source)
        begun = time.perf_counter()
        assert played.start().wait(300) == 0, played.log()
        ours_s = time.perf_counter() - begun
    notes: dict[str, float | str] = {"plain_s": plain_s, "ours_s": ours_s, "cells": CELLS}
    return Result(ours_s - 1.05 * plain_s, "s beyond 1.05 times papermill", 1.0, notes=notes)


CASES = {"batch_notebook": batch_notebook, "batch_sweep": batch_sweep}
