"""Replay, what-if and shadow mode against a real service, and the simulator's commands as processes of their own."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpufair.client import Client
from gpufair.client.errors import Refused
from tests.integration.test_cli_service import CONFIG, Place, a_place, serving, until
from tests.unit.cli.test_shadow import HEADER, job
from tests.unit.cli.test_simulating import KEYS, rows

BUSY = CONFIG.replace(
    'users = ["ria", "ben"]',
    'users = ["ria", "ben"]\nbudget_owners = ["uma"]\n\n[policy]\ngrid = "1s"\ngrid_checkpoint = "1s"',
).replace("gpus = 1\ngpu_type", "gpus = 2\ngpu_type")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Two GPUs, and a service that looks every second."""
    with a_place(tmp_path, BUSY) as found:
        yield found


def sleeper(client: Client, name: str, user: str, allocation: str, gpus: int, min_runtime_s: float) -> str:
    launch = {"type": "command", "argv": [sys.executable, "-c", "import time; time.sleep(300)"]}
    return client.submit(
        launch,
        id=f"{name}-0001",
        name=name,
        user=user,
        allocation=allocation,
        gpus=gpus,
        min_runtime_s=min_runtime_s,
        kind="batch",
    ).id


def test_replay_and_what_if_of_a_real_service(place: Place) -> None:
    """With preemptions in it, while it runs and when it is gone; a tampered journal is found out."""
    state = place.folder / "state"
    with serving(place), Client(state_dir=place.state) as client:
        for name in ("one", "two"):
            sleeper(client, name, "ria", "language/digits", 1, 2)
        until("both to run", lambda: all(w.state == "running" for w in client.workloads()))
        sweep = sleeper(client, "sweep", "ben", "vision", 2, 600)
        until("the other team to run", lambda: client.workload(sweep).state == "running")
        assert {"BeginCheckpoint", "Start"} <= {one["kind"] for one in client.timeline()}

        assert place.json("replay", str(state))["identical"]
        check_what_if(place, client)
        check_snapshots(place, client)

        check_shadow_of_the_service(place)
    told = place.json("replay", str(state))
    assert (told["identical"], told["protected_preemptions"]) == (True, 0)
    assert told["events"] > 10
    # A service that ends keeps a snapshot of the end.
    assert "holds no entry after" in place.gpufair("replay", str(state), "--from", "last").stdout
    check_tampering(place, state)


def check_what_if(place: Place, client: Client) -> None:
    """Nothing is changed by asking; who runs protected stays; the ones who wait are there."""
    before = client.timeline()[-1]["seq"]
    told = place.json("whatif", "--budget", "language=9", "--from-live", "--hours", "2")
    assert client.timeline()[-1]["seq"] - before <= 5  # time passes
    assert (told["protected"], told["protections_kept"], told["protected_preemptions"]) == (1, 1, 0)
    digits = next(one for one in told["allocations"] if one["path"] == "language/digits")
    assert digits["before"]["entitlement"] == 0.5
    assert digits["after"]["entitlement"] == 0.9
    # The protection of ten minutes is over within the two hours: then it is their turn again.
    assert digits["before"]["delivered_gpu_s"] > 0 < digits["after"]["delivered_gpu_s"]
    assert "Protected now: 1 workloads; 1 keep" in place.gpufair("whatif", "--window", "1d", "--hours", "1").stdout
    assert "known are" in place.gpufair("whatif", "--budget", "nobody=1", code=1).stderr


def check_snapshots(place: Place, client: Client) -> None:
    """A budget owner may read it, without names; a user may not; a replay goes on from it."""
    endpoint = client.endpoint()

    def token(user: str) -> str:
        return (place.state / "tokens" / f"{user}.token").read_text().strip()

    with Client(url=endpoint.url, token=token("uma")) as uma:
        handed = uma.snapshot()
        assert "time.sleep" not in json.dumps(handed)
        assert {one["spec"]["name"] for one in handed["state"]["workloads"]} == {""}
    with Client(url=endpoint.url, token=token("ben")) as ben, pytest.raises(Refused, match="budget owners"):
        ben.snapshot()
    file = place.folder / "s.json"
    place.gpufair("snapshot", str(file))
    told = place.json("replay", str(place.state), "--from", str(file))
    assert told["identical"]
    assert told["from"] == json.loads(file.read_text())["seq"]
    args = ("whatif", "--snapshot", str(file), "--journal", str(place.state), "--budget", "vision=3", "--hours", "1")
    assert place.json(*args)["arrivals"] == 0  # those of today come again tomorrow


def check_shadow_of_the_service(place: Place) -> None:
    report = place.folder / "shadow.html"
    told = place.gpufair("shadow", "--from-live", "--report", str(report), "--once", "-p", "fair-share", "-p", "plain")
    assert "3 of 3 jobs new or changed" in told.stdout
    assert "on 2 GPUs" in report.read_text()


def check_tampering(place: Place, state: Path) -> None:
    copy = Path(
        shutil.copytree(state, place.folder / "copy", ignore=shutil.ignore_patterns("nodes", "checkpoints", "*.lock"))
    )
    with sqlite3.connect(copy / "journal.sqlite") as db:
        seq, actions = db.execute("SELECT seq, actions FROM journal WHERE actions LIKE '%BeginCheckpoint%'").fetchone()
        forged = actions.replace('"reason":"rank"', '"reason":"unallocated"').replace(
            '"reason":"landing"', '"reason":"rank"'
        )
        assert forged != actions
        db.execute("UPDATE journal SET actions = ? WHERE seq = ?", (forged, seq))
    db.close()
    told = place.gpufair("replay", str(copy), "--json", code=1)
    found = json.loads(told.stdout)
    assert (found["differing"], found["damaged"], found["first_difference"]["seq"]) == (1, [seq], seq)
    assert found["first_difference"]["recorded"] == forged
    assert found["first_difference"]["decided"] == actions


def test_simulate_as_a_process(place: Place) -> None:
    """Workers are processes that import the command line too; the same command gives the same figures."""
    trace = place.folder / "t.csv"
    trace.write_text(rows(20))
    args = ("compare", str(trace), "--cluster", "2x8", "-p", "fair-share", "-p", "fifo", "--json", "-")

    def told(*more: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(place.gpufair(*args, *more).stdout)
        for one in found["policies"].values():
            assert set(one) >= KEYS
            one.pop("wall_s")
        return found

    assert told() == told("--jobs", "2")
    assert json.loads(place.gpufair(*args, "--strict", "--policy", "none", code=1).stderr)["error"] == "UnknownPolicy"


# The CLI as a terminal starts it: a process inherits whether its parent ignores Ctrl-C, and those of a job in the background
# (as a run of the tests may be) do.
IN_A_TERMINAL = [
    sys.executable,
    "-c",
    "import runpy, signal, sys\n"
    "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})\n"
    "runpy.run_module('gpufair.cli', run_name='__main__', alter_sys=True)",
]


def test_an_interrupted_comparison_ends_at_once(place: Place) -> None:
    """Its workers too, and nobody sees a traceback."""
    log = place.folder / "compare.log"
    command = [*IN_A_TERMINAL, "compare", "world:steady", "--cluster", "16x8", "--days", "60", "--jobs", "2"]
    with log.open("wb") as out, subprocess.Popen(
        command, env=place.environ(), stdout=out, stderr=out, start_new_session=True
    ) as process:  # fmt: skip
        try:
            me = psutil.Process(process.pid)
            until("two workers", lambda: sum("spawn_main" in " ".join(one.cmdline()) for one in me.children()) >= 2)
            workers = me.children(recursive=True)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            psutil.wait_procs(workers, timeout=20)
            assert not [one for one in workers if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()


def test_shadow_mode_follows_a_growing_file(place: Place) -> None:
    """Reports are rewritten as jobs come; what is unreadable for a while is read later; Ctrl-C ends it."""
    source, report = place.folder / "sacct.txt", place.folder / "r.html"
    source.write_text(HEADER + job(0) + job(1))
    command = [*IN_A_TERMINAL, "shadow", "--sacct", str(source), "--cluster", "1x8", "--report", str(report)]
    log = place.folder / "shadow.log"
    with log.open("wb") as out, subprocess.Popen(
        [*command, "--every", "1s", "-p", "fair-share"], env=place.environ(), stdout=out, stderr=out
    ) as process:  # fmt: skip
        try:
            until("the first report", lambda: "2 of 2 jobs" in log.read_text())
            assert "Shadow" in report.read_text()
            source.unlink()
            until("a failed reading", lambda: "not this time: " in log.read_text())
            source.write_text(HEADER + "".join(job(number) for number in range(5)))
            until("the next report", lambda: "3 of 5 jobs" in log.read_text())
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()
