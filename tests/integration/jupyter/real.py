"""The real embedded service under a real Jupyter server: two simulated nodes of one virtual GPU each."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from gpufair.client import Client
from tests.integration.jupyter.server import Server

CONFIG = """\
budgets = "budgets.toml"
users = ["ria", "ben"]

[checkpoints]
after_cells = "off"  # so that a test knows what is saved

[sessions]
suggest_cpu_after = "2s"

[service]
linger = "60s"

[grace]
session = "5s"
batch = "5s"

[[node]]
name = "node-1"
gpus = 1
gpu_type = "virtual"
device_files = ["*/test-gpu-[0-9]"]  # what a driver's device is on a machine with real ones

[[node]]
name = "node-2"
gpus = 1
gpu_type = "virtual"
device_files = ["*/test-gpu-[0-9]"]  # what a driver's device is on a machine with real ones

[[profile]]
name = "digits"
display_name = "Digits"
gpus = 1
allocation = "language/digits"
min_runtime = "10m"

[[profile]]
name = "brief"
gpus = 1
allocation = "language/digits"
min_runtime = "10m"
idle_release = "2s"
"""
BUDGETS = """\
[[allocation]]
path = "language/digits"
members = ["ria"]

[[allocation]]
path = "vision/baseline"
members = ["ben"]
"""


@contextmanager
def real_service(home: Path, config: str = CONFIG) -> Iterator[tuple[Server, Client]]:
    """A server whose extension starts the service; all of it is gone afterwards."""
    state = home / "gpufair"
    home.mkdir(parents=True, exist_ok=True)
    (home / "gpufair.toml").write_text(config)
    (home / "budgets.toml").write_text(BUDGETS)
    env = {"GPUFAIR_CONFIG": str(home / "gpufair.toml"), "GPUFAIR_USER": "ria"}
    try:
        with Server(home / "home", state, env=env) as server:
            server.kernels_ready()
            with Client(state_dir=state) as client:
                yield server, client
    finally:
        end_all(state)


def service_pid(state: Path) -> int:
    """Of the live service."""
    return int(json.loads((state / "service.json").read_text())["pid"])


def end_all(state: Path) -> None:
    """End every process that was started for this state folder: they carry it in their command line or environment."""
    mine = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("GPUFAIR_STATE_DIR") == str(state):
                mine.append(process)
    for process in mine:
        with suppress(psutil.Error, ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(mine, 10)


def wait_until(true: Any, timeout_s: float = 20.0) -> Any:
    """Wait for ``true()``."""
    deadline = time.monotonic() + timeout_s
    while not (value := true()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value
