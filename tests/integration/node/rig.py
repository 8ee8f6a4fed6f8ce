"""A node under test: fake service, real agent, real supervisors, real kernels; nothing of it survives the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient

from gpufair.node.gpus import virtual
from gpufair.node.logs import read_log
from gpufair.node.processes import TAG, find, send
from tests.integration.node.fake_service import TOKEN, FakeService

KEY = "00" * 32
KERNEL = ["python", "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]


def until(true: Callable[[], Any], timeout_s: float = 15.0, what: str = "") -> Any:
    """What ``true`` returns as soon as it is true."""
    deadline = time.monotonic() + timeout_s
    while not (value := true()):
        assert time.monotonic() < deadline, f"not true within {timeout_s} s: {what or true}"
        time.sleep(0.02)
    return value


class Rig:
    """One node ``n1`` with two virtual GPUs."""

    def __init__(self, root: Path, linger_s: float | None = 60.0, **options: float) -> None:
        self.root = root
        self.folder = root / "nodes" / "n1"
        self.folder.mkdir(parents=True)
        self.service = FakeService(root)
        self.config: dict[str, Any] = {
            "node": {"name": "n1", "gpu_ids": virtual(2)},
            "state_dir": str(root),
            "token": TOKEN,
            "linger_s": linger_s,
            "grace_s": 5.0,
            **options,
        }
        self.within: list[str] = []  # a command that runs the agent
        self.agent: subprocess.Popen[bytes] | None = None
        self._clients: dict[str, BlockingKernelClient] = {}

    def start_agent(self) -> None:
        path = self.folder / "agent-config.json"
        path.touch(0o600)
        path.write_text(json.dumps(self.config))
        log = (self.folder / "agent.log").open("ab")
        with log:
            self.agent = subprocess.Popen(
                [*self.within, sys.executable, "-m", "gpufair.node.agent", "--config", str(path)],
                stdout=log,
                stderr=log,
                env={**os.environ, "GPUFAIR_SERVICE_TOKEN": "secret", "JUPYTER_TOKEN": "secret"},
            )

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def start(self, workload: str, *, incarnation: int = 1, gpus: int = 0, **more: Any) -> None:
        launch = {"type": "kernel", "argv": KERNEL, "cwd": str(self.root), "env": {}}
        launch.update(more.pop("launch", {}))
        args = {
            "launch": launch,
            "user": "ria",
            "name": workload,
            "gpus": gpus,
            "kernel_key": KEY,
            "checkpoint_key": KEY,
            "checkpoint_dir": str(self.root / "checkpoints" / workload),
            "image_dir": str(self.root / "checkpoints" / f"{workload}.images"),
            "record_dir": str(self.root / "records" / workload),
            "next_sequence": 1,
            **more,
        }
        self.service.command("start", workload, incarnation, **args)

    def preempt(self, workload: str, in_s: float, incarnation: int = 1) -> None:
        self.service.command(
            "preempt", workload, incarnation, deadline_s=time.time() + in_s, text="Somebody under-served waits."
        )

    def dir(self, workload: str, incarnation: int = 1) -> Path:
        return self.folder / "workloads" / f"{workload}.{incarnation}"

    def log(self, workload: str, rank: int = 0) -> str:
        """What a command wrote, over all of its starts."""
        return read_log(self.root / "records" / workload, rank, 0, 1 << 20).text

    def status(self, workload: str, incarnation: int = 1) -> dict[str, Any]:
        status: dict[str, Any] = json.loads((self.dir(workload, incarnation) / "status.json").read_text())
        return status

    def client(self, connection: dict[str, Any]) -> BlockingKernelClient:
        """A client of the kernel; one is kept for each shell port."""
        key = str(connection["shell_port"])
        if key not in self._clients:
            client = BlockingKernelClient()
            info: Any = {"key": KEY, "transport": "tcp", "signature_scheme": "hmac-sha256"}
            client.load_connection_info(info | connection)
            client.start_channels(hb=False)  # a kernel that boots slowly on a shared machine is not dead
            self._clients[key] = client
            client.wait_for_ready(timeout=30)
        return self._clients[key]

    def hang_up(self) -> None:
        """Forget the clients: a kernel that comes back at the same ports would answer before they hear its outputs again."""
        for client in self._clients.values():
            client.stop_channels()
        self._clients = {}

    def ask(self, connection: dict[str, Any], expression: str) -> str:
        """The value of an expression in the kernel."""
        client = self.client(connection)
        reply = client.execute_interactive(
            "", user_expressions={"value": expression}, timeout=30, output_hook=lambda _: None, store_history=False
        )
        value = reply["content"]["user_expressions"]["value"]
        return str(value["data"]["text/plain"] if value["status"] == "ok" else value["ename"])

    def run(self, connection: dict[str, Any], code: str) -> str:
        """Send a cell; returns its message id at once."""
        return str(self.client(connection).execute(code))

    def processes(self, workload: str, incarnation: int = 1) -> set[Any]:
        start = json.loads((self.dir(workload, incarnation) / "start.json").read_text())
        return find(None, start["tag"])

    @staticmethod
    def _gone(tag: str) -> None:
        until(lambda: not find(None, tag), what=f"processes with {TAG}={tag} are gone")

    def close(self) -> None:
        """Kill everything, by id."""
        self.hang_up()
        tags, supervisors = [], []
        for folder in (self.folder / "workloads").glob("*"):
            for name in ("start.json", "status.json"):
                try:
                    data = json.loads((folder / name).read_text())
                except OSError:
                    continue
                tags += [data["tag"]] if "tag" in data else []
                supervisors += [data["pid"]] if "pid" in data else []
        if self.agent is not None and self.agent.poll() is None:
            self.kill_agent()
        for pid in supervisors:
            if f"{self.folder}" in _command_line(pid):
                os.kill(pid, signal.SIGKILL)
        for tag in tags:
            for process in find(None, tag):
                send(process, signal.SIGKILL)
        for tag in tags:
            self._gone(tag)
        if self.service._server is not None:
            self.service.stop()


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
