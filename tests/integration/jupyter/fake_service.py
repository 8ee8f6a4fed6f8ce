"""A scheduler service of one thread that starts real ipykernels, and holds each session in the state a test wants.

The real service passes through most states too quickly to be interrupted in them. It speaks the documented HTTP API.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import uvicorn
from jupyter_client.connect import write_connection_file

from tests.integration.jupyter.fake_api import FakeApi, fresh_key

PORTS = ("ip", "shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")


@dataclass
class Run:
    """A workload and its kernel."""

    view: dict[str, Any]
    launch: dict[str, Any]
    key: str
    connection: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    calls: list[str] = field(default_factory=list)
    expected: bool = False  # its process is being ended on purpose


class FakeService:
    """Use as a context manager. ``queueing``: new workloads stay queued until ``start``."""

    def __init__(self, state_dir: Path) -> None:
        self.folder, self.token = state_dir, uuid.uuid4().hex
        self.runs: dict[str, Run] = {}
        self.queueing = False
        self.holders = 0
        self.lock = threading.RLock()
        self.readers: list[tuple[asyncio.AbstractEventLoop, asyncio.Queue[dict[str, Any]]]] = []
        self._closing = threading.Event()
        self.server: uvicorn.Server | None = None
        self.port = 0

    # ------------------------------------------------------------------ life
    def __enter__(self) -> Self:
        self.serve()
        self._watch = threading.Thread(target=self._watch_kernels, daemon=True)
        self._watch.start()
        return self

    def serve(self) -> None:
        """Begin (again) to answer."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        self.server = uvicorn.Server(uvicorn.Config(FakeApi(self).app, log_level="critical", lifespan="off", timeout_graceful_shutdown=0))
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self.folder / "service.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps({"url": self.url, "token": self.token, "pid": os.getpid(), "started_s": time.time()}))
        until(lambda: self.server is not None and self.server.started)

    def silence(self) -> None:
        """Answer nobody any more; kernels go on."""
        assert self.server is not None
        self.server.should_exit = self.server.force_exit = True
        self._thread.join(10)

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self.silence()
        for run in self.runs.values():
            self.kill(run)
        self._watch.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def submitted(self, workload: str, launch: dict[str, Any]) -> Run:
        """The workload of a submission, new or known."""
        if workload not in self.runs:
            self.runs[workload] = Run(new_view(workload, launch), launch, fresh_key())
            self.set(workload)
            if not self.queueing:
                self.start(workload)
        return self.runs[workload]

    # ------------------------------------------------------------------ what a test orders
    def start(self, workload: str) -> None:
        """Start its kernel and let it serve."""
        with self.lock:
            run = self.runs[workload]
            view = run.view
            node = f"node-{view['incarnation'] % 2 + 1}"
            restored = view["checkpoint"] is not None and view["incarnation"] > 0
            self.set(workload, state="restoring" if restored else "starting", incarnation=view["incarnation"] + 1,
                     generation=0, leases=[{"node": node, "gpus": 1}], devices=[[node, "virtual-0"]],
                     position=None)  # fmt: skip
        self.launch(run)

    def park(self, workload: str, *, saved: bool = True, state: str = "parked", preempted: bool = True) -> None:
        """Take its kernel away."""
        run = self.runs[workload]
        self.set(workload, state="checkpointing", reason="preempted so that ben's session can start")
        checkpoint = {"id": "c1", "sequence": 1, "at_s": time.time(), "size_bytes": 1000, "duration_s": 0.1, "lost": []}
        self.kill(run)
        more = {"checkpoint": checkpoint} if saved else {}
        self.set(workload, state=state, serving=False, leases=[], devices=[],
                 preemptions=run.view["preemptions"] + preempted, **more)  # fmt: skip

    def end(self, workload: str, reason: str = "ended by a test", outcome: str = "cancelled") -> None:
        """It is over."""
        self.kill(self.runs[workload])
        self.set(workload, state="ended", outcome=outcome, reason=reason, serving=False, ended_s=time.time())

    def set(self, workload: str, **fields: Any) -> None:
        """Change its view and tell everybody."""
        with self.lock:
            view = self.runs[workload].view
            view.update(fields)
            for loop, queue in self.readers:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(queue.put_nowait, dict(view))

    def pid(self, workload: str) -> int:
        """Of its kernel."""
        process = self.runs[workload].process
        assert process is not None
        return process.pid

    # ------------------------------------------------------------------ kernels
    def launch(self, run: Run) -> None:
        workload = run.view["id"]
        file = self.folder / f"{workload}-{uuid.uuid4().hex}.json"
        _, config = write_connection_file(str(file), key=run.key.encode())
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", str(file)]
        env = {**os.environ, **run.launch.get("env", {}), "PYTHONWARNINGS": "ignore", "GPUFAIR_TEST_NODE": str(run.view["leases"])}
        with (self.folder / "kernels.log").open("ab") as log:
            run.process = subprocess.Popen(
                command, env=env, cwd=run.launch.get("cwd"), stdout=log, stderr=log, start_new_session=True
            )
        run.expected = False
        run.connection = {name: value for name, value in config.items() if name in PORTS}

        def serving() -> None:
            until(lambda: listening(config["shell_port"]) or run.process is None or run.process.poll() is not None)
            self.set(workload, state="running", serving=True, kernel_died=False,
                     generation=run.view["generation"] + 1, granted_s=time.time(),
                     protected_until_s=time.time() + 60, reason="")  # fmt: skip

        threading.Thread(target=serving, daemon=True).start()

    def kill(self, run: Run) -> None:
        run.expected = True
        process, run.process = run.process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    def _watch_kernels(self) -> None:
        while not self._closing.wait(0.05):
            for run in tuple(self.runs.values()):
                process = run.process
                if process is not None and not run.expected and process.poll() is not None:
                    run.process = None
                    self.set(run.view["id"], serving=False, kernel_died=True)


def new_view(workload: str, launch: dict[str, Any]) -> dict[str, Any]:
    """A queued workload."""
    return {
        "id": workload, "name": "", "kind": "session", "user": "ria", "allocation": "language", "gpus": 1, "nodes": 1,
        "state": "queued", "submitted_s": time.time(), "incarnation": 0, "generation": 0, "preemptions": 0, "leases": [],
        "devices": [], "position": 1, "reason": "waits for GPUs", "busy": False, "checkpoint": None, "lost": [],
        "restore_offered": False, "serving": False, "kernel_died": False, "notebook": launch.get("notebook", ""),
        "kernel_name": launch.get("kernel_name", ""),
    }  # fmt: skip


def listening(port: int) -> bool:
    """Whether somebody answers there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(true: Callable[[], Any], timeout_s: float = 20.0, what: str = "") -> Any:
    """Wait for ``true()``, and return what it returned."""
    deadline = time.monotonic() + timeout_s
    while not (value := true()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:g} s: {what or true}")
        time.sleep(0.02)
    return value
