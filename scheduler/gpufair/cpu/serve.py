"""The process of the pool that outlives kernels: ``python -m gpufair.cpu.serve FOLDER WORKERS MEMORY_BYTES [dashboard]`` (0: default).

With a plan in its folder it is one that several users share, and ends when its service has been gone for long.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import dask.system

from gpufair.cpu import dashboard, fair, local, plan, resident
from gpufair.node.files import is_locked, try_lock, write_json

_LOOK_S = 1.0


def main(folder: Path, workers: int, memory_bytes: int, *, pages: bool = False) -> int:
    """Serve until SIGTERM; the exit code."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    if (lock := try_lock(resident.place(folder, "lock"))) is None:
        print("another CPU pool of this state folder is starting or running", file=sys.stderr)  # noqa: T201 - its log
        return 1
    shared = plan.read(folder)
    turns = None if shared is None else fair.Turns(folder, shared)
    most = workers or dask.system.CPU_COUNT
    security = local.new_key()
    file = resident.place(folder, "json")
    at = dashboard.new_socket() if pages and turns is None else None  # it would show users each other's tasks
    with local.cluster(1, security, memory_bytes or None, [turns] if turns else [], at) as cluster:
        # Dask takes half a second for a task that it does not know yet, and so would run a few long ones in a row;
        # for a worker that idles for a minute nobody waits a second again.
        adapting = {"target_duration": "200ms", "interval": "1s", "wait_count": 60}
        if turns is None:
            cluster.adapt(minimum=1, maximum=most, **adapting)
        else:
            cluster.adapt(fair.Useful, minimum=0, maximum=most, **adapting)
        limit = next(iter(cluster.scheduler.workers.values())).memory_limit
        pid = os.getpid()
        info = resident.Resident(
            pid, resident.began(pid) or "", time.time(), cluster.scheduler_address, most, limit,
            security.tls_client_key, security.tls_client_cert, str(at or ""),
        )
        write_json(file, vars(info))
        if turns is None:
            over.wait()
        else:
            _follow(folder, turns, over)
        file.unlink(missing_ok=True)
    if at is not None:
        shutil.rmtree(at.parent, ignore_errors=True)
    os.close(lock)
    return 0


def _follow(folder: Path, turns: fair.Turns, over: threading.Event) -> None:
    """Do as the plan says, until it is over: the service says so, or is not there for too long."""
    seen = time.monotonic()
    while not over.wait(_LOOK_S):
        turns.plan = plan.read(folder) or turns.plan
        if is_locked(Path(turns.plan.service_lock)):
            seen = time.monotonic()
        elif time.monotonic() - seen > turns.plan.linger_s:
            print("its service has been gone for too long: it ends", file=sys.stderr)  # noqa: T201 - its log
            return


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), pages="dashboard" in sys.argv[4:]))
