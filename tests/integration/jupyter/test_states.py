"""A notebook whose session waits, runs, is saved, rests or comes back: everything works, at once, and says the truth."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.jupyter.fake_service import FakeService, until
from tests.integration.jupyter.server import Server, Tab

BOUND_S = 10.0
STATES = ("queued", "starting", "running", "busy", "checkpointing", "stopping", "parked", "restoring")


def bring(service: FakeService, server: Server, state: str) -> str:
    """A new session in ``state``."""
    service.queueing = state in {"queued", "starting"}
    kernel = server.new(f"{state}-{time.time_ns()}.ipynb")
    if state == "starting":
        service.set(kernel, state="starting", incarnation=1)
    elif state in {"running", "busy"}:
        server.wait_for(kernel, "running")
    elif state in {"checkpointing", "stopping"}:
        server.wait_for(kernel, "running")
        service.set(kernel, state=state, deadline_s=time.time() + 30)
    elif state in {"parked", "restoring"}:
        server.wait_for(kernel, "running")
        service.park(kernel)
        if state == "restoring":
            service.set(kernel, state="restoring", incarnation=2, generation=0)
    server.wait_for(kernel, "running" if state == "busy" else state)
    return kernel


def in_time(server: Server, method: str, path: str, body: object = None) -> tuple[int, Any]:
    begun = time.monotonic()
    answer = server.call(method, path, body, timeout_s=BOUND_S)
    assert time.monotonic() - begun < BOUND_S
    return answer


def test_a_queued_kernel_shows_at_once_and_goes_at_once(server: Server, service: FakeService) -> None:
    """The stock ways hide it, block the page, or make DELETE wait for the launch."""
    service.queueing = True
    begun = time.monotonic()
    kernel = server.new()
    assert time.monotonic() - begun < 2
    [model] = [k for k in server.get("/api/kernels") if k["id"] == kernel]
    assert model["execution_state"] == "starting"
    assert model["gpufair"]["state"] == "queued"
    assert model["gpufair"]["position"] == 1
    begun = time.monotonic()
    with Tab(server, kernel) as tab:
        info = tab.send("kernel_info_request", {})
        assert tab.reply(info, 2)["language_info"]["name"] == "python"
        assert time.monotonic() - begun < 2
        starting = {"execution_state": "starting"}
        tab.until(lambda: tab.messages[-1]["content"] == starting, 2, "status starting, last")
        assert tab.reply(tab.send("complete_request", {"code": "pri", "cursor_pos": 3}), 2)["matches"] == []
    begun = time.monotonic()
    assert server.call("DELETE", f"/api/kernels/{kernel}")[0] == 204
    assert time.monotonic() - begun < 2
    assert service.runs[kernel].calls == ["submit", "stop"]


def test_cells_sent_while_queued_run_in_order(server: Server, service: FakeService) -> None:
    """"Run All" on a queued notebook is one click, whenever the GPUs come."""
    service.queueing = True
    kernel = server.new()
    with Tab(server, kernel) as tab:
        cells = [tab.run(f"a = [{i}]\nprint({i})" if i == 0 else f"a.append({i}); print(a)") for i in range(4)]
        until(lambda: server.session(kernel)["held_cells"] == 4)
        service.start(kernel)
        assert [tab.reply(cell)["status"] for cell in cells] == ["ok"] * 4
        assert [tab.reply(cell)["execution_count"] for cell in cells] == [1, 2, 3, 4]
        assert tab.text(cells[3]) == "[0, 1, 2, 3]\n"
    assert server.session(kernel)["held_cells"] == 0


def test_a_held_cell_survives_a_reload(server: Server, service: FakeService) -> None:
    """The page that sent it is gone; the cell runs all the same, and the new page sees its output."""
    service.queueing = True
    kernel = server.new()
    with Tab(server, kernel) as tab:
        cell = tab.run("x = 41; print('ran', x)")
        until(lambda: server.session(kernel)["held_cells"] == 1)
    with Tab(server, kernel) as other:
        service.start(kernel)
        other.until(lambda: other.text(cell) == "ran 41\n", what="output of the other page's cell")
        after = other.run("print(x + 1)")
        assert other.reply(after)["status"] == "ok"
        assert other.text(after) == "42\n"


def test_the_same_client_gets_its_answer_after_a_reconnect(server: Server, service: FakeService) -> None:
    """JupyterLab keeps its session id over a network break, and the cell its [*]."""
    service.queueing = True
    kernel = server.new()
    tab = Tab(server, kernel)
    cell = tab.run("1 + 1")
    until(lambda: server.session(kernel)["held_cells"] == 1)
    tab.close()
    service.start(kernel)
    until(lambda: server.session(kernel)["held_cells"] == 0)
    with Tab(server, kernel, tab.session) as again:
        again.until(lambda: again.about(cell, "execute_reply"), what="the reply")
        assert again.about(cell, "execute_reply")[0]["content"]["status"] == "ok"


@pytest.mark.parametrize("state", STATES)
def test_interrupt_in_every_state(server: Server, service: FakeService, state: str) -> None:
    """What waits is aborted, what runs is interrupted; nothing hangs."""
    kernel = bring(service, server, state)
    with Tab(server, kernel) as tab:
        if state == "parked":
            service.queueing = True
        code = "import time\nprint('on')\ntime.sleep(60)" if state == "busy" else "print('never')"
        if state == "running":
            assert in_time(server, "POST", f"/api/kernels/{kernel}/interrupt")[0] == 204
            assert tab.reply(tab.run("1"))["status"] == "ok"
            return
        cell = tab.run(code)
        if state == "busy":
            tab.until(lambda: tab.text(cell) == "on\n")
        else:
            until(lambda: server.session(kernel)["held_cells"] == 1)
        assert in_time(server, "POST", f"/api/kernels/{kernel}/interrupt")[0] == 204
        reply = tab.reply(cell)
        if state == "busy":
            assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
        else:
            assert reply["status"] == "aborted"
            assert server.session(kernel)["held_cells"] == 0


@pytest.mark.parametrize("state", STATES)
def test_shutdown_in_every_state(server: Server, service: FakeService, state: str) -> None:
    """DELETE ends the session, within the bound, whatever it is doing."""
    kernel = bring(service, server, state)
    if state == "busy":
        with Tab(server, kernel) as tab:
            cell = tab.run("import time\nprint('on')\ntime.sleep(60)")
            tab.until(lambda: tab.text(cell) == "on\n")
    assert in_time(server, "DELETE", f"/api/kernels/{kernel}")[0] == 204
    assert service.runs[kernel].calls[-1] == "stop"
    assert kernel not in [k["id"] for k in server.get("/api/kernels")]
    assert server.call("GET", f"/gpufair/sessions/{kernel}")[0] == 404


@pytest.mark.parametrize("state", STATES)
def test_restart_in_every_state(server: Server, service: FakeService, state: str) -> None:
    """A restart gives a fresh kernel and never ends the session; in the queue it keeps its place."""
    kernel = bring(service, server, state)
    with Tab(server, kernel) as tab:
        if state in {"running", "busy"}:
            assert tab.reply(tab.run("x = 1"))["status"] == "ok"
        if state == "busy":
            cell = tab.run("import time\nprint('on')\ntime.sleep(60)")
            tab.until(lambda: tab.text(cell) == "on\n")
        assert in_time(server, "POST", f"/api/kernels/{kernel}/restart")[0] == 200
        assert "stop" not in service.runs[kernel].calls
        if state == "queued":
            assert server.session(kernel)["state"] == "queued"
            service.start(kernel)
        elif state == "parked":
            assert "resume:fresh" in service.runs[kernel].calls
        elif state in {"checkpointing", "stopping"}:
            service.park(kernel)
            until(lambda: "resume:fresh" in service.runs[kernel].calls)
        elif state in {"starting", "restoring"}:
            service.launch(service.runs[kernel])
            if state == "restoring":
                until(lambda: "restart" in service.runs[kernel].calls)
        cell = tab.run("print('x' in globals())")
        assert tab.reply(cell)["status"] == "ok"
        assert tab.text(cell) == "False\n"


def test_preempted_parked_touched_resumed(server: Server, service: FakeService) -> None:
    """The whole story from the browser: one websocket, one kernel id, one key, the same ports."""
    kernel = bring(service, server, "running")
    file = Path(server.home, "runtime", f"kernel-{kernel}.json")
    before = json.loads(file.read_text())
    with Tab(server, kernel) as tab:
        assert tab.reply(tab.run("import os; node = os.environ['GPUFAIR_TEST_NODE']"))["status"] == "ok"
        running = tab.run("import time\nprint('on')\ntime.sleep(60)")
        tab.until(lambda: tab.text(running) == "on\n")
        behind = tab.run("print('behind')")
        service.park(kernel)
        reply = tab.reply(running)
        assert (reply["status"], reply["ename"]) == ("error", "SessionPreempted")
        [said] = tab.about(running, "error")
        assert "ben's session can start" in said["content"]["evalue"]
        assert "Your variables were saved at" in said["content"]["evalue"]
        assert "Run the cell again" in said["content"]["evalue"]
        assert tab.reply(behind)["status"] == "aborted"
        assert server.session(kernel)["state"] == "parked"

        touched = tab.run("import os; print(os.environ['GPUFAIR_TEST_NODE'])")
        assert tab.reply(touched)["status"] == "ok"
        assert "node-2" in tab.text(touched)
    assert service.runs[kernel].calls.count("resume") == 1
    assert json.loads(file.read_text()) == before
    assert server.session(kernel)["node"] == "node-2"


def test_a_cell_that_ends_in_time_keeps_those_behind_it(server: Server, service: FakeService) -> None:
    """During the grace period no further cell begins; it waits, and runs where the session comes back."""
    kernel = bring(service, server, "running")
    with Tab(server, kernel) as tab:
        running = tab.run("import time\nprint('on')\ntime.sleep(1)\nprint('done')")
        tab.until(lambda: tab.text(running) == "on\n")
        behind = tab.run("print('behind')")
        service.set(kernel, state="checkpointing")
        assert tab.reply(running)["status"] == "ok"
        assert server.session(kernel)["held_cells"] == 1
        service.park(kernel)
        assert tab.reply(behind)["status"] == "ok"
        assert tab.text(behind) == "behind\n"


def test_an_interrupted_cell_is_told_why(server: Server, service: FakeService) -> None:
    """At the end of the grace the supervisor interrupts: a bare KeyboardInterrupt would look like the user's own."""
    kernel = bring(service, server, "running")
    with Tab(server, kernel) as tab:
        running = tab.run("import time\nprint('on')\ntime.sleep(60)")
        tab.until(lambda: tab.text(running) == "on\n")
        service.set(kernel, state="checkpointing", reason="preempted so that ben can start")
        server.wait_for(kernel, "checkpointing")
        os.kill(service.pid(kernel), signal.SIGINT)
        tab.until(lambda: [m for m in tab.about(running, "error") if m["content"]["ename"] == "KeyboardInterrupt"])
        assert not tab.about(running, "execute_reply")
        service.park(kernel)
        assert tab.reply(running)["status"] == "error"
        assert [m["content"]["ename"] for m in tab.about(running, "error")] == ["KeyboardInterrupt", "SessionPreempted"]


def test_an_error_aborts_what_waits_behind_it(server: Server, service: FakeService) -> None:
    """As in the kernel's own queue: "Run All" stops at the first error."""
    service.queueing = True
    kernel = server.new()
    with Tab(server, kernel) as tab:
        cells = [tab.run("1/0"), tab.run("print(1)"), tab.run("print(2)")]
        service.start(kernel)
        assert [tab.reply(cell)["status"] for cell in cells] == ["error", "aborted", "aborted"]
        cells = [tab.run("1/0", stop_on_error=False), tab.run("print(1)")]
        assert [tab.reply(cell)["status"] for cell in cells] == ["error", "ok"]


def test_input_reaches_the_page_that_asked(server: Server, service: FakeService) -> None:
    """Cells travel through the gate's sockets, and so must the questions that they ask."""
    kernel = bring(service, server, "running")
    with Tab(server, kernel) as tab, Tab(server, kernel) as other:
        cell = tab.run("print('hello', input('who? '))", allow_stdin=True)
        tab.until(lambda: tab.about(cell, "input_request"), what="the question")
        tab.send("input_reply", {"value": "ria"}, "stdin")
        assert tab.reply(cell)["status"] == "ok"
        assert tab.text(cell) == "hello ria\n"
        other.until(lambda: other.text(cell) == "hello ria\n")
        assert not other.about(cell, "input_request")


def test_kill_9_restarts_the_kernel_in_place(server: Server, service: FakeService) -> None:
    """Jupyter's own autorestart, on the same GPUs: the session is not queued again."""
    kernel = bring(service, server, "running")
    with Tab(server, kernel) as tab:
        running = tab.run("import time\nprint('on')\ntime.sleep(60)")
        tab.until(lambda: tab.text(running) == "on\n")
        os.kill(service.pid(kernel), signal.SIGKILL)
        reply = tab.reply(running)
        assert (reply["status"], reply["ename"]) == ("error", "KernelDied")
        restarting = {"execution_state": "restarting"}
        tab.until(lambda: any(m["content"] == restarting for m in tab.messages), what="status restarting")
        until(lambda: "restart" in service.runs[kernel].calls)
        cell = tab.run("print('alive')")
        assert tab.reply(cell)["status"] == "ok"
    assert service.runs[kernel].calls.count("restart") == 1
    assert "stop" not in service.runs[kernel].calls
    assert service.runs[kernel].view["incarnation"] == 1


def test_a_session_that_others_ended_is_dead_and_says_why(server: Server, service: FakeService) -> None:
    """It must not be restarted, and what waited must not wait for ever."""
    kernel = bring(service, server, "parked")
    service.queueing = True
    with Tab(server, kernel) as tab:
        cell = tab.run("1")
        until(lambda: server.session(kernel)["held_cells"] == 1)
        service.end(kernel, "stopped by an operator")
        reply = tab.reply(cell)
        assert reply["ename"] == "SessionEnded"
        assert "Stopped by an operator." in reply["evalue"]
        tab.until(lambda: any(m["content"] == {"execution_state": "dead"} for m in tab.messages), what="status dead")
    assert kernel not in [k["id"] for k in server.get("/api/kernels")]
    assert "restart" not in service.runs[kernel].calls


def test_parking_by_hand_gives_up_what_waits(server: Server, service: FakeService) -> None:
    """Else the waiting cells would resume it in the same moment."""
    kernel = bring(service, server, "running")
    with Tab(server, kernel) as tab:
        running = tab.run("import time\nprint('on')\ntime.sleep(60)")
        tab.until(lambda: tab.text(running) == "on\n")
        behind = tab.run("print('behind')")
        status, view = in_time(server, "POST", f"/gpufair/sessions/{kernel}/park")
        assert (status, view["kernel_id"]) == (202, kernel)
        assert tab.reply(behind)["status"] == "aborted"
        assert tab.reply(running)["ename"] == "SessionParked"
        assert server.wait_for(kernel, "parked")["checkpoint"]["size_bytes"] == 1000
        assert in_time(server, "POST", f"/gpufair/sessions/{kernel}/resume")[0] == 202
        server.wait_for(kernel, "running")
        status, problem = in_time(server, "POST", f"/gpufair/sessions/{kernel}/resume")
        assert status == 409
        assert "it is running" in problem["message"]
        assert tab.reply(tab.run("1"))["status"] == "ok"


def test_rest_answers(server: Server, service: FakeService) -> None:
    """Lists, status, recorded outputs, and clear refusals."""
    kernel = bring(service, server, "running")
    assert kernel in [view["kernel_id"] for view in server.get("/gpufair/sessions")["sessions"]]
    assert server.get("/gpufair/status")["available"] is True
    assert server.get(f"/gpufair/sessions/{kernel}/outputs")["executions"][0]["cell_id"] == "c"
    status, problem = server.call("GET", "/gpufair/sessions/0-0-0-0-0")
    assert status == 404
    assert "no session of the GPU scheduler" in problem["message"]
    server.token, token = "wrong", server.token
    try:
        for path in ("status", "sessions", f"sessions/{kernel}", f"sessions/{kernel}/outputs"):
            assert server.call("GET", f"/gpufair/{path}")[0] == 403
        assert server.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 403
    finally:
        server.token = token


def test_a_refused_submission_says_why(server: Server, service: FakeService) -> None:
    """The scheduler's sentence reaches the user, and no half-made kernel stays behind."""
    place = Path(server.home, "data", "kernels", "gpufair-nonsense")
    place.mkdir(parents=True, exist_ok=True)
    config = {"provisioner_name": "gpufair-provisioner", "config": {"profile": "nonsense"}}
    spec = {"argv": ["python"], "display_name": "N", "language": "python", "metadata": {"kernel_provisioner": config}}
    (place / "kernel.json").write_text(json.dumps(spec))
    before = {kernel["id"] for kernel in server.get("/api/kernels")}
    body = {"path": "n.ipynb", "name": "n.ipynb", "type": "notebook", "kernel": {"name": "gpufair-nonsense"}}
    status, problem = server.call("POST", "/api/sessions", body)
    assert status >= 400
    assert "known are digits" in json.dumps(problem)
    assert {kernel["id"] for kernel in server.get("/api/kernels")} <= before


def test_an_ordinary_kernel_is_left_alone(server: Server) -> None:
    """Who does not use the scheduler does not notice it."""
    kernel = server.new("plain.ipynb", "python3")
    with Tab(server, kernel, timeout_s=30) as tab:
        cell = tab.run("print(1)")
        assert tab.reply(cell)["status"] == "ok"
    assert "gpufair" not in server.get(f"/api/kernels/{kernel}")
    assert server.call("DELETE", f"/api/kernels/{kernel}")[0] == 204
