"""Servers stop, die and come back; services fall silent. Sessions go on, and are found again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.integration.jupyter.fake_service import FakeService, until
from tests.integration.jupyter.server import Server, Tab
from tests.integration.jupyter.test_states import STATES, bring


@pytest.mark.parametrize("state", STATES)
def test_a_stopped_server_leaves_sessions_alone(own_service: FakeService, tmp_path: Path, state: str) -> None:
    """Stopping is quick in every state, ends no session, interrupts no cell; the next server finds it."""
    with Server(tmp_path / "home", own_service.folder) as server:
        server.kernels_ready()
        kernel = bring(own_service, server, state)
        if state == "busy":
            with Tab(server, kernel) as tab:
                cell = tab.run("import time\nprint('on')\ntime.sleep(4)\nx = 'to the end'")
                tab.until(lambda: tab.text(cell) == "on\n")
                own_service.set(kernel, busy=True)
        process = own_service.runs[kernel].process
        server.stop(10)
        assert own_service.runs[kernel].calls == ["submit"]
        if process is not None:
            assert process.poll() is None
        if state not in {"running", "busy"}:
            return
        server.start()
        [session] = until(lambda: server.get("/api/sessions"), 20, "the session is taken up again")
        assert (session["kernel"]["id"], session["type"]) == (kernel, "notebook")
        assert session["path"].startswith(state)
        assert own_service.runs[kernel].calls == ["submit"]
        with Tab(server, kernel) as tab:
            after = tab.run("print(globals().get('x'))")
            assert tab.reply(after)["status"] == "ok"
            assert tab.text(after) == ("to the end\n" if state == "busy" else "None\n")


def test_a_killed_server_loses_nothing(own_service: FakeService, tmp_path: Path) -> None:
    """kill -9 of the server: the same kernel process is found by the next one, parked sessions too."""
    with Server(tmp_path / "home", own_service.folder) as server:
        server.kernels_ready()
        kernel, parked = bring(own_service, server, "running"), bring(own_service, server, "parked")
        with Tab(server, kernel) as tab:
            assert tab.reply(tab.run("x = 42"))["status"] == "ok"
        until(lambda: own_service.holders == 1)
        server.kill()
        until(lambda: own_service.holders == 0)
        server.start()
        # The very first look has to know: else the page would start a second kernel for the notebook.
        assert {s["kernel"]["id"] for s in server.get("/api/sessions")} == {kernel, parked}
        assert server.session(parked)["state"] == "parked"
        with Tab(server, kernel) as tab, Tab(server, parked) as other:
            cell = tab.run("print(x)")
            assert tab.reply(cell)["status"] == "ok"
            assert tab.text(cell) == "42\n"
            assert other.reply(other.run("1"))["status"] == "ok"
        assert own_service.runs[parked].calls == ["submit", "resume"]


def test_a_session_of_another_folder_is_not_taken_up(own_service: FakeService, tmp_path: Path) -> None:
    """Two servers of one user share a service; each keeps to its own notebooks."""
    with Server(tmp_path / "one", own_service.folder) as one, Server(tmp_path / "two", own_service.folder) as two:
        one.kernels_ready()
        kernel = bring(own_service, one, "running")
        two.stop()
        two.start()
        two.kernels_ready()
        assert two.get("/api/sessions") == []
        assert [s["kernel"]["id"] for s in one.get("/api/sessions")] == [kernel]


def test_a_silent_service_stops_no_cell(own_service: FakeService, tmp_path: Path) -> None:
    """The scheduler's outage is not the notebooks': cells run on; what needs it says so; afterwards all goes on."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text(own_service.token)
    env = {"GPUFAIR_URL": own_service.url, "GPUFAIR_TOKEN_FILE": str(token)}
    with Server(tmp_path / "home", own_service.folder, env=env) as server:
        server.kernels_ready()
        kernel = bring(own_service, server, "running")
        with Tab(server, kernel) as tab:
            assert tab.reply(tab.run("x = 1"))["status"] == "ok"
            own_service.silence()
            cell = tab.run("x += 1; print(x)")
            assert tab.reply(cell, 5)["status"] == "ok"
            until(lambda: not server.get("/gpufair/status")["available"])
            problem = server.get("/gpufair/status")["problem"]
            assert own_service.url in problem
            status, answer = server.call("POST", f"/gpufair/sessions/{kernel}/park", timeout_s=30)
            assert status == 503
            assert own_service.url in answer["message"]
            own_service.serve()
            until(lambda: server.get("/gpufair/status")["following"], 20, "the service is followed again")
            own_service.park(kernel)
            cell = tab.run("print('back')")
            assert tab.reply(cell)["status"] == "ok"


def test_a_session_that_was_shut_down_during_an_outage_ends_after_it(own_service: FakeService, tmp_path: Path) -> None:
    """DELETE answers in time although nobody could be told, and no GPU is forgotten."""
    env = {"GPUFAIR_URL": own_service.url, "GPUFAIR_TOKEN": own_service.token}
    with Server(tmp_path / "home", own_service.folder, env=env) as server:
        server.kernels_ready()
        kernel = bring(own_service, server, "running")
        own_service.silence()
        begun = time.monotonic()
        assert server.call("DELETE", f"/api/kernels/{kernel}")[0] == 204
        assert time.monotonic() - begun < 15
        assert own_service.runs[kernel].view["state"] == "running"
        own_service.serve()
        until(lambda: own_service.runs[kernel].calls[-1] == "stop", 20, "the session is ended")


def test_an_idle_session_is_parked_not_culled(own_service: FakeService, tmp_path: Path) -> None:
    """Jupyter's culler frees GPUs as it frees memory, but a notebook must not lose its variables to it."""
    culling = ["--MappingKernelManager.cull_idle_timeout=1", "--MappingKernelManager.cull_interval=1"]
    with Server(tmp_path / "home", own_service.folder, culling) as server:
        server.kernels_ready()
        kernel = bring(own_service, server, "running")
        until(lambda: own_service.runs[kernel].calls == ["submit", "park"], 20, "parked")
        server.wait_for(kernel, "parked")
        until(lambda: server.session(kernel)["state"] == "parked", 3)
        with Tab(server, kernel) as tab:
            assert tab.reply(tab.run("1"))["status"] == "ok"
        assert "stop" not in own_service.runs[kernel].calls


def test_a_dead_kernel_of_a_stopped_server_is_restarted_by_the_next(own_service: FakeService, tmp_path: Path) -> None:
    """Autorestart is Jupyter's; while there was no Jupyter nobody could do it."""
    with Server(tmp_path / "home", own_service.folder) as server:
        server.kernels_ready()
        kernel = bring(own_service, server, "running")
        server.stop()
        os.kill(own_service.pid(kernel), signal.SIGKILL)
        until(lambda: own_service.runs[kernel].view["kernel_died"])
        server.start()
        until(lambda: "restart" in own_service.runs[kernel].calls, 20, "a restart")
        with Tab(server, kernel) as tab:
            assert tab.reply(tab.run("1"))["status"] == "ok"


def test_no_service_is_said_clearly(tmp_path: Path) -> None:
    """The server starts all the same, ordinary kernels work, and our kernels say what is wrong."""
    env = {"GPUFAIR_URL": "http://127.0.0.1:9", "GPUFAIR_TOKEN": "none"}
    with Server(tmp_path / "home", tmp_path / "gpufair", env=env) as server:
        body = {"path": "a.ipynb", "name": "a.ipynb", "type": "notebook", "kernel": {"name": "gpufair-1gpu"}}
        begun = time.monotonic()
        status, answer = server.call("POST", "/api/sessions", body, timeout_s=40)
        assert status >= 500
        assert "http://127.0.0.1:9" in str(answer)
        assert time.monotonic() - begun < 40
        assert server.get("/gpufair/status")["available"] is False
        assert "127.0.0.1:9" in server.log.read_text()
