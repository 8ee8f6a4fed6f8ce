"""Batch notebooks that are cut short at random moments, and must end as if nothing had happened.

    python -m tests.cut_notebooks [--cuts 200] [--seed N]

The suite plays a short form of it. A cut is what a preemption does (notice, SIGTERM, SIGKILL at the deadline), or kill -9
of runner and kernel, at any moment: while the kernel boots, in a cell, in a checkpoint, in a restore.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import nbformat

from gpufair.client.notebooks import NotebookJob, prepare
from gpufair.node.processes import TAG, end_all

MOST_STARTS = 2_000
FIRST = """
import collections, random
random.seed(lot)
book, past = {"cells": collections.Counter()}, []
alias = book["cells"]
def note(number):
    with open("effects.txt", "a") as file:
        file.write(f"{number}\\n")
    alias[number] += 1
"""
# Its output depends on everything before: a number drawn, an alias, a list of closures.
CELL = """
note({number})
past.append(lambda step={number}, drawn=random.random(): (step, drawn))
print({number}, round(sum(one()[1] for one in past), 9), alias is book["cells"], sum(alias.values()), lot)
import time; time.sleep({pause})
"""


def notebook(cells: int, seed: int) -> bytes:
    """A notebook with so many cells that take 0 to 60 ms each."""
    draw = random.Random(seed)
    return written(
        "lot = 0", FIRST, *(CELL.format(number=number, pause=round(draw.random() * 0.06, 3)) for number in range(1, cells))
    )


def written(*sources: str) -> bytes:
    """A notebook of these cells, the first of which holds the parameters."""
    spec = {"name": "python3", "language": "python", "display_name": "Python 3"}
    made: Any = nbformat.v4.new_notebook(metadata={"kernelspec": spec})
    made.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    made.cells[0].metadata["tags"] = ["parameters"]
    return bytes(nbformat.writes(made), "utf-8")


class Played:
    """A job in a folder of its own."""

    def __init__(self, root: Path, source: bytes) -> None:
        root.mkdir()
        self.root, self.output = root, root / "out.ipynb"
        self.folder = prepare(source, NotebookJob(str(self.output), {"lot": "7"}), "job")
        self.notice = root / "notice.json"
        self.starts = self._before = 0

    def start(self, **more: str) -> subprocess.Popen[bytes]:
        """Start the runner, as an agent would; with ``more`` variables."""
        self.starts += 1
        self._before = len(self.log())
        self.notice.unlink(missing_ok=True)
        env = {**os.environ, TAG: str(self.root), "GPUFAIR_NOTICE_FILE": str(self.notice), "GPUFAIR_GPUS": "virtual-0", **more}
        with (self.root / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "jupyter_gpufair.batch", str(self.folder)],
                cwd=self.root, env=env, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def await_cell(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until this start has begun a cell, or has ended."""
        end = time.monotonic() + 120
        while process.poll() is None and "gpufair: cell " not in self.log()[self._before :]:
            assert time.monotonic() < end, self.log()
            time.sleep(0.01)

    def cut(self, process: subprocess.Popen[bytes], grace_s: float, **told: str) -> None:
        """Preempt it; without a grace, kill it and its kernel. ``told``: what else the notice says."""
        if grace_s:
            notice = {"deadline_s": time.time() + grace_s, "text": "Somebody else is next.", **told}
            self.notice.write_text(json.dumps(notice))
        end_all(process.pid, str(self.root), patience_s=grace_s)
        process.wait(30)

    def log(self) -> str:
        """What its runners said."""
        path = self.root / "log.txt"
        return path.read_text() if path.exists() else ""

    def read(self) -> Any:
        """Its output."""
        return nbformat.read(str(self.output), as_version=4)

    def texts(self) -> list[str]:
        """What each cell printed."""
        return ["".join(one.get("text", "") for one in cell.outputs) for cell in self.read().cells]


def play(root: Path, cuts: int, seed: int, cells: int = 24) -> dict[str, Any]:
    """Cut a run short so often, and compare it with one that was left alone.

    Raises:
        AssertionError: They differ, or a finished cell ran again.
    """
    root.mkdir(parents=True, exist_ok=True)
    draw, source = random.Random(seed), notebook(cells, seed)
    calm = Played(root / "calm", source)
    assert calm.start().wait(120) == 0, calm.log()
    told = f"seed {seed}"
    cut = Played(root / "cut", source)
    left = cuts
    while True:
        assert cut.starts < MOST_STARTS, told
        process = cut.start()
        if not left:
            break
        left -= 1
        early, moment, grace_s = draw.random() < 0.2, draw.random(), draw.choice((0.0, 0.0, 1.2, 3.0))
        if early:
            time.sleep(moment * 2)  # Python and the kernel take a second or two to start
        else:
            cut.await_cell(process)
            time.sleep(moment * 0.5)
        if process.poll() is not None:
            break
        cut.cut(process, grace_s)
        if cut.output.exists():
            cut.read()  # whole at any moment
    assert process.wait(120) == 0, f"{told}: {cut.log()}"
    assert cut.texts() == calm.texts(), told
    facts = cut.read().metadata.gpufair
    runs = {number: cell.metadata.gpufair.runs for number, cell in enumerate(cut.read().cells)}
    effects = Counter(int(line) + 1 for line in (cut.root / "effects.txt").read_text().split())  # cells before: parameters
    for number, times in effects.items():
        # It may have been cut before its effect, or after it and before its checkpoint; the output says so.
        assert times <= runs[number + 1], f"{told}: cell {number + 1} had {times} effects in {runs[number + 1]} runs"
    assert facts.ran_again == [number for number, times in runs.items() if times > 1], told
    return {"cuts": cuts - left, "starts": cut.starts, "ran_again": len(facts.ran_again), "seed": seed}


def main() -> None:
    """Play it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--cells", type=int, default=560)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpufair-cut-") as folder:
        print(play(Path(folder) / "runs", asked.cuts, asked.seed, asked.cells))


if __name__ == "__main__":
    main()
