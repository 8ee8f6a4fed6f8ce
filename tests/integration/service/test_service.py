"""The real service with real agents and real processes: nothing is lost, nothing twice, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.integration.service.rig import Rig, until

# Saves "something" when told to leave, then ends.
PATIENT = "trap 'sleep 0.5; exit 0' TERM\nwhile true; do sleep 0.05; done"
# Takes as long as it is let.
SLOW_TO_LEAVE = "trap 'sleep 3; exit 0' TERM\nwhile true; do sleep 0.05; done"


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A service, embedded, with one GPU node and one CPU node."""
    rig = Rig(tmp_path)
    try:
        rig.start()
        yield rig
    finally:
        rig.clean()


def test_submit_run_preempt_requeue(rig: Rig) -> None:
    """A's protection ends while B waits: notice at exactly that moment, B runs on the freed GPU, A comes back."""
    rig.submit("v", PATIENT, min_runtime_s=3)
    victim = rig.await_state("v", "running")
    assert victim["devices"] == [["n1", "virtual-0"]]
    rig.submit("w", "sleep 1", allocation="b", min_runtime_s=1)
    why = rig.ask("GET", "/workloads/w/why")
    assert why["holders"][0]["workload"] == "v"
    rig.await_state("w", "running", "ended")
    # At its first start the victim's protection began with the grant.
    notice = next(one for one in rig.timeline() if one["kind"] == "BeginCheckpoint")
    assert notice["at_s"] == victim["protected_until_s"]
    assert (notice["workload"], notice["beneficiary"]) == ("v", "w")
    assert rig.await_state("w", "ended")["outcome"] == "completed"
    back = rig.await_state("v", "running")
    assert (back["incarnation"], back["preemptions"], rig.starts("v")) == (2, 1, 2)
    assert rig.ask("DELETE", "/workloads/v")["state"] in ("stopping", "ended")
    rig.await_state("v", "ended")
    rig.check_books()
    assert rig.stop() == 0
    assert until("the agents to be gone", lambda: not rig.processes())
    assert not (rig.state / "service.json").exists()


def test_the_file_of_another_service_is_left_alone(rig: Rig) -> None:
    """Somebody removed the folder under a service and started the next one: that one must still be found afterwards."""
    other = json.dumps({"pid": os.getpid()})
    (rig.state / "service.json").write_text(other)
    assert rig.stop() == 0
    assert (rig.state / "service.json").read_text() == other


@pytest.mark.parametrize("state", ["queued", "starting", "running", "checkpointing", "stopping", "parked", "ended"])
def test_kill_9_in_each_state(rig: Rig, state: str) -> None:
    """The service dies and comes back: each workload is where it was, once, and is charged once."""
    rig.submit("v", SLOW_TO_LEAVE, kind="session")
    if state != "starting":
        rig.await_state("v", "running")
    if state == "queued":
        rig.submit("w", "sleep 0.2")
        rig.await_state("w", "queued")
    elif state in ("checkpointing", "parked"):
        rig.ask("POST", "/workloads/v/park")
        rig.await_state("v", state)
    elif state in ("stopping", "ended"):
        rig.ask("DELETE", "/workloads/v")
        if state == "ended":
            rig.await_state("v", "ended")
    before = rig.get("v")
    rig.kill()
    # Longer than a report waits for its answer, shorter than anything would give up.
    time.sleep(1.0)
    rig.start()
    after = rig.get("v")
    assert after["incarnation"] == before["incarnation"] == 1
    assert after["submitted_s"] == before["submitted_s"]
    if state in ("starting", "running", "queued"):
        running = rig.await_state("v", "running")
        assert (running["incarnation"], running["starts"], running["serving"]) == (1, 1, True)
        assert running["granted_s"] == before["granted_s"] or state == "starting"
        assert rig.starts("v") == 1
        rig.ask("DELETE", "/workloads/v")
    if state in ("checkpointing", "parked"):
        rig.await_state("v", "parked")
        rig.ask("POST", "/workloads/v/resume")
        assert rig.await_state("v", "running")["incarnation"] == 2
        assert rig.starts("v") == 2
        rig.ask("DELETE", "/workloads/v")
    assert rig.await_state("v", "ended")["outcome"] == "cancelled"
    if state == "queued":
        assert rig.await_state("w", "ended")["outcome"] == "completed"
        assert rig.starts("w") == 1
    rig.check_books()
    assert rig.stop() == 0
    assert until("all processes to be gone", lambda: not rig.processes())


def test_a_dead_agent_is_started_again_and_its_workload_goes_on(rig: Rig) -> None:
    """kill -9 of the agent: the supervisor is adopted by the next one; nothing starts twice."""
    rig.submit("v", PATIENT)
    rig.await_state("v", "running")
    first = rig.agent_pid()
    os.kill(first, signal.SIGKILL)
    until("another agent", lambda: rig.agent_pid() != first)
    rig.submit("w", "sleep 0.1", gpus=0, min_runtime_s=0)  # the CPU node's agent was not touched
    assert rig.await_state("w", "ended")["outcome"] == "completed"
    rig.ask("POST", "/workloads/v/interrupt")
    running = rig.get("v")
    assert (running["state"], running["incarnation"], rig.starts("v")) == ("running", 1, 1)
    rig.ask("DELETE", "/workloads/v")
    rig.await_state("v", "ended")
    rig.check_books()


def test_a_supervisor_and_agent_that_die_together(rig: Rig) -> None:
    """What the service believes running but the node has lost is queued again, once, and started anew."""
    rig.submit("v", PATIENT)
    rig.await_state("v", "running")
    for process in rig.processes():
        if process.pid != (rig.process.pid if rig.process else 0):
            with suppress(psutil.NoSuchProcess):  # it may have ended with one killed before it
                process.kill()
    again = until("a second start", lambda: (found := rig.get("v"))["incarnation"] == 2 and found)
    assert again
    assert rig.await_state("v", "running")["incarnation"] == 2
    assert rig.starts("v") == 2
    rig.ask("DELETE", "/workloads/v")
    rig.await_state("v", "ended")
    rig.check_books()


def test_the_end_of_an_embedded_service_parks_sessions_and_keeps_batch_queued(rig: Rig) -> None:
    """And the next start offers them: a parked session resumes, a batch workload starts again by itself."""
    rig.submit("s", PATIENT, kind="session")
    rig.await_state("s", "running")
    rig.submit("w", PATIENT, allocation="b")
    assert rig.stop() == 0
    assert until("all processes to be gone", lambda: not rig.processes())
    rig.start()
    assert rig.get("s")["state"] == "parked"
    assert rig.await_state("w", "running")["incarnation"] == 1
    until("both nodes", lambda: rig.ask("GET", "/status")["nodes"] == 2)
    nodes = {node["name"]: node["state"] for node in rig.ask("GET", "/nodes")["nodes"]}
    assert nodes == {"n1": "ready", "c1": "ready"}
    assert rig.stop() == 0
    rig.start()
    assert rig.await_state("w", "running")["incarnation"] == 2
    rig.ask("DELETE", "/workloads/w")
    rig.ask("POST", "/workloads/s/resume")
    assert rig.await_state("s", "running")["incarnation"] == 2
    rig.ask("DELETE", "/workloads/s")
    rig.await_state("s", "ended")
    rig.check_books()


def test_it_ends_by_itself_after_the_linger_time(tmp_path: Path) -> None:
    """The last holder goes: sessions are parked, nothing is left running, and the next start offers them."""
    rig = Rig(tmp_path)
    try:
        rig.start("--linger", "1s")
        rig.submit("s", PATIENT, kind="session")
        rig.await_state("s", "running")
        assert rig.http is not None
        with rig.http.stream("GET", "/events?holder=1") as stream:
            lines = stream.iter_lines()  # kept: closing it would close the stream
            assert any("synced" in line for line in lines)
            time.sleep(1.5)  # held for longer than it lingers
            assert rig.ask("GET", "/status")["holders"] == 1
        assert rig.end() == 0
        assert until("all processes to be gone", lambda: not rig.processes())
        rig.start()
        assert rig.get("s")["state"] == "parked"
        rig.check_books()
    finally:
        rig.clean()


def test_a_shared_service_leaves_everything_running(tmp_path: Path) -> None:
    """SIGTERM of a service that is not embedded: the next one adopts what runs."""
    rig = Rig(tmp_path, embedded=False)
    try:
        rig.start()
        rig.submit("v", PATIENT)
        granted = rig.await_state("v", "running")["granted_s"]
        assert rig.stop() == 0
        assert len(rig.processes()) >= 3  # agents, supervisor, workload
        rig.start()
        running = rig.await_state("v", "running")
        assert (running["granted_s"], running["incarnation"], rig.starts("v")) == (granted, 1, 1)
        until("the agent's hello", lambda: "said hello: runs 1, 1 of them expected" in rig.log())
        rig.ask("DELETE", "/workloads/v")
        rig.await_state("v", "ended")
        rig.check_books()
    finally:
        rig.clean()


def test_a_silent_node_is_lost_and_comes_back(tmp_path: Path) -> None:
    """An agent that hangs: its workload is queued again; when it is back, the old process is killed, not doubled."""
    rig = Rig(tmp_path, silence="2s")
    try:
        rig.start()
        rig.submit("v", PATIENT)
        rig.await_state("v", "running")
        agent = rig.agent_pid()
        os.kill(agent, signal.SIGSTOP)
        rig.await_state("v", "queued")
        assert {node["name"]: node["state"] for node in rig.ask("GET", "/nodes")["nodes"]}["n1"] == "lost"
        os.kill(agent, signal.SIGCONT)
        assert rig.await_state("v", "running")["incarnation"] == 2
        pids = [line.split()[-1] for line in (rig.folder / "v.starts").read_text().splitlines()]
        assert len(pids) == 2
        until("the old process to be gone", lambda: not Path(f"/proc/{pids[0]}").exists())
        rig.ask("DELETE", "/workloads/v")
        rig.await_state("v", "ended")
        assert rig.ask("GET", "/conservation")["error_gpu_ms"] == 0
    finally:
        rig.clean()


def test_clear_errors_at_the_start(rig: Rig, tmp_path: Path) -> None:
    """A second service on the folder, a port in use, a bad config, bad budgets: one sentence, no traceback."""
    assert rig.process is not None
    cases = []
    done = subprocess.run(rig.command(), capture_output=True, text=True, timeout=30, check=False)
    cases.append((done, f"another service (pid {rig.process.pid}) runs in"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        argv = [
            str(rig.state.parent / "other") if part == str(rig.state) else part
            for part in rig.command("--port", str(port))
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        cases.append((done, f"cannot listen on 127.0.0.1 port {port}"))
    (tmp_path / "budgets.toml").write_text('[[allocation]]\npath = "a"\nshare = -1\n')
    done = subprocess.run(rig.command(), capture_output=True, text=True, timeout=30, check=False)
    cases.append((done, "budgets.toml, line 3: share = -1 of 'a' is negative"))
    rig.config.write_text('[policy]\nwindw = "7d"\n')
    done = subprocess.run(rig.command(), capture_output=True, text=True, timeout=30, check=False)
    cases.append((done, "gpufair.toml, line 2: unknown key 'windw'"))
    for done, said in cases:
        assert done.returncode in (1, 2)
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert rig.ask("GET", "/status")["pid"] == rig.process.pid


def test_the_event_stream(rig: Rig) -> None:
    """A listing, ``synced``, then each change as it happens; a holder is counted, and gone when it goes."""
    rig.submit("v", PATIENT, kind="session")
    rig.await_state("v", "running")
    assert rig.http is not None
    seen: list[tuple[str, dict[str, object]]] = []
    with rig.http.stream("GET", "/events?holder=1") as stream:
        lines = stream.iter_lines()
        parked = False
        for line in lines:
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("id: "):
                last = line.removeprefix("id: ")
            elif line.startswith("data: "):
                seen.append((kind, json.loads(line.removeprefix("data: "))))
                if kind == "synced":
                    with httpx.Client(base_url=rig.http.base_url, headers=rig.http.headers) as other:
                        status = other.get("/status").json()
                        assert (status["holders"], status["linger_until_s"]) == (1, None)
                        other.post("/workloads/v/park")
                if seen[-1][1].get("state") == "parked":
                    parked = True
                    break
    assert parked
    assert [kind for kind, _ in seen[:3]] == ["workload", "announcements", "synced"]
    states = [data["state"] for kind, data in seen if kind == "workload"]
    assert states[0] == "running"
    assert "checkpointing" in states
    until("the holder to be gone", lambda: rig.ask("GET", "/status")["holders"] == 0)
    # Who was cut off hears of what it missed, and of nothing else.
    rig.ask("POST", "/workloads/v/resume")
    with rig.http.stream("GET", "/events", headers={"Last-Event-ID": last}) as stream:
        assert stream.headers["gpufair-resumed"] == "1"
        first = next(line for line in stream.iter_lines() if line.startswith("data: "))
    assert json.loads(first.removeprefix("data: "))["state"] != "parked"
    assert rig.ask("GET", "/status")["linger_until_s"] is not None


def test_it_is_quick(rig: Rig) -> None:
    """A submission's answer and the command's way to the agent add little to a kernel's start."""
    took = []
    for number in range(15):
        began = time.monotonic()
        rig.submit(f"q{number}", "true", gpus=0, min_runtime_s=0)
        took.append(time.monotonic() - began)
    for number in range(15):
        rig.await_state(f"q{number}", "ended")
    # The aim is 20 ms on an idle machine; a shared one with a slow disk gets some slack.
    assert statistics.median(took) < 0.1, took
