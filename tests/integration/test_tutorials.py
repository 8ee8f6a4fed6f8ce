"""The tutorial notebooks run as they are, quickly, and are kept without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("path", TUTORIALS, ids=[path.stem for path in TUTORIALS])
def test_a_tutorial_runs(path: Path, tmp_path: Path) -> None:
    """As its reader runs it: every cell, from top to bottom, in a fresh kernel."""
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")
    done = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    said = "".join(output.get("text", "") for cell in done.cells if cell.cell_type == "code" for output in cell.outputs)
    assert "preemptions of protected work: 0" in said
    assert "protections are kept" in said
