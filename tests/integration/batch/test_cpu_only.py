"""Batch work without GPUs, by the commands that docs/cpu-pool.md names: on CPU nodes, free of charge, within its memory."""

from __future__ import annotations

import json
from typing import Any

import nbformat

from tests.integration.batch.test_batch_notebooks import call, notebook, rig
from tests.integration.batch.test_papermill import RUN
from tests.integration.service.rig import Rig, until

__all__ = ["rig"]  # the fixture

SEES = "import os\nprint(repr(os.environ['CUDA_VISIBLE_DEVICES']), os.environ['GPUFAIR_NODE'], os.environ['GPUFAIR_GPUS'])"
GROW = "import time\nhog = []\nwhile True:\n    hog.append(bytearray(b'x') * (30 << 20))\n    time.sleep(0.05)"


def test_a_notebook_without_gpus_leaves_a_drained_node_and_goes_on_elsewhere(rig: Rig) -> None:
    """It begins on the CPU node, sees no GPU anywhere, runs no finished cell again and costs nothing."""
    slow = "import time\nfor step in range(600):\n    time.sleep(0.1)\n    if os.environ['GPUFAIR_NODE'] == 'n1': break"
    source = notebook("lot = 0", SEES, "lot += 1", slow, f"{SEES}\nprint(lot)", tags={0: ["parameters"]})
    (rig.folder / "in.ipynb").write_bytes(source)
    asked = ("--gpus", "0", "--cpus", "1", "--memory", "2GiB", "--allocation", "a", "--json")
    run = json.loads(call(rig, "gpufair.cli", "submit", "in.ipynb", "out.ipynb", "-p", "lot", "7", *asked).stdout)
    assert (run["gpus"], run["cpus"], run["memory_bytes"], run["min_runtime_s"]) == (0, 1, 2 << 30, 0)
    log = rig.folder / "state" / "records" / run["id"]
    until("the slow cell", lambda: any("cell 5 of 6" in path.read_text() for path in log.glob("log-*")))
    assert [lease["node"] for lease in rig.get(run["id"])["leases"]] == ["c1"]
    call(rig, "gpufair.cli", "nodes", "drain", "c1")
    ended = rig.await_state(run["id"], "ended")
    assert (ended["outcome"], ended["charged_gpu_s"]) == ("completed", 0)
    read: Any = nbformat.read(str(rig.folder / "out.ipynb"), as_version=4)
    texts = ["".join(one.get("text", "") for one in cell.outputs) for cell in read.cells]
    assert texts[2:] == ["'' c1 \n", "", "", "'' n1 \n8\n"]
    facts = read.metadata.gpufair
    assert ([one.node for one in facts.starts], facts.gpu_hours, facts.ran_again) == (["c1", "n1"], 0, [4])


def test_papermill_runs_on_a_cpu_node(rig: Rig) -> None:
    """With its own engine point and gpus=0; and one that takes too much memory fails as a cell that says why."""
    (rig.folder / "run.py").write_text(RUN)
    (rig.folder / "in.ipynb").write_bytes(notebook(SEES))
    call(rig, "run", '{"gpus": 0}')
    read: Any = nbformat.read(str(rig.folder / "out.ipynb"), as_version=4)
    assert read.cells[0].outputs[0].text == "'' c1 \n"
    assert [one.gpus for one in read.metadata.gpufair.starts] == [0]

    (rig.folder / "in.ipynb").write_bytes(notebook(GROW))
    done = call(rig, "run", '{"gpus": 0, "memory_bytes": 700000000, "name": "large"}', code=1)
    assert "over its memory limit: it used " in done.stderr
    (large,) = [one for one in rig.ask("GET", "/workloads")["workloads"] if one["name"] == "large"]
    assert large["outcome"] == "failed"
    assert large["reason"].startswith("over its memory limit: it used ")
    assert large["reason"].removeprefix("over") in call(rig, "gpufair.cli", "why", large["id"]).stdout.replace("\n", " ")
    assert call(rig, "gpufair.cli", "logs", large["id"]).stdout.count(large["reason"]) == 1
