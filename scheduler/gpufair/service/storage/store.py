"""The journal: every event with the actions decided, appended and committed before anybody is answered.

A committed append survives kill -9 and a power cut, of the database server too (``database``). Each entry
carries a digest over itself and its predecessor, so that a damaged or missing entry is noticed and named at the start.
All methods block; ``gpufair.service.storage.journal`` calls them in one thread.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from gpufair.service.storage import ended, outbox, schema
from gpufair.service.storage.database import (
    JOURNAL_FILE,
    Place,
    StoreError,
    StoreUnavailable,
    open_engine,
    sqlite_url,
    translated,
)
from gpufair.service.storage.ended import Ended
from gpufair.service.storage.leadership import fence, name_of
from gpufair.service.storage.outbox import Letter
from gpufair.service.storage.schema import SCHEMA_VERSION
from gpufair.service.storage.schema import details as _details
from gpufair.service.storage.schema import journal as _journal
from gpufair.service.storage.schema import meta as _meta
from gpufair.service.storage.schema import snapshots as _snapshots
from gpufair.service.storage.stays import Writes

__all__ = [
    "JOURNAL_FILE",
    "SCHEMA_VERSION",
    "Entry",
    "Loaded",
    "NewEntry",
    "Place",
    "Snapshot",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "chained",
    "digest_of",
    "last_before",
    "sqlite_url",
]

R = TypeVar("R")

KEPT_SNAPSHOTS: Final = 3
_PACKED: Final = "zlib:"


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An event and its actions, as JSON texts, to be appended."""

    at_ms: int
    event: str
    actions: str
    policy: str


@dataclass(frozen=True, slots=True)
class Entry(NewEntry):
    """A journalled entry."""

    seq: int
    core: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The core's state after the entry ``seq``, as it is kept: ``of`` and ``text`` know the form."""

    seq: int
    at_ms: int
    state: str

    @classmethod
    def of(cls, seq: int, at_ms: int, text: str) -> Snapshot:
        """``text``: the state's JSON. That of a large lab has 16 MB of much the same: commits would wait for it."""
        return cls(seq, at_ms, _PACKED + base64.b64encode(zlib.compress(text.encode(), 1)).decode())

    def text(self) -> str:
        """The state's JSON.

        Raises:
            ValueError: It is packed in no way that is known here.
        """
        if not self.state.startswith(_PACKED):
            return self.state  # of before they were packed
        try:
            return zlib.decompress(base64.b64decode(self.state.removeprefix(_PACKED), validate=True)).decode()
        except zlib.error as err:
            raise ValueError(f"it cannot be unpacked: {err}") from err


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a start needs: the last good snapshot, the entries after it, the service's details by workload.

    ``gone`` are workloads that left the state since that snapshot, for the table of ended ones.
    """

    snapshot: Snapshot | None
    tail: tuple[Entry, ...]
    details: Mapping[str, dict[str, Any]]
    gone: Collection[str] = ()


class Store:
    """One journal. Not thread-safe: use it from one thread.

    Args:
        place: Where it is kept: an SQLAlchemy URL, with a ``Place`` around it if it takes a password.
        core: Version of the core, noted with each entry.
        epoch: Of this service's leadership: nothing is written as soon as another one leads. 0: there can be no other.
        upgrade: Take over an older schema at once. Else it is refused: other services may still use it.

    Raises:
        SchemaOutdated: Its schema is older, and ``upgrade`` was not asked for.
        StoreError: Its schema is newer than this version knows, or it is no journal.
        StoreUnavailable: It can't be opened.
    """

    def __init__(self, place: Place | str, core: str, *, epoch: int = 0, upgrade: bool = False) -> None:
        self._core, self._epoch = core, epoch
        self._end = (0, "")
        self._doubt: tuple[int, str] | None = None  # number and digest of the last entry of an append that failed
        self.went_through = False  # whether that one is in the journal all the same, as of the last load
        self._snapshot: Snapshot | None = None
        self._tail: list[Entry] = []  # after it
        self._kept: dict[str, dict[str, Any]] = {}
        self._gone: dict[str, int] = {}  # who left the state since the snapshot, and at which entry
        place = Place(place) if isinstance(place, str) else place
        self._shown = place.shown
        self._engine = open_engine(place, name=name_of(epoch) if epoch else "gpufair")
        try:
            with self._translated():
                (schema.upgrade if upgrade else schema.prepare)(self._engine, self._shown)
                self._seek_end()
        except BaseException:
            self._engine.dispose()
            raise

    @property
    def seq(self) -> int:
        """Number of the last entry; 0 = none."""
        return self._end[0]

    @property
    def end(self) -> tuple[int, str]:
        """Number and digest of the last entry, as they belong together, whatever thread asks."""
        return self._end

    def digest(self, seq: int) -> str | None:
        """The digest of an entry; None: the database does not have it (any more).

        Raises:
            StoreUnavailable: It can't be read.
        """
        with self._translated(), self._engine.connect() as connection:
            return connection.scalar(sa.select(_journal.c.digest).where(_journal.c.seq == seq))

    def close(self) -> None:
        """Give the database back."""
        self._engine.dispose()

    def append(
        self,
        entries: Sequence[NewEntry],
        details: Mapping[str, Mapping[str, Any] | None] | None = None,
        letters: Sequence[Letter] = (),
        also: Sequence[Writes] = (),
    ) -> list[int]:
        """Append ``entries``, set ``details``, post ``letters`` and do ``also`` in one transaction; then it is durable.

        Args:
            entries: In order.
            details: Per workload what to keep; None forgets it.
            letters: To be sent.
            also: What else follows from the entries, written in this order.

        Returns: The entries' numbers.

        Raises:
            StoreUnavailable: It could not be committed; nothing of it is kept, unless it is ``in_doubt``.
            Deposed: Another service leads; nothing of it is kept.
        """
        seq, digest = self._end
        rows: list[dict[str, Any]] = []
        for entry in entries:
            seq += 1
            digest = chained(digest, seq, entry)
            rows.append(
                {
                    "seq": seq,
                    "at_ms": entry.at_ms,
                    "event": entry.event,
                    "actions": entry.actions,
                    "core": self._core,
                    "policy": entry.policy,
                    "digest": digest,
                }
            )
        if rows or details or letters or also:
            self._doubt = (seq, digest) if rows else None
            with self._writing() as connection:
                if rows:
                    connection.execute(sa.insert(_journal), rows)
                for workload, detail in (details or {}).items():
                    # Delete and insert: an upsert is spelled differently by each database.
                    connection.execute(sa.delete(_details).where(_details.c.workload == workload))
                    if detail is not None:
                        row = {"workload": workload, "detail": json.dumps(detail)}
                        connection.execute(sa.insert(_details), row)
                if letters:
                    outbox.post(connection, letters)
                for write in also:
                    write(connection)
        self._end, self._doubt = (seq, digest), None
        self._tail += [
            Entry(one.at_ms, one.event, one.actions, one.policy, row["seq"], self._core)
            for one, row in zip(entries, rows, strict=True)
        ]
        for workload, detail in (details or {}).items():
            if detail is None:
                self._kept.pop(workload, None)
            else:
                self._kept[workload] = dict(detail)
        return [row["seq"] for row in rows]

    def put_away(self, seq: int, those: Sequence[Ended]) -> int:
        """Write ended workloads down in their own table, which a snapshot after ``seq`` is then saved without.

        Returns: How many were not there yet.

        Raises:
            StoreUnavailable: They could not be written; nothing has changed, unless it is ``in_doubt``.
        """
        ids = [str(one.record.id) for one in those]
        with self._writing() as connection:
            new = ended.write(connection, seq, those)
            connection.execute(sa.delete(_details).where(_details.c.workload.in_(ids)))
        for workload in ids:
            self._kept.pop(workload, None)
            self._gone[workload] = seq
        return new

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep ``snapshot``, and of the older ones the last few.

        Raises:
            StoreUnavailable: It could not be written. Nothing is lost: the journal has it all.
        """
        row = {
            "seq": snapshot.seq,
            "at_ms": snapshot.at_ms,
            "state": snapshot.state,
            "digest": digest_of(snapshot.state),
        }
        with self._writing() as connection:
            connection.execute(sa.delete(_snapshots).where(_snapshots.c.seq == snapshot.seq))
            connection.execute(sa.insert(_snapshots), row)
            kept = sa.select(_snapshots.c.seq).order_by(_snapshots.c.seq.desc()).limit(KEPT_SNAPSHOTS)
            oldest = min(connection.scalars(kept).all())
            connection.execute(sa.delete(_snapshots).where(_snapshots.c.seq < oldest))
        self._snapshot = snapshot
        self._tail = [entry for entry in self._tail if entry.seq > snapshot.seq]
        self._gone = {workload: seq for workload, seq in self._gone.items() if seq >= snapshot.seq}

    def load(self) -> Loaded:
        """The last undamaged snapshot and all entries after it, checked.

        Raises:
            StoreError: An entry is damaged or missing; the text names it.
            StoreUnavailable: It can't be read.
        """
        with self._translated(), self._engine.connect() as connection:
            snapshot = self._last_snapshot(connection)
            begin = snapshot.seq if snapshot else 0
            rows = connection.execute(sa.select(_journal).where(_journal.c.seq > begin).order_by(_journal.c.seq)).all()
            digest = connection.scalar(sa.select(_journal.c.digest).where(_journal.c.seq == begin)) or ""
            if begin and not digest:
                raise StoreError(f"journal entry {begin} is missing; restore the journal from a backup")
            details = {row.workload: json.loads(row.detail) for row in connection.execute(sa.select(_details))}
            gone = dict(ended.since(connection, begin))
        tail: list[Entry] = []
        self.went_through = False
        for seq, row in enumerate(rows, begin + 1):
            if row.seq != seq:
                why = "" if begin or seq > 1 else ", and no whole snapshot to begin with"
                raise StoreError(f"journal entry {seq} is missing (found {row.seq}){why}; restore the journal from a backup")
            entry = _entry(row)
            digest = chained(digest, seq, entry)
            if digest != row.digest:
                raise StoreError(f"journal entry {seq} is damaged; restore the journal from a backup")
            tail.append(entry)
            self.went_through |= self._doubt == (seq, digest)
        self._end, self._doubt = (begin + len(tail), digest), None
        self._snapshot, self._tail, self._kept, self._gone = snapshot, tail, details, gone
        return Loaded(snapshot, tuple(tail), details, tuple(gone))

    def remembered(self) -> Loaded:
        """The same as of the last load and all that was committed since, without asking the database."""
        return Loaded(self._snapshot, tuple(self._tail), dict(self._kept), tuple(self._gone))

    def entries(self, after: int = 0, limit: int = 10_000) -> tuple[Entry, ...]:
        """Up to ``limit`` entries after the entry ``after``.

        Raises:
            StoreUnavailable: It can't be read.
        """
        query = sa.select(_journal).where(_journal.c.seq > after).order_by(_journal.c.seq).limit(limit)
        with self._translated(), self._engine.connect() as connection:
            rows = connection.execute(query).all()
        return tuple(_entry(row) for row in rows)

    def before(self, at_ms: int) -> int:
        """``last_before``, here.

        Raises:
            StoreUnavailable: It can't be read.
        """
        with self._translated(), self._engine.connect() as connection:
            return last_before(connection, at_ms)

    def first(self) -> tuple[int, int] | None:
        """Number and time of the first entry that the database has; None: it has none. Those before are in an archive.

        Raises:
            StoreUnavailable: It can't be read.
        """
        query = sa.select(_journal.c.seq, _journal.c.at_ms).order_by(_journal.c.seq).limit(1)
        with self._translated(), self._engine.connect() as connection:
            row = connection.execute(query).first()
        return None if row is None else (row.seq, row.at_ms)

    def within(self, work: Callable[[sa.Connection], R]) -> R:
        """What ``work`` returns, done in a transaction of its own.

        Raises:
            StoreUnavailable: It could not be done; nothing of it is kept.
        """
        with self._writing() as connection:
            return work(connection)

    def meta(self, key: str) -> str | None:
        """A note that the service made for itself."""
        with self._translated(), self._engine.connect() as connection:
            return connection.scalar(sa.select(_meta.c.value).where(_meta.c.key == key))

    def set_meta(self, key: str, value: str) -> None:
        """Make a note.

        Raises:
            StoreUnavailable: It could not be written.
        """
        with self._writing() as connection:
            connection.execute(sa.delete(_meta).where(_meta.c.key == key))
            connection.execute(sa.insert(_meta), {"key": key, "value": value})

    # -- inside ---------------------------------------------------------------------------------------------------

    def _seek_end(self) -> None:
        with self._engine.connect() as connection:
            last = connection.execute(
                sa.select(_journal.c.seq, _journal.c.digest).order_by(_journal.c.seq.desc()).limit(1)
            ).first()
        if last is not None:
            self._end = (last.seq, last.digest)

    def _last_snapshot(self, connection: sa.Connection) -> Snapshot | None:
        """The newest snapshot that is whole; an older one plus a longer tail gives the same state."""
        for row in connection.execute(sa.select(_snapshots).order_by(_snapshots.c.seq.desc())):
            if digest_of(row.state) == row.digest:
                return Snapshot(row.seq, row.at_ms, row.state)
        return None

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """A transaction that is committed at the end, unless something failed."""
        with self._translated(), self._engine.begin() as connection:
            if self._epoch:
                fence(connection, self._epoch)
            yield connection

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._shown)


def _entry(row: sa.Row[Any]) -> Entry:
    return Entry(row.at_ms, row.event, row.actions, row.policy, row.seq, row.core)


def last_before(connection: sa.Connection, at_ms: int) -> int:
    """Number of the last entry of before an instant. There is none: of the one before the first, or 0."""
    first, last = connection.execute(sa.select(sa.func.min(_journal.c.seq), sa.func.max(_journal.c.seq))).one()
    low, high = (first - 1, last) if last is not None else (0, 0)
    while low < high:  # entries are in order of time, and only their numbers have an index
        middle = (low + high + 1) // 2
        at = connection.scalar(sa.select(_journal.c.at_ms).where(_journal.c.seq == middle))
        low, high = (middle, high) if at is not None and at < at_ms else (low, middle - 1)
    return low


def chained(previous: str, seq: int, entry: NewEntry) -> str:
    """The digest of an entry, and with it of all before it."""
    return digest_of(f"{previous}\n{seq}\n{entry.at_ms}\n{entry.event}\n{entry.actions}")


def digest_of(text: str) -> str:
    """The digest of a text, as it is kept beside it."""
    return hashlib.sha256(text.encode()).hexdigest()
