"""What one service bears: 1,000 nodes that report, 5,000 who wait, 200 who listen, and 300 submissions a second.

The service is the real one in a process of its own, on SQLite as it is shipped (each answer is on disk first).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.bench.compiled import environment
from tests.bench.core_world import cpu_scale
from tests.bench.result import Result
from tests.bench.service_crowd import NODES, STREAMS
from tests.postgres import postgres

SUBMITS_PER_S, LATE_MS, MEMORY_MB = 300.0, 100.0, 400.0
SECONDS = float(os.environ.get("GPUFAIR_BENCH_SECONDS", "20"))
START_S = 60.0


@contextmanager
def running(folder: Path, config: str) -> Iterator[tuple[str, psutil.Process, dict[str, str]]]:
    """A service on this configuration: its address, its process, its environment."""
    (folder / "gpufair.toml").write_text(config, encoding="utf-8")
    env = environment(None)  # the core as it is shipped for every platform, not the compiled one
    state = folder / "state"
    command = [sys.executable, "-m", "gpufair.cli", "serve", "--config", str(folder / "gpufair.toml"), "--state-dir", str(state)]
    with (folder / "service.log").open("wb") as log:
        service = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        until = time.monotonic() + START_S
        while not (state / "service.json").exists():
            if service.poll() is not None or time.monotonic() > until:
                raise RuntimeError((folder / "service.log").read_text()[-2000:])
            time.sleep(0.05)
        yield json.loads((state / "service.json").read_bytes())["url"], psutil.Process(service.pid), env
    finally:
        service.terminate()
        try:
            service.wait(30)
        except subprocess.TimeoutExpired:
            service.kill()
            service.wait()


def lab(url: str = "") -> str:
    """A configuration of 1,000 remote nodes, and a user for each who listens. ``url``: of the journal, if not in a file."""
    store = f"[store]\nurl = {json.dumps(url)}\n" if url else ""
    users = json.dumps([f"u{at}" for at in range(STREAMS)])
    nodes = "".join(f'[[node]]\nname = "n{at:04}"\nremote = true\n' for at in range(NODES))
    return f'budgets = "budgets.toml"\nusers = {users}\n{store}{nodes}'


@cache
def crowded() -> dict[str, Any]:
    """What was seen while all were there, with the journal in SQLite."""
    return crowd()


@cache
def crowded_postgresql() -> dict[str, Any]:
    """The same with the journal in PostgreSQL, which shares the machine and writes to its disk."""
    try:
        with postgres(on_disk=True) as server:
            return crowd(server.database())
    except pytest.skip.Exception as err:
        raise RuntimeError(str(err)) from err


def crowd(url: str = "") -> dict[str, Any]:
    """What was seen while all were there. ``url``: of the journal, if not in a file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        teams = "".join(f'[[allocation]]\npath = "t{at}"\nshare = {at + 1}\n' for at in range(20))
        (folder / "budgets.toml").write_text(teams, encoding="utf-8")
        with running(folder, lab(url)) as (address, process, env):
            asked = [address, str(folder / "state"), str(process.pid), str(SECONDS), str(SUBMITS_PER_S)]
            everybody = [sys.executable, "-m", "tests.bench.service_crowd", *asked]
            before = cpu_scale()
            done = subprocess.run(everybody, env=env, stdout=subprocess.PIPE, text=True, check=True)
            seen: dict[str, Any] = json.loads(done.stdout)
            seen["memory_mb"] = process.memory_full_info().uss / 1e6
            seen["cpu_s"] = sum(process.cpu_times()[:2])
            seen["cpu_scale"] = (before + cpu_scale()) / 2
    if seen["failed"]:
        raise RuntimeError(f"somebody was turned away: {seen['failed']}")
    return seen


def slower(seen: dict[str, Any]) -> float:
    """How much slower the machine was than that of the reference. No more than was asked can be reached on a faster one."""
    return max(1.0, float(seen["cpu_scale"]))


def _notes(seen: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in seen.items() if name != "failed"}


def service_submits() -> Result:
    """Submissions that were answered per second, durable, while all others are there."""
    seen = crowded()
    return Result(seen["per_s"], "submissions per s", SUBMITS_PER_S * 0.99 / slower(seen), at_least=True, notes=_notes(seen))


def service_submits_postgresql() -> Result:
    """As ``service_submits``, on PostgreSQL."""
    seen = crowded_postgresql()
    return Result(seen["per_s"], "submissions per s", SUBMITS_PER_S * 0.99 / slower(seen), at_least=True, notes=_notes(seen))


def service_submit_p99() -> Result:
    """From the moment at which a submission is due to its answer."""
    seen = crowded()
    return Result(seen["p99_ms"], "ms to the answer, p99", LATE_MS * slower(seen), notes=_notes(seen))


def service_decisions() -> Result:
    """Decisions that were committed later than 250 ms after what they answer, while submissions come at that rate."""
    seen = crowded()
    return Result(seen["late"] / seen["decisions"] * 1000, "of 1,000 decisions later than 250 ms", 0.0, notes=_notes(seen))


def service_memory() -> Result:
    """Memory of the service's own at the end."""
    seen = crowded()
    return Result(seen["memory_mb"], "MB of its own", MEMORY_MB, notes=_notes(seen))


CASES = {
    "service_submits": service_submits,
    "service_submits_postgresql": service_submits_postgresql,
    "service_submit_p99": service_submit_p99,
    "service_decisions": service_decisions,
    "service_memory": service_memory,
}
