"""Whoever is killed, no process is left over, no report is lost, and what can go on goes on."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from gpufair.node.files import is_locked
from gpufair.node.processes import find, identify, send
from gpufair.node.record import executions
from tests.integration.node.rig import until
from tests.integration.node.test_session import CHILD


def _connection(rig, workload="w", count=1, incarnation=1):
    return rig.service.wait(workload, "serving", count, incarnation=incarnation).body["connection"]


def _run(rig, connection, code):
    return rig.client(connection).execute_interactive(code, timeout=30, output_hook=lambda _: None)


def test_a_killed_supervisor_leaves_nothing_behind(rig):
    rig.start("w", gpus=2)
    connection = _connection(rig)
    _run(rig, connection, CHILD)
    rig.service.command("save", "w")
    rig.service.wait("w", "checkpointed")
    rig.run(connection, "print('begun'); import time; time.sleep(600)")
    until(lambda: any(one["state"] == "running" for one in executions(rig.root / "records" / "w")))
    until(lambda: [r.body["busy"] for r in rig.service.of("w", "activity")][-1:] == [True])  # not that of the cell before
    status, tag = rig.status("w"), json.loads((rig.dir("w") / "start.json").read_text())["tag"]
    assert len(find(None, tag)) == 2
    os.kill(status["pid"], signal.SIGKILL)
    assert rig.service.wait("w", "released").body == {"busy": True}
    assert not find(status["child"][0], tag)
    assert rig.service.kinds("w").count("released") == 1
    assert executions(rig.root / "records" / "w")[-1]["status"] == "interrupted"
    rig.start("v", gpus=2)
    assert _connection(rig, "v"), "its GPUs are free again"


def test_a_killed_agent_is_followed_by_one_that_adopts(rig):
    rig.start("w", gpus=1)
    connection = _connection(rig)
    until((rig.dir("w") / "acknowledged").exists)
    rig.kill_agent()
    _run(rig, connection, "x = 1")
    rig.start("v", gpus=1)  # commands wait for the next agent
    rig.start_agent()
    hello = rig.service.wait_hello(2)
    assert ("w", 1) in hello.running
    assert hello.boot != rig.service.hellos[0].boot
    rig.start("u", gpus=1)
    assert rig.service.wait("u", "serving").body["devices"] == ["virtual-1"], "virtual-0 is still with w"
    assert rig.ask(connection, "x") == "1"
    rig.service.command("stop", "w")
    rig.service.wait("w", "released")
    assert rig.service.kinds("w").count("serving") == 1, "what was acknowledged is not sent again"


def test_supervisors_that_ended_without_an_agent_are_reported_by_the_next(rig):
    rig.start("killed", gpus=1)
    rig.start("preempted")
    rig.start("both")
    for workload in ("killed", "preempted", "both"):
        _connection(rig, workload)
    _run(rig, _connection(rig, "preempted"), "x = 1")
    rig.kill_agent()
    both = json.loads((rig.dir("both") / "start.json").read_text())["tag"]
    for workload in ("killed", "both"):
        os.kill(rig.status(workload)["pid"], signal.SIGKILL)
    os.kill(rig.status("preempted")["pid"], signal.SIGTERM)  # the node is drained: that is a preemption
    until(lambda: not is_locked(rig.dir("preempted") / "supervisor.lock"))
    rig.start_agent()
    for workload in ("killed", "preempted", "both"):
        rig.service.wait(workload, "released")
    assert {("killed", 1), ("preempted", 1), ("both", 1)} <= set(rig.service.hellos[1].running)
    assert rig.service.kinds("preempted")[-2:] == ["checkpointed", "released"]
    assert not find(None, both)


def test_a_service_that_was_away_gets_everything_once(rig):
    rig.start("w")
    connection = _connection(rig)
    rig.service.stop()
    _run(rig, connection, "x = 1")
    os.kill(rig.status("w")["pid"], signal.SIGTERM)
    until(lambda: not is_locked(rig.dir("w") / "supervisor.lock"))
    rig.service.start()  # on another port
    rig.service.wait("w", "released")
    assert rig.service.hellos[0].boot == rig.service.hellos[-1].boot, "the same agent"
    kinds = rig.service.kinds("w")
    assert (kinds.count("checkpointed"), kinds.count("released"), kinds[-1]) == (1, 1, "released")


def test_reports_are_kept_until_they_are_acknowledged(rig):
    rig.service.acknowledging = False
    rig.start("w")
    until(lambda: (rig.dir("w") / "status.json").exists() and rig.status("w")["phase"] == "serving")
    rig.kill_agent()
    rig.start_agent()
    rig.service.acknowledging = True
    assert _connection(rig)


def test_what_is_not_expected_any_more_is_stopped(rig):
    rig.start("w")
    _connection(rig)
    rig.service.stop()
    rig.service.expected = []
    rig.service.start()
    rig.service.wait("w", "released")
    assert until(lambda: not is_locked(rig.dir("w") / "supervisor.lock"))


def test_a_stop_for_what_is_not_here_is_answered(rig):
    rig.service.command("stop", "nobody", 4)
    assert rig.service.wait("nobody", "released", incarnation=4).body == {"busy": False}


def test_without_a_service_all_is_saved_and_stopped_and_the_agent_ends(make_rig):
    rig = make_rig(linger_s=1.0)
    rig.start("w")
    _run(rig, _connection(rig), "x = 5")
    rig.service.stop()
    assert rig.agent.wait(timeout=20) == 0
    until(lambda: not is_locked(rig.dir("w") / "supervisor.lock"))
    rig.service.start()
    rig.start_agent()  # whoever starts the service again starts agents too
    saved = rig.service.wait("w", "checkpointed").body
    rig.service.wait("w", "released")
    rig.start("w", incarnation=2, restore=saved["id"], next_sequence=2)
    assert rig.ask(_connection(rig, incarnation=2), "x") == "5"


def test_a_supervisor_without_any_agent_saves_and_stops(make_rig):
    rig = make_rig(linger_s=1.0)
    rig.start("w")
    _run(rig, _connection(rig), "x = 5")
    rig.kill_agent()
    until(lambda: not is_locked(rig.dir("w") / "supervisor.lock"), what="it has ended by itself")
    rig.start_agent()
    rig.service.wait("w", "released")
    assert rig.service.of("w", "checkpointed")


def test_a_supervisor_that_hangs_is_killed_after_a_stop(make_rig):
    rig = make_rig(stop_patience_s=1.0)
    rig.start("w")
    _connection(rig)
    pid = rig.status("w")["pid"]
    supervisor = identify(pid)
    assert supervisor is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        rig.service.command("stop", "w")
        rig.service.wait("w", "released", timeout_s=60)
    finally:
        send(supervisor, signal.SIGKILL)


def test_one_agent_per_node(rig):
    config = rig.folder / "agent-config.json"
    second = subprocess.run(
        [sys.executable, "-m", "gpufair.node.agent", "--config", str(config)],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert second.returncode == 3
    assert "another agent" in second.stderr
    assert json.loads((rig.folder / "agent.json").read_text())["pid"] == rig.agent.pid


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"node": {"nam": "n"}, "state_dir": "", "token": "", "linger_s": 1}']
)
def test_a_bad_config_is_named(tmp_path, text):
    path = tmp_path / "agent-config.json"
    path.write_text(text)
    ended = subprocess.run(
        [sys.executable, "-m", "gpufair.node.agent", "--config", str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert ended.returncode == 2
    assert str(path) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_sigterm_ends_the_agent_at_once_and_nothing_else(rig):
    rig.start("w")
    _connection(rig)
    begun = time.monotonic()
    rig.agent.terminate()
    assert rig.agent.wait(5) == 0
    assert time.monotonic() - begun < 1
    assert is_locked(rig.dir("w") / "supervisor.lock")


def test_a_kernel_in_which_nothing_ran_buries_no_checkpoint(rig):
    """It came in place of one that was killed; before its owner has its variables loaded again it has to make room."""
    rig.start("w")
    _run(rig, _connection(rig), "x = 1")
    rig.service.command("save", "w")
    saved = rig.service.wait("w", "checkpointed").body["id"]
    os.kill(rig.status("w")["child"][0], signal.SIGKILL)
    rig.service.wait("w", "kernel_died")
    rig.service.command("restart", "w", generation=1)
    _connection(rig, count=2)
    rig.preempt("w", in_s=20)
    assert rig.service.wait("w", "released").body == {"busy": False}
    assert [report.body["id"] for report in rig.service.of("w", "checkpointed")] == [saved]
    # One in which something ran is saved as ever, and so is what was loaded.
    rig.start("w", incarnation=2, next_sequence=2, restore=saved)
    assert rig.ask(_connection(rig, incarnation=2), "x") == "1"
    rig.preempt("w", in_s=20, incarnation=2)
    assert rig.service.wait("w", "checkpointed", incarnation=2).body["sequence"] == 2
