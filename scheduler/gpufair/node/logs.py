"""What a command wrote to its standard output and error: a file for each start, read as one text.

The files lie with the workload's records, so they survive the node's own folder, and the last line of a run that was
killed is there as well: the command writes to them by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gpufair.node.theirs import files_in, read_only

_FILE = re.compile(r"log-(\d+)-(\d+)\.txt")


def log_path(record_dir: Path, incarnation: int, rank: int) -> Path:
    """The file of one start on one of its nodes."""
    return record_dir / f"log-{incarnation}-{rank}.txt"


@dataclass(frozen=True, slots=True)
class Page:
    """A piece of a log. ``after`` is where the next one begins, in bytes; ``ranks`` are the nodes that wrote any."""

    text: str
    after: int
    size_bytes: int
    ranks: tuple[int, ...]


def read_log(record_dir: Path, rank: int, after: int, limit: int) -> Page:
    """A piece of what a command wrote on one of its nodes, over all of its starts.

    Args:
        record_dir: Folder of the workload's records.
        rank: Which node, counted from 0.
        after: Where to begin, in bytes; negative: so many before the end.
        limit: Bytes at most, cut after the last whole character.
    """
    files = sorted(_files(record_dir))
    mine = [path for _, its, path in files if its == rank]
    sizes = [path.lstat().st_size for path in mine]
    size = sum(sizes)
    start = max(0, size + after) if after < 0 else min(after, size)
    left, begin, parts = limit, start, list[bytes]()
    for path, length in zip(mine, sizes, strict=True):
        if begin >= length:
            begin -= length
            continue
        with read_only(path) as file:
            file.seek(begin)
            parts.append(file.read(min(left, length - begin)))
        left -= len(parts[-1])
        begin = 0
        if left <= 0:
            break
    data = b"".join(parts)
    whole = len(data) - _cut(data) if start + len(data) < size else len(data)
    ranks = tuple(sorted({its for _, its, _ in files}))
    return Page(data[:whole].decode("utf-8", "replace"), start + whole, size, ranks)


def _files(record_dir: Path) -> list[tuple[int, int, Path]]:
    matches = [(_FILE.fullmatch(path.name), path) for path in files_in(record_dir)]
    return [(int(match[1]), int(match[2]), path) for match, path in matches if match]


def _cut(data: bytes) -> int:
    """How many bytes at the end begin a character that is not whole."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0
