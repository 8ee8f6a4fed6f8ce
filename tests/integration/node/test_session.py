"""A kernel under its supervisor, from start to end, with a real agent and a real kernel."""

import json
import signal
import time

import pytest

from gpufair.node.processes import find
from gpufair.node.record import executions
from tests.integration.node.rig import until

# A cell that no interrupt ends, within reason.
STUBBORN = """
import time
_end = time.monotonic() + 60
while time.monotonic() < _end:
    try:
        time.sleep(0.05)
    except KeyboardInterrupt:
        pass
"""
# A child of the user's that leaves the kernel's session.
CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True).pid
"""


def _serving(rig, workload="w", count=1, incarnation=1):
    return rig.service.wait(workload, "serving", count, incarnation=incarnation).body


def _cell(rig, connection, code):
    """Run a cell to its end; true when its output is recorded too."""
    client = rig.client(connection)
    return client.execute_interactive(code, timeout=30, output_hook=lambda _: None)["content"]["status"]


def _busy(rig, workload="w", count=1):
    until(lambda: [r for r in rig.service.of(workload, "activity") if r.body["busy"]][count - 1 :], what="a cell runs")


def test_the_life_of_a_session(rig):
    """Start, devices, activity, save, restart, restore, record, preemption while idle, restore elsewhere."""
    rig.start("w", gpus=1, launch={"env": {"MINE": "yes"}})
    body = _serving(rig)
    connection = body["connection"]
    assert (body["generation"], body["devices"], body["lost"]) == (1, ["virtual-0"], [])
    environment = "[__import__('os').environ.get(n) for n in ('MINE','CUDA_VISIBLE_DEVICES','GPUFAIR_GPUS','GPUFAIR_NODE','JUPYTER_TOKEN')]"
    assert rig.ask(connection, environment) == "['yes', '0', 'virtual-0', 'n1', None]"
    assert (rig.dir("w").stat().st_mode & 0o777, (rig.dir("w") / "start.json").stat().st_mode & 0o777) == (0o700, 0o600)
    assert (rig.dir("w") / "kernel.json").stat().st_mode & 0o777 == 0o600

    assert _cell(rig, connection, "x = 41; print('hello')") == "ok"
    until(lambda: [r.body["busy"] for r in rig.service.of("w", "activity")][-1:] == [False])
    rig.service.command("save", "w")
    saved = rig.service.wait("w", "checkpointed").body
    assert (saved["id"], saved["sequence"], saved["lost"]) == ("000001-1", 1, [])
    assert saved["size_bytes"] > 0

    rig.service.command("restart", "w", generation=1)
    again = _serving(rig, count=2)
    assert again["generation"] == 2
    assert rig.ask(again["connection"], "x") == "NameError", "a restart restores nothing by itself"
    rig.service.command("restart", "w", generation=1)  # a repeated command names the old kernel and does nothing
    rig.service.command("restore", "w", id=saved["id"])
    assert rig.service.wait("w", "restored").body == {"id": saved["id"], "lost": []}
    assert rig.ask(again["connection"], "x") == "41"
    assert not rig.service.of("w", "serving")[2:]

    assert _cell(rig, again["connection"], "x += 1; gen = (i for i in 'ab')") == "ok"
    begun = time.monotonic()
    rig.preempt("w", in_s=30)
    assert rig.service.wait("w", "released").body == {"busy": False}
    assert time.monotonic() - begun < 5, "a success releases at once"
    last = rig.service.of("w", "checkpointed")[-1].body
    assert (last["sequence"], [name for name, _ in last["lost"]]) == (2, ["gen"])
    assert rig.service.kinds("w")[-2:] == ["checkpointed", "released"]
    until(lambda: not (rig.dir("w") / "start.json").exists(), what="secrets are gone when all is acknowledged")
    assert not (rig.dir("w") / "kernel.json").exists()

    rig.start("w", incarnation=2, gpus=2, restore=last["id"], next_sequence=3)
    back = _serving(rig, incarnation=2)
    assert back["devices"] == ["virtual-0", "virtual-1"], "the released device is free again"
    assert rig.ask(back["connection"], "x") == "42"
    assert [name for name, _ in back["lost"]] == ["gen"]
    assert rig.service.kinds("w", 2)[0] == "progress"
    rig.service.command("stop", "w", 2)
    rig.service.wait("w", "released", incarnation=2)

    cells = [one for one in executions(rig.root / "records" / "w") if one["outputs"]]
    assert [one["outputs"] for one in cells] == [[{"output_type": "stream", "name": "stdout", "text": "hello\n"}]]
    assert cells[0]["state"] == "done"
    assert cells[0]["execution_count"] == 1


def test_a_busy_session_is_saved_at_the_end_of_its_cell(rig):
    """Nothing is interrupted that ends in time, and no queued cell begins after the checkpoint."""
    rig.start("w")
    connection = _serving(rig)["connection"]
    rig.client(connection)
    rig.run(connection, "import time; time.sleep(1.5); x = 'done'")
    rig.run(connection, "x = 'the next cell'")
    _busy(rig)
    rig.preempt("w", in_s=20)
    released = rig.service.wait("w", "released", timeout_s=10)
    assert released.kind == "released"
    rig.start("w", incarnation=2, restore=rig.service.of("w", "checkpointed")[-1].body["id"], next_sequence=2)
    assert rig.ask(_serving(rig, incarnation=2)["connection"], "x") == "'done'"


def test_a_long_cell_is_interrupted_in_time_and_its_variables_saved(rig):
    rig.start("w", gpus=1)
    connection = _serving(rig)["connection"]
    rig.client(connection)
    rig.run(connection, CHILD + "import time\nn = 0\nwhile True:\n    n += 1\n    time.sleep(0.01)")
    _busy(rig)
    session = rig.status("w")["child"][0]
    tag = json.loads((rig.dir("w") / "start.json").read_text())["tag"]
    until(lambda: len(find(session, tag)) == 2, what="the user's child runs")
    begun = time.monotonic()
    rig.preempt("w", in_s=4)
    assert rig.service.wait("w", "released").body == {"busy": True}
    assert 1.5 < time.monotonic() - begun < 4, "half of a short grace is for the cell, the rest for saving"
    assert not find(session, tag), "the user's own children are gone too"
    rig.start("w", incarnation=2, restore=rig.service.of("w", "checkpointed")[-1].body["id"], next_sequence=2)
    assert int(rig.ask(_serving(rig, incarnation=2)["connection"], "n")) > 0
    cells = [one for one in executions(rig.root / "records" / "w") if one["status"] == "error"]
    assert cells[0]["outputs"][-1]["ename"] == "Preempted", "the notebook says why the cell ended"


def test_a_stubborn_cell_keeps_its_gpus_to_the_deadline_and_no_longer(rig):
    rig.start("w")
    connection = _serving(rig)["connection"]
    rig.client(connection)
    rig.run(connection, STUBBORN)
    _busy(rig)
    begun = time.monotonic()
    rig.preempt("w", in_s=3)
    assert rig.service.wait("w", "released", timeout_s=15).body["busy"] is True
    assert 2.9 < time.monotonic() - begun < 6
    assert rig.service.of("w", "checkpoint_failed")
    assert not rig.service.of("w", "checkpointed")


def test_a_failed_checkpoint_is_told_retried_and_frees_nothing_early(rig):
    blocked = rig.root / "checkpoints"
    blocked.write_text("a file where the folder should be")
    rig.start("w")
    rig.start("v")
    connection = _serving(rig)["connection"]
    for one in (connection, _serving(rig, "v")["connection"]):
        assert _cell(rig, one, "x = 1") == "ok"
    begun = time.monotonic()
    rig.preempt("v", in_s=4)
    rig.preempt("w", in_s=20)
    assert "directory" in rig.service.wait("w", "checkpoint_failed").body["reason"]
    rig.service.wait("v", "released")
    assert time.monotonic() - begun > 3.9, "held to the deadline"
    blocked.unlink()
    rig.service.wait("w", "released", timeout_s=10)
    assert time.monotonic() - begun < 15
    assert rig.service.kinds("w")[-2:] == ["checkpointed", "released"]


def test_a_dead_kernel_keeps_its_gpus_for_the_restart(rig):
    rig.start("w", gpus=2)
    connection = _serving(rig)["connection"]
    assert _cell(rig, connection, CHILD) == "ok"
    tag = json.loads((rig.dir("w") / "start.json").read_text())["tag"]
    rig.run(connection, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert rig.service.wait("w", "kernel_died").body == {"generation": 1, "code": -signal.SIGKILL}
    until(lambda: not find(None, tag), what="what it had started is gone")
    rig.start("other", gpus=1)
    assert "0 of 2 are free" in rig.service.wait("other", "start_failed").body["reason"]
    rig.service.command("restart", "w", generation=1)
    assert _serving(rig, count=2)["generation"] == 2
    rig.service.command("stop", "w")
    assert rig.service.wait("w", "released").body == {"busy": False}


def test_interrupt_and_stop_while_a_cell_runs(rig):
    rig.start("w")
    connection = _serving(rig)["connection"]
    client = rig.client(connection)
    message = rig.run(connection, "import time; time.sleep(60)")
    _busy(rig)
    rig.service.command("interrupt", "w")
    until(lambda: client.get_shell_msg(timeout=10)["parent_header"]["msg_id"] == message)
    until(lambda: [r.body["busy"] for r in rig.service.of("w", "activity")][-1:] == [False])
    rig.run(connection, STUBBORN)
    _busy(rig, count=2)
    begun = time.monotonic()
    rig.service.command("stop", "w")
    assert rig.service.wait("w", "released").body == {"busy": True}
    assert time.monotonic() - begun < 3


def test_a_kernel_of_another_kind_is_told_not_to_be_saveable(rig):
    rig.start("w", launch={"argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]})
    connection = _serving(rig)["connection"]
    assert _cell(rig, connection, "x = 1") == "ok"
    rig.service.command("save", "w")
    assert rig.service.wait("w", "checkpoint_failed").body == {"reason": "this kernel cannot be checkpointed"}
    begun = time.monotonic()
    rig.preempt("w", in_s=3)
    rig.service.wait("w", "released")
    assert 2.9 < time.monotonic() - begun < 5
    rig.start(
        "w",
        incarnation=2,
        restore="000001-1",
        launch={"argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]},
    )
    assert _serving(rig, incarnation=2)["lost"] == [["*", "this kernel cannot load checkpoints"]]


@pytest.mark.parametrize(
    ("launch", "more", "reason"),
    [
        ({"argv": ["/no/such/program"]}, {}, "No such file"),
        ({"argv": []}, {}, "argv"),
        ({"type": "container"}, {}, "container"),
        ({}, {"gpus": 3}, "3 GPUs were asked for but 2 of 2 are free"),
        ({}, {"restore": 7}, "restore"),
    ],
)
def test_what_cannot_start_says_why(rig, launch, more, reason):
    rig.start("w", launch=launch, **more)
    assert reason in rig.service.wait("w", "start_failed").body["reason"]


def test_an_id_cannot_lead_out_of_the_folder(rig):
    rig.start("../../evil")
    assert "name of a folder" in rig.service.wait("../../evil", "start_failed").body["reason"]


def test_a_checkpoint_that_cannot_be_loaded_gives_an_empty_kernel_and_stays(rig):
    rig.start("w", restore="000007-1", next_sequence=8)
    body = _serving(rig)
    assert (body["lost"][0][0], body["restored"]) == ("*", False)
    assert rig.ask(body["connection"], "1 + 1") == "2"


def test_a_missing_folder_is_replaced_by_home(rig):
    rig.start("w", launch={"cwd": str(rig.root / "not here")})
    connection = _serving(rig)["connection"]
    assert rig.ask(connection, "__import__('os').getcwd() == __import__('os').path.expanduser('~')") == "True"
    assert "there is no folder" in (rig.dir("w") / "kernel.log").read_text()


def test_a_port_that_somebody_took_is_no_death(rig):
    """Other ports are tried, each as a new generation, so that clients follow; not for ever."""
    code = "print('zmq.error.ZMQError: Address already in use'); raise SystemExit(1)"
    rig.start("w", launch={"argv": ["python", "-c", code]})
    assert "ports in use" in rig.service.wait("w", "start_failed").body["reason"]
    served = [report.body for report in rig.service.of("w", "serving")]
    assert [body["generation"] for body in served] == [1, 2, 3]
    assert len({body["connection"]["shell_port"] for body in served}) == 3
    assert not rig.service.of("w", "kernel_died")


def test_a_command_that_makes_no_sense_changes_nothing(rig):
    rig.start("w")
    connection = _serving(rig)["connection"]
    rig.service.command("preempt", "w")  # without a deadline
    rig.service.command("dance", "w")
    assert rig.ask(connection, "1 + 1") == "2"
    rig.service.command("stop", "w")
    rig.service.wait("w", "released")
    assert "makes no sense" in (rig.dir("w") / "supervisor.log").read_text()


def test_what_a_notebook_asks_for_and_what_a_checkpoint_would_be_like(rig):
    rig.start("w")
    connection = _serving(rig)["connection"]
    assert _cell(rig, connection, "x = 1; gen = (i for i in 'ab')\n%gpufair checkpoint\nx = 2") == "ok"
    assert [name for name, _ in rig.service.wait("w", "checkpointed").body["lost"]] == ["gen"]
    rig.service.command("restore", "w", id="000001-1")
    rig.service.wait("w", "restored")
    assert rig.ask(connection, "x") == "2", "saved when the cell had ended"
    rig.service.command("preflight", "w")
    told = rig.service.wait("w", "preflight").body
    assert told["parkable"] is False
    assert [(one["name"], one["state"]) for one in told["variables"]] == [("gen", "red"), ("x", "green")]
