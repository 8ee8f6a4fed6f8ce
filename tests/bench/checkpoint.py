"""Checkpoints beside the plain write of the same bytes, dill and cloudpickle: all in one run, in a process of its own.

The namespace: 8 arrays of 128 MiB (random, so that nothing is gained by compressing them), a DataFrame of 1e6 x 10
numbers, and 500,000 small objects in a list. Raw is one file, written in turn with its sha256 and then flushed; or read
with its sha256. Best of the rounds on both sides: what disturbs a disk only ever makes it slower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from tests.bench.result import Result

ARRAYS, ARRAY_BYTES = 8, 128 << 20
ROWS, SMALL = 1_000_000, 500_000
VARIABLES = 1_000  # beside the large ones, for the cost after a cell
ROUNDS = 3


@cache
def _run() -> dict[str, Any] | subprocess.CalledProcessError:
    """All figures, from one process. A failure is kept as well: trying again for each case takes minutes."""
    with tempfile.TemporaryDirectory(prefix="gpufair-bench-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.checkpoint_run", folder],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            timeout=900,
            cwd=Path(__file__).parents[2],
            env=os.environ,
        )
    if done.returncode:
        return subprocess.CalledProcessError(done.returncode, done.args)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measured() -> dict[str, Any]:
    """All figures."""
    figures = _run()
    if isinstance(figures, subprocess.CalledProcessError):
        raise figures
    return figures


def dump() -> Result:
    """A first checkpoint, nothing of it in the store yet."""
    it = measured()
    notes = {
        name: it[name] for name in ("raw_write_s", "dump_s", "dill_dump_s", "cloudpickle_dump_s", "mib", "spread_dump")
    }
    return Result(it["raw_write_s"] / it["dump_s"], "of the raw write rate", 0.8, at_least=True, notes=notes)


def restore() -> Result:
    """Into a new namespace, every digest checked; files in the page cache on both sides."""
    it = measured()
    notes = {
        name: it[name]
        for name in ("raw_read_s", "restore_s", "dill_load_s", "cloudpickle_load_s", "mib", "spread_restore")
    }
    return Result(it["raw_read_s"] / it["restore_s"], "of the raw read rate", 0.7, at_least=True, notes=notes)


def memory() -> Result:
    """What a dump needs beside the namespace at its height; the note says it of a restore, beside what it restores."""
    it = measured()
    notes = {name: it[name] for name in ("restore_extra_mib", "dill_extra_mib", "cloudpickle_extra_mib")}
    return Result(it["dump_extra_mib"], "MiB more at a dump", 64.0, notes=notes)


def restore_memory() -> Result:
    """What a restore needs at its height beside what it brings back."""
    return Result(measured()["restore_extra_mib"], "MiB more at a restore", 64.0)


def increment() -> Result:
    """One element of one of 9 large variables has changed."""
    it = measured()
    notes = {
        name: it[name] for name in ("dump_s", "increment_s", "increment_mib", "small_increment_s", "nothing_s", "by")
    }
    return Result(it["increment_s"] / it["dump_s"], "of a full dump", 0.05, notes=notes)


def after_cell() -> Result:
    """To find that nothing has changed: 1 GiB of arrays, the DataFrame, and 1,000 variables of all kinds."""
    it = measured()
    notes = {
        name: it[name]
        for name in (
            "by",
            "after_cell_variables",
            "after_cell_slowness",
            "whole_look_ms",
            "bounded_look_ms",
            "bounded_found",
        )
    }
    return Result(
        it["after_cell_ms"], "ms to see that nothing changed", 5 + it["after_cell_variables"] / 100, notes=notes
    )


CASES = {
    "checkpoint_after_cell": after_cell,
    "checkpoint_dump": dump,
    "checkpoint_increment": increment,
    "checkpoint_memory": memory,
    "checkpoint_memory_restore": restore_memory,
    "checkpoint_restore": restore,
}
