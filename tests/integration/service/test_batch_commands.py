"""`gpufair submit` and `gpufair logs` with the real service, agents and programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.service.rig import CONFIG, Rig, until

TWO_NODES = CONFIG + """
[[node]]
name = "n2"
gpus = 1
"""
# Counts to 100, and goes on where it was when it is started again.
COUNTS = """
import pathlib, sys, time
import gpufair

state = pathlib.Path("state.txt")
step = int(state.read_text()) if state.exists() else 0

@gpufair.on_preempt
def save():
    state.write_text(str(step))
    print("saved at", step, flush=True)

while step < 100:
    step += 1
    print("step", step, flush=True)
    gpufair.safe_point()
    time.sleep(0.05)
"""
MEETS = """
import os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
assert os.environ["PET_NNODES"] == str(size) and os.environ["PET_NODE_RANK"] == str(rank)
if rank == 0:
    with socket.create_server(address) as server:
        for _ in range(size - 1):
            other, _ = server.accept()
            print("met", other.recv(100).decode(), flush=True)
            other.close()
else:
    for _ in range(200):
        try:
            with socket.create_connection(address) as me:
                me.sendall(os.environ["GPUFAIR_NODE"].encode())
            break
        except ConnectionRefusedError:
            import time; time.sleep(0.05)
    print("was there", flush=True)
"""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.clean()


def gpufair(rig: Rig, *args: str, code: int = 0) -> str:
    """What a command says on standard output."""
    command = [sys.executable, "-m", "gpufair.cli", *args, "--state-dir", str(rig.state)]
    if "--" in args:  # options come before the program
        at = args.index("--")
        command = [sys.executable, "-m", "gpufair.cli", args[0], "--state-dir", str(rig.state), *args[1:at], *args[at:]]
    done = subprocess.run(command, cwd=rig.folder, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == code, done.stderr + rig.log()
    return done.stdout


def test_a_preempted_program_goes_on_where_it_was(rig: Rig) -> None:
    """Every step is done once; the log is one text over both starts."""
    (rig.folder / "counts.py").write_text(COUNTS)
    rig.start()
    asked = ("--gpus", "1", "--min-runtime", "1s", "--allocation", "a", "--resumable")
    run = json.loads(gpufair(rig, "submit", *asked, "--json", "--", "python", "counts.py"))
    until("forty steps", lambda: "step 40" in rig.ask("GET", f"/workloads/{run['id']}/log")["text"])
    rig.submit("first", "sleep 0.2", allocation="b", min_runtime_s=1)  # has had nothing yet
    rig.await_state("first", "ended")
    text = gpufair(rig, "logs", run["id"], "-f")
    steps = [int(line.split()[1]) for line in text.splitlines() if line.startswith("step ")]
    assert steps == list(range(1, 101))
    assert text.count("gpufair: started again on") == 1
    assert rig.get(run["id"])["outcome"] == "completed"
    assert gpufair(rig, "logs", run["id"][:8], "--tail", "1") == "step 100\n"
    rig.check_books()


def test_the_processes_of_a_gang_find_each_other(rig: Rig) -> None:
    """As torchrun's do, by the variables that it reads."""
    rig.config.write_text(TWO_NODES.format(silence="30s"))
    rig.start()
    (rig.folder / "meets.py").write_text(MEETS)
    gpufair(rig, "submit", "--nodes", "2", "--name", "gang", "-f", "--", "python", "meets.py")
    assert gpufair(rig, "logs", "gang", "--rank", "1") == "was there\n"
    assert gpufair(rig, "logs", "gang") in ("met n1\n", "met n2\n")


def test_a_run_that_fails_is_a_failed_command(rig: Rig) -> None:
    """So that a script notices."""
    rig.start()
    assert gpufair(rig, "submit", "-f", "--", "bash", "-c", "echo oh; exit 3", code=1).endswith("oh\n")


def test_a_run_that_takes_too_long_is_stopped(rig: Rig) -> None:
    """It may save, and a script notices."""
    rig.start()
    code = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    text = gpufair(rig, "submit", "--name", "long", "--timeout", "1s", "-f", "--", "bash", "-c", code, code=1)
    assert [one for one in text.splitlines() if one in ("up", "saved")] == ["up", "saved"]
    found = rig.get(_id(rig, "long"))
    assert (found["outcome"], found["timeout_s"]) == ("timed out", 1.0)
    assert found["reason"] == "it ran for the 1 s that its owner gave it"
    rig.check_books()


def test_a_run_that_fails_is_tried_again(rig: Rig) -> None:
    """Here in vain once; it is told which attempt it is."""
    rig.start()
    asked = ("--retries", "3", "--retry-after", "200ms", "--json")
    code = "echo attempt $GPUFAIR_ATTEMPT of $GPUFAIR_ATTEMPTS; [ $GPUFAIR_ATTEMPT = 2 ]"
    run = json.loads(gpufair(rig, "submit", *asked, "--", "bash", "-c", code))["id"]
    text = gpufair(rig, "logs", run, "-f")
    assert [one for one in text.splitlines() if "attempt" in one] == ["attempt 1 of 4", "attempt 2 of 4"]
    found = rig.get(run)
    assert (found["outcome"], found["attempt"], found["starts"]) == ("completed", 2, 2)
    rig.check_books()


def test_what_waits_for_other_work_is_not_forgotten(rig: Rig) -> None:
    """The service is killed while a pipeline waits; what comes after a failure does not run."""
    rig.start()
    go = rig.folder / "go"
    first = rig.submit("first", f"until [ -e {go} ]; do sleep 0.05; done")
    gpufair(rig, "submit", "--name", "part", "--after", first["id"], "--array", "k=1,2", "--", "bash", "-c", "exit $(({k} - 1))")
    gpufair(rig, "submit", "--name", "never", "--after", "part", "--", "touch", "never")
    gpufair(rig, "submit", "--name", "last", "--after-any", "part", "--", "touch", "last")
    assert "It waits for " in gpufair(rig, "why", "last")
    rig.kill()
    rig.start()
    go.touch()
    ended = {one: rig.await_state(_id(rig, one), "ended")["outcome"] for one in ("last", "never", "part[k=1]", "part[k=2]")}
    assert ended == {"last": "completed", "never": "cancelled", "part[k=1]": "completed", "part[k=2]": "failed"}
    assert (rig.folder / "last").exists()
    assert not (rig.folder / "never").exists()
    assert "which was to end well before it, has failed" in rig.get(_id(rig, "never"))["reason"]
    rig.check_books()


def _id(rig: Rig, name: str) -> str:
    (found,) = (one["id"] for one in rig.ask("GET", "/workloads")["workloads"] if one["name"] == name)
    return str(found)
