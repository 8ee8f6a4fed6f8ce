"""Output notebooks as the runner leaves them, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from jupyter_gpufair.batch import document

# One red pixel.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="


def code(source: str, *outputs: NotebookNode) -> NotebookNode:
    """A cell that was run."""
    cell: NotebookNode = nbformat.v4.new_code_cell(source, outputs=list(outputs), execution_count=1)
    cell.metadata["gpufair"] = {"runs": 1, "began_s": 1.0, "ended_s": 2.0}
    return cell


def text(said: str) -> NotebookNode:
    output: NotebookNode = nbformat.v4.new_output("stream", text=said)
    return output


def shown(**data: str) -> NotebookNode:
    """A rich output; ``image_png`` stands for ``image/png``."""
    mimes = {kind.replace("_", "/", 1): value for kind, value in data.items()}
    output: NotebookNode = nbformat.v4.new_output("display_data", data=mimes)
    return output


def failed(source: str, ename: str, evalue: str) -> NotebookNode:
    """A cell that was begun, and ended by an error."""
    cell = code(source, nbformat.v4.new_output("error", ename=ename, evalue=evalue, traceback=[f"{ename}: {evalue}"]))
    del cell.metadata["gpufair"]["ended_s"]
    return cell


def write(
    path: Path, *cells: NotebookNode, parameters: dict[str, Any], state: str = "completed", before: tuple[str, ...] = ()
) -> NotebookNode:
    """The output of a run; ``before`` is how its earlier starts ended."""
    notebook: NotebookNode = nbformat.v4.new_notebook(cells=list(cells))
    for one in (*before, state):
        document.begin(notebook, {"GPUFAIR_WORKLOAD": "a" * 32, "GPUFAIR_ALLOCATION": "vision", "GPUFAIR_GPUS": "0,1"}, parameters)
        document.end(notebook, one)
    path.parent.mkdir(parents=True, exist_ok=True)
    document.Writer(notebook).write(path, durable=False)
    return notebook
