"""The CPU pool that the service keeps: a real service, its pool, notebooks and commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufair import cpu
from gpufair.cpu import plan, resident
from gpufair.cpu.errors import PoolLost
from gpufair.service.backends.cpu_pool import FOLDER
from tests.integration.service.rig import CONFIG, Rig, until

WAIT_S = 60.0
POOLED = CONFIG.replace("[service]", 'users = ["ada"]\n\n[service]', 1) + """
[cpu_pool]
workers = 2
memory = "1GiB"
tasks_per_user = 7
"""
NOTEBOOK = """
import json, pathlib, sys
from gpufair import cpu
total = cpu.submit(sum, [1, 2]).result()
whom = cpu.connect().client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins["gpufair-turns"]._who.values()))
pathlib.Path(sys.argv[1]).with_suffix(".part").write_text(json.dumps([total, whom]))
pathlib.Path(sys.argv[1]).with_suffix(".part").rename(sys.argv[1])
"""


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """With nothing in its environment that would help a workload of it."""
    for name in ("GPUFAIR_STATE_DIR", "GPUFAIR_CPU_POOL", "GPUFAIR_URL", "GPUFAIR_WORKLOAD"):
        monkeypatch.delenv(name, raising=False)
    rig = Rig(tmp_path, POOLED)
    yield rig
    cpu.close()
    resident.stop(rig.state / FOLDER)
    rig.clean()


def status() -> Any:
    """What ``gpufair cpu status --json`` prints."""
    argv = [sys.executable, "-m", "gpufair.cli", "cpu", "status", "--json"]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, timeout=WAIT_S).stdout)


def test_a_pool_that_nobody_has_to_start(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole life: first asked for, used, killed, adopted by the next service, told of new budgets, ended."""
    rig.start()
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(rig.state))  # as the shell has it in which a user works
    assert rig.ask("GET", "/cpu-pool")["state"] == "stopped", "nobody needs it yet"
    assert status()["notebooks_use"] == "service"

    # A workload's own program finds it, with nothing in its environment that its user put there.
    script = rig.folder / "notebook.py"
    script.write_text(NOTEBOOK)
    out = rig.folder / "out.json"
    rig.submit("n", f"{sys.executable} {script} {out}", allocation="b", gpus=0, min_runtime_s=0)
    until("its result", out.exists, WAIT_S)
    total, whom = json.loads(out.read_text())
    assert total == 3
    assert {leaf for leaf, _ in whom} == {"b"}, "its tasks count for its allocation"

    pool = cpu.connect()
    told = rig.ask("GET", "/cpu-pool")
    assert (told["state"], told["workers"], told["memory_bytes"], told["tasks_per_user"]) == ("running", 2, 1 << 30, 7)
    assert pool.address == told["address"]
    assert "key" not in told
    assert pool.submit(lambda: os.environ.get("CUDA_VISIBLE_DEVICES")).result() == "", "it was given no GPU"
    key = rig.ask("POST", "/cpu-pool/join")["key"]
    assert "PRIVATE KEY" in key
    assert status()["service"]["pid"] == told["pid"]

    def usage() -> dict[str, float]:
        return {one["allocation"]: one["worker_s"] for one in rig.ask("GET", "/cpu-pool")["usage"]}

    until("its worker time", lambda: usage()["b"] > 0, WAIT_S)

    task = pool.submit(time.sleep, 60)
    os.kill(told["pid"], signal.SIGKILL)
    with pytest.raises(PoolLost, match="Run the cell again: there is a new one"):
        task.result()

    def next_one() -> dict[str, Any] | None:
        now: dict[str, Any] = rig.ask("GET", "/cpu-pool")
        return now if now["state"] == "running" and now["pid"] != told["pid"] else None

    second = until("the next one", next_one, WAIT_S)
    again = cpu.submit(len, "abc")
    assert (again.result(), again.where.address) == (3, second["address"]), "it is enough to run the cell again"
    pool = again.pool

    rig.kill()
    rig.start()
    assert rig.ask("GET", "/cpu-pool")["pid"] == second["pid"], "a restarted service has the same pool"
    assert pool.submit(len, "abc").result() == 3, "which went on"
    budgets = '[[allocation]]\npath = "a"\nshare = 3\n[[allocation]]\npath = "b"\n'
    rig.ask("PUT", "/budgets", content=budgets, headers={"content-type": "application/toml"})
    until("the new shares", lambda: (plan.read(rig.state / FOLDER) or plan.Plan()).shares.get("a") == (3, 4))

    rig.ask("DELETE", "/workloads/n")
    assert rig.stop() == 0
    assert resident.began(second["pid"]) is None, "a service that ends for good takes it along"
    for text in (rig.log(), (rig.state / FOLDER / resident.place(None, "log").name).read_text()):
        assert "PRIVATE KEY" not in text
    assert status()["notebooks_use"] == "process"


def test_a_service_may_name_a_scheduler_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notebooks are given what opens it, and the service leaves it alone."""
    theirs, _ = resident.start(tmp_path / "theirs", workers=1, memory_bytes=1 << 30)
    (tmp_path / "certificate.pem").write_text(theirs.certificate)
    (tmp_path / "key.pem").write_text(theirs.key)
    named = f'\n[cpu_pool]\naddress = "{theirs.address}"\nca = "certificate.pem"\ncertificate = "certificate.pem"\nkey = "key.pem"\n'
    rig = Rig(tmp_path, CONFIG + named)
    try:
        rig.start()
        monkeypatch.setenv("GPUFAIR_STATE_DIR", str(rig.state))
        pool = cpu.connect()
        assert (pool.address, pool.submit(len, "abc").result()) == (theirs.address, 3)
        cpu.close()
        assert rig.stop() == 0
        assert resident.found(tmp_path / "theirs") == theirs
    finally:
        cpu.close()
        rig.clean()
        resident.stop(tmp_path / "theirs")
