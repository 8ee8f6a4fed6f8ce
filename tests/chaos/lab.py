"""A whole lab to be broken: one service (two on PostgreSQL), agents here, and one that is another machine's."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import psutil

from gpufair.client import Client, ClientError
from gpufair.client.exchange import Patience
from gpufair.node.child import free_ports
from tests.chaos.front import Front

Found = TypeVar("Found")
FAR = "far"
NODES = {"n1": 2, "n2": 1, FAR: 1}  # and their GPUs
CONFIG = """\
budgets = "budgets.toml"

[checkpoints]
after_cells = "off"  # so that the visitors know what is saved

[policy]
grid = "2s"
backoff = "1s"  # of unallocated work that was preempted
backoff_most = "4s"

[grace]
session = "5s"
batch = "2s"

[service]
snapshot_every = 50
"""
BUDGETS = '[[allocation]]\npath = "a"\n[[allocation]]\npath = "b"\n'
START_S = 120.0
# As `RestartSec` of a unit would; drawn, so that each part is also missing while others look for it.
RESTART_S = (0.0, 1.5)
GPUFAIR = (sys.executable, "-m", "gpufair.cli")
KINDS = ("service", "agent", "supervisor", "kernel", "process")


class Broken(AssertionError):
    """The lab does not do what it should, so that nothing can be said about the rest."""


@dataclass(frozen=True, slots=True)
class Part:
    """A process of the lab. ``workload`` and ``incarnation`` of a supervisor or a workload's process."""

    kind: str
    process: psutil.Process
    workload: str = ""
    incarnation: int = 0
    first: bool = True  # a workload's own first process, not one that it has started


@dataclass(slots=True)
class _Kept:
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    due: float = 0.0  # monotonic


@dataclass
class Lab:
    """Use as a context manager: all that it started is gone afterwards.

    Args:
        folder: Must be new; everything is in it.
        database: URL of a PostgreSQL database, for two services; else one with SQLite.
        draw: For the pauses before something is started again.
    """

    folder: Path
    draw: random.Random
    database: str = ""

    def __post_init__(self) -> None:
        self.state, self.proof = self.folder / "state", self.folder / "proof"
        front, *self._ports = free_ports(3 if self.database else 2)  # none that the system gives to others meanwhile
        self._front = Front(front, self.addresses)
        self._kept: list[_Kept] = []
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper")

    # ------------------------------------------------------------------ life

    def __enter__(self) -> Self:
        begun = time.monotonic()
        self.proof.mkdir(parents=True)
        nodes = "".join(
            f'\n[[node]]\nname = "{name}"\n' + ("remote = true\n" if name == FAR else f"gpus = {gpus}\n")
            for name, gpus in NODES.items()
        )
        store = f'\n[store]\nurl = "{self.database}"\n' if self.database else ""
        (self.folder / "gpufair.toml").write_text(CONFIG + store + nodes)
        (self.folder / "budgets.toml").write_text(BUDGETS)
        try:
            for number, port in enumerate(self._ports):
                serve = [*GPUFAIR, "serve", "--config", str(self.folder / "gpufair.toml"), "--port", str(port)]
                self._begin([*serve, "--state-dir", str(self.state)], f"service{number}.log")
            self._keeper.start()
            until((self.state / "service.json").exists, START_S, f"the service starts: {self.log()}")
            if self.database:
                self._front.start()
            service = self._front.address if self.database else self.addresses[0]
            token = self.folder / "far.token"
            self.gpufair("nodes", "token", FAR, "--output", str(token), "--state-dir", str(self.state))
            agent = [*GPUFAIR, "agent", FAR, "--run-as", "agent", "--service", service, "--token-file", str(token)]
            agent += ["--host", "127.0.0.1", "--listen", "127.0.0.1"]
            agent += ["--gpus", str(NODES[FAR]), "--folder", str(self.folder / FAR)]
            self._begin(agent, "far.log")
            with self.client() as client:
                until(lambda: self._all_there(client), START_S, f"all nodes are there: {self.log()}")
        except BaseException:
            self.end()
            raise
        self.started_in_s = time.monotonic() - begun
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill all that is left."""
        self._over.set()
        if self._keeper.is_alive():
            self._keeper.join()
        while left := self.parts():
            for part in left:
                with suppress(psutil.Error):
                    part.process.kill()
            psutil.wait_procs([part.process for part in left], 10)
        for kept in self._kept:
            if kept.process is not None:
                kept.process.wait(10)
        self._front.over()

    def _begin(self, command: list[str], log: str) -> None:
        kept = _Kept(command, self.folder / log)
        self._start(kept)
        self._kept.append(kept)

    def _start(self, kept: _Kept) -> None:
        with kept.log.open("ab") as log:
            kept.process = subprocess.Popen(kept.command, stdout=log, stderr=log, cwd=self.folder, start_new_session=True)

    def _keep(self) -> None:
        """What an init system does: whatever has died is started again."""
        while not self._over.wait(0.05):
            for kept in list(self._kept):
                if kept.process is not None and kept.process.poll() is not None:
                    kept.process, kept.due = None, time.monotonic() + self.draw.uniform(*RESTART_S)
                elif kept.process is None and time.monotonic() >= kept.due:
                    self._start(kept)

    @staticmethod
    def _all_there(client: Client) -> bool:
        with suppress(ClientError):
            return all(node.state == "ready" and node.gpus == NODES[node.name] for node in client.nodes())
        return False

    # ------------------------------------------------------------------ asking

    @property
    def addresses(self) -> list[str]:
        """Of the services."""
        return [f"http://127.0.0.1:{port}" for port in self._ports]

    def client(self) -> Client:
        """With the right of an operator, and with the patience of somebody whose service is killed all the time."""
        token = json.loads((self.state / "service.json").read_text())["token"]
        patience = Patience(timeout_s=10.0, tries=60, longest_pause_s=1.0, total_s=60.0)
        return Client(url=",".join(self.addresses), token=token, patience=patience)

    def answers(self, part: Part) -> bool:
        """Whether a service leads or stands by."""
        with suppress(psutil.Error, httpx.TransportError):
            port = part.process.cmdline()[part.process.cmdline().index("--port") + 1]
            return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=1.0, trust_env=False).status_code in (200, 503)
        return False

    def gpufair(self, *args: str) -> str:
        """What a command says. Raises: Broken."""
        done = subprocess.run(
            [*GPUFAIR, *args], cwd=self.folder, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            raise Broken(f"gpufair {' '.join(args)} exits with {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        return done.stdout

    def log(self, most: int = 3000) -> str:
        """The end of what services and agents said."""
        files = [*self.folder.glob("*.log"), *self.state.glob("nodes/*/agent.log")]
        return "\n".join(f"---- {file.name}\n{file.read_text(errors='replace')[-most:]}" for file in sorted(files))

    # ------------------------------------------------------------------ processes

    def parts(self, *kinds: str) -> list[Part]:
        """The living processes of the lab (they have its folder in their arguments or environment), with these kinds."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                command, env = process.cmdline(), process.environ()
                told = any(str(self.folder) in text for text in (*command, *env.values()))
                if not told or process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                part = _part(process, command, env)
                if part is not None and (not kinds or part.kind in kinds):
                    found.append(part)
        return sorted(found, key=lambda part: part.process.pid)


def _part(process: psutil.Process, command: Sequence[str], env: dict[str, str]) -> Part | None:
    line = " ".join(command)
    if "gpufair.cli serve" in line:
        return Part("service", process)
    if "gpufair.node.agent" in line or f"gpufair.cli agent {FAR}" in line:
        return Part("agent", process)
    if "gpufair.node.supervisor" in line:
        (folder,) = [Path(word).name for word in command if "/workloads/" in word]
        workload, _, incarnation = folder.rpartition(".")
        return Part("supervisor", process, workload, int(incarnation))
    if "GPUFAIR_TAG" in env:
        first = "sleep" not in command[0]
        kind = "kernel" if "jupyter_gpufair.kernel" in line else "process"
        return Part(kind, process, env["GPUFAIR_WORKLOAD"], int(env["GPUFAIR_INCARNATION"]), first)
    # A command of ours (`gpufair db check`), or a child of an agent between fork and exec.
    return Part("other", process)


def kill(part: Part) -> bool:
    """kill -9, and nobody else's process. False: it has ended by itself."""
    try:
        fd = os.pidfd_open(part.process.pid)
    except OSError:
        return False
    try:
        if not part.process.is_running():  # compares the time of its start
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def until(true: Callable[[], Found | None], within_s: float, what: str) -> Found:
    """The first true answer. Raises: Broken."""
    end = time.monotonic() + within_s
    while not (value := true()):
        if time.monotonic() > end:
            raise Broken(f"not within {within_s:g} s: {what}")
        time.sleep(0.05)
    return value


def read_notes(path: Path) -> list[dict[str, Any]]:
    """What the runs of a job have noted."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
