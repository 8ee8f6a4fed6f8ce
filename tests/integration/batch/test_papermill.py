"""papermill's own engine point: what a run asks for, through the real service."""

from __future__ import annotations

from typing import Any

import nbformat

from tests.integration.batch.test_batch_notebooks import call, notebook, rig
from tests.integration.service.rig import Rig

__all__ = ["rig"]  # the fixture

RUN = """
import json, logging, sys, papermill
logging.basicConfig(level=logging.INFO)  # as papermill's command does
papermill.execute_notebook("in.ipynb", "out.ipynb", engine_name="gpufair", progress_bar=False, **json.loads(sys.argv[1]))
"""


def test_a_run_waits_for_another_and_is_tried_again(rig: Rig) -> None:
    """In the end papermill's record shows no failure, since the cell has run well at last."""
    (rig.folder / "run.py").write_text(RUN)
    here = str(rig.folder)
    tried = f"import pathlib\ntries = pathlib.Path({here!r}, 'tries')\ntries.open('a').write('x')\nassert len(tries.read_text()) == 2"
    ready = f"import pathlib\nassert pathlib.Path({here!r}, 'ready').exists()\nprint('ready')"
    (rig.folder / "in.ipynb").write_bytes(notebook(ready, tried, "print('end')"))
    waits = f"until ls -d {here}/.gpufair/*; do sleep 0.1; done; sleep 2"  # so long that papermill looks at it meanwhile
    rig.submit("prepare", f"{waits}; touch {here}/ready")
    done = call(rig, "run", '{"after": "prepare", "retries": 1, "retry_after_s": 2}')
    assert "out.ipynb is waiting for " in done.stderr
    assert "out.ipynb is failed, attempt 2 of 2 follows" in done.stderr
    assert "HTTP Request" not in done.stderr, "each look at the run would be a line"
    read: Any = nbformat.read(str(rig.folder / "out.ipynb"), as_version=4)
    assert [one.attempt for one in read.metadata.gpufair.starts] == [1, 2]
    assert read.metadata.gpufair.ran_again == [1]
    assert [cell.metadata.papermill.status for cell in read.cells] == ["completed"] * 3
    assert not read.metadata.papermill.exception
    assert not any(cell.metadata.papermill.exception for cell in read.cells)


def test_a_kernel_that_is_meant_is_not_replaced(rig: Rig) -> None:
    """A notebook may name its writer's environment and runs on our Python; one that was asked for must be there."""
    (rig.folder / "run.py").write_text(RUN)
    source: Any = nbformat.reads(notebook("print('ran')").decode(), as_version=4)
    source.metadata.kernelspec = {"name": "writers-env", "display_name": "Writer's", "language": "python"}
    nbformat.write(source, rig.folder / "in.ipynb")
    call(rig, "run", '{"gpus": 0}')
    read: Any = nbformat.read(str(rig.folder / "out.ipynb"), as_version=4)
    assert read.cells[-1].outputs[0].text == "ran\n"
    refused = call(rig, "run", '{"gpus": 0, "kernel_name": "nobodys"}', code=1)
    assert "there is no kernel 'nobodys' on this node; install it, or name another" in refused.stderr
