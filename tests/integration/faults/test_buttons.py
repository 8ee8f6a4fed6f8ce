"""Interrupt, restart and shutdown in every state of a real session: none hangs, and each does what it says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.integration.faults.rig import SLOW, World, frozen, ran, wait_until
from tests.integration.jupyter.server import Tab

BOUND_S = 10.0
STATES = ("queued", "starting", "idle", "busy", "checkpointing", "parked", "restoring")
SLOW_S = 3


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("buttons"), grace="8s") as world:
        yield world


class Scene:
    """A session in one of the states, with a cell: one that runs, or one that waits (none where the kernel is idle)."""

    def __init__(self, world: World, state: str, stack: ExitStack) -> None:
        self.world, self.state = world, state
        self.rival = ""
        if state == "queued":
            self.rival = world.rival(user="ria").id
            world.state_is(self.rival, "running")
        if state == "starting":
            stack.enter_context(frozen(world.agent_pid()))
        self.kernel = world.server.new(f"{state}.ipynb")
        self.tab = stack.enter_context(Tab(world.server, self.kernel))
        if state in {"queued", "starting"}:
            world.state_is(self.kernel, state)
        else:
            ran(self.tab, SLOW + f"x = 5\nslow = Slow({SLOW_S if state == 'checkpointing' else 0}, {SLOW_S})")
        if state == "busy":
            self.cell = self.tab.run("print('on')\ntime.sleep(60)")
            self.tab.until(lambda: self.tab.text(self.cell) == "on\n")
            return
        if state == "checkpointing":
            self.rival = world.rival().id
            world.server.wait_for(self.kernel, "checkpointing")
        if state in {"parked", "restoring"}:
            assert world.server.call("POST", f"/gpufair/sessions/{self.kernel}/park")[0] == 202
            world.server.wait_for(self.kernel, "parked")
        if state not in {"idle", "parked"}:
            self.cell = self.tab.run("print('ran', globals().get('x'))")
            wait_until(lambda: world.server.session(self.kernel)["held_cells"] == 1, 5, "the cell waits")
        if state == "restoring":
            world.state_is(self.kernel, "restoring")
            wait_until(lambda: world.status_of(self.kernel).get("phase") == "restoring", 10, "it is being loaded")

    def press(self, method: str, path: str) -> int:
        begun = time.monotonic()
        status = self.world.server.call(method, f"/api/kernels/{self.kernel}{path}", timeout_s=BOUND_S)[0]
        assert time.monotonic() - begun < BOUND_S
        return status

    def make_room(self) -> None:
        if self.rival:
            self.world.state_is(self.rival, "running", "queued")
            self.world.client.stop(self.rival)


@pytest.mark.parametrize("state", STATES)
def test_interrupt(world: World, state: str) -> None:
    """A running cell ends with a KeyboardInterrupt, a waiting one is given up; the session and its variables stay."""
    with ExitStack() as stack:
        scene = Scene(world, state, stack)
        assert scene.press("POST", "/interrupt") == 204
        if state == "busy":
            assert scene.tab.reply(scene.cell, BOUND_S)["ename"] == "KeyboardInterrupt"
        elif state not in {"idle", "parked"}:
            assert scene.tab.reply(scene.cell, BOUND_S)["status"] == "aborted"
        if state == "starting":
            stack.close()
            return
        scene.make_room()
        expected = "None" if state == "queued" else "5"
        assert ran(scene.tab, "print(globals().get('x'))", 40) == f"{expected}\n"


@pytest.mark.parametrize("state", STATES)
def test_restart(world: World, state: str) -> None:
    """A fresh kernel, now or when its turn comes; a held GPU is not lost; a cell sent afterwards finds no variables."""
    with ExitStack() as stack:
        scene = Scene(world, state, stack)
        before = world.client.workload(scene.kernel)
        assert scene.press("POST", "/restart") == 200
        if state not in {"idle", "parked"}:
            assert scene.tab.reply(scene.cell, BOUND_S)["status"] in {"aborted", "error"}
        if state == "starting":
            stack.close()
            return
        scene.make_room()
        assert ran(scene.tab, "print(globals().get('x'))", 40) == "None\n"
        after = world.client.workload(scene.kernel)
        moved = {"queued", "checkpointing", "parked"}
        assert after.incarnation == before.incarnation + (state in moved), (before, after)


@pytest.mark.parametrize("state", STATES)
def test_shutdown(world: World, state: str) -> None:
    """The session is over, and its GPU is free."""
    with ExitStack() as stack:
        scene = Scene(world, state, stack)
        assert scene.press("DELETE", "") == 204
    world.state_is(scene.kernel, "ended", within_s=BOUND_S)
    wait_until(lambda: not world.processes("workload", "supervisor", of=scene.kernel), BOUND_S, "its processes are gone")
    assert scene.kernel not in {kernel["id"] for kernel in world.server.get("/api/kernels")}


@pytest.mark.parametrize("state", STATES)
def test_server_stop(world: World, state: str) -> None:
    """The server is gone at once, the session is not; the next server has it."""
    with ExitStack() as stack:
        scene = Scene(world, state, stack)
        before = world.client.workload(scene.kernel)
        world.server.stop(BOUND_S)
    world.server.start()
    assert [session["kernel"]["id"] for session in world.server.get("/api/sessions")] == [scene.kernel]
    scene.make_room()
    after = world.client.workload(scene.kernel)
    assert after.live
    assert after.incarnation in {before.incarnation, before.incarnation + 1}
    with Tab(world.server, scene.kernel) as tab:
        if state == "busy":
            assert world.server.call("POST", f"/api/kernels/{scene.kernel}/interrupt", timeout_s=BOUND_S)[0] == 204
            wait_until(lambda: not world.client.workload(scene.kernel).busy, BOUND_S, "the cell is over")
        expected = "None" if state in {"queued", "starting"} else "5"
        assert ran(tab, "print(globals().get('x'))", 40) == f"{expected}\n"
