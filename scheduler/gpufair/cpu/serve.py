"""The process of the pool that outlives kernels: ``python -m gpufair.cpu.serve FOLDER WORKERS MEMORY_BYTES`` (0: default)."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import dask.system

from gpufair.cpu import local, resident
from gpufair.node.files import try_lock, write_json


def main(folder: Path, workers: int, memory_bytes: int) -> int:
    """Serve until SIGTERM; the exit code."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    if (lock := try_lock(resident.place(folder, "lock"))) is None:
        print("another CPU pool of this state folder is starting or running", file=sys.stderr)  # noqa: T201 - its log
        return 1
    most = workers or dask.system.CPU_COUNT
    security = local.new_key()
    file = resident.place(folder, "json")
    with local.cluster(1, security, memory_bytes or None) as cluster:
        # Dask takes half a second for a task that it does not know yet, and so would run a few long ones in a row;
        # for a worker that idles for a minute nobody waits a second again.
        cluster.adapt(minimum=1, maximum=most, target_duration="200ms", interval="1s", wait_count=60)
        limit = next(iter(cluster.scheduler.workers.values())).memory_limit
        pid = os.getpid()
        info = resident.Resident(
            pid, resident.began(pid) or "", time.time(), cluster.scheduler_address, most, limit,
            security.tls_client_key, security.tls_client_cert,
        )
        write_json(file, vars(info))
        over.wait()
        file.unlink(missing_ok=True)
    os.close(lock)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
