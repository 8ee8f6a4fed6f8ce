"""A session of its own: a namespace in which code runs as notebook cells do, saved here and restored in a new process."""

from __future__ import annotations

import builtins
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.checkpoint.two_processes import KEY

_RESTORE = """
import builtins, json, sys
from gpufair.node import checkpoint
directory, id, key, checks = json.load(sys.stdin)
session = {"__name__": "__main__", "__builtins__": builtins}
result = checkpoint.load(session, directory=directory, id=id, key=bytes.fromhex(key))
answers = {}
for name, check in checks.items():
    try:
        exec(check, session)
        answers[name] = "ok"
    except BaseException as err:
        answers[name] = f"{type(err).__name__}: {err}"
json.dump({"answers": answers, "restored": result.restored, "lost": dict(result.lost),
           "warnings": result.warnings, "meta": result.meta}, sys.stdout)
"""


def file_of(directory: Path, data: bytes) -> Path:
    """The file that holds a piece of a checkpoint, compressed or not."""
    (found,) = (directory / "buffers").glob(f"{hashlib.sha256(data).hexdigest()}*")
    return found


@pytest.fixture(scope="session")
def session() -> Callable[[str], dict[str, Any]]:
    """Run code as cells and give its namespace."""

    def run(code: str) -> dict[str, Any]:
        namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        exec(code, namespace)
        return namespace

    return run


@pytest.fixture(scope="session")
def elsewhere() -> Callable[..., dict[str, Any]]:
    """Restore in a new process, run checks in its namespace, and give what came of it."""

    def restore(directory: Path, checkpoint: str, checks: dict[str, str], key: bytes = KEY) -> dict[str, Any]:
        asked = json.dumps([str(directory), checkpoint, key.hex(), checks])
        done = subprocess.run(
            [sys.executable, "-c", _RESTORE], input=asked, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return restore
