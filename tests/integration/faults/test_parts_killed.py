"""kill -9 of a kernel, a supervisor, an agent; and a node that is closed under a running session."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.integration.faults.rig import World, ran, wait_until
from tests.integration.jupyter.server import Tab


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("parts"), nodes=1) as world:
        yield world


@pytest.mark.parametrize("saved", [True, False])
def test_kernel(world: World, saved: bool) -> None:
    """Jupyter restarts it in place; a checkpoint is offered, if there is one, and restores."""
    kernel = world.server.new("kernel.ipynb")
    with Tab(world.server, kernel) as tab:
        pid = int(ran(tab, "import os, time\nx = 5\nprint(os.getpid())"))
        if saved:
            assert world.server.call("POST", f"/gpufair/sessions/{kernel}/checkpoint")[0] == 202
            wait_until(lambda: world.client.workload(kernel).checkpoint, 20, "a checkpoint")
        cell = tab.run("print('on')\ntime.sleep(60)")
        tab.until(lambda: tab.text(cell) == "on\n")
        os.kill(pid, signal.SIGKILL)
        reply = tab.reply(cell, 20)
        assert reply["status"] == "error", reply
        assert ran(tab, "print('x' in globals())") == "False\n"
        after = world.client.workload(kernel)
        assert (after.incarnation, after.generation, after.state) == (1, 2, "running")
        wait_until(lambda: world.server.session(kernel)["restore_offered"] == saved, 5, "the offer")
        if saved:
            assert world.server.call("POST", f"/gpufair/sessions/{kernel}/restore")[0] == 202
            wait_until(lambda: not world.server.session(kernel)["restore_offered"], 20, "restored")
            assert ran(tab, "print(x)") == "5\n"
        # A session whose kernel was replaced moves like any other.
        ran(tab, "x = 6")
        assert world.server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        world.state_is(kernel, "parked")
        assert ran(tab, "print(x)") == "6\n"


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("victims", ["supervisor", "agent and supervisor"])
def test_supervisor(world: World, victims: str, saved: bool) -> None:
    """Its kernel dies with it, the cell is answered, the GPU is given back, and the session comes back by itself."""
    kernel = world.server.new("supervisor.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, "import os, subprocess, time\nx = 5")
        if saved:
            assert world.server.call("POST", f"/gpufair/sessions/{kernel}/checkpoint")[0] == 202
            wait_until(lambda: world.client.workload(kernel).checkpoint, 20, "a checkpoint")
        child = int(ran(tab, "print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"))
        cell = tab.run("print('on')\ntime.sleep(60)")
        tab.until(lambda: tab.text(cell) == "on\n")
        wait_until(lambda: world.client.workload(kernel).busy, 5, "busy is known")
        if "agent" in victims:
            os.kill(world.agent_pid(), signal.SIGKILL)
        os.kill(world.status_of(kernel)["pid"], signal.SIGKILL)
        reply = tab.reply(cell, 30)
        assert reply["status"] == "error", reply
        text = ran(tab, "print(globals().get('x'))", 40)
        assert text == ("5\n" if saved else "None\n")
    assert child not in {process.pid for process in world.processes()}
    assert world.client.workload(kernel).incarnation == 2
    assert len(world.processes("supervisor")) == 1


def test_agent(world: World) -> None:
    """The next agent finds what runs; the cell notices nothing."""
    kernel = world.server.new("agent.ipynb")
    with Tab(world.server, kernel) as tab:
        cell = tab.run("import time\nfor i in range(12):\n    print(i)\n    time.sleep(0.5)")
        tab.until(lambda: tab.text(cell).startswith("0\n"))
        old = world.agent_pid()
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: world.agent_pid() != old, 20, "another agent")
        assert tab.reply(cell, 30)["status"] == "ok"
        assert tab.text(cell) == "".join(f"{i}\n" for i in range(12))
        wait_until(lambda: not world.client.workload(kernel).busy, 10, "its reports arrive")
        assert world.server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        world.state_is(kernel, "parked")
        assert ran(tab, "print(i)") == "11\n"


def test_cordon(world: World) -> None:
    """Its protection being over, a session leaves a closed node at the end of its cell, and comes back when it may."""
    kernel = world.server.new("cordon.ipynb")
    with Tab(world.server, kernel) as tab:
        cell = tab.run("import time\nprint('on')\ntime.sleep(2)\nx = 5")
        tab.until(lambda: tab.text(cell) == "on\n")
        world.client.cordon("node-1")
        try:
            assert tab.reply(cell)["status"] == "ok"
            held = tab.run("print(x)")
            world.state_is(kernel, "queued")
            assert "cordoned" in world.client.why(kernel).sentence
        finally:
            world.client.uncordon("node-1")
        assert tab.reply(held, 30)["status"] == "ok"
        assert tab.text(held) == "5\n"
