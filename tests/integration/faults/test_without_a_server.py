"""nbclient, papermill and `jupyter execute` on a GPU kernelspec while every GPU is taken, and while the service is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.integration.faults.rig import World, wait_until
from tests.integration.jupyter.server import environment

CELLS = ["import os, time\nx = 6", "time.sleep({0})", "print(os.environ['GPUFAIR_GPUS'], x * 7)"]
TOOLS = {
    "nbclient": [
        "-c",
        "import sys, nbformat; from nbclient import NotebookClient as C; nb = nbformat.read(sys.argv[1], 4); C(nb, startup_timeout=1).execute(); "
        "nbformat.write(nb, sys.argv[1])",
        "{0}",
    ],
    "papermill": ["-m", "papermill", "--log-level", "ERROR", "--no-progress-bar", "--start-timeout", "1", "{0}", "{0}"],
    "jupyter execute": ["-m", "jupyter", "execute", "--startup_timeout=1", "--inplace", "{0}"],
}


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("batch"), grace="15s") as world:
        yield world


def begin(world: World, tool: str, path: Path, seconds: float = 0.0) -> subprocess.Popen[str]:
    cells = [nbformat.v4.new_code_cell(code.format(seconds)) for code in CELLS]
    spec = {"name": "gpufair-1gpu", "display_name": "GPU", "language": "python"}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    env = environment(world.server.home, world.state) | {"GPUFAIR_USER": "ria", "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen([sys.executable, *(part.format(path) for part in TOOLS[tool])], env=env, cwd=path.parent,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip


def finished(process: subprocess.Popen[str], path: Path, timeout_s: float = 60.0) -> str:
    """The last cell's output."""
    try:
        said, _ = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said[-4000:]
    outputs = nbformat.read(path, 4).cells[-1].outputs
    return "".join(output.get("text", "") for output in outputs)


@pytest.mark.parametrize("tool", TOOLS)
def test_every_gpu_is_taken(world: World, tool: str, tmp_path: Path) -> None:
    """It waits in the queue, longer than for any other kernel, runs when there is room, and leaves nothing behind."""
    rival = world.rival(user="ria")
    world.state_is(rival.id, "running")
    path = tmp_path / "batch.ipynb"
    process = begin(world, tool, path)
    queued = wait_until(lambda: [w for w in world.client.workloads() if w.state == "queued"], 30, "it is queued")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    world.client.stop(rival.id)
    assert finished(process, path) == "virtual-0 42\n"
    world.state_is(queued[0].id, "ended")


def test_the_service_is_killed_meanwhile(world: World, tmp_path: Path) -> None:
    """Whoever brings it back, the one that knows its configuration or the one that doesn't: the run goes on."""
    path = tmp_path / "batch.ipynb"
    process = begin(world, "nbclient", path, 6)
    [running] = wait_until(
        lambda: [w for w in world.client.workloads() if w.state == "running" and w.busy], 30, "it runs"
    )
    world.kill_service()
    assert finished(process, path) == "virtual-0 42\n"
    assert world.state_is(running.id, "ended").incarnation == 1


CLIENT = """
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="gpufair-1gpu", startup_timeout=60)
print(manager.provisioner.kernel_id, flush=True)
for line in sys.stdin:
    client.execute_interactive(line, timeout=90)
    sys.stdout.flush()
client.stop_channels()
manager.shutdown_kernel()
"""


@pytest.mark.parametrize("how", ["parked", "preempted"])
def test_an_idle_session_comes_back_for_the_next_cell(world: World, how: str, tmp_path: Path) -> None:
    """With its variables. Meanwhile it waits for nobody, so it is not queued either."""
    env = environment(world.server.home, world.state) | {"GPUFAIR_USER": "ria", "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen([sys.executable, "-c", CLIENT], env=env, cwd=tmp_path, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        kernel = process.stdout.readline().strip()
        process.stdin.write("x = 6; print('there')\n")
        process.stdin.flush()
        assert process.stdout.readline() == "there\n"
        wait_until(lambda: not world.client.workload(kernel).busy, 30, "it is idle")
        if how == "parked":
            world.client.park(kernel)
        else:
            world.state_is(world.rival(0.1).id, "ended", within_s=60)
        world.state_is(kernel, "parked")
        said, _ = process.communicate("print(x * 7)\n", timeout=90)
        assert said == "42\n"
        assert world.state_is(kernel, "ended").incarnation == 2
    finally:
        process.kill()
        process.communicate()
