"""A service for whoever has none: found if one lives, else started, once, whoever asks first.

The service is started by module name, never imported: the client knows only how to talk to it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpufair.client.endpoint import Endpoint, discover, from_folder, private_text
from gpufair.client.errors import ClientError, Unavailable
from gpufair.client.health import health
from gpufair.paths import SERVICE_FILE, SERVICE_LOG, START_LOCK, private_dir
from gpufair.paths import state_dir as find_state_dir

_POLL_S = 0.05
_QUOTED_LINES = 12
_QUOTED_BYTES = 4096
_LOG_LIMIT_BYTES = 8 << 20  # beyond it a new start begins a new log and keeps the old one as .1
_END_S = 5.0
_NOT_INHERITED = frozenset(
    {
        "GPUFAIR_URL",
        "GPUFAIR_TOKEN",
        "GPUFAIR_TOKEN_FILE",
        "GPUFAIR_TOKEN_FROM",
        "JPY_API_TOKEN",
        "JPY_PARENT_PID",
        "JUPYTERHUB_API_TOKEN",
        "JUPYTER_TOKEN",
    }
)
_COMMAND = (sys.executable, "-m", "gpufair.cli")


class StartFailed(ClientError):
    """An embedded service could not be started."""

    def __init__(self, why: str, log: Path, last_lines: str) -> None:
        super().__init__(why, log)
        self.why, self.log, self.last_lines = why, log, last_lines

    def __str__(self) -> str:
        quoted = f" Its last lines:\n{self.last_lines}" if self.last_lines else ""
        return f"the scheduler service could not be started: {self.why}; see {self.log}.{quoted}"


def ensure_service(
    config: str | os.PathLike[str] | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    wait_s: float = 15.0,
    *,
    environ: Mapping[str, str] = os.environ,
    command: Sequence[str] = _COMMAND,
) -> Endpoint:
    """A service that answers: the one of ``$GPUFAIR_URL``, else the living one of the state folder, else a new one.

    The new one is a session of its own (it outlives us, kill -9 included) and writes to ``service.log``. Of several
    processes that ask at once, one starts it and all get it.

    Args:
        config: Configuration file for a service that is started here; a living one keeps its own. Without it and without
            ``$GPUFAIR_CONFIG``: that of the service which crashed there, else the usual places.
        state_dir: Its state folder; default as in ``gpufair.paths.state_dir``. Given, it beats ``$GPUFAIR_URL``.
        wait_s: Seconds, > 0, until it must answer.
        command: What starts the command line; for tests.

    Raises:
        Unavailable: ``$GPUFAIR_URL`` is set and no service answers there.
        StartFailed: It did not come up; the text quotes the end of its log.
    """
    if state_dir is None and environ.get("GPUFAIR_URL"):
        return _answering(discover(environ=environ), min(wait_s, 5.0))
    folder = find_state_dir(state_dir, environ)
    if (found := _living(folder)) is not None:
        return found
    try:
        private_dir(folder)
        until = time.monotonic() + wait_s
        with _start_lock(folder, until):
            # Whoever held the lock before us may have started it.
            return _living(folder) or _start(folder, config, until, environ, command)
    except OSError as err:
        raise StartFailed(f"the state folder {folder} cannot be used ({err})", folder / SERVICE_LOG, "") from err


async def ensure_service_async(
    config: str | os.PathLike[str] | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    wait_s: float = 15.0,
    *,
    environ: Mapping[str, str] = os.environ,
    command: Sequence[str] = _COMMAND,
) -> Endpoint:
    """``ensure_service`` in a thread, so that the event loop goes on."""
    return await asyncio.to_thread(ensure_service, config, state_dir, wait_s, environ=environ, command=command)


def _answering(endpoint: Endpoint, timeout_s: float) -> Endpoint:
    """The endpoint, or the first of its others that answers."""
    for _ in endpoint.others:
        try:
            health(endpoint, timeout_s)
        except Unavailable:
            endpoint = endpoint.next()
        else:
            return endpoint
    health(endpoint, timeout_s)
    return endpoint


def _living(folder: Path) -> Endpoint | None:
    try:
        endpoint = from_folder(folder)
        health(endpoint)
    except Unavailable:
        return None
    return endpoint


@contextmanager
def _start_lock(folder: Path, until: float) -> Iterator[None]:
    path = folder / START_LOCK
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise StartFailed(
                        f"another process holds {path} and has not brought it up in time", folder / SERVICE_LOG, ""
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(file)  # gives the lock back


def _start(
    folder: Path,
    config: str | os.PathLike[str] | None,
    until: float,
    environ: Mapping[str, str],
    command: Sequence[str],
) -> Endpoint:
    log = folder / SERVICE_LOG
    if log.exists() and log.stat().st_size > _LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    argv = [*command, "serve", "--embedded", "--state-dir", str(folder)]
    if config is None and not environ.get("GPUFAIR_CONFIG"):
        config = config_left_behind(folder)
    if config is not None:
        argv += ["--config", str(Path(config).expanduser().absolute())]
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        begin = os.fstat(file).st_size
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=folder,  # not the caller's: that may be unmounted or removed while the service goes on
            env=_environment(environ),
            start_new_session=True,
            close_fds=True,
        )
    finally:
        os.close(file)
    # Reaped as soon as it ends: a zombie would look like a living service to whoever asks for its pid.
    threading.Thread(target=process.wait, name="gpufair-service-reaper", daemon=True).start()
    while True:
        if (found := _living(folder)) is not None:
            return found
        if process.poll() is not None:
            # It may have ended because another one, too busy to answer us before, holds the folder.
            if (found := _living(folder)) is not None:
                return found
            raise StartFailed(f"it ended at once with exit code {process.returncode}", log, _tail(log, begin))
        if time.monotonic() > until:
            _end(process)
            raise StartFailed("it did not answer in time and was stopped", log, _tail(log, begin))
        time.sleep(_POLL_S)


def config_left_behind(folder: Path) -> Path | None:
    """The configuration of a service that crashed in ``folder``; one that ended in good order leaves none.

    Whoever happens to start the next service may know nothing of it (papermill in another terminal), and with other
    nodes every session that still runs would be lost.
    """
    try:
        named = json.loads(private_text(folder / SERVICE_FILE)).get("config")
    except (OSError, ValueError, AttributeError, ClientError):
        return None
    return Path(named) if isinstance(named, str) and Path(named).is_file() else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to stop, then make it: a service that came up too late must not be found half alive by the next start."""
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads its own session


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The caller's, less what opens other services: what a service has, a workload might inherit."""
    kept = {name: value for name, value in environ.items() if name not in _NOT_INHERITED}
    return kept | {"PYTHONUNBUFFERED": "1", "PYTHONPATH": _python_path(environ)}


def _python_path(environ: Mapping[str, str]) -> str:
    """The caller's import path, where relative entries still mean the caller's folder."""
    return os.pathsep.join(str(Path(p).absolute()) for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p)


def _tail(log: Path, begin: int) -> str:
    """The last lines that were written after ``begin`` (bytes)."""
    with log.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(begin, end - _QUOTED_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-_QUOTED_LINES:])
