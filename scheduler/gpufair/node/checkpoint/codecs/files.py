"""Open files: a regular file that nobody has changed since comes back open, at the same place.

Nothing is ever truncated: what was opened for writing is opened for update. A file that has changed is not opened, for
its place would mean something else, and what was written after the checkpoint would be overwritten.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from typing import Any, NamedTuple

from gpufair.node.checkpoint.codecs.python import standard_stream
from gpufair.node.checkpoint.codecs.registry import Dump, Reduced
from gpufair.node.checkpoint.reasons import FILE, NotSavable


class Facts(NamedTuple):
    """What tells whether a file is still the one it was. Kept in checkpoints as a plain tuple."""

    path: str
    inode: int
    size_bytes: int
    modified_ns: int


class FileChanged(Exception):
    """A file is not as it was when the session was saved. Its text is told as the reason of the loss."""


def open_file(obj: Any, dump: Dump) -> Reduced:
    """A file object of ``io``: raw, buffered or text."""
    layer = type(obj).__name__
    if any(obj is stream for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return standard_stream(obj, dump)
    if obj.closed:
        return make_closed, (_name(obj), layer)
    try:
        mode = _mode(obj)
        descriptor = obj.fileno()
        if obj.writable():
            obj.flush()
        facts = facts_of(descriptor)
        place = obj.tell()
    except (OSError, ValueError, AttributeError) as err:
        raise NotSavable(FILE.what, f"its position cannot be known ({err}); {FILE.remedy}") from err
    text = None
    if isinstance(obj, io.TextIOWrapper):
        text = (obj.encoding, obj.errors, obj.line_buffering, obj.write_through)
    return make_open, (tuple(facts), _name(obj), layer, mode, place, text)


def facts_of(descriptor: int) -> Facts:
    """The file behind ``descriptor``, by the path that it has now: the session may have gone to another directory."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise NotSavable("an open pipe, terminal or device", FILE.remedy)
    path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a name from the kernel
    try:
        same = os.path.samestat(os.stat(path), found)  # noqa: PTH116 - the same
    except FileNotFoundError:
        same = False
    if not same:
        raise NotSavable("an open file that has been deleted", "write its content to a file that stays")
    return Facts(path, found.st_ino, found.st_size, found.st_mtime_ns)


def _raw(obj: Any) -> Any:
    while not isinstance(obj, io.FileIO):
        obj = obj.buffer if isinstance(obj, io.TextIOWrapper) else obj.raw
    return obj


def _mode(obj: Any) -> str:
    mode: str = _raw(obj).mode  # rb, rb+, wb, xb, xb+, ab, ab+
    return mode.replace("w", "r+").replace("x", "r+").replace("++", "+")


def _name(obj: Any) -> Any:
    name = getattr(obj, "name", "")
    return name if isinstance(name, str | bytes) else ""


def check_unchanged(facts: tuple[Any, ...]) -> str:
    """The path of a file that is as it was.

    Raises:
        FileChanged: It is not there, or is another one, or has another content.
    """
    was = Facts(*facts)
    try:
        found = os.stat(was.path)  # noqa: PTH116 - beside fstat above
    except OSError as err:
        raise FileChanged(f"{was.path} cannot be opened here ({err.strerror})") from err
    if not stat.S_ISREG(found.st_mode) or found.st_ino != was.inode:
        raise FileChanged(f"{was.path} is not the file it was when the session was saved; open it again")
    if (found.st_size, found.st_mtime_ns) != (was.size_bytes, was.modified_ns):
        raise FileChanged(
            f"{was.path} has changed since the session was saved (it had {was.size_bytes} bytes, now it has "
            f"{found.st_size}); open it again where you want to go on"
        )
    return was.path


def make_open(facts: tuple[Any, ...], name: Any, layer: str, mode: str, place: int, text: Any) -> Any:
    """The open file. Called by name from checkpoints."""
    raw = io.FileIO(check_unchanged(facts), mode)
    if name:
        raw.name = name
    made: Any = raw
    if layer != "FileIO":
        buffered = io.BufferedRandom if raw.readable() and raw.writable() else None
        made = (buffered or (io.BufferedWriter if raw.writable() else io.BufferedReader))(raw)
    if text is not None:
        # Python does not tell what was given as ``newline``; on POSIX it only matters for "\r\n" in files that are read.
        encoding, errors, line_buffering, write_through = text
        made = io.TextIOWrapper(made, encoding, errors, None, line_buffering, write_through)
        made.mode = mode.replace("b", "")  # as open() does
    made.seek(place)
    return made


def make_closed(name: Any, layer: str) -> Any:
    """A closed file, as a ``with`` leaves it behind. Called by name from checkpoints."""
    made: Any = io.FileIO(os.devnull, "rb")
    if name:
        made.name = name
    if layer != "FileIO":
        made = io.BufferedReader(made)
    if layer == "TextIOWrapper":
        made = io.TextIOWrapper(made, encoding="utf-8")
    made.close()
    return made
