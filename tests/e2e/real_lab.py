"""A real JupyterLab with the real scheduler behind it: one GPU, two teams."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page

from gpufair.client import Client
from tests.e2e.lab import CURRENT_KERNEL, Lab, running_lab

ITEM = ".jp-gpufair-status-button"

# One GPU, two budgets. Protections are short.
CONFIG = """
budgets = "budgets.toml"

[service]
linger = "{linger}"

[grace]
session = "20s"

[[node]]
name = "node-a"
gpus = 1

[[node]]
name = "cpu"
gpus = 0

[[profile]]
name = "1gpu"
display_name = "GPU fair share (1 GPU)"
gpus = 1
allocation = "language"
min_runtime = "8s"

[[profile]]
name = "vision"
display_name = "Vision (1 GPU)"
gpus = 1
allocation = "vision"
min_runtime = "2s"
"""
BUDGETS = """
[[allocation]]
path = "language"
share = 50

[[allocation]]
path = "vision"
share = 50
"""


def processes_of(home: Path) -> list[psutil.Process]:
    """Processes that were started for this home, however detached."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == str(home):
                found.append(process)
        except psutil.Error:
            continue
    return found


@contextmanager
def real_lab(tmp_path: Path, *, ends_by_itself: bool = False, config: str = CONFIG) -> Iterator[Lab]:
    """JupyterLab whose extension starts the service; all of it is gone afterwards, by itself where that is asked."""
    linger_s = 8 if ends_by_itself else 120
    (tmp_path / "gpufair.toml").write_text(config.replace("{linger}", f"{linger_s}s"), encoding="utf-8")
    (tmp_path / "budgets.toml").write_text(BUDGETS, encoding="utf-8")
    home = tmp_path / "home"
    home.mkdir()
    places = {"GPUFAIR_CONFIG": str(tmp_path / "gpufair.toml"), "GPUFAIR_STATE_DIR": str(tmp_path / "state")}
    try:
        with running_lab(home, environment=places) as lab:
            yield lab
        if ends_by_itself:
            # 45 s: the service lingers for 8 s, then its agents see that it is gone and end after as long.
            _, left = psutil.wait_procs(processes_of(home), timeout=45)
            assert left == [], "processes outlive the server"
    finally:
        for process in processes_of(home):
            with suppress(psutil.NoSuchProcess):
                process.kill()


@contextmanager
def shared_lab(factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One for the tests of a file; call ``end_all`` after each."""
    with real_lab(factory.mktemp("lab")) as lab:
        yield lab


def state_of(lab: Lab) -> Path:
    """The service's folder."""
    return lab.root.parent.parent / "state"


def end_all(lab: Lab) -> None:
    """As it was before the test: nothing runs or waits, and the budgets are those of the start."""
    for kernel in lab.request("GET", "api/kernels"):
        lab.request("DELETE", f"api/kernels/{kernel['id']}")
    with Client(state_dir=state_of(lab)) as client:
        client.apply_budgets(BUDGETS.encode())
        for one in client.workloads():
            if one.live:
                client.stop(one.id)
        deadline = time.monotonic() + 45
        while any(one.live for one in client.workloads()):
            assert time.monotonic() < deadline, "not all workloads ended"
            time.sleep(0.1)


def run_all(page: Page) -> None:
    page.wait_for_function(f"{CURRENT_KERNEL}?.connectionStatus === 'connected'")
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
