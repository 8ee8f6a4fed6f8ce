"""Owner-only files that survive a crash of the machine, and the locks that tell whether their writer lives."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_private(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace ``path`` by ``data`` in one step, mode 0600: readers see the old or the new content, never a part.

    Args:
        durable: Wait until it is on the disk. Leave it out where a crash of the machine makes the content void.

    Raises:
        OSError: Nothing was changed (the disk is full, say).
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def open_append(path: Path) -> int:
    """Open a file of outputs to add to, made if need be: its owner's alone, and its group's where the folder says so."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    mode = path.parent.stat().st_mode
    if mode & stat.S_ISGID and mode & stat.S_IRGRP:  # of a service that may read them: see ``theirs``
        os.fchmod(fd, 0o640)
    return fd


def sync_folder(folder: Path) -> None:
    """Make names in ``folder`` (new, renamed) durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: Path, value: object, *, durable: bool = True) -> None:
    """``write_private`` of ``value`` as JSON."""
    write_private(path, json.dumps(value).encode(), durable=durable)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in ``path``; None if there is no such file or it holds anything else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def try_lock(path: Path) -> int | None:
    """Take the lock ``path`` and return its descriptor, or None while another process holds it.

    The lock belongs to the open file, so it passes to a child that inherits the descriptor, and it ends with the
    last process that has it, kill -9 included. That makes it a sign of life that a reused process id cannot fake.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:
        os.close(fd)
        raise
    return fd


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock ``path``."""
    fd = try_lock(path) if path.exists() else None
    if fd is None:
        return path.exists()
    os.close(fd)
    return False
