"""The processes that stand for a pod's containers: started, signalled, and ended with all that they have begun."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufair.node.processes import death_signal
from tests.kube.pod_files import Container
from tests.kube.store import stamp

MARK = "FAKE_POD_UID"
"""In the environment of every process of a pod: a container's end is the end of them all."""


@dataclass
class Running:
    """A container's process, and what is known of its end."""

    container: Container
    process: asyncio.subprocess.Process | None
    started: str
    exit_code: int | None = None
    reason: str = ""
    finished: str = ""
    restarts: int = 0

    def state(self) -> dict[str, Any]:
        if self.exit_code is None:
            return {"running": {"startedAt": self.started}}
        reason = self.reason or ("Completed" if self.exit_code == 0 else "Error")
        ended = {"exitCode": self.exit_code, "reason": reason, "startedAt": self.started, "finishedAt": self.finished}
        return {"terminated": {**ended, "containerID": f"fake://{self.container.name}"}}


async def started(one: Container, log_file: Path) -> Running:
    """A command that can't be run is a container that has ended."""
    with log_file.open("ab") as log:
        try:
            process = await asyncio.create_subprocess_exec(
                *one.command,
                env=one.env,
                cwd=one.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=death_signal(),
            )
        except OSError as error:
            log.write(f"{error}\n".encode())
            return Running(one, None, stamp(), 128, "StartError", stamp())
    return Running(one, process, stamp())


def send(one: Running, number: signal.Signals) -> None:
    """To the container's first process; SIGKILL to its group too."""
    if one.process is None or one.process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(one.process.pid, number)
        else:
            one.process.send_signal(number)


def kill_marked(name: str, value: str) -> int:
    """SIGKILL to each process with this in its environment, until there is none; how many there were."""
    wanted, seen = f"{name}={value}".encode(), set()
    for _ in range(100):
        pids = (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        found = {pid for pid in pids if pid != os.getpid() and _has(pid, wanted)}
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        seen |= found
        time.sleep(0.005)
    return len(seen)


def _has(pid: int, wanted: bytes) -> bool:
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False

