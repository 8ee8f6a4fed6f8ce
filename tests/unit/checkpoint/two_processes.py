"""Saving a session in one process and restoring it in another, which have nothing in common but the folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

KEY = b"the key of one user, 32 bytes ok"
_FAKES = Path(__file__).parent / "fakes"

_BOTH = """
import builtins, json, sys
from gpufair.node import checkpoint
asked = json.load(sys.stdin)
session = {"__name__": "__main__", "__builtins__": builtins}
hidden = {"WORK": asked["work"]}
session.update(hidden)
place = {"directory": asked["directory"], "id": "all", "key": bytes.fromhex(asked["key"])}
"""
_SAVE = (
    _BOTH
    + """
for cell in asked["cells"]:
    exec(cell, session)
saved = checkpoint.save(session, sequence=1, meta={}, hidden=frozenset(hidden), **place)
json.dump({"saved": saved.saved, "lost": dict(saved.lost), "notes": saved.notes}, sys.stdout)
"""
)
_RESTORE = (
    _BOTH
    + """
result = checkpoint.load(session, **place)
answers = {}
for name, check in asked["checks"].items():
    try:
        exec(check, session)
        answers[name] = "ok"
    except BaseException as err:
        answers[name] = f"{type(err).__name__}: {err}"
json.dump({"answers": answers, "restored": result.restored, "lost": dict(result.lost), "warnings": result.warnings},
          sys.stdout)
"""
)


class TwoProcesses:
    """One checkpoint folder, and the processes before and after it."""

    def __init__(self, folder: Path) -> None:
        (folder / "work").mkdir(parents=True)
        self.folder, self.work = folder, folder / "work"

    def save(self, *cells: str, **environment: str) -> dict[str, Any]:
        """Run the cells and save: {saved, lost: {name: reason}, notes}."""
        return self._run(_SAVE, {"cells": cells}, environment)

    def restore(self, checks: dict[str, str], **environment: str) -> dict[str, Any]:
        """Restore and run the checks: {answers: {name: "ok" or error}, restored, lost, warnings}."""
        return self._run(_RESTORE, {"checks": checks}, environment)

    def _run(self, script: str, asked: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
        asked |= {"directory": str(self.folder / "checkpoints"), "work": str(self.work), "key": KEY.hex()}
        path = os.pathsep.join([str(_FAKES), *sys.path])
        quiet = {"MPLCONFIGDIR": str(self.folder), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script],
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            cwd=self.work,
            env={**os.environ, "PYTHONPATH": path, **quiet, **environment},
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer
