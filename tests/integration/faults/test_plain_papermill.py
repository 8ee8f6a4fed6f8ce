"""papermill without our engine on a GPU kernelspec, disturbed at drawn moments: it ends, rightly or with a clear error."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest

from gpufair.client import Workload
from tests.integration.faults.rig import World, wait_until
from tests.integration.jupyter.server import environment

CELLS = 30
CELL_S = 0.12
LIMIT_S = 90.0
# What a cell that could not end is told, by a kernel that was interrupted in time or in its place.
TOLD = ("Preempted", "SessionPreempted", "SessionParked", "KernelDied", "KeyboardInterrupt")


Happening = Callable[[World, Workload], None]


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("plain"), grace="6s") as world:
        yield world


def begin(world: World, path: Path, first: str = "x = 1") -> subprocess.Popen[str]:
    codes = [f"import time\n{first}"]
    codes += [f"time.sleep({CELL_S})\nx = (x * 31 + {n}) % 1_000_003\nprint(x)\nx" for n in range(1, CELLS)]
    spec = {"name": "gpufair-1gpu", "display_name": "GPU", "language": "python"}
    cells = [nbformat.v4.new_code_cell(code) for code in codes]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)
    env = environment(world.server.home, world.state) | {"GPUFAIR_USER": "ria", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "papermill", "--log-level", "ERROR", "--no-progress-bar", str(path), str(path)]
    return subprocess.Popen(command, env=env, cwd=path.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def shown(path: Path) -> list[str]:
    """What each cell printed and returned, or the name of its error."""
    found = []
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code":
            texts = [o.get("text") or o.get("ename") or o.get("data", {}).get("text/plain") for o in cell.outputs]
            again = cell.outputs and cell.outputs[0].get("name") == "stderr"  # says first that it runs again
            found.append(" ".join(" ".join(texts[bool(again) :]).split()))  # a print may come in pieces
    return found


def undisturbed() -> list[str]:
    x, found = 1, [""]
    for number in range(1, CELLS):
        x = (x * 31 + number) % 1_000_003
        found.append(f"{x} {x}")
    return found


def ends(process: subprocess.Popen[str], within_s: float = LIMIT_S) -> str:
    """What it said. Never a hang: that is the whole point."""
    try:
        said, _ = process.communicate(timeout=within_s)
    finally:
        process.kill()
        process.wait()
    return said


def running(world: World) -> Workload:
    """The run's session, as soon as it runs cells."""
    [found] = wait_until(
        lambda: [w for w in world.client.workloads() if w.state == "running" and w.serving and w.name != "rival"], 60, "it runs"
    )
    return found


def preempted(world: World, session: Workload) -> None:
    before = world.client.workload(session.id).preemptions
    rival = world.rival(0.1)
    wait_until(lambda: (w := world.client.workload(session.id)).preemptions > before or not w.live, 40, "it had to leave")
    world.state_is(rival.id, "ended", within_s=60)


def parked(world: World, session: Workload) -> None:
    world.client.park(session.id)


def kernel_killed(world: World, session: Workload) -> None:
    os.kill(int(world.status_of(session.id)["child"][0]), signal.SIGKILL)


def service_killed(world: World, session: Workload) -> None:
    world.kill_service()


def disturb(world: World, how: list[Happening], process: subprocess.Popen[str], draw: random.Random) -> None:
    """Wait a while, let the next thing happen, and so on, as long as the run goes on."""
    session = running(world)
    for one in how:
        time.sleep(draw.uniform(0.2, CELLS * CELL_S / (len(how) + 1)))
        if process.poll() is None:
            world.state_is(session.id, "running", "ended", within_s=60)
            one(world, session)


RERUN = "%gpufair rerun on\nx = 1"
STORIES: dict[str, tuple[str, list[Happening]]] = {
    "preempted, and cells run again": (RERUN, [preempted, service_killed, preempted]),
    "preempted, parked, killed": ("x = 1", [preempted, parked, kernel_killed]),
}


@pytest.mark.parametrize("story", STORIES)
def test_disturbed_at_drawn_moments(world: World, story: str, tmp_path: Path) -> None:
    """It shows what an undisturbed run shows, or up to a cell that says why it did not end."""
    first, happenings = STORIES[story]
    path, seed = tmp_path / "run.ipynb", int(os.environ.get("GPUFAIR_SEED") or random.randrange(1 << 30))
    print(f"GPUFAIR_SEED={seed}")
    process = begin(world, path, first)
    try:
        disturb(world, happenings, process, random.Random(seed))
    finally:
        said = ends(process)
    found, right = shown(path), undisturbed()
    print(said[-3000:], found)
    assert "unhandled" not in said  # nbclient does not know what we tell each other
    if process.returncode == 0:
        assert found == right
        return
    assert first != RERUN, "nothing but preemptions, so nothing is an error"
    [failed] = [at for at, text in enumerate(found) if text.split()[-1:] and text.split()[-1] in TOLD]
    assert found[:failed] == right[:failed]
    assert not any(found[failed + 1 :])
    assert f"\n{found[failed].split()[-1]}: " in said
