"""A full disk: under the checkpoints while a session is preempted, and under everything."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpufair.client import ClientError
from tests.integration.faults.rig import World, ran, wait_until
from tests.integration.jupyter.server import Tab

LIMITED = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))"


@contextmanager
def small_disk(place: Path, megabytes: int) -> Iterator[None]:
    """A real file system of that size at ``place``; skips where mounting is not allowed."""
    place.mkdir(mode=0o700, parents=True)
    options = f"size={megabytes}m,mode=700,uid={os.getuid()}"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.decode(errors='replace').strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> Path:
    """Leave no room; remove the file to make some."""
    path = place / "big"
    with path.open("wb") as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    os.write(file.fileno(), b"x" * size)
            except OSError:
                continue
    return path


@pytest.mark.parametrize("how", ["disk", "limit"])
def test_checkpoint_at_a_preemption(tmp_path: Path, how: str) -> None:
    """The user is told, the last good checkpoint is kept and comes back, the GPU is kept to the end of the grace."""
    if how == "disk":
        with small_disk(tmp_path / "gpufair" / "checkpoints", 4):
            preempted(tmp_path, "1")
    else:
        preempted(tmp_path, LIMITED)


def preempted(home: Path, prepare: str) -> None:
    with World(home, grace="4s") as world:
        kernel = world.server.new("full.ipynb")
        with Tab(world.server, kernel) as tab:
            ran(tab, prepare + "\nimport os, time\nx = 'before'")
            assert world.server.call("POST", f"/gpufair/sessions/{kernel}/checkpoint")[0] == 202
            saved = wait_until(lambda: world.client.workload(kernel).checkpoint, 20, "a checkpoint")
            ran(tab, "x = 'after'\nbig = os.urandom(20 << 20)")
            cell = tab.run("print('on')\ntime.sleep(600)")
            tab.until(lambda: tab.text(cell) == "on\n")
            rival = world.rival()
            deadline = world.state_is(kernel, "checkpointing").deadline_s
            assert deadline is not None
            reply = tab.reply(cell, 30)
            assert reply["status"] == "error"
            told = tab.about(cell, "error")[-1]["content"]["evalue"]
            assert "This time they could not be saved" in told, told
            world.state_is(rival.id, "running")
            assert time.time() >= deadline
            after = world.client.workload(kernel)
            assert after.checkpoint is not None
            assert after.checkpoint.id == saved.id
            reasons = [r["reason"] for r in world.client.timeline() if r["kind"] == "CheckpointFailed"]
            assert reasons
            assert all("no space left" in reason for reason in reasons), reasons
            world.client.stop(rival.id)
            assert ran(tab, "print(x)", 40) == "before\n"
        # What was half written does not keep the disk full.
        kept = [path.stat().st_size for path in (world.state / "checkpoints").rglob("*") if path.is_file()]
        assert sum(kept) < 1 << 20, kept
        world.stop_all()
        world.check_ledger()


def test_everything(tmp_path: Path) -> None:
    """No room for the journal either: cells run on, questions are answered, changes are refused; with room all goes on."""
    with small_disk(tmp_path / "gpufair", 32), World(tmp_path, grace="4s") as world:
        kernel = world.server.new("full.ipynb")
        with Tab(world.server, kernel) as tab:
            pid = ran(tab, "import os\nx = 1\nprint(os.getpid())")
            big = fill(world.state)
            assert ran(tab, "x += 1; print(x)") == "2\n"
            with pytest.raises(ClientError, match="journal"):
                world.rival()
            assert world.client.workload(kernel).state == "running"
            assert world.server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 503
            status, problem = world.server.call("POST", "/api/sessions", {
                "path": "b.ipynb", "name": "b.ipynb", "type": "notebook", "kernel": {"name": "gpufair-digits"}})  # fmt: skip
            assert status == 500
            assert "journal" in problem["message"], problem
            # The kernel and the agent die too; what cannot be reported now is when there is room again.
            os.kill(int(pid), 9)
            old = world.agent_pid()
            os.kill(old, 9)
            wait_until(lambda: [p for p in world.processes("agent") if p.pid != old], 10, "another agent")
            time.sleep(2)
            big.unlink()
            # Sent before anybody could know of the kernel's death, so it is lost with it, and says so.
            assert tab.reply(tab.run("1"), 30)["ename"] == "KernelDied"
            assert ran(tab, "print('x' in globals())") == "False\n"
            assert ran(tab, "x = 3; print(x)") == "3\n"
            big = fill(world.state)
            big.unlink()
            rival = world.rival()
            world.state_is(rival.id, "running")
            assert world.client.workload(kernel).checkpoint is not None
            world.client.stop(rival.id)
            assert ran(tab, "print(x)", 40) == "3\n"
        world.stop_all()
        world.check_ledger()
