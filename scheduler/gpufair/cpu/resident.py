"""The pool of this machine that outlives kernels: found, started and stopped. What it runs is in ``serve``.

Its file is the owner's alone, because it holds the key. It has the machine's name, for homes that several machines share.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gpufair.client.endpoint import private_text
from gpufair.cpu.errors import PoolMissing
from gpufair.node.files import is_locked
from gpufair.node.processes import identify
from gpufair.paths import private_dir, state_dir

_ASKED = "a CPU pool of this machine"
_POLL_S = 0.05
_STOP_S = 15.0
_LOG_LIMIT_BYTES = 8 << 20
_QUOTED_CHARS = 2000
# Of the kernel or server that happens to start it, and no business of what runs in the pool.
_NOT_INHERITED = ("GPUFAIR_", "JPY_", "JUPYTERHUB_", "JUPYTER_TOKEN")


@dataclass(frozen=True)
class Resident:
    """A living pool. ``began`` tells its process from a later one with the same id; ``memory_bytes`` is of one worker.

    ``dashboard`` is the socket of its pages; empty: it has none.
    """

    pid: int
    began: str
    started_s: float
    address: str
    workers: int
    memory_bytes: int
    key: str = field(repr=False)
    certificate: str = field(repr=False)
    dashboard: str = ""

    def __post_init__(self) -> None:
        """Refuse what a damaged file may hold."""
        if type(self.pid) is not int or type(self.began) is not str:
            raise TypeError("no process is named")

    def security(self) -> Any:
        """What Dask needs to talk to it, and to know that it is it."""
        import distributed  # noqa: PLC0415 - most of a second, which looking for a pool need not pay

        return distributed.Security(  # type: ignore[no-untyped-call]
            require_encryption=True, tls_ca_file=self.certificate, tls_client_cert=self.certificate, tls_client_key=self.key
        )


def place(folder: Path | None, ending: str) -> Path:
    """The pool's file in the state folder: ``json`` (what ``Resident`` has), ``log`` or ``lock``."""
    return state_dir(folder) / f"cpu-pool-{platform.node()}.{ending}"


def began(pid: int) -> str | None:
    """When a process began, in a form that is only good for comparing; None where there is none."""
    process = identify(pid)
    return None if process is None else str(process.started)


def found(folder: Path | None = None) -> Resident | None:
    """The living pool of the state folder; a file that a dead one left is none.

    Raises:
        Unavailable: Others could have written or read its file.
    """
    try:
        data = json.loads(private_text(place(folder, "json")))
        one = Resident(**{each.name: data[each.name] for each in fields(Resident)})
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return one if began(one.pid) == one.began else None


def start(
    folder: Path | None = None,
    *,
    workers: int | None = None,
    memory_bytes: int | None = None,
    pages: bool = False,
    wait_s: float = 60.0,
) -> tuple[Resident, bool]:
    """The pool of the state folder, and whether it was started by this call. It is a session of its own: nothing ends it but ``stop``.

    Args:
        folder: State folder; default as in ``gpufair.paths.state_dir``.
        workers: How many processes at most, >= 1; by default one per core.
        memory_bytes: Of each worker at most; by default a core's share of the machine's.
        pages: Whether it has a dashboard.
        wait_s: Until it must be there.

    Raises:
        PoolMissing: It did not come up; quotes the end of its log. Or there can be no dashboard.
        Unavailable: As in ``found``.
    """
    if (living := found(folder)) is not None:
        return living, False
    if pages:
        from gpufair.cpu import dashboard  # noqa: PLC0415 - as in ``security``

        dashboard.require()
    base, log = private_dir(state_dir(folder)), place(folder, "log")
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    argv = [sys.executable, "-m", "gpufair.cpu.serve", str(base), str(workers or 0), str(memory_bytes or 0), *(["dashboard"] if pages else [])]
    with os.fdopen(os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "rb") as file:
        begin = file.seek(0, os.SEEK_END)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, cwd=base,
            # The pool's work is given no GPU, so it must see none.
            env={**environment, "GPUFAIR_STATE_DIR": str(base), "CUDA_VISIBLE_DEVICES": ""},
        )
        threading.Thread(target=process.wait, name="gpufair-cpu-reaper", daemon=True).start()
        until = time.monotonic() + wait_s
        while (living := found(folder)) is None:
            # Where the lock is held it ended for another one that somebody else is starting.
            ended = process.poll() is not None and not is_locked(place(folder, "lock"))
            if ended or time.monotonic() > until:
                why = "it ended at once" if ended else "it did not come up in time and was stopped"
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                file.seek(begin)
                last = file.read().decode(errors="replace")[-_QUOTED_CHARS:].strip()
                raise PoolMissing(_ASKED, why, f"see {log}, which ends:\n{last}")
            time.sleep(_POLL_S)
    return living, living.pid == process.pid


def stop(folder: Path | None = None) -> Resident | None:
    """End the pool with all that it runs; returns which one it was, None where none lived."""
    living = found(folder)
    if living is None:
        return None
    until = time.monotonic() + _STOP_S
    with suppress(ProcessLookupError):
        os.kill(living.pid, signal.SIGTERM)
        while began(living.pid) == living.began:
            if time.monotonic() > until:
                os.killpg(living.pid, signal.SIGKILL)
            time.sleep(_POLL_S)
    return living


def figures(living: Resident) -> dict[str, Any]:
    """How it stands now: ``workers``, ``tasks`` (that run or wait) and ``clients`` connected; None each where it does not answer."""
    import distributed  # noqa: PLC0415 - as above

    def count(dask_scheduler: Any) -> tuple[int, int, int]:
        live = [task for task in dask_scheduler.tasks.values() if task.state in {"processing", "queued", "no-worker", "waiting"}]
        return len(dask_scheduler.workers), len(live), sum(name.startswith("Client-") for name in dask_scheduler.clients)

    numbers: tuple[int | None, ...] = (None, None, None)
    try:
        with distributed.Client(living.address, security=living.security(), timeout=5, set_as_default=False) as client:  # type: ignore[no-untyped-call]
            workers, tasks, clients = client.run_on_scheduler(count)
            numbers = workers, tasks, clients - 1  # but us
    except OSError:
        pass  # it is being stopped, or is stuck
    return dict(zip(("workers", "tasks", "clients"), numbers, strict=True))


def told(living: Resident) -> dict[str, Any]:
    """What others may see of it: all but the key."""
    return {name: value for name, value in asdict(living).items() if name not in {"key", "certificate", "began"}}
