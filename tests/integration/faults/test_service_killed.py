"""kill -9 of the service with a session in each state: found again, charged once, nothing left over."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.integration.faults.rig import SLOW, World, frozen, ran, wait_until
from tests.integration.jupyter.server import Tab


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("killed")) as world:
        yield world


def test_queued(world: World) -> None:
    rival = world.rival(user="ria")
    world.state_is(rival.id, "running")
    kernel = world.server.new("queued.ipynb")
    world.state_is(kernel, "queued")
    with Tab(world.server, kernel) as tab:
        held = tab.run("print('in the end')")
        world.kill_service()
        assert world.client.workload(kernel).state == "queued"
        assert world.client.workload(rival.id).incarnation == 1
        world.client.stop(rival.id)
        assert tab.reply(held, 30)["status"] == "ok"
        assert tab.text(held) == "in the end\n"
    assert world.client.workload(kernel).incarnation == 1


def test_starting(world: World) -> None:
    with frozen(world.agent_pid()):
        kernel = world.server.new("starting.ipynb")
        world.state_is(kernel, "starting")
        with Tab(world.server, kernel) as tab:
            held = tab.run("print('up')")
            world.kill_service()
            assert world.client.workload(kernel).state == "starting"
            os.kill(world.agent_pid(), signal.SIGCONT)
            assert tab.reply(held, 40)["status"] == "ok"
            assert tab.text(held) == "up\n"
    assert world.client.workload(kernel).incarnation == 1
    assert len(world.processes("supervisor")) == 1


@pytest.mark.parametrize("busy", [True, False])
def test_running(world: World, busy: bool) -> None:
    kernel = world.server.new("running.ipynb")
    with Tab(world.server, kernel) as tab:
        pid = ran(tab, "import os, time\nx = 5\nprint(os.getpid())")
        if busy:
            cell = tab.run("for i in range(16):\n    print(i)\n    time.sleep(0.5)")
            tab.until(lambda: tab.text(cell).startswith("0\n"))
        world.kill_service()
        if busy:
            assert tab.reply(cell, 30)["status"] == "ok"
            assert tab.text(cell) == "".join(f"{i}\n" for i in range(16))
        assert ran(tab, "print(os.getpid(), x)") == f"{pid.strip()} 5\n"
    workload = world.state_is(kernel, "running")
    assert (workload.incarnation, workload.generation, workload.kernel_died) == (1, 1, False)


def test_checkpointing(world: World) -> None:
    kernel = world.server.new("saving.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, SLOW + "slow = Slow(3, 0)\nx = 5")
        rival = world.rival()
        world.server.wait_for(kernel, "checkpointing")  # else the cell may run before the save
        held = tab.run("print(x)")
        world.kill_service()
        world.state_is(rival.id, "running")
        assert world.client.workload(kernel).checkpoint is not None
        world.client.stop(rival.id)
        assert tab.reply(held, 40)["status"] == "ok"
        assert tab.text(held) == "5\n"
    assert world.client.workload(kernel).incarnation == 2


def test_stopping(world: World) -> None:
    kernel = world.server.new("stopping.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, "1")
    with frozen(world.agent_pid()):
        world.client.stop(kernel)
        world.state_is(kernel, "stopping")
        world.kill_service()
    world.state_is(kernel, "ended")
    wait_until(lambda: kernel not in {k["id"] for k in world.server.get("/api/kernels")}, 10, "Jupyter knows")


def test_parked(world: World) -> None:
    kernel = world.server.new("parked.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, "x = 5")
        assert world.server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        world.state_is(kernel, "parked")
        world.kill_service()
        assert world.client.workload(kernel).state == "parked"
        assert ran(tab, "print(x)") == "5\n"
    assert world.client.workload(kernel).incarnation == 2


def test_restoring(world: World) -> None:
    kernel = world.server.new("restoring.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, SLOW + "slow = Slow(0, 4)\nx = 5")
        assert world.server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        world.state_is(kernel, "parked")
        held = tab.run("print(x)")
        world.state_is(kernel, "restoring")
        wait_until(lambda: world.status_of(kernel).get("phase") == "restoring", 10, "its variables are being loaded")
        world.kill_service()
        assert tab.reply(held, 40)["status"] == "ok"
        assert tab.text(held) == "5\n"
    assert world.client.workload(kernel).incarnation == 2
