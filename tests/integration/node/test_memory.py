"""Workloads that take more memory than they may, on a real node."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.node.rig import Rig
from tests.integration.node.test_commands import _command

MIB = 1 << 20
GROW = "import time\nhog = []\nwhile True:\n    hog.append(bytearray(b'x') * (30 << 20))\n    time.sleep(0.05)\n"

FILL = """
def taken():
    return sum(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('RssAnon')) << 10
hog = []
while taken() < size:
    hog.append(bytearray(b'x') * (4 << 20))
"""


def test_a_kernel_above_its_limit_is_killed_with_a_reason_and_restored_in_a_new_one(rig: Rig) -> None:
    """Its owner is warned before, loses what was not saved, and nothing else ends."""
    rig.start("w", memory_bytes=600 * MIB)
    connection = rig.service.wait("w", "serving").body["connection"]
    rig.ask(connection, "globals().update(kept=42)")
    rig.service.command("save", "w", 1)
    saved = rig.service.wait("w", "checkpointed").body["id"]
    rig.run(connection, f"size = {560 * MIB}\n{FILL}")
    warned = rig.service.wait("w", "remark", timeout_s=60).body["text"]
    assert warned.startswith("It uses ")
    assert "of the 600 MiB that it asked for" in warned
    rig.run(connection, f"size = {700 * MIB}\n{FILL}")
    died = rig.service.wait("w", "kernel_died", timeout_s=60).body
    assert died["reason"].startswith("over its memory limit: it used ")
    assert "the kernel was killed: over its memory limit" in (rig.dir("w") / "kernel.log").read_text()
    rig.service.command("restart", "w", 1)
    again = rig.service.wait("w", "serving", count=2, timeout_s=60).body
    rig.hang_up()
    rig.service.command("restore", "w", 1, id=saved)
    rig.service.wait("w", "restored", timeout_s=60)
    assert rig.ask(again["connection"], "kept") == "42"


def test_a_program_above_its_limit_fails_with_that_reason(rig: Rig) -> None:
    """Whatever it started counts; and one that stays below ends as it likes."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GROW!r}]); print('never')"
    _command(rig, "child", child, memory_bytes=300 * MIB)
    _command(rig, "itself", GROW, memory_bytes=300 * MIB)
    _command(rig, "small", "hog = bytearray(b'x') * (50 << 20)", memory_bytes=300 * MIB)
    for workload in ("child", "itself"):
        body = rig.service.wait(workload, "exited", timeout_s=60).body
        assert body["outcome"] == "failed"
        assert body["reason"].startswith("over its memory limit: it used ")
        assert f"gpufair: {body['reason']}\n" in rig.log(workload)
    assert rig.service.wait("small", "exited").body["outcome"] == "completed"


def test_a_batch_notebook_above_its_limit_says_so_in_its_output(rig: Rig, tmp_path: Path) -> None:
    """The kernel goes, and its runner still writes down why."""
    import nbformat

    from gpufair.client.notebooks import NotebookJob, prepare

    made = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_code_cell(source) for source in ("print('first')", GROW, "print('never')")]
    output = tmp_path / "out.ipynb"
    folder = prepare(nbformat.writes(made).encode(), NotebookJob(str(output)), "w")
    argv = [sys.executable, "-m", "jupyter_gpufair.batch", str(folder)]
    rig.start("w", launch={"type": "command", "argv": argv, "cwd": str(tmp_path)}, memory_bytes=800 * MIB)
    body = rig.service.wait("w", "exited", timeout_s=60).body
    assert (body["outcome"], body["reason"][:22]) == ("failed", "over its memory limit:")
    read = nbformat.read(output, as_version=4)
    nbformat.validate(read)
    assert read.metadata.gpufair.state == "failed"
    assert read.cells[0].outputs[0].text == "first\n"
    assert read.cells[1].outputs[-1].ename == "KernelDied"
    assert body["reason"] in read.cells[1].outputs[-1].evalue
    assert not read.cells[2].outputs
