"""The output notebook: whole at any moment, with what became of each cell in its metadata."""

from __future__ import annotations

import copy
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4.rwbase import split_lines

from gpufair.client.notebooks import BadNotebook
from gpufair.node.files import sync_folder

OURS = "gpufair"


def read(data: bytes, what: str) -> NotebookNode:
    """A notebook of format 4. Raises: BadNotebook: It is none, or damaged."""
    try:
        notebook = nbformat.reads(data.decode(), as_version=4)  # type: ignore[no-untyped-call]
        nbformat.validate(notebook)
    except (ValueError, KeyError, AttributeError, TypeError, nbformat.ValidationError) as err:
        first = str(err).splitlines()[0] if str(err) else type(err).__name__
        raise BadNotebook(f"{what} is no notebook that can run: {first}") from err
    found: NotebookNode = notebook
    return found


class Writer:
    """Writes one notebook again and again; what a finished cell looks like is worked out once.

    Args:
        notebook: It. Its format and the number of its cells stay.
    """

    def __init__(self, notebook: NotebookNode) -> None:
        self._notebook = notebook
        self._texts: dict[int, str] = {}

    def settled(self, number: int) -> None:
        """A cell does not change any more."""
        self._texts[number] = self._cell(number)

    def write(self, path: Path, *, durable: bool) -> None:
        """Replace the file in one step: readers see it before or after, never a part.

        Raises:
            OSError: Nothing was changed (the disk is full, say).
        """
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(self.text())
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)

    def text(self) -> str:
        """As ``nbformat`` writes it."""
        cells = ",\n  ".join(
            self._texts.get(number) or self._cell(number) for number in range(len(self._notebook.cells))
        )
        rest = {name: value for name, value in self._notebook.items() if name != "cells"}
        tail = _dumped(rest)[1:].lstrip("\n")
        return f'{{\n "cells": [\n  {cells}\n ],\n{tail}\n' if cells else f'{{\n "cells": [],\n{tail}\n'

    def _cell(self, number: int) -> str:
        alone = nbformat.v4.new_notebook(cells=[self._notebook.cells[number]])  # type: ignore[no-untyped-call]
        (cell,) = split_lines(copy.deepcopy(alone)).cells  # type: ignore[no-untyped-call]
        return _dumped(cell).replace("\n", "\n  ")


def _dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True, separators=(",", ": "))


def publish(path: Path, to: Path) -> None:
    """Have ``to`` be the same file, in one step."""
    temporary = to.with_name(f".{to.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        os.link(path, temporary)
    except OSError:  # another file system, or one without links
        shutil.copyfile(path, temporary)
    temporary.rename(to)


def _node(value: dict[str, Any]) -> NotebookNode:
    found: NotebookNode = nbformat.from_dict(value)  # type: ignore[no-untyped-call]
    return found


def facts_of(node: NotebookNode) -> dict[str, Any]:
    """What is recorded of a notebook, or of a cell."""
    found: dict[str, Any] = node.metadata.setdefault(OURS, _node({}))
    return found


def begin(notebook: NotebookNode, environ: Mapping[str, str], parameters: Mapping[str, object]) -> None:
    """A start of the whole: where, on what, and with what."""
    facts = facts_of(notebook)
    facts["workload"], facts["allocation"] = environ.get("GPUFAIR_WORKLOAD", ""), environ.get("GPUFAIR_ALLOCATION", "")
    facts["parameters"] = dict(parameters)
    now, starts = time.time(), facts.setdefault("starts", [])
    waits_since = starts[-1].get("until_s") if starts else float(environ.get("GPUFAIR_SUBMITTED_S", now))
    begun = {"at_s": now, "node": environ.get("GPUFAIR_NODE", ""), "gpus": _gpus(environ)}
    begun["attempt"] = int(environ.get("GPUFAIR_ATTEMPT", 1))
    if waits_since is not None:  # the last start was killed at a time that nobody wrote down
        begun["waited_s"] = max(0.0, now - waits_since)
    starts.append(_node(begun))
    facts.setdefault("checkpoints", 0)
    facts["state"] = "running"


def died(cell: NotebookNode, why: str) -> None:
    """The kernel died while this cell ran: say so where its outputs are."""
    text = f"the kernel died while this cell ran: {why}"
    output = {"output_type": "error", "ename": "KernelDied", "evalue": text, "traceback": [f"KernelDied: {text}"]}
    cell.outputs.append(_node(output))


def is_tried_again(environ: Mapping[str, str]) -> bool:
    """Whether a failure of this start is not the last word."""
    return int(environ.get("GPUFAIR_ATTEMPT", 1)) < int(environ.get("GPUFAIR_ATTEMPTS", 1))


def end(notebook: NotebookNode, state: str) -> None:
    """The end of a start: completed, failed, preempted or timed out. GPU time is what this start held, in GPU-seconds."""
    facts = facts_of(notebook)
    last = facts["starts"][-1]
    last["until_s"] = time.time()
    last["gpu_s"] = last["gpus"] * (last["until_s"] - last["at_s"])
    facts["state"] = last["state"] = state
    facts["preemptions"] = sum(one.get("state") == "preempted" for one in facts["starts"])
    facts["gpu_hours"] = sum(one.get("gpu_s", 0.0) for one in facts["starts"]) / 3600
    facts["ran_again"] = [number for number, cell in enumerate(notebook.cells) if facts_of(cell).get("runs", 0) > 1]


def _gpus(environ: Mapping[str, str]) -> int:
    return len([one for one in environ.get("GPUFAIR_GPUS", "").split(",") if one])
