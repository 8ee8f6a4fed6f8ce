"""The file that old entries of a journal are moved to, and what the database keeps of them.

A file is lines of JSON in gzip members, one member for each step of moving: the first line says after which entry the
file begins and the digest of that one, each further line is an entry with its own. So the chain of digests goes on from
file to file and into the database, which keeps the number and the digest of the last entry that was moved, and up to
which byte of which file it was durable by then. What is behind that byte was never acknowledged.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from gpufair.service.storage.database import StoreError
from gpufair.service.storage.store import Entry, chained

ARCHIVE_FILE: Final = "journal-archive.jsonl.gz"  # in the state folder
ARCHIVED_KEY: Final = "archived"  # of the note in the database
FORMAT: Final = "gpufair-journal-archive"
VERSION: Final = 1
_CHUNK: Final = 1 << 18
_MOST_LINE: Final = 256 << 20  # characters without an end of line: not ours


@dataclass(frozen=True, slots=True)
class Part:
    """What one file holds: the entries after ``after`` up to ``seq``, which is of ``at_ms`` and has ``digest``.

    ``file`` is its name in the state folder, or a whole path. Only its first ``size_bytes`` count.
    """

    file: str
    after: int
    seq: int
    at_ms: int
    digest: str
    size_bytes: int

    def path(self, folder: Path) -> Path:
        """Where the file is, for a state folder."""
        return folder / self.file


@dataclass(frozen=True, slots=True)
class Archived:
    """All that was moved, in files that follow one another."""

    parts: tuple[Part, ...] = ()

    @property
    def seq(self) -> int:
        """Number of the last entry that was moved; 0: none was."""
        return self.parts[-1].seq if self.parts else 0

    @property
    def digest(self) -> str:
        """Its digest, with which the chain in the database begins."""
        return self.parts[-1].digest if self.parts else ""

    def to_text(self) -> str:
        """As the database keeps it."""
        return json.dumps([asdict(part) for part in self.parts])

    @classmethod
    def from_text(cls, text: str | None) -> Archived:
        """Back from ``to_text``; None: nothing was moved.

        Raises:
            StoreError: It is not what ``to_text`` writes.
        """
        try:
            return cls(tuple(Part(**part) for part in json.loads(text)) if text else ())
        except (TypeError, ValueError) as err:
            raise StoreError(f"the database's note of archived entries is damaged ({err}); restore a backup") from err


@dataclass(frozen=True, slots=True)
class Kept:
    """An entry, and whether it is still as it was written (None: a file without digests cannot tell)."""

    entry: Entry
    intact: bool | None


def head(after: int, digest: str) -> bytes:
    """How a file begins whose first entry follows the entry ``after``."""
    line = json.dumps({"format": FORMAT, "version": VERSION, "after": after, "digest": digest}) + "\n"
    packer = zlib.compressobj(level=0, wbits=31)  # not packed: the same bytes whatever the library's version
    return packer.compress(line.encode()) + packer.flush()


def line_of(entry: Entry, digest: str) -> dict[str, Any]:
    """An entry as it is written, its texts to the byte."""
    return {
        "seq": entry.seq,
        "at_ms": entry.at_ms,
        "core": entry.core,
        "policy": entry.policy,
        "digest": digest,
        "event": entry.event,
        "actions": entry.actions,
    }


def packed(lines: list[dict[str, Any]]) -> bytes:
    """One member of the file."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    packer = zlib.compressobj(wbits=31)
    return packer.compress(text.encode()) + packer.flush()


def begins(file: IO[bytes], path: Path) -> tuple[int, str]:
    """After which entry an open file begins, and the digest of that one; read up to the end of its head.

    Raises:
        StoreError: It is no archive.
    """
    try:
        data = json.loads(next(lines(file)))
        if data["format"] != FORMAT or data["version"] != VERSION:
            raise ValueError("another format")
        return int(data["after"]), str(data["digest"])
    except (StopIteration, ValueError, KeyError, TypeError, zlib.error) as err:
        raise StoreError(f"{path} is no archive of a journal; name another file") from err


def lines(file: IO[bytes], until: int | None = None) -> Iterator[str]:
    """The whole lines of all members from here to the byte ``until`` (None: the end).

    Raises:
        zlib.error: What follows is damaged. (A member that ends too early is what it is up to there.)
    """
    unpacker, rest = zlib.decompressobj(wbits=31), b""
    while True:
        room = _CHUNK if until is None else min(_CHUNK, until - file.tell())
        data = file.read(room) if room > 0 else b""
        if not data:
            return
        damage: zlib.error | None = None
        while data and damage is None:
            try:
                rest += unpacker.decompress(data)
            except zlib.error as err:
                damage = err  # first what is whole before it
            data = unpacker.unused_data
            if unpacker.eof:
                unpacker = zlib.decompressobj(wbits=31)
        *whole, rest = rest.split(b"\n")
        if len(rest) > _MOST_LINE:
            raise zlib.error("a line has no end")
        for line in whole:
            yield line.decode(errors="replace")
        if damage is not None:
            raise damage


def parsed(line: str) -> tuple[Entry, str]:
    """An entry and the digest that was written with it.

    Raises:
        ValueError: It is none.
    """
    try:
        one = json.loads(line)
        entry = Entry(one["at_ms"], one["event"], one["actions"], one["policy"], one["seq"], one["core"])
        return entry, str(one["digest"])
    except (KeyError, TypeError) as err:
        raise ValueError(f"no entry: {err}") from err


def read(part: Part, folder: Path) -> Iterator[Kept]:
    """The entries of one file, in order. Its last one is as the database has noted it, or is not intact.

    Raises:
        StoreError: It is not there, ends too early, or is damaged so that it cannot be read on.
    """
    path = part.path(folder)
    try:
        with path.open("rb") as file:
            after, digest = begins(file, path)
            if after != part.after:
                raise StoreError(f"the archive {path} begins after entry {after}, not {part.after}: it is another one")
            file.seek(0)
            found = lines(file, part.size_bytes)
            next(found)
            for line in found:
                entry, written = parsed(line)
                if entry.seq != after + 1:
                    raise StoreError(f"the archive {path} lacks entry {after + 1} (found {entry.seq}); restore a copy of it")
                intact = chained(digest, entry.seq, entry) == written
                after, digest = entry.seq, written
                yield Kept(entry, intact and (after != part.seq or digest == part.digest))
    except FileNotFoundError as err:
        raise StoreError(
            f"the entries {part.after + 1} to {part.seq} were moved to {path}, which is not there; put it back"
        ) from err
    except (OSError, zlib.error, ValueError) as err:
        raise StoreError(f"the archive {path} is damaged behind entry {after} ({err}); restore a copy of it") from err
    if after != part.seq:
        raise StoreError(f"the archive {path} ends with entry {after}, not {part.seq}; restore a copy of it")
