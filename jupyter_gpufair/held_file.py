"""Cells that wait, on the disk: what was acknowledged as held survives the server that acknowledged it.

One file per kernel, owner-only, with a JSON object a line:

``{"held": {"client", "parts", "buffers"}}``  a cell waits (or was sent while others waited behind it); with "runs" and
                                              "from" also: it was cut so often, and is to run again
``{"over": msg_id}``                          it was answered, withdrawn or refused
``{"note": execution}``                       what a user must be told of a cell that no kernel could say

A line is written before anything is said of it, so it survives kill -9; ``synced`` waits for the disk itself. A cell
without ``over`` either waits or has begun: that is for the supervisor's record to say, not for this file.

A living server holds a lock on its file. Another server of the same kernel writes one of its own, and takes over the
files of those that died.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufair.core.errors import GpufairError
from gpufair.paths import private_dir, state_dir
from jupyter_gpufair.cell import Cell

MAX_NOTES = 200  # per kernel; the oldest go first
MAX_LINE = 64 << 20
SLACK = 64 << 10  # bytes of finished cells that are not worth rewriting a file for
KEEP_S = 30 * 86400.0  # files of kernels that no server came back to
_NAME = re.compile(r"[\w-]{1,100}")
_log = logging.getLogger(__name__)


class NotKept(GpufairError):
    """A cell could not be written down."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(str(path), why)
        self.path, self.why = path, why

    def __str__(self) -> str:
        return (
            f"a waiting cell could not be written to {self.path} ({self.why}); it waits in memory, and would be lost "
            "with this server. Make room there"
        )


class HeldFile:
    """What one server holds for one kernel. Its methods run on one event loop.

    Attributes:
        cells: Those that servers before us left, in the order in which they were sent.
        notes: Executions as in ``gpufair.node.record``, oldest first, by message id.
    """

    def __init__(self, folder: Path, kernel_id: str) -> None:
        if not _NAME.fullmatch(kernel_id):
            raise ValueError(f"{kernel_id!r} cannot be the name of a file")
        self._folder, self._kernel = folder, kernel_id
        self._fd: int | None = None
        self._path = folder / f"{kernel_id}.1.jsonl"
        self._live: dict[str, bytes] = {}  # lines of cells that are not over
        self.notes: dict[str, dict[str, Any]] = {}
        self._size = 0
        self._torn = False  # the last write failed half-way
        self._dirty = False
        self._syncing: asyncio.Task[bool] | None = None
        self.cells = self._take_over()

    # ------------------------------------------------------------------ what is written
    def hold(self, cell: Cell) -> None:
        """Write a cell down. Again for one that is there: it keeps its place.

        Raises: NotKept: It could not be written.
        """
        if cell.msg_id not in self._live:
            self.again(cell)

    def again(self, cell: Cell) -> None:
        """A cell was cut, and waits to run again: it keeps its place.

        Raises: NotKept: It could not be written.
        """
        text = _line({"held": _of_cell(cell)})
        self._write(text)
        self._live[cell.msg_id] = text

    def over(self, msg_id: str) -> None:
        """A cell does not wait any more. Does nothing for one that was never written down."""
        if self._live.pop(msg_id, None) is None:
            return
        with suppress(NotKept):  # then the record will say that it ran
            self._write(_line({"over": msg_id}))
        self._tidy()

    def note(self, execution: dict[str, Any]) -> None:
        """Keep what is to be said of a cell."""
        self._noted(execution)
        with suppress(NotKept):
            self._write(_line({"note": execution}))
        self._tidy()

    async def synced(self) -> bool:
        """Return when all that was written before is on the disk; False if the disk would not take it."""
        while self._dirty or self._syncing is not None:
            if self._syncing is None:
                self._syncing = asyncio.get_running_loop().create_task(self._sync())
            if not await asyncio.shield(self._syncing):
                return False
        return True

    def close(self, *, forget: bool) -> None:
        """Release the file; delete it if ``forget``. What is not over is found by the next server."""
        if self._fd is not None:
            if forget:
                self._path.unlink(missing_ok=True)
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            # A write to the disk may be under way in its thread: it has the descriptor, and closes it.
            if self._syncing is None:
                os.close(self._fd)
            self._fd = None

    # ------------------------------------------------------------------ inside
    def _noted(self, execution: dict[str, Any]) -> None:
        self.notes.pop(execution["msg_id"], None)
        self.notes[execution["msg_id"]] = execution
        while len(self.notes) > MAX_NOTES:
            del self.notes[next(iter(self.notes))]

    def _write(self, data: bytes) -> None:
        try:
            if self._fd is None:
                self._create()
            assert self._fd is not None
            # The torn line of a full disk spoils itself only.
            written = os.write(self._fd, b"\n" + data if self._torn else data)
        except OSError as err:
            raise NotKept(self._path, err.strerror or str(err)) from err
        self._size += written
        self._dirty = True
        self._torn = written < len(data)
        if self._torn:
            raise NotKept(self._path, "the disk is full")

    def _create(self) -> None:
        private_dir(self._folder)
        number = 1
        while True:
            path = self._folder / f"{self._kernel}.{number}.jsonl"
            try:
                fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileExistsError:
                number += 1
                continue
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._fd, self._path, self._size = fd, path, 0
            _sync_folder(self._folder)
            return

    async def _sync(self) -> bool:
        self._dirty = False
        fd = self._fd
        try:
            if fd is not None:
                await asyncio.to_thread(os.fsync, fd)
        except OSError as err:
            _log.warning("cells wait that are not on the disk: %s", err)
            return False
        else:
            return True
        finally:
            self._syncing = None
            if fd is not None and self._fd != fd:
                os.close(fd)

    def _tidy(self) -> None:
        """Write the file anew when most of it is over."""
        live = sum(map(len, self._live.values()))
        if self._fd is None or self._syncing is not None or self._size < 2 * live + SLACK:
            return
        try:
            self._rewrite()
        except OSError as err:
            _log.warning("a file of held cells grows, for it could not be written anew: %s", err)

    def _rewrite(self) -> None:
        notes = [_line({"note": note}) for note in self.notes.values()]
        data = b"".join((*self._live.values(), *notes))
        new = self._path.with_suffix(".new")
        fd = os.open(new, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(os.dup(fd), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            new.rename(self._path)
        except BaseException:
            os.close(fd)
            raise
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._size, self._torn, self._dirty = fd, len(data), False, False
        _sync_folder(self._folder)

    def _take_over(self) -> list[Cell]:
        """Read the files of servers that are no more, and make them one, ours."""
        found: dict[str, Cell] = {}
        taken: list[tuple[Path, int]] = []
        for path in files(self._folder, self._kernel):
            fd = _locked(path)
            if fd is None:
                continue
            taken.append((path, fd))
            self._size += os.fstat(fd).st_size
            self._read(path, found)
        if not taken:
            return []
        self._path, self._fd = taken[0]
        self._live = {msg_id: _line({"held": _of_cell(cell)}) for msg_id, cell in found.items()}
        if len(taken) > 1:
            try:
                self._rewrite()  # before the others go
            except OSError as err:
                _log.warning("held cells were read, but not written anew: %s", err)
            else:
                for path, _ in taken[1:]:
                    path.unlink(missing_ok=True)
            for _, fd in taken[1:]:
                os.close(fd)
        return list(found.values())

    def _read(self, path: Path, found: dict[str, Cell]) -> None:
        with path.open("rb") as file:
            while text := file.readline(MAX_LINE):
                with suppress(ValueError, KeyError, TypeError, AttributeError):  # a torn line
                    entry = json.loads(text)
                    if "held" in entry:
                        cell = _to_cell(entry["held"])
                        found[cell.msg_id] = cell
                    elif "over" in entry:
                        found.pop(entry["over"], None)
                    elif "note" in entry:
                        self._noted(entry["note"])


def held_folder() -> Path:
    """Where the servers of this user keep what waits."""
    return state_dir() / "held"


def files(folder: Path, kernel_id: str = "*") -> list[Path]:
    """The files of a kernel, or of all, oldest first."""
    return sorted(folder.glob(f"{kernel_id}.*.jsonl"), key=lambda path: (len(path.name), path.name))


def prune(folder: Path, now_s: float | None = None) -> None:
    """Delete what no server has come back to for a long time."""
    limit = (time.time() if now_s is None else now_s) - KEEP_S
    for path in files(folder):
        with suppress(OSError):
            if path.stat().st_mtime < limit and (fd := _locked(path)) is not None:
                path.unlink()
                os.close(fd)


def _locked(path: Path) -> int | None:
    """A descriptor with the lock; None while a living server has it, or when the file is gone."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its owner may have replaced it between our open and our lock.
        if os.path.samestat(os.fstat(fd), path.stat()):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def _of_cell(cell: Cell) -> dict[str, Any]:
    return {
        "client": cell.client,
        "parts": [part.decode("utf-8", "surrogateescape") for part in cell.parts[:4]],
        "buffers": _encoded(cell.parts[4:]),
        **({"runs": cell.runs, "from": cell.again_from} if cell.runs else {}),
    }


def _encoded(buffers: Iterable[bytes]) -> list[str]:
    return [base64.b64encode(buffer).decode() for buffer in buffers]


def _to_cell(data: dict[str, Any]) -> Cell:
    parts = [str(part).encode("utf-8", "surrogateescape") for part in data["parts"]]
    cell = Cell.of([*parts, *map(base64.b64decode, data["buffers"])], client=str(data["client"]))
    cell.kept = cell.durable = cell.recovered = True
    cell.runs, cell.again_from = int(data.get("runs", 0)), data.get("from")
    return cell
