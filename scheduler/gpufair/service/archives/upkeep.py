"""What an operator does with the journal's database: see whether it is whole, copy it, put a copy in place.

A check and a backup read one consistent state while the service runs, and nobody waits for them. A backup is a SQLite
file whatever it was taken from, so that one of PostgreSQL can be looked at, replayed, or put into either kind.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from gpufair.core.errors import GpufairError
from gpufair.service.archives import archive_file
from gpufair.service.archives.archive_file import ARCHIVED_KEY, Archived
from gpufair.service.storage import schema
from gpufair.service.storage.database import POSTGRESQL, SQLITE, Place, StoreError, metadata, open_engine, translated
from gpufair.service.storage.schema import SCHEMA_VERSION, SchemaOutdated
from gpufair.service.storage.store import NewEntry, chained, digest_of

_BATCH: Final = 1000  # rows that are in memory at once
MOST_PROBLEMS: Final = 20  # after these a check says no more: it is damaged


class InTheWay(GpufairError):
    """Something is where a copy should go."""

    def __init__(self, where: str, remedy: str) -> None:
        super().__init__(where, remedy)
        self.where, self.remedy = where, remedy

    def __str__(self) -> str:
        return f"{self.where} is not empty, and nothing is ever overwritten; {self.remedy}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What a database holds. ``cores``: entries by the version that wrote them. ``problems``: none, if it is whole."""

    place: str
    schema: int
    first: int  # number of an entry; 0: there is none
    last: int
    archived: int  # number of the last entry that was moved to an archive; 0: none was
    archives: tuple[str, ...]  # the files of it
    snapshots: tuple[int, ...]
    rows: Mapping[str, int]  # of each table
    cores: Mapping[str, int]
    problems: tuple[str, ...]


def check(place: Place, folder: Path | None = None) -> Checked:
    """Look at every entry and snapshot. ``folder``: the state folder; without it the archive is left out.

    Raises:
        StoreError: It is no journal, or of another version.
        StoreUnavailable: It can't be read.
    """
    problems: list[str] = []
    cores: Counter[str] = Counter()
    with reading(place) as connection:
        if connection.dialect.name == SQLITE:
            found = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA quick_check(20)")]
            problems += [f"the file is damaged: {one}" for one in found if one != "ok"]
        archived = Archived.from_text(connection.scalar(sa.select(schema.meta.c.value).where(schema.meta.c.key == ARCHIVED_KEY)))
        if folder is not None:
            problems += _problems_of(archived, folder)
        first, last, digest = 0, archived.seq, archived.digest
        for row in _rows(connection, schema.journal):
            if first == 0 and row.seq != last + 1:
                problems.append(f"the journal begins with entry {row.seq}")
            elif row.seq != last + 1:
                problems.append(f"entries {last + 1} to {row.seq - 1} are missing")
            elif chained(digest, row.seq, NewEntry(row.at_ms, row.event, row.actions, row.policy)) != row.digest:
                problems.append(f"entry {row.seq} is damaged")
            first, last, digest = first or row.seq, row.seq, row.digest
            cores[row.core] += 1
        kept: list[int] = []
        for row in _rows(connection, schema.snapshots):
            kept.append(row.seq)
            if digest_of(row.state) != row.digest:
                problems.append(f"the snapshot after entry {row.seq} is damaged; an older one serves")
        if kept and max(kept) > last:
            problems.append(f"there is a snapshot after entry {max(kept)}, but the journal ends with entry {last}")
        rows = {table.name: _count(connection, table) for table in metadata.sorted_tables}
    few = (*problems[:MOST_PROBLEMS], *(["and more"] if len(problems) > MOST_PROBLEMS else []))
    files = tuple(part.file for part in archived.parts)
    return Checked(
        place.shown, SCHEMA_VERSION, first, last, archived.seq, files, tuple(kept), rows, dict(cores), few
    )


def _problems_of(archived: Archived, folder: Path) -> Iterator[str]:
    """What is wrong with the files, which have to follow one another."""
    seq, digest = 0, ""
    for part in archived.parts:
        try:
            with part.path(folder).open("rb") as file:
                if archive_file.begins(file, part.path(folder)) != (seq, digest):
                    yield f"the archive {part.file} does not follow entry {seq}"
            for kept in archive_file.read(part, folder):
                if not kept.intact:
                    yield f"entry {kept.entry.seq} is damaged in the archive {part.file}"
        except OSError as err:
            yield f"the archive {part.path(folder)} cannot be read ({err.strerror or err}); put it back"
        except StoreError as err:
            yield str(err)
        seq, digest = part.seq, part.digest


def backup(place: Place, target: Path) -> int:
    """Copy the database to the SQLite file ``target``, durably; returns its size in bytes.

    Raises:
        InTheWay: There is a file.
        StoreError: It is no journal, or of another version.
        StoreUnavailable: It can't be read, or the copy can't be written.
    """
    if target.exists():
        raise InTheWay(str(target), "name another file")
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        try:
            os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with reading(place) as connection:
                if connection.dialect.name == SQLITE:
                    _copy_file(Path(str(connection.engine.url.database)), partial)
                else:
                    _copy(connection, Place(f"sqlite:///{partial}"))
            _settle(partial, target)
        except (OSError, sqlite3.Error) as err:
            raise StoreError(f"{target} cannot be written: {getattr(err, 'strerror', None) or err}") from err
    finally:
        for leftover in target.parent.glob(f"{partial.name}*"):
            with suppress(OSError):
                leftover.unlink()
    return target.stat().st_size


def restore(source: Path, place: Place) -> Checked:
    """Put the backup ``source`` into an empty database. It is checked before.

    Raises:
        InTheWay: The database holds something.
        StoreError: The backup is damaged, or of another version.
        StoreUnavailable: It can't be read or written.
    """
    if not source.is_file():
        raise StoreError(f"{source} is not there; name a file that `gpufair db backup` wrote")
    origin = Place(f"sqlite:///{source.absolute()}")
    found = check(origin)
    if found.problems:
        raise StoreError(f"{source} is damaged ({found.problems[0]}); take another backup")
    with reading(origin) as connection:
        _copy(connection, place)
    return found


@contextmanager
def reading(place: Place) -> Iterator[sa.Connection]:
    """A connection in one transaction that sees one state.

    Raises:
        StoreError: It is no journal, or of another version.
        StoreUnavailable: It can't be read.
    """
    engine = open_engine(place, reading=True)
    try:
        with translated(place.shown), engine.connect() as connection:
            if connection.dialect.name == POSTGRESQL:
                connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            version = schema.version_of(connection, place.shown)
            if version == 0:
                raise StoreError(f"{place.shown} is empty; name the --state-dir or --config of the service")
            if version < SCHEMA_VERSION:
                raise SchemaOutdated(place.shown, version)
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{place.shown} has schema {version}, this gpufair knows up to {SCHEMA_VERSION}; use the newer one"
                )
            yield connection
    finally:
        engine.dispose()


def _copy(source: sa.Connection, place: Place) -> None:
    """All tables into an empty database, in one transaction."""
    engine = open_engine(place)
    try:
        with translated(place.shown), engine.begin() as target:
            if schema.version_of(target, place.shown):
                raise InTheWay(place.shown, "name an empty database, or move the journal away")
            metadata.create_all(target)
            for table in metadata.sorted_tables:
                result = source.execution_options(yield_per=_BATCH).execute(sa.select(table))
                for rows in result.mappings().partitions():
                    target.execute(sa.insert(table), [dict(row) for row in rows])
                if target.dialect.name == POSTGRESQL:
                    _go_on_counting(target, table)
    finally:
        engine.dispose()


def _go_on_counting(connection: sa.Connection, table: sa.Table) -> None:
    """Numbers that the database gives itself begin after those that were copied."""
    column = table.autoincrement_column
    if column is not None:
        sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
        highest = sa.select(sa.func.coalesce(sa.func.max(column), 0) + 1).scalar_subquery()
        connection.execute(sa.select(sa.func.setval(sequence, highest, False)))


def _copy_file(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source, timeout=5.0)) as one, closing(sqlite3.connect(target)) as other:
        one.backup(other)


def _settle(partial: Path, target: Path) -> None:
    """Give the finished file its name, for good."""
    with closing(sqlite3.connect(partial)) as database:
        # One file is the whole copy, without a log beside it.
        database.execute("PRAGMA journal_mode=DELETE")
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.rename(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _rows(connection: sa.Connection, table: sa.Table) -> Iterator[sa.Row[tuple[object, ...]]]:
    order = sa.select(table).order_by(table.c.seq)
    yield from connection.execution_options(yield_per=_BATCH).execute(order)


def _count(connection: sa.Connection, table: sa.Table) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
