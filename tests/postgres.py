"""A real PostgreSQL server for tests: durable settings, a socket in a folder of its own, gone with the process."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

PORT = 5432  # part of the socket's name; nothing listens on a network
PR_SET_PDEATHSIG = 1


class Postgres:
    """A server with its data in a folder. ``start`` it; ``kill`` is what a power cut leaves of it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder, self._programs = folder, programs
        self._process: subprocess.Popen[bytes] | None = None
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:  # as which it refuses to run
            names = {entry.pw_name for entry in pwd.getpwall()}
            entry = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            self._user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
            os.chown(folder, entry.pw_uid, entry.pw_gid)

    def create(self) -> None:
        """Its data folder."""
        subprocess.run(
            [self._programs / "initdb", "-D", self._data, "-U", "gpufair", "-A", "trust", "-E", "UTF8", "--locale=C"],
            check=True, stdout=subprocess.DEVNULL, cwd=self._folder, **self._user,
        )  # fmt: skip

    def start(self) -> None:
        """Return when it answers."""
        self._process = subprocess.Popen(
            [self._programs / "postgres", "-D", self._data, "-k", self._folder, "-p", str(PORT), "-c", "listen_addresses=",
             "-c", "fsync=on", "-c", "max_connections=30", "-c", "shared_buffers=16MB"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._folder,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT),  # noqa: PLW1509  # no thread here
            **self._user,
        )  # fmt: skip
        until = time.monotonic() + 60
        while True:
            try:
                self.run("postgres", "SELECT 1")
                return
            except sa.exc.OperationalError:
                assert self._process.poll() is None, "the PostgreSQL server has ended"
                assert time.monotonic() < until, "the PostgreSQL server does not answer"
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill -9 the server and every process of it."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in [self._process.pid, *map(int, children)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait(30)

    def stop(self) -> None:
        """End it and remove what it has written."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str) -> str:
        """Where a database is."""
        return f"postgresql://gpufair@/{database}?host={self._folder}&port={PORT}"

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"t{uuid.uuid4().hex}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, database: str, statement: str) -> None:
        """One statement, outside of any transaction."""
        run(self.url(database), statement)

    @property
    def _data(self) -> Path:
        return self._folder / "data"


def run(url: str, statement: str) -> None:
    """Execute one statement in the database at ``url``, and commit it."""
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(statement)
    finally:
        engine.dispose()


def _quick(on_disk: bool) -> str | None:
    """Memory that survives every kill, if not a power cut: a thousand small files are made and removed at once there."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 << 30
    return str(memory) if roomy and not on_disk else None


@contextmanager
def postgres(*, on_disk: bool = False) -> Iterator[Postgres]:
    """A server. ``on_disk``: where its commits cost what they do in earnest. Where none can be had the test is left out; with GPUFAIR_REQUIRE_ALL=1 it fails."""
    programs = _programs()
    if programs is None:
        missing = "there is no PostgreSQL server (initdb, postgres); on Debian: apt-get install postgresql"
        if os.environ.get("GPUFAIR_REQUIRE_ALL") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    # Not under pytest's own folder, which the server's user cannot enter. Short, too: a socket's path has a limit.
    server = Postgres(Path(tempfile.mkdtemp(prefix="gpufair-pg-", dir=_quick(on_disk))), programs)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()


def _programs() -> Path | None:
    found = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((one for one in found if (one / "initdb").exists() and (one / "postgres").exists()), None)
