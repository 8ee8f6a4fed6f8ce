"""Cells that run again when a preemption cuts them: with the result of an undisturbed run, whoever dies meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.faults.rig import World, ran, wait_until
from tests.integration.jupyter.server import Tab

LONG = "x.append(len(x))\nprint('on', flush=True)\ntime.sleep(4)\nprint(x)"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, grace="2s") as world:
        yield world


def test_a_cut_cell_runs_again(world: World) -> None:
    """Once with the Jupyter server killed meanwhile. A cell behind it waits; one that fails by itself does not run again."""
    kernel = world.server.new("long.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, "import time\nx = [0]")
        cell = tab.run(LONG, tags=("gpufair-rerun",))
        behind = tab.run("print('sum', sum(x))")
        tab.until(lambda: tab.text(cell).endswith("on\n"), 30)
        rival = world.rival()
        world.state_is(rival.id, "running")
        wait_until(lambda: world.server.session(kernel)["held_cells"] == 2, 10, "both are held")
        tab.until(lambda: "This cell runs again" in tab.text(cell))
        idle = [m for m in tab.about(cell, "status") if m["content"]["execution_state"] == "idle"]
        assert not idle, "it has not ended"
        [execution] = [run for run in outputs(world, kernel) if run["msg_id"] == cell]
        assert execution["status"] == "interrupted"
        session = tab.session
    world.server.kill()
    world.server.start()
    world.server.get("/api/sessions")
    held = world.server.get(f"/gpufair/sessions/{kernel}/cells")["cells"]
    assert [entry["msg_id"] for entry in held] == [cell, behind]
    with Tab(world.server, kernel, session=session) as tab:
        world.client.stop(rival.id)
        assert tab.reply(cell, 40)["status"] == "ok"
        assert tab.text(cell).startswith("gpufair: a preemption cut this cell; it runs again")
        assert tab.text(cell).endswith("on\n[0, 1]\n")
        assert tab.reply(behind)["status"] == "ok"
        assert tab.text(behind) == "sum 1\n"
        [execution] = [run for run in outputs(world, kernel) if run["msg_id"] == cell]
        assert execution["status"] == "ok"
        assert execution["outputs"][-1]["text"] == "on\n[0, 1]\n"

        # The switch of the session; with the page open all the time.
        ran(tab, "%gpufair rerun on")
        cell = tab.run(LONG.replace("4", "3"))
        tab.until(lambda: tab.text(cell).endswith("on\n"), 30)
        rival = world.rival()
        world.state_is(rival.id, "running")
        world.client.stop(rival.id)
        assert tab.reply(cell, 40)["status"] == "ok"
        assert tab.text(cell).endswith("on\n[0, 1, 2]\n")
        failed = tab.run("x.append(9)\n1 / 0")
        assert tab.reply(failed)["ename"] == "ZeroDivisionError"
        assert ran(tab, "print(x)\n%gpufair rerun").startswith("[0, 1, 2, 9]\n")
    world.stop_all()
    world.check_ledger()


def outputs(world: World, kernel: str) -> list[dict[str, Any]]:
    """What the record has."""
    found: list[dict[str, Any]] = world.server.get(f"/gpufair/sessions/{kernel}/outputs")["executions"]
    return found
