"""One service for a folder, one socket for a service, and an HTTP server that leaves signals to us."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from gpufair.core.errors import GpufairError
from gpufair.paths import SERVICE_LOCK


class ServeError(GpufairError):
    """The service can't be started here and now."""


class Server(uvicorn.Server):
    """Leaves signals to us, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._listening = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not here: ending begins with parking, not with closing connections."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self._listening.set()

    async def wait_listening(self, serving: asyncio.Task[None]) -> None:
        """Return when it listens.

        Raises:
            ServeError: It ended instead.
        """
        waiting = asyncio.create_task(self._listening.wait())
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if serving.done():
            raise ServeError(f"the HTTP server did not start: {serving.exception() or 'no reason was given'}")


@contextlib.contextmanager
def only_service(state_dir: Path, *, several: bool = False) -> Iterator[None]:
    """Hold the lock of a state folder. ``several``: shared with others that settle among themselves who leads.

    Raises:
        ServeError: Another service has it.
    """
    path = state_dir / SERVICE_LOCK
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if several else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
            raise ServeError(
                f"another service (pid {pid}) runs in {state_dir}; stop it first, or choose another --state-dir"
            ) from None
        os.ftruncate(file, 0)  # the pid: for whoever finds the folder taken
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)  # gives the lock back


def url_of(listener: socket.socket, scheme: str) -> str:
    """Its address."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@contextlib.contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as err:
        raise ServeError(
            f"host {host!r} is no address of this machine ({err}); use 127.0.0.1 for this machine only"
        ) from err
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(512)
        except OSError as err:
            raise ServeError(
                f"cannot listen on {host} port {port}: {err.strerror or err}; "
                "choose another port, or 0 for any free one ([service] port, or --port)"
            ) from err
        yield listener
    finally:
        listener.close()
