"""A journal as it is read by somebody else than its service: nothing is written to it, and nobody waits for it.

The file of a running service is read as one of several readers, in short reads, beside its writer. A copy of it is
opened where it lies if it is complete in itself; one with a write-ahead log is copied once more, for SQLite would
otherwise write into the folder. An exported journal is a JSON file (``write_export``), or the answer of
``GET /api/v1/timeline``. Entries that were archived (``archiving``) are read from their files.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote

from gpufair.core.errors import GpufairError
from gpufair.service.archives import archive_file
from gpufair.service.archives.archive_file import ARCHIVED_KEY, Archived, Kept
from gpufair.service.storage.database import StoreError
from gpufair.service.storage.store import JOURNAL_FILE, SCHEMA_VERSION, Entry, Snapshot, chained, digest_of
from gpufair.service.storage.timeline import reduced

EXPORT: Final = "gpufair-journal"
EXPORT_VERSION: Final = 1
MAX_EXPORT_BYTES: Final = 2 << 30
_MAGIC: Final = b"SQLite format 3\x00"
_GZIP: Final = b"\x1f\x8b"
_BATCH: Final = 2000  # entries of one read: no reader holds on to an old state of the file for long
_ENTRIES: Final = (
    "SELECT seq, at_ms, event, actions, core, policy, digest FROM journal WHERE seq > ? ORDER BY seq LIMIT ?"
)


class ArchiveError(GpufairError):
    """A file is no journal that can be read; the text says why, and what to do."""

    def __init__(self, path: Path, why: str, remedy: str) -> None:
        super().__init__(path, why, remedy)
        self.path, self.why, self.remedy = path, why, remedy

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; {self.remedy}"


class Archive:
    """An open journal. ``open_archive`` makes one."""

    def entries(self, after: int = 0) -> Iterator[Kept]:
        """All entries after the entry ``after``, in order; those that were archived out of their file.

        Raises:
            ArchiveError: It cannot be read further.
        """
        raise NotImplementedError

    def since(self, at_ms: int) -> Iterator[Entry]:
        """The entries from an instant on; no archived one is looked for if they are all there without."""
        return (kept.entry for kept in self.entries() if kept.entry.at_ms >= at_ms)

    @property
    def last(self) -> int:
        """Number of the last entry; 0: there is none."""
        raise NotImplementedError

    def snapshots(self) -> tuple[int, ...]:
        """After which entries a snapshot of the state is kept, the oldest first."""
        return ()

    def snapshot(self, seq: int) -> Snapshot | None:
        """The snapshot after an entry; None: there is none, or it is damaged."""
        return None


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The journal at ``path``: a SQLite file, the state folder that it lies in, or an exported one.

    Raises:
        ArchiveError: It is none, or cannot be read.
    """
    if path.is_dir():
        path = path / JOURNAL_FILE
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
        size = path.stat().st_size
    except OSError as err:
        raise ArchiveError(path, f"cannot be read: {err.strerror or err}", "name a journal or an exported one") from err
    if magic.startswith(_GZIP):
        yield _Moved(path)
        return
    if magic != _MAGIC:
        if size > MAX_EXPORT_BYTES:
            raise ArchiveError(path, "is larger than 2 GiB", "export a shorter piece, or read the journal itself")
        yield _Exported(path)
        return
    with ExitStack() as stack:
        yield _Sqlite(path, stack)


class _Sqlite(Archive):
    """The service's own file."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path = path
        try:
            self._db = sqlite3.connect(_uri(path, stack), uri=True, timeout=5.0)
            stack.callback(self._db.close)
            self._db.execute("PRAGMA query_only = 1")
            row = self._db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
        except (sqlite3.Error, OSError) as err:
            raise self._unreadable(err) from err
        if row is None or not str(row[0]).isdigit() or int(row[0]) > SCHEMA_VERSION:
            raise ArchiveError(
                path,
                f"has schema {row[0] if row else 'none'!r}, this version of gpufair knows up to {SCHEMA_VERSION}",
                "use the gpufair that wrote it",
            )

    def entries(self, after: int = 0) -> Iterator[Kept]:
        """See ``Archive``."""
        for kept in self._archived(after):
            yield kept
            after = kept.entry.seq
        digest = self._digest_at(after)
        while rows := self._read(_ENTRIES, after, _BATCH):
            for seq, at_ms, event, actions, core, policy, written in rows:
                if seq != after + 1:
                    raise ArchiveError(
                        self._path, f"journal entry {after + 1} is missing (found {seq})", "read another copy of it"
                    )
                entry = Entry(at_ms, event, actions, policy, seq, core)
                yield Kept(entry, chained(digest, seq, entry) == written)
                after, digest = seq, written  # the written one: what follows a damaged entry may well be whole

    @property
    def last(self) -> int:
        """See ``Archive``."""
        return int(self._read("SELECT coalesce(max(seq), 0) FROM journal")[0][0])

    def snapshots(self) -> tuple[int, ...]:
        """See ``Archive``."""
        return tuple(row[0] for row in self._read("SELECT seq FROM snapshots ORDER BY seq"))

    def snapshot(self, seq: int) -> Snapshot | None:
        """See ``Archive``."""
        for at_ms, state, digest in self._read("SELECT at_ms, state, digest FROM snapshots WHERE seq = ?", seq):
            if digest_of(state) == digest:
                return Snapshot(seq, at_ms, state)
        return None

    def since(self, at_ms: int) -> Iterator[Entry]:
        """See ``Archive``."""
        first = self._read("SELECT coalesce(min(seq), 1), coalesce(min(at_ms), 0) FROM (SELECT seq, at_ms FROM journal ORDER BY seq LIMIT 1)")[0]  # fmt: skip
        after = first[0] - 1 if first[1] < at_ms else 0
        return (kept.entry for kept in self.entries(after) if kept.entry.at_ms >= at_ms)

    def _moved(self) -> Archived:
        rows = self._read("SELECT value FROM meta WHERE key = ?", ARCHIVED_KEY)
        return Archived.from_text(rows[0][0] if rows else None)

    def _archived(self, after: int) -> Iterator[Kept]:
        """What of the entries behind ``after`` was moved out of the database."""
        try:
            for part in self._moved().parts:
                if part.seq > after:
                    found = archive_file.read(part, self._path.absolute().parent)
                    yield from (kept for kept in found if kept.entry.seq > after)
        except StoreError as err:
            remedy = "or begin with a snapshot that the journal keeps, as --from last does"
            raise ArchiveError(self._path, str(err), remedy) from err

    def _digest_at(self, seq: int) -> str:
        moved = self._moved()
        if moved.seq == seq:
            return moved.digest
        rows = self._read("SELECT digest FROM journal WHERE seq = ?", seq)
        if seq and not rows:
            raise ArchiveError(self._path, f"it has no entry {seq}", "name an earlier snapshot, or none")
        return str(rows[0][0]) if rows else ""

    def _read(self, query: str, *values: int | str) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as err:
            raise self._unreadable(err) from err

    def _unreadable(self, err: Exception) -> ArchiveError:
        why = f"cannot be read as a journal ({err})"
        return ArchiveError(self._path, why, "name the journal.sqlite of a state folder, or a copy of it")


def _uri(path: Path, stack: ExitStack) -> str:
    """How to open it so that nothing changes, and no writer waits."""
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if not log.exists() and not index.exists():
        return f"file:{quote(str(path))}?mode=ro&immutable=1"
    if not index.exists():
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpufair-replay-")))
        shutil.copyfile(log, folder / log.name)
        path = Path(shutil.copyfile(path, folder / path.name))
    return f"file:{quote(str(path))}?mode=ro"


class _Moved(Archive):
    """A file that old entries were moved to, by itself."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with path.open("rb") as file:
                self._after, self._digest = archive_file.begins(file, path)
                file.seek(0)
                found = archive_file.lines(file)
                next(found)
                entry = digest = None
                for line in found:
                    entry, digest = archive_file.parsed(line)
                last = (entry.seq, entry.at_ms, digest) if entry and digest else (self._after, 0, self._digest)
                self._part = archive_file.Part(str(path.absolute()), self._after, *last, path.stat().st_size)
        except (StoreError, OSError, ValueError, zlib.error) as err:
            raise ArchiveError(path, f"cannot be read as an archive ({err})", "restore a copy of it") from err

    def entries(self, after: int = 0) -> Iterator[Kept]:
        """See ``Archive``."""
        if after < self._after:
            raise ArchiveError(
                self._path,
                f"it begins with entry {self._after + 1}",
                f"give a snapshot of entry {self._after} with --from, or name the state folder and keep all files there",
            )
        try:
            yield from (kept for kept in archive_file.read(self._part, self._path.parent) if kept.entry.seq > after)
        except StoreError as err:
            raise ArchiveError(self._path, str(err), "restore a copy of it") from err

    @property
    def last(self) -> int:
        """See ``Archive``."""
        return self._part.seq


class _Exported(Archive):
    """A JSON file: one that ``write_export`` wrote, or records of the timeline."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            data = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as err:
            raise self._unknown(f"is neither a journal nor JSON ({err})") from err
        if not isinstance(data, dict):
            raise self._unknown("is no exported journal")
        try:
            self._entries = list(_from_timeline(data["records"]) if "records" in data else _from_export(data))
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise self._unknown(f"is no exported journal ({type(err).__name__}: {err})") from err

    def entries(self, after: int = 0) -> Iterator[Kept]:
        """See ``Archive``."""
        if not after and self._entries and self._entries[0].seq != 1:
            first = self._entries[0].seq
            raise ArchiveError(
                self._path,
                f"it begins with entry {first}",
                f"give a snapshot of entry {first - 1} with --from, or export from the beginning",
            )
        for entry in self._entries:
            if entry.seq <= after:
                continue
            if entry.seq != after + 1:
                raise ArchiveError(self._path, f"entry {after + 1} is missing (found {entry.seq})", "export it again")
            yield Kept(entry, None)
            after = entry.seq

    @property
    def last(self) -> int:
        """See ``Archive``."""
        return self._entries[-1].seq if self._entries else 0

    def _unknown(self, why: str) -> ArchiveError:
        return ArchiveError(self._path, why, "name a journal.sqlite, or a file written by `gpufair replay --export`")


def _from_export(data: dict[str, Any]) -> Iterator[Entry]:
    if data.get("format") != EXPORT or data.get("version") != EXPORT_VERSION:
        raise ValueError(f"its format is {data.get('format')!r}, version {data.get('version')!r}")
    for one in data["entries"]:
        yield Entry(int(one["at_ms"]), _text(one["event"]), _text(one["actions"]), str(one["policy"]), int(one["seq"]), str(one["core"]))  # fmt: skip


def _from_timeline(records: Iterable[dict[str, Any]]) -> Iterator[Entry]:
    """Entries of the timeline: an event and the actions behind it."""
    event: dict[str, Any] | None = None
    actions: list[dict[str, Any]] = []
    seq = at_ms = 0
    for one in records:
        fields = {key: value for key, value in one.items() if key not in ("seq", "at_s", "type", "kind")}
        if one["type"] == "event":
            if event is not None:
                yield Entry(at_ms, _text(event), _text(actions), "", seq, "")
            seq, at_ms, actions = int(one["seq"]), round(one["at_s"] * 1000), []
            event = {"type": one["kind"], "at": at_ms} | fields
        else:
            actions.append({"type": one["kind"]} | fields)
    if event is not None:
        yield Entry(at_ms, _text(event), _text(actions), "", seq, "")


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def write_export(entries: Iterable[Entry], out: IO[str]) -> int:
    """Write entries as JSON, one a line, without how workloads are run: fit to be handed on. Returns how many."""
    count = 0
    out.write(f'{{"format": "{EXPORT}", "version": {EXPORT_VERSION}, "entries": [')
    for entry in entries:
        event = {key: reduced(value) for key, value in json.loads(entry.event).items()}
        plain = {"seq": entry.seq, "at_ms": entry.at_ms, "core": entry.core, "policy": entry.policy}
        out.write(",\n" if count else "\n")
        out.write(_text(plain | {"event": event, "actions": json.loads(entry.actions)}))
        count += 1
    out.write("\n]}\n")
    return count
