"""Where the compiled core is, for cases and tests that run a process with it."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "compiled"
CANNOT = 3  # as in scheduler/compile_core.py


@cache
def package() -> Path | str:
    """The folder of the package with the compiled core, built first if need be; or why there is none here."""
    build = [sys.executable, str(ROOT / "scheduler" / "compile_core.py"), str(FOLDER)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode == CANNOT:
        return done.stderr.strip()
    if done.returncode:
        raise RuntimeError(f"the core did not compile:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return FOLDER


def environment(folder: Path | None) -> dict[str, str]:
    """For a process that imports ``gpufair`` from there, or the plain one, and tests from here."""
    first = folder if folder is not None else ROOT / "scheduler"
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(first), str(ROOT))), "PYTHONHASHSEED": "0"}
