"""The Jupyter server is killed, or stopped, or stays away: sessions go on, or rest, and are found again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufair.client import Client
from tests.integration.faults.rig import World, ran, wait_until
from tests.integration.jupyter.server import Tab

COUNT = "import os, time\nprint(os.getpid())\nfor i in range(10):\n    print(i)\n    time.sleep(0.5)\nx = 'to the end'"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as world:
        yield world


def recorded(world: World, kernel: str) -> list[str]:
    """What each cell printed, by the record."""
    runs = world.server.get(f"/gpufair/sessions/{kernel}/outputs")["executions"]
    return ["".join(o.get("text", "") for o in run["outputs"] if o["output_type"] == "stream") for run in runs]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_cell_runs_on(world: World, how: str) -> None:
    """Killed, or stopped in good order, under a running cell: the cell ends, its output is kept, its kernel is there."""
    kernel = world.server.new("folder-less.ipynb")
    queued = world.server.new("waiting.ipynb")
    world.state_is(queued, "queued")
    with Tab(world.server, kernel) as tab:
        cell = tab.run(COUNT)
        tab.until(lambda: "0\n" in tab.text(cell).partition("\n")[2])
        pid = tab.text(cell).partition("\n")[0]
        getattr(world.server, how)()
    world.server.start()
    # The very first look has to know.
    listed = {session["kernel"]["id"]: session["path"] for session in world.server.get("/api/sessions")}
    assert listed == {kernel: "folder-less.ipynb", queued: "waiting.ipynb"}
    with Tab(world.server, kernel) as tab:
        assert ran(tab, "print(os.getpid(), x)") == f"{pid} to the end\n"
    assert recorded(world, kernel)[0] == pid + "\n" + "".join(f"{i}\n" for i in range(10))
    assert world.client.workload(kernel).incarnation == 1
    assert world.client.workload(queued).state == "queued"
    with Tab(world.server, queued) as tab:
        held = tab.run("print('my turn')")
        assert world.server.call("DELETE", f"/api/kernels/{kernel}", timeout_s=10)[0] == 204
        assert tab.reply(held, 30)["status"] == "ok"
    world.stop_all()
    world.check_ledger()


def test_a_parked_session(world: World) -> None:
    kernel = world.server.new("sub/../parked.ipynb".replace("sub/../", ""))
    with Tab(world.server, kernel) as tab:
        ran(tab, "x = 5")
        assert world.server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        world.state_is(kernel, "parked")
    world.server.kill()
    world.server.start()
    [session] = world.server.get("/api/sessions")
    assert (session["kernel"]["id"], session["path"]) == (kernel, "parked.ipynb")
    with Tab(world.server, kernel) as tab:
        assert ran(tab, "print(x)") == "5\n"


def test_everybody_stays_away(tmp_path: Path) -> None:
    """After the linger time nothing runs any more; the next server finds the parked session and its variables."""
    with World(tmp_path, nodes=2, linger="3s") as world:
        kernel, busy = world.server.new("rests.ipynb"), world.server.new("busy.ipynb")
        with Tab(world.server, kernel) as tab, Tab(world.server, busy) as other:
            ran(tab, "x = 5")
            ran(other, "import time\ny = 6")
            cell = other.run("print('on')\ntime.sleep(120)")
            other.until(lambda: other.text(cell) == "on\n")
            world.server.kill()
        wait_until(lambda: not world.processes(), 3 + 5 + 15, f"all is gone: {world.processes()}")
        assert not (world.state / "service.json").exists()
        world.server.start()
        world.server.kernels_ready()
        listed = {session["kernel"]["id"]: session["path"] for session in world.server.get("/api/sessions")}
        assert listed == {kernel: "rests.ipynb", busy: "busy.ipynb"}
        with Client(state_dir=world.state) as client:
            assert {w.state for w in client.workloads()} == {"parked"}
        with Tab(world.server, kernel) as tab, Tab(world.server, busy) as other:
            assert ran(tab, "print(x)") == "5\n"
            assert ran(other, "print(y)") == "6\n"
        world.stop_all()
        world.check_ledger()
