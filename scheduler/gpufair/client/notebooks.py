"""A notebook that is to run unattended: the folder in which it waits, and how it is launched.

The folder lies beside the output and is its owner's alone. It holds a copy of the notebook, so that nobody changes what
was submitted, and while it runs its checkpoints; afterwards only how it ended is left there.
"""

from __future__ import annotations

import ast
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from gpufair.core.errors import GpufairError

ROOT: Final = ".gpufair"
INPUT: Final = "input.ipynb"
JOB: Final = "job.json"
KEY: Final = "key"
RESULT: Final = "result.ipynb"  # what has been run so far
MAX_NOTEBOOK_BYTES: Final = 1 << 30


class BadNotebook(GpufairError):
    """What was submitted is no notebook that could run."""


@dataclass(frozen=True, slots=True)
class NotebookJob:
    """What the runner finds in ``job.json``."""

    output: str
    parameters: dict[str, str] = field(default_factory=dict)  # as they were written; the runner gives them types
    kernel: str = ""  # "": that of the notebook
    cell_timeout_s: float | None = None


def prepare(source: bytes, job: NotebookJob, name: str) -> Path:
    """Make the folder of a job beside its output.

    Args:
        source: The notebook, as in its file.
        job: The rest.
        name: Of the folder: the id of the workload.

    Raises:
        BadNotebook: It is no notebook, or too large, or the folder cannot be made.
    """
    check(source)
    folder = Path(job.output).absolute().parent / ROOT / name
    try:
        folder.mkdir(mode=0o700, parents=True)
        _write(folder / INPUT, source)
        _write(folder / KEY, secrets.token_hex(32).encode())
        _write(folder / JOB, json.dumps(asdict(job)).encode())
    except OSError as err:
        raise BadNotebook(f"{folder} cannot be made: {err.strerror or err}; name an output elsewhere") from err
    return folder


def check(source: bytes) -> None:
    """Whether this could be a notebook. Raises: BadNotebook."""
    if len(source) > MAX_NOTEBOOK_BYTES:
        raise BadNotebook(f"the notebook has {len(source)} bytes and may have {MAX_NOTEBOOK_BYTES}; clear its outputs")
    try:
        value = json.loads(source)
    except (ValueError, RecursionError) as err:
        raise BadNotebook(f"it is no notebook: {err}; a notebook is a JSON file that Jupyter wrote") from err
    if not isinstance(value, dict) or not isinstance(value.get("cells"), list):
        raise BadNotebook("it is no notebook of format 4: it has no list of cells; open and save it in JupyterLab")


def unknown_parameters(source: bytes, names: Iterable[str]) -> list[str]:
    """Those of ``names`` that the notebook's cell with the tag ``parameters`` does not assign: typing errors, mostly.

    Empty where there is no such cell, or it is not in Python.
    """
    known = set[str]()
    for cell in json.loads(source)["cells"]:
        try:
            if "parameters" not in cell["metadata"]["tags"]:
                continue
            tree = ast.parse("".join(cell["source"]))
        except (KeyError, TypeError):  # without tags
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # magics, or another language
            return []
        known |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return [name for name in names if name not in known] if known else []


def launch(folder: Path, cwd: str, env: Mapping[str, str]) -> dict[str, Any]:
    """How a job is launched: its runner is a command, and the kernel runs beside it."""
    argv = ["python", "-m", "jupyter_gpufair.batch", str(folder)]
    return {"type": "command", "argv": argv, "cwd": cwd, "env": dict(env)}


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
