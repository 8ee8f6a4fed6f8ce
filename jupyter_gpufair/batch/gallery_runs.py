"""Output notebooks as runs: which of a folder's notebooks are some, and what each one says of itself.

Notebooks come from anywhere, so nothing in them is taken for granted: what has another type than ours is not there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from nbformat import NotebookNode

from gpufair.cli.words import clean
from gpufair.core.errors import GpufairError
from jupyter_gpufair.batch.document import OURS, read

MAX_BYTES: Final = 256 << 20  # of one notebook; reading takes a few times as much memory
_MAX_PARAMETERS = 100
_LONGEST = 300
_LATEST_S = 1e11  # the year 5138; beyond it no calendar answers
_GOES_ON = ("completed", "running", "preempted")


class NotShown(GpufairError):
    """This notebook cannot be in a gallery."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run. Times are Unix seconds, cells are counted from 1."""

    path: str  # within the folder
    state: str
    workload: str
    allocation: str
    parameters: dict[str, str | float | bool | None]
    started_s: float | None
    duration_s: float  # over all starts that ended, without the waits
    gpu_hours: float
    preemptions: int
    ran_again: list[int] = field(default_factory=list)
    failed_cell: int | None = None
    error: str = ""


def notebooks(folder: Path) -> Iterator[Path]:
    """The notebooks under a folder, in the order of their names; none in hidden folders, and no links are followed."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(where, name) for name in sorted(files) if name.endswith(".ipynb") and not name.startswith("."))


def opened(path: Path) -> NotebookNode:
    """The notebook in a file.

    Raises:
        NotShown: It cannot be read, is too large, or is none.
    """
    try:
        if not path.is_file():
            raise NotShown("it is no file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise NotShown(f"it has {size >> 20} MiB and may have {MAX_BYTES >> 20} MiB")
        return read(path.read_bytes(), "it")
    except OSError as err:
        raise NotShown(f"it cannot be read: {err.strerror or err}") from err
    except (GpufairError, RecursionError) as err:
        raise NotShown(clean(str(err))) from err


def run_of(notebook: NotebookNode, path: str) -> Run:
    """What a notebook says of its run. Raises: NotShown: It is of no run of ours."""
    facts = notebook.metadata.get(OURS)
    if not isinstance(facts, Mapping) or not _starts(facts):
        raise NotShown("it is no output of `gpufair submit` or `papermill --engine gpufair`")
    state = _text(facts.get("state")) or "unknown"
    failed, error = (None, "") if state in _GOES_ON else _failure(notebook)
    starts = _starts(facts)
    return Run(
        path,
        state,
        _text(facts.get("workload")),
        _text(facts.get("allocation")),
        _parameters(facts.get("parameters")),
        _number(starts[0].get("at_s")),
        sum(max(0.0, until - at) for at, until in map(_ends, starts) if at is not None and until is not None),
        _number(facts.get("gpu_hours")) or 0.0,
        sum(one.get("state") == "preempted" for one in starts),
        [number + 1 for number, cell in enumerate(notebook.cells) if (_number(_of(cell).get("runs")) or 0) > 1],
        failed,
        error,
    )


def _starts(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    starts = facts.get("starts")
    return [one for one in starts if isinstance(one, Mapping)] if isinstance(starts, list) else []


def _ends(start: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return _number(start.get("at_s")), _number(start.get("until_s"))


def _of(cell: NotebookNode) -> Mapping[str, Any]:
    facts = cell.metadata.get(OURS)
    return facts if isinstance(facts, Mapping) else {}


def _failure(notebook: NotebookNode) -> tuple[int | None, str]:
    """The cell that was begun and did not end, and its error."""
    for number in reversed(range(len(notebook.cells))):
        cell = notebook.cells[number]
        began, ended = _number(_of(cell).get("began_s")), _number(_of(cell).get("ended_s"))
        if began is not None and (ended is None or ended < began):  # it ended before, and then was run again
            errors = [one for one in cell.get("outputs", []) if one.output_type == "error"]
            said = f"{errors[-1].ename}: {errors[-1].evalue}" if errors else "it did not end"
            return number + 1, clean(said, _LONGEST)
    return None, ""


def _parameters(value: object) -> dict[str, str | float | bool | None]:
    if not isinstance(value, Mapping):
        return {}
    some = list(value.items())[:_MAX_PARAMETERS]
    return {clean(str(name), 80): one if _plain(one) else clean(str(one), _LONGEST) for name, one in some}


def _plain(value: object) -> bool:
    return value is None or isinstance(value, bool) or _number(value) is not None


def _number(value: object) -> float | None:
    """A number that can be counted with and shown, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LATEST_S:
        return None
    return value


def _text(value: object) -> str:
    return clean(value, _LONGEST) if isinstance(value, str) else ""
