"""The notebooks of binder/ run from top to bottom in the lab of binder/, as their reader runs them, and are kept without outputs.

One after the other in one lab, as there: each has to leave it as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from gpufair.client.endpoint import is_alive

BINDER = Path(__file__).parents[2] / "binder"
NOTEBOOKS = sorted(BINDER.glob("*.ipynb"))
# What each is about has to be seen in it: a notebook that runs and shows nothing is no use.
SHOWN = {
    "1-budgets-and-queue": ("Owns", "vision-1", "All have ended", "<svg", "GPU-seconds"),
    "2-a-session-that-moves": ("step 41", "step 42", "the same session: True", "preemptions: 1, lost: 0", "nothing is left running"),
    "3-what-if": ("fair-share", "fifo", "kB", "language", "keep what they were granted"),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of binder/, and its embedded service, which is ended afterwards."""
    folder = tmp_path_factory.mktemp("binder")
    place, state = folder / "binder", folder / "state"
    shutil.copytree(BINDER, place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")  # an environment that is active
        patch.setenv("GPUFAIR_STATE_DIR", str(state))
        patch.setenv("GPUFAIR_CONFIG", str(place / "gpufair.toml"))
        yield place
    with suppress(OSError, ValueError):
        pid = json.loads((state / "service.json").read_text())["pid"]
        end(pid)


def end(pid: int) -> None:
    """As whoever closes the lab: it parks what runs; a second signal cuts that short."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        until = time.monotonic() + 15
        while is_alive(pid) and time.monotonic() < until:
            time.sleep(0.05)


def said(notebook: Any) -> str:
    """All that its outputs show."""
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text", "") + str(output.get("data", "")) for output in outputs)


def test_there_are_three() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs(path: Path, lab: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    done = NotebookClient(notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": str(lab)}}).execute()
    shown = said(done)
    assert not [one for one in SHOWN[path.stem] if one not in shown], shown


def test_what_the_host_runs_is_there() -> None:
    """`start` names the lab's configuration, and both it and `postBuild` can be run."""
    assert "binder/gpufair.toml" in (BINDER / "start").read_text(encoding="utf-8")
    assert all((BINDER / name).stat().st_mode & 0o111 for name in ("start", "postBuild"))
