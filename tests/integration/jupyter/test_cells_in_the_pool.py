"""``%%cpu`` cells whose session moves while they run: the real service, its kernels, and a CPU pool that outlives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufair.client import Client
from gpufair.cpu import resident
from tests.integration.jupyter.real import real_service, wait_until
from tests.integration.jupyter.server import Server, Tab

Pair = tuple[Server, Client]
WAIT_S = 60.0
CELL = """%%cpu{flag}
import os, pathlib, time
folder = pathlib.Path({folder!r})
print("begun", file=folder.joinpath("begun").open("a"), flush=True)
while not folder.joinpath("go").exists():
    time.sleep(0.05)
y = x * 7
print("in the pool")
y + 1
"""
LOOK = "import os\nprint(x, y, repr(os.environ['CUDA_VISIBLE_DEVICES']))"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with real_service(tmp_path_factory.mktemp("real")) as both:
        yield both
        resident.stop(both[0].state_dir)


def free(client: Client) -> list[int]:
    return [node.free_gpus for node in client.nodes() if node.gpus]


def begun(folder: Path) -> str:
    return (folder / "begun").read_text() if (folder / "begun").exists() else ""


def test_a_cell_gives_the_gpus_back_and_the_next_one_gets_some(pair: Pair, tmp_path: Path) -> None:
    """It runs once, its output and variables come where they belong, and what was sent behind it waits for GPUs."""
    server, client = pair
    kernel = server.new("away.ipynb")
    with Tab(server, kernel) as tab:
        assert tab.reply(tab.run("from gpufair import cpu\ncpu.connect(workers=1)\nx = 6"), WAIT_S)["status"] == "ok"
        alone = tab.run("%%cpu --release-gpu\n1")
        assert tab.reply(alone, WAIT_S)["status"] == "error"
        assert "gpufair cpu start" in str(tab.about(alone, "stream") + tab.about(alone, "error"))
        assert tab.reply(tab.run("cpu.connect()"), WAIT_S)["status"] == "ok"
        cell = tab.run(CELL.format(flag=" --release-gpu", folder=str(tmp_path)))
        behind = tab.run(LOOK)
        wait_until(lambda: server.session(kernel)["on_cpu"] and server.session(kernel)["state"] == "running", WAIT_S)
        assert free(client) == [1, 1], "somebody else may have them"
        wait_until(lambda: begun(tmp_path), WAIT_S)
        assert not tab.about(cell, "execute_reply")
        (tmp_path / "go").touch()
        assert tab.reply(cell, WAIT_S)["status"] == "ok"
        assert tab.text(cell).endswith("in the pool\n")
        assert [m["content"]["data"]["text/plain"] for m in tab.about(cell, "execute_result")] == ["43"]
        assert tab.reply(behind, WAIT_S)["status"] == "ok"
        assert tab.text(behind) == "6 42 '0'\n"
        assert sorted(free(client)) == [0, 1]
    assert begun(tmp_path) == "begun\n"
    runs = server.get(f"/gpufair/sessions/{kernel}/outputs")["executions"]
    shown = next(run for run in runs if run["msg_id"] == cell)
    assert (shown["status"], "in the pool" in str(shown["outputs"])) == ("ok", True)
    server.call("DELETE", f"/api/kernels/{kernel}", timeout_s=10)


def test_a_session_that_makes_room_takes_its_cell_with_it(pair: Pair, tmp_path: Path) -> None:
    """Without any flag: the work goes on in the pool, and the cell where the session is back."""
    server, client = pair
    resident.start(server.state_dir, workers=2, wait_s=WAIT_S)
    kernel = server.new("preempted.ipynb")
    with Tab(server, kernel) as tab:
        assert tab.reply(tab.run("x = 6"), WAIT_S)["status"] == "ok"
        cell = tab.run(CELL.format(flag="", folder=str(tmp_path)))
        wait_until(lambda: begun(tmp_path), WAIT_S)
        home = server.session(kernel)["node"]
        client.drain(home, within_s=1, force=True)
        wait_until(lambda: server.session(kernel)["node"] not in {home, None}, WAIT_S)
        client.uncordon(home)
        (tmp_path / "go").touch()
        assert tab.reply(cell, WAIT_S)["status"] == "ok"
        assert tab.text(cell).endswith("in the pool\n")
        looked = tab.run(LOOK)
        assert (tab.reply(looked, WAIT_S)["status"], tab.text(looked)) == ("ok", "6 42 '0'\n")
    assert begun(tmp_path) == "begun\n"
    server.call("DELETE", f"/api/kernels/{kernel}", timeout_s=10)


def test_gpus_that_are_asked_for_meanwhile_take_the_cell_along(pair: Pair, tmp_path: Path) -> None:
    """On a GPU again it waits on; parked by hand it ends, and nothing brings the session back."""
    server, client = pair
    kernel = server.new("back.ipynb")
    with Tab(server, kernel) as tab:
        assert tab.reply(tab.run("x = 6"), WAIT_S)["status"] == "ok"
        cell = tab.run(CELL.format(flag=" --release-gpu", folder=str(tmp_path)))
        wait_until(lambda: server.session(kernel)["on_cpu"] and server.session(kernel)["state"] == "running", WAIT_S)
        wait_until(lambda: begun(tmp_path), WAIT_S)
        assert server.call("POST", f"/gpufair/sessions/{kernel}/resume")[0] == 202
        wait_until(lambda: sorted(free(client)) == [0, 1] and not server.session(kernel)["on_cpu"], WAIT_S)
        server.wait_for(kernel, "running", WAIT_S)
        assert not tab.about(cell, "execute_reply")
        (tmp_path / "go").touch()
        assert tab.reply(cell, WAIT_S)["status"] == "ok"
        looked = tab.run(LOOK)
        assert (tab.reply(looked, WAIT_S)["status"], tab.text(looked)) == ("ok", "6 42 '0'\n")
        (tmp_path / "go").unlink()
        cell = tab.run(CELL.format(flag="", folder=str(tmp_path)))
        wait_until(lambda: begun(tmp_path) == "begun\nbegun\n", WAIT_S)
        assert server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
        server.wait_for(kernel, "parked", WAIT_S)
        assert tab.reply(cell, WAIT_S)["status"] != "ok"
        assert server.session(kernel)["state"] == "parked"
    server.call("DELETE", f"/api/kernels/{kernel}", timeout_s=10)
