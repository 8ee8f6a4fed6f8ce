"""Loading a checkpoint into a live namespace, after everything that can be checked without running it was checked."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, cast

from gpufair.node.checkpoint import environment, process, settings
from gpufair.node.checkpoint.catalogue import read_manifest
from gpufair.node.checkpoint.codecs.registry import remarks
from gpufair.node.checkpoint.coding import Coder, readable
from gpufair.node.checkpoint.errors import CheckpointRejected
from gpufair.node.checkpoint.folder import open_store
from gpufair.node.checkpoint.manifest import Manifest, Record, compare
from gpufair.node.checkpoint.opcodes import Use, memo_use
from gpufair.node.checkpoint.options import StoreOptions
from gpufair.node.checkpoint.pickler import NAMESPACE, PRELUDE
from gpufair.node.checkpoint.reading import Reading, room
from gpufair.node.checkpoint.reasons import explain_load
from gpufair.node.checkpoint.salvage import Lost, salvage
from gpufair.node.checkpoint.sinks import MemoCounter
from gpufair.node.checkpoint.storage import Store
from gpufair.node.checkpoint.tracker import Tracker

_READ_PART = 0.7  # of the progress, for reading and checking; the rest is for making objects of it
_DAMAGED = "its data is damaged in the checkpoint"


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What came back. ``lost`` holds what was not saved and what could not be rebuilt, as (name, reason)."""

    restored: tuple[str, ...]
    lost: tuple[tuple[str, str], ...]
    meta: dict[str, Any]
    warnings: tuple[str, ...]
    extras: dict[str, Any] = field(default_factory=dict)


def load(
    namespace: dict[str, Any],
    *,
    directory: str,
    id: str,  # noqa: A002 - the word of the wire
    key: bytes,
    tracker: Tracker | None = None,
    progress: Callable[[float], None] = lambda _: None,
    store: Store | None = None,
) -> RestoreResult:
    """Load checkpoint ``id`` into ``namespace``, which stays the globals of all functions that were defined in it.

    Variables that the checkpoint does not hold stay as they are. Also set: working directory, import path and the
    states of the random number generators. A damaged file costs the variables that need it, and they are named.

    Args:
        progress: Told how far it has come, from 0 to 1, in whatever thread is at work; it must not fail.
        tracker: The session's own: the next ``save`` with it writes only what has changed since.

    Raises:
        CheckpointMissing: There is none, or it was never finished.
        CheckpointRejected: Wrong signature, damaged as a whole, or of another Python. Nothing was unpickled or changed.
    """
    try:
        store = store or open_store(directory)
        coder = Coder(key, StoreOptions())
        manifest = read_manifest(store, id, coder, key, directory)
        refusal, notes = compare(manifest.versions)
        refusal = refusal or readable({piece.coding for piece in manifest.pieces.values()})
        if refusal is not None:
            raise CheckpointRejected(id, refusal)
        reading = Reading(store, manifest, coder, _Arrivals(manifest, progress).add)
        stream, bad = _checked_stream(reading, manifest)
        buffers = _checked_buffers(reading, manifest, tracker)
    except (OSError, ImportError, MemoryError) as err:
        raise CheckpointRejected(id, f"it could not be read ({getattr(err, 'strerror', None) or err})") from err
    if manifest.torn:
        notes.append(f"values of this checkpoint may not belong together: {manifest.torn}")
    skipped = _unusable(manifest, bad, buffers)
    variables = [record for record in manifest.records if record.kind == "variable"]
    if variables and all(record in skipped for record in variables):
        raise CheckpointRejected(id, f"all of it is damaged: {skipped[variables[0]][0]}")
    notes += environment.enter(manifest.environment, manifest.withheld)  # imports may look at it
    notes += process.enter(manifest.cwd, manifest.sys_path)
    notes += settings.enter(manifest.settings)
    builtins = namespace.get("__builtins__")
    lost = dict(manifest.lost)
    reader = _Reader(stream, manifest.records, buffers, namespace)
    for record, (why, unreadable) in skipped.items():
        reader.skip(record, f"{_DAMAGED}: {why}", unreadable=unreadable)
    extras: dict[str, Any] = {}
    restored: list[str] = []
    with process.no_collection(), remarks() as said:
        for record, value in reader:
            # Neither many small objects nor one large one should look like a standstill.
            by_size = (record.offset + record.size) / max(len(stream), 1)
            by_count = (len(restored) + len(extras) + 1) / len(manifest.records)
            progress(_READ_PART + (1 - _READ_PART) * min((by_size + by_count) / 2, 1.0))
            if record.kind == "variable":
                namespace[record.name] = value
                restored.append(record.name)
            else:
                extras[record.name] = value
    notes += [*said, *(f"{name} {text}" for name, text in manifest.notes)]
    if builtins is not None:
        namespace["__builtins__"] = builtins  # cloudpickle puts a dict there
    lost |= reader.lost
    try:
        process.take_extras(extras)
    except (TypeError, ValueError, RuntimeError) as err:
        notes.append(f"the random number generators were not restored ({err})")
    return RestoreResult(tuple(restored), tuple(lost.items()), manifest.meta, tuple(notes), extras)


class _Arrivals:
    """Turns bytes that have come into a fraction."""

    def __init__(self, manifest: Manifest, progress: Callable[[float], None]) -> None:
        self._size = max(sum(piece.size for piece in manifest.pieces.values()), 1)
        self._progress, self._come, self._lock = progress, 0, threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self._come += size
            self._progress(_READ_PART * min(self._come / self._size, 1.0))


def _unusable(
    manifest: Manifest, bad: list[tuple[int, int, str]], buffers: list[memoryview | str]
) -> dict[Record, tuple[str, bool]]:
    """The records that cannot be loaded: why, and whether that is because of their pickle itself."""
    found = {}
    for record in manifest.records:
        start, end = record.offset, record.offset + record.size
        stream_why = next((why for first, last, why in bad if first < end and start < last), None)
        buffer_why = next((data for number in record.buffers if isinstance(data := buffers[number], str)), None)
        if why := stream_why or buffer_why:
            found[record] = why, stream_why is not None
    return found


def _checked_stream(reading: Reading, manifest: Manifest) -> tuple[memoryview, list[tuple[int, int, str]]]:
    """The stream, and which parts of it are damaged, as (start, end, why)."""
    data = bytearray(reading.size(manifest.stream))
    wrong = reading.all([(manifest.stream, memoryview(data))])[0]
    bad, at = [], 0
    for digest, why in zip(manifest.stream, wrong, strict=True):
        size = manifest.pieces[digest].size
        if why is not None:
            bad.append((at, at + size, why))
        at += size
    if not any(start == 0 for start, _, _ in bad) and bytes(data[: len(PRELUDE)]) != PRELUDE:
        raise CheckpointRejected(manifest.id, "its stream does not begin as this version writes it")
    return memoryview(data), bad


def _checked_buffers(reading: Reading, manifest: Manifest, tracker: Tracker | None) -> list[memoryview | str]:
    """Each buffer, or what is wrong with it."""
    found: list[memoryview | str] = [room(reading.size(digests)) for digests in manifest.buffers]
    wanted = list(zip(manifest.buffers, cast("list[memoryview]", found), strict=True))
    memory = tracker.memory if tracker is not None else None
    for number, wrong in enumerate(reading.all(wanted, memory)):
        if why := next((why for why in wrong if why is not None), None):
            found[number] = why
    return found


class _Source:
    """The file that an unpickler reads: one record at a time, so that a failure cannot leave it in the middle."""

    def __init__(self) -> None:
        self._data, self._at = memoryview(b""), 0

    def set(self, data: bytes | memoryview) -> None:
        self._data, self._at = memoryview(data), 0

    def read(self, size: int) -> bytes:
        return bytes(self._take(size))

    def readinto(self, into: Any) -> int:
        taken = self._take(len(into))
        into[: len(taken)] = taken
        return len(taken)

    def readline(self) -> bytes:
        raise pickle.UnpicklingError("a text opcode in a stream of protocol 5")

    def _take(self, size: int) -> memoryview:
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken


class _Buffers:
    """Hands out the buffers that the current record asks for."""

    def __init__(self, data: list[memoryview | str]) -> None:
        self._data = data
        self._next: Iterator[int] = iter(())

    def expect(self, numbers: tuple[int, ...]) -> None:
        self._next = iter(numbers)

    def __iter__(self) -> _Buffers:
        return self

    def __next__(self) -> memoryview:
        data = self._data[next(self._next)]
        if isinstance(data, str):
            raise KeyError(data)
        return data


class _Unpickler(pickle.Unpickler):
    """Finds the live namespace, and, after a failure, what had been loaded before it."""

    def __init__(self, source: _Source, buffers: _Buffers, known: dict[str, Any]) -> None:
        super().__init__(cast("IO[bytes]", source), buffers=buffers)
        self._known = known

    def persistent_load(self, pid: Any) -> Any:
        return self._known[pid]


class _Reader:
    """Iterates over the records that load; the others end up in ``lost`` with the reason.

    All records share one memo, numbered in the order of writing. When one fails, what is sound of it is salvaged, the
    other entries are filled with None to keep the numbers right, and a later record that reads one of those is lost as
    well rather than wrong.
    """

    def __init__(
        self,
        stream: memoryview,
        records: tuple[Record, ...],
        buffers: list[memoryview | str],
        namespace: dict[str, Any],
    ) -> None:
        self.lost: dict[str, str] = {}
        self._stream, self._records, self._namespace = stream, records, namespace
        self._skipped: dict[Record, str] = {}
        self._unreadable: set[Record] = set()
        self._rebuilt = False  # the memo is already as the next record needs it
        self._missing: dict[int, str] = {}  # memo entry -> the variable that should have made it
        self._uses: dict[Record, Use] = {}  # filled only once something has failed
        self._buffers = _Buffers(buffers)
        self._source = _Source()
        self._unpickler = self._fresh({NAMESPACE: namespace})
        self._source.set(PRELUDE)
        self._unpickler.load()

    def skip(self, record: Record, reason: str, *, unreadable: bool = False) -> None:
        """Do not load this one; if its pickle itself is damaged, nothing of it may be looked at."""
        self._skipped[record] = reason
        if unreadable:
            self._unreadable.add(record)

    def __iter__(self) -> Iterator[tuple[Record, Any]]:
        for number, record in enumerate(self._records):
            if number and record.memo is not None and not self._rebuilt:
                self._source.set(MemoCounter.ENTRY)
                self._unpickler.load()
            self._rebuilt = False
            reason = self._skipped.get(record) or self._needs_missing(record)
            if reason is None:
                self._source.set(self._data(record))
                self._buffers.expect(record.buffers)
                try:
                    value = self._unpickler.load()
                except BaseException as err:  # noqa: BLE001 - __setstate__ is the user's code and may raise anything
                    reason = explain_load(err)
                else:
                    yield record, value
                    continue
            if record.kind == "variable":
                self.lost[record.name] = reason
            self._go_on_after(number, record)

    def _needs_missing(self, record: Record) -> str | None:
        if not self._missing:
            return None
        source = next((self._missing[entry] for entry in self._use(record).read if entry in self._missing), None)
        return None if source is None else f"shares an object with {source!r}, which could not be restored"

    def _data(self, record: Record) -> memoryview:
        return self._stream[record.offset : record.offset + record.size]

    def _use(self, record: Record) -> Use:
        if record not in self._uses:
            self._uses[record] = memo_use(self._data(record))
        return self._uses[record]

    def _fresh(self, known: dict[Any, Any]) -> _Unpickler:
        return _Unpickler(self._source, self._buffers, known)

    def _go_on_after(self, number: int, record: Record) -> None:
        """Replace the unpickler by one whose memo is as if ``record`` had been loaded, less what is not to be had.

        Replace, because after a failure it still holds unread bytes; and fill the new memo by a pickle of persistent
        ids, because assigning a dict to ``memo`` of CPython's unpickler leaves it empty.
        """
        following = self._records[number + 1] if number + 1 < len(self._records) else None
        if following is None or (record in self._unreadable and following.memo is None):
            return  # nothing follows, or only what lies in the same damaged piece
        before = self._unpickler.memo.copy()
        if record in self._unreadable:
            memo = {n: Lost() if n in self._missing else value for n, value in before.items()}
        else:
            memo = {n: Lost() if n in self._missing else before[n] for n in range(self._place(number))}
            self._buffers.expect(record.buffers)
            memo = salvage(self._data(record), self._buffers, {NAMESPACE: self._namespace}, memo)
        memo |= {n: Lost() for n in range(len(memo), following.memo or 0)}
        for n, value in memo.items():
            if type(value) is Lost:
                self._missing.setdefault(n, record.name)
        known = {str(n): None if type(value) is Lost else value for n, value in memo.items()}
        self._unpickler = self._fresh(known | {NAMESPACE: self._namespace})
        # PROTO 5, then for each entry SHORT_BINUNICODE its number, BINPERSID, MEMOIZE, POP, then NONE, STOP.
        entries = (str(n).encode() for n in range(len(memo)))
        self._source.set(b"\x80\x05" + b"".join(b"\x8c%c%bQ\x940" % (len(n), n) for n in entries) + b"N.")
        self._unpickler.load()
        self._rebuilt = True

    def _place(self, number: int) -> int:
        """The first entry of the memo that a readable record makes."""
        counted = next(n for n in range(number, -1, -1) if self._records[n].memo is not None)
        return cast("int", self._records[counted].memo) + sum(
            self._use(record).made for record in self._records[counted:number]
        )
