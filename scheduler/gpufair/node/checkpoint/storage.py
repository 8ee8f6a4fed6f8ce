"""Where checkpoints lie: one folder each, in a directory of the machine or in any store that fsspec knows.

A folder counts only once its manifest is there, and that is written last. So a store needs no transactions: whatever
dies half-way leaves a folder that no reader sees.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

MANIFEST = "manifest.json"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def valid_id(checkpoint: str) -> bool:
    """Whether ``checkpoint`` may name a checkpoint: it becomes a folder, so it must not reach out of its directory."""
    return _ID.fullmatch(checkpoint) is not None


class Store(Protocol):
    """A directory of checkpoints. All methods raise ``OSError``; names inside a checkpoint use ``/``."""

    def ids(self) -> list[str]:
        """Names of all folders, finished or not; empty if the directory does not exist."""

    def create(self, checkpoint: str) -> None:
        """Begin a checkpoint and keep it marked as being written until ``release``.

        Raises:
            FileExistsError: A finished checkpoint has this name. Unfinished remains are cleared away.
        """

    def write(self, checkpoint: str, name: str) -> BinaryIO:
        """A new (or emptied) file to write to."""

    def publish(self, checkpoint: str, data: bytes) -> None:
        """Make everything written so far durable, then the manifest, in this order."""

    def release(self, checkpoint: str) -> None:
        """The writer is done with this checkpoint, well or badly."""

    def being_written(self, checkpoint: str) -> bool:
        """Whether a live process is writing it. A store that cannot know says True: nothing is cleared by guess."""

    def size(self, checkpoint: str, name: str) -> int | None:
        """Bytes of a file, None if there is none."""

    def read(self, checkpoint: str, name: str) -> BinaryIO:
        """A file to read."""

    def remove(self, checkpoint: str) -> None:
        """Remove a checkpoint, its manifest first, so that no half of one can look whole."""


def open_store(directory: str) -> Store:
    """The store for a path or a URL (``s3://…``, ``memory://…``)."""
    if _SCHEME.match(directory) and not directory.startswith("file://"):
        return FsspecStore(directory)
    return LocalStore(Path(directory.removeprefix("file://")))


class LocalStore:
    """A directory of this machine: files 0600, folders 0700, every byte flushed before the manifest appears."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._locks: dict[str, int] = {}
        self._unsynced: dict[str, list[Path]] = {}

    def ids(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self._root) if entry.is_dir(follow_symlinks=False))
        except FileNotFoundError:
            return []

    def create(self, checkpoint: str) -> None:
        folder = self._root / checkpoint
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (folder / MANIFEST).exists():
            raise FileExistsError(f"a finished checkpoint {checkpoint!r} is already there")
        if self.being_written(checkpoint):
            raise BlockingIOError(f"another process is writing checkpoint {checkpoint!r}")
        self.remove(checkpoint)
        folder.mkdir(mode=0o700)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._locks[checkpoint], self._unsynced[checkpoint] = lock, []

    def write(self, checkpoint: str, name: str) -> BinaryIO:
        path = self._root / checkpoint / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        self._unsynced[checkpoint].append(path)
        return os.fdopen(file, "wb")

    def publish(self, checkpoint: str, data: bytes) -> None:
        folder = self._root / checkpoint
        written = dict.fromkeys(self._unsynced[checkpoint])
        for path in written:
            _sync(path)
        for parent in dict.fromkeys(path.parent for path in written):
            _sync(parent)
        partial = folder / f"{MANIFEST}.partial"
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(folder / MANIFEST)
        _sync(folder)
        _sync(self._root)

    def release(self, checkpoint: str) -> None:
        self._unsynced.pop(checkpoint, None)
        if (lock := self._locks.pop(checkpoint, None)) is not None:
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

    def size(self, checkpoint: str, name: str) -> int | None:
        try:
            return (self._root / checkpoint / name).lstat().st_size
        except FileNotFoundError:
            return None

    def read(self, checkpoint: str, name: str) -> BinaryIO:
        return os.fdopen(os.open(self._root / checkpoint / name, os.O_RDONLY | os.O_NOFOLLOW), "rb")

    def remove(self, checkpoint: str) -> None:
        folder = self._root / checkpoint
        with suppress(FileNotFoundError):
            (folder / MANIFEST).unlink()
            _sync(folder)
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)


class FsspecStore:
    """Any store that fsspec knows. Its objects appear whole or not at all, so writing the manifest last is enough."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - costs 60 ms that a local folder need not pay

        self._fs: Any
        self._root: str
        self._fs, self._root = url_to_fs(url)

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))

    def ids(self) -> list[str]:
        try:
            entries = self._fs.ls(self._root, detail=True)
        except FileNotFoundError:
            return []
        return sorted(str(e["name"]).rstrip("/").rsplit("/", 1)[-1] for e in entries if e["type"] == "directory")

    def create(self, checkpoint: str) -> None:
        if self._fs.exists(self._path(checkpoint, MANIFEST)):
            raise FileExistsError(f"a finished checkpoint {checkpoint!r} is already there")
        self.remove(checkpoint)
        self._fs.makedirs(self._path(checkpoint), exist_ok=True)

    def write(self, checkpoint: str, name: str) -> BinaryIO:
        self._fs.makedirs(self._path(checkpoint, name).rsplit("/", 1)[0], exist_ok=True)
        file: BinaryIO = self._fs.open(self._path(checkpoint, name), "wb")
        return file

    def publish(self, checkpoint: str, data: bytes) -> None:
        self._fs.pipe_file(self._path(checkpoint, MANIFEST), data)

    def release(self, checkpoint: str) -> None:
        """Nothing to do: there is no lock to give back."""

    def being_written(self, checkpoint: str) -> bool:
        return True

    def size(self, checkpoint: str, name: str) -> int | None:
        try:
            return int(self._fs.size(self._path(checkpoint, name)))
        except FileNotFoundError:
            return None

    def read(self, checkpoint: str, name: str) -> BinaryIO:
        file: BinaryIO = self._fs.open(self._path(checkpoint, name), "rb")
        return file

    def remove(self, checkpoint: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(checkpoint, MANIFEST))
        with suppress(FileNotFoundError):
            self._fs.rm(self._path(checkpoint), recursive=True)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
