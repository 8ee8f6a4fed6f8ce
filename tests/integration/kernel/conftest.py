"""Real kernel processes, asked over real sockets."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

LIMIT_S = 60


class LiveKernel:
    """A kernel of ours, with a client."""

    def __init__(self, cwd: Path) -> None:
        self.manager = KernelManager()
        argv = [sys.executable, "-m", "jupyter_gpufair.kernel", "-f", "{connection_file}"]
        self.manager._kernel_spec = KernelSpec(argv=argv, display_name="gpufair", language="python")
        self.log = cwd / f"kernel-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            env = {**os.environ, "IPYTHONDIR": str(cwd / "ipython")}
            self.manager.start_kernel(cwd=str(cwd), stderr=log, env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=LIMIT_S)

    @property
    def pid(self) -> int:
        assert self.manager.provisioner is not None
        pid: int = self.manager.provisioner.pid  # type: ignore[attr-defined]
        return pid

    def run(self, code: str) -> tuple[dict[str, Any], str]:
        """Run a cell: content of its reply, and what it printed."""
        return self.result(self.client.execute(code))

    def result(self, cell: str) -> tuple[dict[str, Any], str]:
        """The same for a cell that was sent already."""
        printed = "".join(m["content"]["text"] for m in self.outputs(cell) if m["msg_type"] == "stream")
        while True:
            reply = self.client.get_shell_msg(timeout=LIMIT_S)
            if reply["parent_header"].get("msg_id") == cell:
                return reply["content"], printed

    def outputs(self, cell: str) -> list[dict[str, Any]]:
        """All IOPub messages of a cell, up to its end."""
        found = []
        while True:
            message = self.client.get_iopub_msg(timeout=LIMIT_S)
            if message["parent_header"].get("msg_id") != cell:
                continue
            found.append(message)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found

    def until_printed(self, text: str) -> None:
        """Wait until a running cell has printed ``text``."""
        while True:
            message = self.client.get_iopub_msg(timeout=LIMIT_S)
            if message["msg_type"] == "stream" and text in message["content"]["text"]:
                return

    def send(self, kind: str, **content: Any) -> str:
        """Send a control message, and give its id."""
        message = self.client.session.msg(kind, content)
        self.client.control_channel.send(message)
        return str(message["header"]["msg_id"])

    def answer(self, request: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """The answer to a control message; answers to others are passed over."""
        end = time.monotonic() + limit_s
        while (left := end - time.monotonic()) > 0:
            try:
                reply = self.client.control_channel.get_msg(timeout=left)
            except Empty:
                break
            if reply["parent_header"].get("msg_id") == request:
                return {"type": reply["msg_type"], **reply["content"]}
        raise AssertionError(f"no answer within {limit_s} s")

    def ask(self, kind: str, **content: Any) -> dict[str, Any]:
        """Send a control message and wait for its answer."""
        return self.answer(self.send(kind, **content))

    def interrupt(self) -> None:
        """As the user's button."""
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """kill -9, and reap."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Callable[[], LiveKernel]]:
    """Starts kernels; all are gone when the test ends."""
    started: list[LiveKernel] = []

    def start() -> LiveKernel:
        started.append(LiveKernel(tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def place(tmp_path: Path) -> dict[str, Any]:
    """The fields of a request that name the folder and the key."""
    key = tmp_path / "key"
    key.write_text("5a" * 32)
    key.chmod(0o600)
    return {"directory": str(tmp_path / "checkpoints"), "key_file": str(key)}
