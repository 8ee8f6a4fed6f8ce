"""A whole installation of its own, to be broken: Jupyter server, embedded service, agents, supervisors, kernels."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from gpufair.cli.demo.history import History
from gpufair.client import Client, ClientError, Workload
from gpufair.node.files import read_json
from tests.integration.jupyter.real import BUDGETS
from tests.integration.jupyter.server import Server, Tab

Found = TypeVar("Found")

CONFIG = """\
budgets = "budgets.toml"
users = ["ria", "ben"]

[checkpoints]
after_cells = "off"  # so that a test knows what is saved

[service]
linger = "{linger}"

[grace]
session = "{grace}"
batch = "{grace}"
{nodes}
[[profile]]
name = "digits"
display_name = "Digits"
gpus = 1
allocation = "language/digits"
min_runtime = "1s"

[[profile]]
name = "1gpu"
gpus = 1
min_runtime = "1s"
"""
NODE = """
[[node]]
name = "node-{0}"
gpus = 1
gpu_type = "virtual"
"""
# Saved and loaded as slowly as gigabytes on a slow disk are.
SLOW = """
import time
class Slow:
    def __init__(self, save_s, load_s): self.save_s, self.load_s = save_s, load_s
    def __getstate__(self):
        time.sleep(self.save_s)
        return dict(self.__dict__)
    def __setstate__(self, state):
        self.__dict__.update(state)
        time.sleep(self.load_s)
"""


@dataclass
class World:
    """Use as a context manager; everything that it started is gone afterwards."""

    home: Path
    nodes: int = 1
    grace: str = "5s"
    linger: str = "60s"

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        self.state = self.home / "gpufair"
        self.config = self.home / "gpufair.toml"
        nodes = "".join(NODE.format(number + 1) for number in range(self.nodes))
        self.config.write_text(CONFIG.format(linger=self.linger, grace=self.grace, nodes=nodes))
        (self.home / "budgets.toml").write_text(BUDGETS)
        env = {"GPUFAIR_CONFIG": str(self.config), "GPUFAIR_USER": "ria"}
        self.server = Server(self.home / "home", self.state, env=env)
        try:
            self.server.start()
            self.server.kernels_ready()
        except BaseException:
            self.end()
            raise
        self.client = Client(state_dir=self.state)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.client.close()
        self.end()
        if kind is not None:
            for log in (self.server.log, self.state / "service.log", *sorted(self.state.glob("nodes/*/agent.log"))):
                with suppress(OSError):
                    print(f"---- {log}\n{log.read_text(errors='replace')[-4000:]}")

    def end(self) -> None:
        """Kill all that was started here."""
        self.server.kill()
        while left := self.processes():
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, 10)

    # ------------------------------------------------------------------ processes
    def processes(self, *roles: str, of: str = "") -> list[psutil.Process]:
        """All living processes of this installation (they have its folder in their arguments or environment), or those
        with one of these roles: service, agent, supervisor, server, workload; or with this word in their arguments."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                command = process.cmdline()
                told = [*command, *process.environ().values()]
                if process.pid == os.getpid() or not any(str(self.home) in text for text in told):
                    continue
                if of not in " ".join(command):
                    continue
                if process.status() != psutil.STATUS_ZOMBIE and (not roles or role(command) in roles):
                    found.append(process)
        return found

    def service_pid(self) -> int | None:
        """Of the service that is said to live."""
        info = read_json(self.state / "service.json")
        return int(info["pid"]) if info else None

    def agent_pid(self, node: str = "node-1") -> int:
        """Of the agent of a node."""
        info = read_json(self.state / "nodes" / node / "agent.json")
        assert info is not None
        return int(info["pid"])

    def status_of(self, kernel: str) -> dict[str, Any]:
        """What the supervisor of a session's present incarnation says of itself; empty before it has said anything."""
        incarnation = self.client.workload(kernel).incarnation
        [status] = [read_json(p) for p in self.state.glob(f"nodes/*/workloads/{kernel}.{incarnation}/status.json")] or [
            None
        ]
        return status or {}

    def kill_service(self) -> None:
        """As kill -9 does, and wait until a Jupyter server has brought another one up and follows it."""
        pid = self.service_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: self.service_pid() not in {None, pid}, 30, "another service is there")
        wait_until(lambda: self.server.get("/gpufair/status")["following"], 30, "it is followed")

    # ------------------------------------------------------------------ workloads
    def rival(self, seconds: float = 600.0, user: str = "ben") -> Workload:
        """Somebody of another team asks for a GPU, for so short that whoever has had one for a second is over-served."""
        path = {"ben": "vision/baseline", "ria": "language/digits"}[user]
        launch = {"type": "command", "argv": [sys.executable, "-c", f"import time; time.sleep({seconds})"], "cwd": "/"}
        return self.client.submit(launch, user=user, allocation=path, gpus=1, min_runtime_s=0.1, kind="batch", name="rival",
                                  resumable=False)  # fmt: skip

    def state_is(self, kernel: str, *states: str, within_s: float = 30.0) -> Workload:
        """Wait until the service says so."""

        def look() -> Workload | None:
            with suppress(ClientError):
                workload = self.client.workload(kernel)
                if workload.state in states:
                    return workload
            return None

        return wait_until(look, within_s, f"{kernel} is {' or '.join(states)}")

    def stop_all(self) -> None:
        """End every workload, and wait until no GPU is held and no process of a workload is left."""
        for workload in self.client.workloads():
            if workload.live:
                self.client.stop(workload.id)
        wait_until(lambda: not [w for w in self.client.workloads() if w.live], 30, "all is over")
        wait_until(lambda: not self.processes("workload", "supervisor"), 10, "nothing of it is left")

    # ------------------------------------------------------------------ what must always hold
    def check_ledger(self) -> None:
        """Nothing charged twice or not at all: the ledger adds up, and agrees with the journal."""
        assert self.client.conservation()["error_gpu_ms"] == 0
        history = History.read(self.client.timeline())
        for workload in self.client.workloads():
            if workload.live:
                continue
            held_s = (
                history.held_gpu_ms(workload.id, 0) / 1000 if all(s.freed_ms for s in history.of(workload.id)) else None
            )
            assert held_s is not None, (
                f"{workload.id} is over, and its GPUs were never freed: {history.of(workload.id)}"
            )
            assert abs(workload.charged_gpu_s - held_s) < 0.001, (workload.id, workload.charged_gpu_s, held_s)
        for node in self.client.nodes():
            spans = sorted((s.granted_ms, s.freed_ms or 1 << 60) for s in history.stays if s.leases[0][0] == node.name)
            overlaps = [(a, b) for a, b in itertools.pairwise(spans) if b[0] < a[1]]
            assert not overlaps, f"two at once had the only GPU of {node.name}: {overlaps}"


def role(command: Sequence[str]) -> str:
    """What a process is, by its arguments."""
    line = " ".join(command)
    for part, name in (("gpufair.cli serve", "service"), ("gpufair.node.agent", "agent"), ("gpufair.node.supervisor", "supervisor"),
                       ("-m jupyter server", "server"), ("jupyter-server", "server")):  # fmt: skip
        if part in line:
            return name
    return "workload"


def wait_until(true: Callable[[], Found | None], timeout_s: float = 20.0, what: str = "") -> Found:
    """Wait for a true answer; return it."""
    deadline = time.monotonic() + timeout_s
    while not (value := true()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.03)
    return value


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Meanwhile this process does nothing: what waits for it stays as it is."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def ran(tab: Tab, code: str, timeout_s: float = 30.0) -> str:
    """Run a cell that must succeed; what it printed."""
    cell = tab.run(code)
    reply = tab.reply(cell, timeout_s)
    assert reply["status"] == "ok", reply
    return tab.text(cell)
