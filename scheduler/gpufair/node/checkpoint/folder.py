"""Checkpoints in a directory of the machine, and the store behind a path or a URL."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gpufair.node.checkpoint.storage import BUFFERS, MANIFEST, SCHEME, Store

_LOCK, _PARTIAL = ".lock", ".partial"
_SWEEP_WAIT_S = 30.0  # a sweep unlinks some thousand files: seconds, even on a slow disk
_POLL_S = 0.02


def open_store(directory: str) -> Store:
    """The store for a path or a URL (``s3://…``, ``memory://…``)."""
    if SCHEME.match(directory) and not directory.startswith("file://"):
        from gpufair.node.checkpoint.remote import FsspecStore  # noqa: PLC0415 - costs 60 ms that a folder need not pay

        return FsspecStore(directory)
    return LocalStore(Path(directory.removeprefix("file://")))


class LocalStore:
    """A directory of this machine: files 0600, folders 0700, every byte flushed before the manifest appears."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._buffers = root / BUFFERS
        self._locks: dict[str, tuple[int, int]] = {}

    def ids(self) -> list[str]:
        try:
            entries = [entry.name for entry in os.scandir(self._root) if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return sorted(name for name in entries if name != BUFFERS)

    def create(self, checkpoint: str) -> None:
        folder = self._root / checkpoint
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._buffers.mkdir(mode=0o700, exist_ok=True)
        if (folder / MANIFEST).exists():
            raise FileExistsError(f"a finished checkpoint {checkpoint!r} is already there")
        if self.being_written(checkpoint):
            raise BlockingIOError(f"another process is writing checkpoint {checkpoint!r}")
        gate = self._gate(fcntl.LOCK_SH)
        if gate is None:
            raise BlockingIOError(f"old checkpoints were being cleared away for {_SWEEP_WAIT_S:.0f} s")
        try:
            self.remove(checkpoint)
            folder.mkdir(mode=0o700)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(gate)
            raise
        self._locks[checkpoint] = lock, gate

    def _gate(self, kind: int, wait_s: float = _SWEEP_WAIT_S) -> int | None:
        """Writers share it, a sweep has it alone; the system opens it when its holder dies. None: not in time."""
        file = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    os.close(file)
                    return None
                time.sleep(_POLL_S)
            except BaseException:
                os.close(file)
                raise
            else:
                return file

    def buffers(self) -> dict[str, int]:
        try:
            entries = list(os.scandir(self._buffers))
        except FileNotFoundError:
            return {}
        return {e.name: e.stat(follow_symlinks=False).st_size for e in entries if not e.name.endswith(_PARTIAL)}

    def put(self, name: str, data: memoryview | bytes) -> None:
        partial = self._buffers / f"{name}.{os.getpid()}{_PARTIAL}"
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            left = memoryview(data).cast("B")
            while left:
                left = left[os.write(file, left) :]
            # Here, in one of several threads, and not for all files at the end: the disk works while others digest.
            os.fdatasync(file)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise
        finally:
            os.close(file)
        partial.rename(self._buffers / name)

    def publish(self, checkpoint: str, manifest: bytes) -> None:
        folder = self._root / checkpoint
        partial = folder / f"{MANIFEST}{_PARTIAL}"
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(manifest)
            file.flush()
            os.fsync(file.fileno())
        _sync(self._buffers)  # after that one: on a file system with a journal there is nothing left to do
        partial.rename(folder / MANIFEST)
        _sync(folder)
        _sync(self._root)

    def release(self, checkpoint: str) -> None:
        for lock in self._locks.pop(checkpoint, ()):
            os.close(lock)

    def being_written(self, checkpoint: str) -> bool:
        try:
            lock = os.open(self._root / checkpoint, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def manifest_size(self, checkpoint: str) -> int | None:
        try:
            return (self._root / checkpoint / MANIFEST).lstat().st_size
        except FileNotFoundError:
            return None

    def manifest(self, checkpoint: str) -> bytes:
        file = os.open(self._root / checkpoint / MANIFEST, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(file, "rb") as opened:
            return opened.read()

    def read(self, name: str) -> BinaryIO:
        return os.fdopen(os.open(self._buffers / name, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0)

    def remove(self, checkpoint: str) -> None:
        folder = self._root / checkpoint
        with suppress(FileNotFoundError):
            (folder / MANIFEST).unlink()
            _sync(folder)
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def sweep(self, needed: Callable[[], set[str] | None]) -> list[str]:
        if not self._buffers.is_dir():
            return []
        gate = self._gate(fcntl.LOCK_EX, wait_s=0.0)
        if gate is None:
            return []
        try:
            keep = needed()
            if keep is None:
                return []
            gone = sorted(path.name for path in self._buffers.iterdir() if path.name not in keep)
            for name in gone:
                with suppress(FileNotFoundError):
                    (self._buffers / name).unlink()
        finally:
            os.close(gate)
        return gone

    def used_bytes(self, *, by_user: bool) -> int:
        return sum(_sizes(self._root.parent if by_user else self._root))


def _sizes(folder: Path) -> Iterator[int]:
    """Bytes of all files below; what vanishes meanwhile has none."""
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                yield (Path(where) / name).lstat().st_size


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
