"""A real service process with real agents, asked over HTTP; nothing of it survives the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

Found = TypeVar("Found")
WAIT_S = 60.0

CONFIG = """\
budgets = "budgets.toml"

[service]
agent_silence = "{silence}"
snapshot_every = 7

[grace]
session = "5s"
batch = "5s"

[[node]]
name = "n1"
gpus = 1

[[node]]
name = "c1"
gpus = 0
"""
BUDGETS = '[[allocation]]\npath = "a"\n[[allocation]]\npath = "b"\n'


def until(what: str, probe: Callable[[], Found | None], wait_s: float = WAIT_S) -> Found:
    """What ``probe`` finds; asked again until it finds something."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        if found := probe():
            return found
        time.sleep(0.03)
    raise AssertionError(f"waited {wait_s:g} s in vain for {what}")


class Rig:
    """One state folder and the service on it."""

    def __init__(self, folder: Path, config: str = CONFIG, silence: str = "30s", embedded: bool = True) -> None:
        self.folder, self.state = folder, folder / "state"
        self.config = folder / "gpufair.toml"
        self.config.write_text(config.format(silence=silence))
        (folder / "budgets.toml").write_text(BUDGETS)
        self.embedded = embedded
        self.process: subprocess.Popen[bytes] | None = None
        self.http: httpx.Client | None = None

    def command(self, *more: str) -> list[str]:
        """The command line of the service."""
        argv = [
            sys.executable,
            "-m",
            "gpufair.cli",
            "serve",
            "--config",
            str(self.config),
            "--state-dir",
            str(self.state),
        ]
        return [*argv, *(["--embedded"] if self.embedded else []), *more]

    def start(self, *more: str) -> None:
        """Start the service and wait until it answers."""
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(self.command(*more), stdout=log, stderr=log, cwd=self.folder)
        info = until("the service", self._info)
        self.http = httpx.Client(
            base_url=f"{info['url']}/api/v1", headers={"Authorization": f"Bearer {info['token']}"}, timeout=10
        )

    def _info(self) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with suppress(OSError, ValueError):
            info: dict[str, Any] = json.loads((self.state / "service.json").read_text())
            if info["pid"] == self.process.pid:
                return info
        return None

    def log(self) -> str:
        """What the service said."""
        return (self.folder / "service.log").read_text()[-6000:]

    def kill(self) -> None:
        """kill -9 the service, and only it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self._close()

    def stop(self) -> int:
        """End it properly; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def end(self) -> int:
        """Wait for its end; its exit code."""
        assert self.process is not None
        code = self.process.wait(60)
        self._close()
        return code

    def _close(self) -> None:
        if self.http is not None:
            self.http.close()
            self.http = None

    # -- asking ---------------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, **how: Any) -> Any:
        """The JSON answer."""
        assert self.http is not None
        answer = self.http.request(method, path, **how)
        assert answer.status_code < 400, answer.text
        return answer.json()

    def submit(self, name: str, script: str, **fields: Any) -> dict[str, Any]:
        """Submit a shell script; each of its starts leaves a line in the file ``NAME.starts``."""
        line = f"echo $GPUFAIR_INCARNATION $$ >> {self.folder / name}.starts\n{script}"
        body: Mapping[str, Any] = {
            "id": name,
            "kind": "batch",
            "allocation": "a",
            "gpus": 1,
            "min_runtime_s": 600,
            "launch": {"type": "command", "argv": ["/bin/bash", "-c", line], "cwd": str(self.folder)},
        } | fields
        found: dict[str, Any] = self.ask("POST", "/workloads", json=body)
        return found

    def starts(self, name: str) -> int:
        """How often its script really began."""
        path = self.folder / f"{name}.starts"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def get(self, name: str) -> dict[str, Any]:
        """The Workload object."""
        found: dict[str, Any] = self.ask("GET", f"/workloads/{name}")
        return found

    def await_state(self, name: str, *states: str) -> dict[str, Any]:
        """The Workload object as soon as it is in one of these states."""

        def probe() -> dict[str, Any] | None:
            found = self.get(name)
            return found if found["state"] in states else None

        try:
            return until(f"{name} to be {states}", probe)
        except AssertionError as err:
            raise AssertionError(f"{err}; it is {self.get(name)}\n{self.log()}") from None

    def timeline(self) -> list[dict[str, Any]]:
        """Everything that was journalled."""
        found: list[dict[str, Any]] = self.ask("GET", "/timeline")["records"]
        return found

    def check_books(self) -> None:
        """The ledger adds up, and each workload was charged exactly for what the journal says it held."""
        books = self.ask("GET", "/conservation")
        assert books["error_gpu_ms"] == 0, books
        assert books["protected_preemptions"] == 0
        held: dict[str, int] = {}
        since: dict[str, tuple[int, int]] = {}
        for record in self.timeline():
            at, workload = round(record["at_s"] * 1000), record.get("workload", "")
            if record["kind"] == "Start":
                assert workload not in since, f"{workload} was started twice"
                since[workload] = (at, sum(lease["gpus"] for lease in record["held"]["leases"]))
            elif record["kind"] in ("Released", "Exited", "StartFailed") and workload in since:
                began, gpus = since.pop(workload)
                held[workload] = held.get(workload, 0) + gpus * (at - began)
        for one in self.ask("GET", "/workloads")["workloads"]:
            if one["id"] not in since and one["min_runtime_s"] > 0:
                assert round(one["charged_gpu_s"] * 1000) == held.get(one["id"], 0), one

    # -- processes ------------------------------------------------------------------------------------------------

    def processes(self) -> list[psutil.Process]:
        """Agents, supervisors and workloads: all have the folder in their arguments or environment."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                told = [*process.cmdline(), *process.environ().values()]
                ours = any(str(self.folder) in text for text in told)
                if ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def agent_pid(self, node: str = "n1") -> int:
        """The agent's process."""
        pid: int = json.loads((self.state / "nodes" / node / "agent.json").read_text())["pid"]
        return pid

    def clean(self) -> None:
        """End all that is left, by process id."""
        self._close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
