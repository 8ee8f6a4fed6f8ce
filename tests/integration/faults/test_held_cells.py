"""Cells that wait outlive page, Jupyter server and service, and run once, in order, with nobody there to see it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.faults.rig import World, ran, wait_until
from tests.integration.jupyter.server import Tab

CELLS = 12


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as world:
        yield world


def executions(world: World, kernel: str) -> list[dict[str, Any]]:
    """What the record has of cells that were meant for people."""
    found = world.server.get(f"/gpufair/sessions/{kernel}/outputs")["executions"]
    return [run for run in found if run["execution_count"] is not None]


def again(world: World, kernel: str) -> None:
    """Kill the server and start the next one, which finds the session."""
    world.server.kill()
    world.server.start()
    listed = {session["kernel"]["id"] for session in world.server.get("/api/sessions")}
    assert kernel in listed


def test_everything_is_killed_and_nobody_looks(world: World) -> None:
    seed = random.randrange(1 << 32)
    print("seed:", seed)
    chance = random.Random(seed)
    kernel = world.server.new("night.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, "import time\nx = []")
        assert world.server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        world.state_is(kernel, "parked")
        rival = world.rival(user="ria")
        world.state_is(rival.id, "running")
        cells = [tab.run(f"x.append({i})\nprint(x)\ntime.sleep({chance.uniform(0, 0.6):.2f})") for i in range(CELLS)]
        wait_until(lambda: world.server.session(kernel)["held_cells"] == CELLS, 10, "all are held")

    pid = world.service_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    again(world, kernel)
    held = world.server.get(f"/gpufair/sessions/{kernel}/cells")["cells"]
    assert [cell["msg_id"] for cell in held] == cells
    assert world.state_is(kernel, "queued").incarnation == 1
    world.client.stop(rival.id)
    for _ in range(3):
        wait_until(lambda: len(executions(world, kernel)) > 1, 30, "they run")
        time.sleep(chance.uniform(0, 1.5))
        again(world, kernel)

    def over() -> list[dict[str, Any]] | None:
        found = executions(world, kernel)[1:]
        return found if len(found) >= CELLS and all(run["state"] == "done" for run in found) else None

    found = wait_until(over, 60, "all have run")
    assert [run["msg_id"] for run in found] == cells
    assert [run["outputs"][0]["text"] for run in found] == [f"{list(range(i + 1))}\n" for i in range(CELLS)]
    assert [run["execution_count"] for run in found] == list(range(2, CELLS + 2))
    with Tab(world.server, kernel) as tab:
        assert ran(tab, "print(x)") == f"{list(range(CELLS))}\n"
    assert world.server.session(kernel)["held_cells"] == 0
    world.stop_all()
    world.check_ledger()


def test_a_server_that_stops_in_good_order(world: World) -> None:
    """Its end is no wish of the user's: what waits goes on to wait. An interrupt is one."""
    document = world.server.root / "waiting.ipynb"
    document.write_text("{}")
    kernel = world.server.new("order.ipynb")
    waiting = world.server.new("waiting.ipynb")
    world.state_is(kernel, "running")
    world.state_is(waiting, "queued")
    with Tab(world.server, waiting) as tab:
        tab.run("print('not me')")
        wait_until(lambda: world.server.session(waiting)["held_cells"] == 1, 10, "it is held")
        assert world.server.call("POST", f"/api/kernels/{waiting}/interrupt")[0] == 204
        wanted = tab.run("print('me')")
        wait_until(lambda: world.server.session(waiting)["held_cells"] == 1, 10, "it is held")
    world.server.stop()
    world.server.start()
    assert len(world.server.get("/api/sessions")) == 2
    assert world.server.session(waiting)["held_cells"] == 1
    world.server.call("DELETE", f"/api/kernels/{kernel}")
    found = wait_until(lambda: executions(world, waiting), 30, "it runs")
    assert [run["msg_id"] for run in found] == [wanted]

    # The session is ended, and nobody has saved the document since: its next session shows what the last one put out.
    world.client.stop(waiting)
    world.state_is(waiting, "ended")
    wait_until(lambda: world.server.get("/api/sessions") == [], 10, "it is over here too")
    following = world.server.new("waiting.ipynb")
    assert [run["msg_id"] for run in executions(world, following)] == [wanted]
    os.utime(document)
    assert executions(world, following) == []
