"""Moving old entries of a journal from the database to an archive file, in steps that may be cut off anywhere.

Each step writes its entries to the file, makes them durable, and only then deletes them, in the transaction that notes how
far the file counts. After a kill -9 in between both have them; the next step finds them behind what counts, sees that they
are still in the database, and writes them again in their place.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import sqlalchemy as sa

from gpufair.node.files import sync_folder, write_private
from gpufair.service.archives import archive_file
from gpufair.service.archives.archive_file import ARCHIVE_FILE, ARCHIVED_KEY, Archived, Part
from gpufair.service.archives.upkeep import reading
from gpufair.service.storage.database import Place, StoreError, open_engine, translated
from gpufair.service.storage.schema import journal, meta, snapshots
from gpufair.service.storage.store import Entry, chained, digest_of, last_before

_ELSEWHERE: Final = "another service or command is archiving at the same time; try again"
STEP: Final = 1000  # entries: about 30 ms of reading and packing, and 5 ms of the database's writer


@dataclass(frozen=True, slots=True)
class Moved:
    """A step whose entries are durable in the file. ``delete`` takes them out of the database; ``close`` ends the step."""

    before: str | None  # the database's note when the step began
    archived: Archived
    entries: int
    close: Callable[[], None]

    def delete(self, connection: sa.Connection) -> None:
        """In one transaction of the caller's.

        Raises:
            StoreError: Somebody else has moved entries meanwhile; nothing was changed.
        """
        # Written first: SQLite refuses a transaction that has read before others wrote.
        connection.execute(sa.delete(journal).where(journal.c.seq <= self.archived.seq))
        if _noted(connection) != self.before:
            raise StoreError(_ELSEWHERE)
        connection.execute(sa.delete(meta).where(meta.c.key == ARCHIVED_KEY))
        connection.execute(sa.insert(meta), {"key": ARCHIVED_KEY, "value": self.archived.to_text()})


class Archiver:
    """Moves the entries of one journal.

    Args:
        place: The journal.
        folder: The service's state folder.
        output: The file; None: the one that was used last, at first ``ARCHIVE_FILE`` in the state folder.
    """

    def __init__(self, place: Place, folder: Path, output: Path | None = None) -> None:
        self._place, self._folder = place, folder
        self._output = None if output is None else str(output.absolute())

    def last(self, before_ms: int) -> int:
        """Number of the last entry of before an instant that no snapshot needs; 0: there is none.

        Raises:
            StoreError: It is no journal, or of another version.
            StoreUnavailable: It can't be read.
        """
        with reading(self._place) as connection:
            whole = (
                row.seq
                for row in connection.execute(sa.select(snapshots).order_by(snapshots.c.seq))
                if digest_of(row.state) == row.digest
            )
            # The entry that it was taken after stays: what follows is checked by its digest.
            needed = next(whole, 0)
            last = min(last_before(connection, before_ms), needed - 1)
            return last if last > Archived.from_text(_noted(connection)).seq else 0

    def step(self, last: int) -> Moved | None:
        """Write the next entries, at most up to ``last``, to the file. None: there are none. The caller closes the step.

        Raises:
            StoreError: An entry is damaged or missing, or the file is another one; nothing was changed.
            StoreUnavailable: The database can't be read.
        """
        with ExitStack() as stack:
            with reading(self._place) as connection:
                noted = _noted(connection)
            archived = Archived.from_text(noted)
            if last <= archived.seq:
                return None
            part = self._part(archived)
            try:
                file = stack.enter_context(self._opened(part))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the step is closed
                with reading(self._place) as connection:
                    if _noted(connection) != noted:  # before the file was locked
                        raise StoreError(_ELSEWHERE)
                    self._agreed(connection, file, part)
                    rows, digest = _lines(connection, archived, last)
                file.truncate(part.size_bytes)
                file.seek(part.size_bytes)
                file.write(archive_file.packed(rows))
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            except BlockingIOError as err:
                raise StoreError(_ELSEWHERE) from err
            except OSError as err:
                raise StoreError(
                    f"the archive {part.path(self._folder)} cannot be written ({err.strerror or err}), so nothing was moved"
                ) from err
            written = Part(part.file, part.after, rows[-1]["seq"], rows[-1]["at_ms"], digest, size)
            others = tuple(one for one in archived.parts if one.file != part.file)
            return Moved(noted, Archived((*others, written)), len(rows), stack.pop_all().close)

    def delete(self, moved: Moved) -> None:
        """Take the entries of a step out of the database, where no service does so, and close the step.

        Raises:
            StoreError: Somebody else has moved entries meanwhile; nothing was changed.
            StoreUnavailable: It can't be written; nothing was changed.
        """
        engine = open_engine(self._place)
        try:
            with translated(self._place.shown), engine.begin() as connection:
                moved.delete(connection)
        finally:
            moved.close()
            engine.dispose()

    def archived(self) -> Archived:
        """What was moved so far.

        Raises:
            StoreError: As of ``last``.
            StoreUnavailable: It can't be read.
        """
        with reading(self._place) as connection:
            return Archived.from_text(_noted(connection))

    def _part(self, archived: Archived) -> Part:
        """The file to go on with, as the database has noted it; a new one with no byte that counts."""
        last = archived.parts[-1] if archived.parts else None
        name = self._output or (last.file if last else ARCHIVE_FILE)
        if last is not None and last.path(self._folder) == self._folder / name:
            return last
        for part in archived.parts:
            if part.path(self._folder) == self._folder / name:
                raise StoreError(f"{name} was followed by {last and last.file}; go on with that one, or name a new file")
        begin = archive_file.head(archived.seq, archived.digest)
        return Part(name, archived.seq, archived.seq, 0, archived.digest, len(begin))

    def _opened(self, part: Part) -> IO[bytes]:
        path = part.path(self._folder)
        if part.seq == part.after and not path.exists():
            # In one step, so that a file of this name which doesn't begin like this is somebody else's.
            write_private(path, archive_file.head(part.after, part.digest))
        if not path.exists():
            raise StoreError(f"the archive {path} is not there; put it back, or begin a new one with --output")
        sync_folder(path.parent)
        return path.open("r+b")

    def _agreed(self, connection: sa.Connection, file: IO[bytes], part: Part) -> None:
        """See that it is the file, and that the database still has whatever is behind the bytes that count."""
        path = part.path(self._folder)
        begins = archive_file.begins(file, path)
        if begins[0] != part.after or os.fstat(file.fileno()).st_size < part.size_bytes:
            raise StoreError(f"{path} is not the archive that it was; restore it, or begin a new one with --output")
        if part.seq == part.after and begins[1] != part.digest:
            raise StoreError(f"{path} is the archive of another journal; name another file with --output")
        file.seek(part.size_bytes)
        try:
            for line in archive_file.lines(file):
                entry, digest = archive_file.parsed(line)
                if connection.scalar(sa.select(journal.c.digest).where(journal.c.seq == entry.seq)) != digest:
                    raise StoreError(
                        f"{path} holds entry {entry.seq}, of which the database knows nothing (was an older backup restored?); "
                        "keep the file, and begin a new one with --output"
                    )
        except (zlib.error, ValueError):
            return  # half a step, which a power cut has left


def _lines(connection: sa.Connection, archived: Archived, last: int) -> tuple[list[dict[str, Any]], str]:
    """The next entries as they are written, and the digest of the last of them.

    Raises:
        StoreError: One is damaged or missing.
    """
    lines, seq, digest = [], archived.seq, archived.digest
    after = sa.select(journal).where(journal.c.seq > seq, journal.c.seq <= last).order_by(journal.c.seq).limit(STEP)
    for row in connection.execute(after):
        seq += 1
        entry = Entry(row.at_ms, row.event, row.actions, row.policy, row.seq, row.core)
        digest = chained(digest, seq, entry)
        if row.seq != seq or digest != row.digest:
            break
        lines.append(archive_file.line_of(entry, digest))
    else:
        if lines:
            return lines, digest
        seq += 1
    raise StoreError(f"journal entry {seq} is damaged or missing, so nothing more is archived; see `gpufair db check`")


def _noted(connection: sa.Connection) -> str | None:
    return connection.scalar(sa.select(meta.c.value).where(meta.c.key == ARCHIVED_KEY))
