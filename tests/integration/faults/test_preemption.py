"""Preemption of sessions that make it hard: deaf cells, floods, threads, child processes, questions, several pages."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.integration.faults.rig import World, ran, wait_until
from tests.integration.jupyter.server import Tab

GRACE_S = 5.0


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("hard"), nodes=1, grace=f"{GRACE_S:g}s") as world:
        yield world


def test_a_cell_that_ignores_interrupts(world: World) -> None:
    """It is cut at the deadline, not before; the user reads that the variables were not saved; the last checkpoint is back."""
    kernel = world.server.new("deaf.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, "import time\nx = 'before'")
        assert world.server.call("POST", f"/gpufair/sessions/{kernel}/checkpoint")[0] == 202
        wait_until(lambda: world.client.workload(kernel).checkpoint, 20, "a checkpoint")
        cell = tab.run(
            "x = 'after'\nprint('on')\nwhile True:\n    try:\n        time.sleep(1)\n    except KeyboardInterrupt:\n        print('no')"
        )
        tab.until(lambda: tab.text(cell) == "on\n")
        rival = world.rival()
        deadline = world.state_is(kernel, "checkpointing").deadline_s
        assert deadline is not None
        reply = tab.reply(cell, GRACE_S + 15)
        assert time.time() >= deadline - 0.05
        assert reply["status"] == "error"
        assert "could not be saved" in reply["evalue"], reply
        world.state_is(rival.id, "running")
        world.client.stop(rival.id)
        assert ran(tab, "print(x)", 40) == "before\n"


def test_a_flood_of_output(world: World) -> None:
    kernel = world.server.new("flood.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, "x = 5\nimport time")
        cell = tab.run(
            "print('on', flush=True)\ntime.sleep(1.5)\nfor i in range(200_000):\n    print('%07d' % i + 'x' * 100)\n"
            "while True:\n    print('y' * 1000)\n    time.sleep(0.001)"
        )
        tab.until(lambda: tab.text(cell).startswith("on\n"))
        rival = world.rival()
        reply = tab.reply(cell, GRACE_S + 20)
        assert reply["status"] == "error"
        assert reply["ename"] in {"SessionPreempted", "KeyboardInterrupt", "Preempted"}, reply
        world.state_is(rival.id, "running")
        world.client.stop(rival.id)
        assert ran(tab, "print(x)", 40) == "5\n"
    executions = world.server.get(f"/gpufair/sessions/{kernel}/outputs")["executions"]
    assert len(executions) == 3


def test_threads_and_child_processes(world: World) -> None:
    """What a session started is gone when its GPU is handed on, also what has left its process group."""
    kernel = world.server.new("children.ipynb")
    with Tab(world.server, kernel) as tab:
        pids = ran(
            tab,
            "import os, subprocess, sys, threading, time\nx = 5\n"
            "threading.Thread(target=lambda: [time.sleep(0.01) for _ in range(10**9)]).start()\n"
            "a = subprocess.Popen(['sleep', '600'])\n"
            "b = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
            "c = subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
            "print(1, flush=True); time.sleep(600)'], start_new_session=True, stdout=subprocess.PIPE)\n"
            "c.stdout.readline()\n"
            "print(os.getpid(), a.pid, b.pid, c.pid)",
        )
        mine = {int(pid) for pid in pids.split()}
        assert len(mine & {p.pid for p in world.processes("workload")}) == 4
        rival = world.rival()
        world.state_is(rival.id, "running")
        assert not mine & {p.pid for p in world.processes()}
        world.client.stop(rival.id)
        assert ran(tab, "print(x, 'a' in globals())", 40) == "5 False\n"
    lost = {name for name, _ in world.client.workload(kernel).lost}
    assert lost >= {"a", "b", "c"}, lost


def test_a_cell_that_waits_for_input(world: World) -> None:
    kernel = world.server.new("input.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, "x = 5")
        cell = tab.run("y = input('name? ')", allow_stdin=True)
        tab.until(lambda: tab.about(cell, "input_request"))
        rival = world.rival()
        reply = tab.reply(cell, GRACE_S + 15)
        assert (reply["status"], reply["ename"]) == ("error", "Preempted")
        assert "Your variables were saved" in tab.about(cell, "error")[-1]["content"]["evalue"]
        saved = world.state_is(kernel, "parked", "queued").checkpoint
        assert saved is not None
        world.state_is(rival.id, "running")
        world.client.stop(rival.id)
        assert ran(tab, "print(x)", 40) == "5\n"
        # And the channel for questions is whole.
        cell = tab.run("print(input('name? '))", allow_stdin=True)
        tab.until(lambda: tab.about(cell, "input_request"))
        tab.send("input_reply", {"value": "ria", "status": "ok"}, "stdin")
        assert tab.reply(cell)["status"] == "ok"
        assert tab.text(cell) == "ria\n"


def test_two_pages_and_a_reload(world: World) -> None:
    """Both pages' cells are answered, each on its own page; a page that is reloaded meanwhile gets its answer too."""
    kernel = world.server.new("pages.ipynb")
    with Tab(world.server, kernel) as one, Tab(world.server, kernel) as two:
        ran(one, "import time\nx = 5")
        cell = one.run("print('on')\ntime.sleep(60)")
        two.until(lambda: two.text(cell) == "on\n")
        behind = two.run("print('behind')")
        rival = world.rival()
        assert one.reply(cell, GRACE_S + 15)["status"] == "error"
        assert two.reply(behind, 10)["status"] in {"aborted", "error"}
        # Cut in the middle: it is queued again by itself. Cells of both pages wait; one of them is reloaded.
        held_one, held_two = one.run("x += 1; print(x)"), two.run("x += 10; print(x)")
        wait_until(lambda: world.server.session(kernel)["held_cells"] == 2, 10, "both are held")
        one.close()
        with Tab(world.server, kernel, session=one.session) as again:
            world.state_is(rival.id, "running")
            world.client.stop(rival.id)
            assert two.reply(held_two, 40)["status"] == "ok"
            assert two.text(held_two) == "16\n"
            assert again.reply(held_one, 40)["status"] == "ok"
            assert again.text(held_one) == "6\n"


def test_run_all(world: World) -> None:
    """A preemption between two of many short cells: each of them runs, once, in order."""
    kernel = world.server.new("all.ipynb")
    with Tab(world.server, kernel) as tab:
        ran(tab, "import time\nseen = []")
        cells = [tab.run(f"time.sleep(0.01); seen.append({number})") for number in range(300)]
        tab.reply(cells[60])
        rival = world.rival()
        world.state_is(rival.id, "running")
        world.client.stop(rival.id)
        replies = [tab.reply(cell, 60)["status"] for cell in cells]
        assert set(replies) == {"ok"}, replies
        assert ran(tab, "print(seen == list(range(300)))") == "True\n"
    assert world.client.workload(kernel).incarnation == 2
