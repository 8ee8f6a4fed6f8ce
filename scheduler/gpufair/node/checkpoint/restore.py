"""Loading a checkpoint into a live namespace, after everything that can be checked without running it was checked."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Any, cast

from gpufair.node.checkpoint import process
from gpufair.node.checkpoint.catalogue import read_manifest
from gpufair.node.checkpoint.errors import CheckpointRejected
from gpufair.node.checkpoint.manifest import STREAM, Manifest, Record, buffer_name, compare
from gpufair.node.checkpoint.opcodes import Use, memo_use
from gpufair.node.checkpoint.pickler import NAMESPACE, PRELUDE
from gpufair.node.checkpoint.reasons import explain_load
from gpufair.node.checkpoint.salvage import Lost, salvage
from gpufair.node.checkpoint.storage import Store, open_store


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
    store: Store | None = None,
) -> RestoreResult:
    """Load checkpoint ``id`` into ``namespace``, which stays the globals of all functions that were defined in it.

    Variables that the checkpoint does not hold stay as they are. Also set: working directory, import path and the
    states of the random number generators.

    Raises:
        CheckpointMissing: There is none, or it was never finished.
        CheckpointRejected: Wrong signature, damaged, or of another Python. Nothing was unpickled or changed.
    """
    try:
        store = store or open_store(directory)
        manifest = read_manifest(store, id, key, directory)
        refusal, notes = compare(manifest.versions)
        if refusal is not None:
            raise CheckpointRejected(id, refusal)
        stream = _checked_stream(store, manifest)
        buffers, damaged = _checked_buffers(store, manifest)
    except (OSError, ImportError, MemoryError) as err:
        raise CheckpointRejected(id, f"it could not be read ({getattr(err, 'strerror', None) or err})") from err
    notes += process.enter(manifest.cwd, manifest.sys_path)
    builtins = namespace.get("__builtins__")
    lost = dict(manifest.lost)
    reader = _Reader(stream, manifest.records, buffers, namespace)
    for record in manifest.records:
        if any(digest in damaged for digest in record.buffers):
            reader.skip(record, "its data is damaged in the checkpoint (its digest does not fit)")
    extras: dict[str, Any] = {}
    restored = []
    for record, value in reader:
        if record.kind == "variable":
            namespace[record.name] = value
            restored.append(record.name)
        else:
            extras[record.name] = value
    if builtins is not None:
        namespace["__builtins__"] = builtins  # cloudpickle puts a dict there
    lost |= reader.lost
    try:
        process.set_generators(extras)
    except (TypeError, ValueError) as err:
        notes.append(f"the random number generators were not restored ({err})")
    return RestoreResult(tuple(restored), tuple(lost.items()), manifest.meta, tuple(notes), extras)


def _checked_stream(store: Store, manifest: Manifest) -> memoryview:
    with store.read(manifest.id, STREAM) as file:
        data = file.read(manifest.stream_size + 1)
    if len(data) != manifest.stream_size or hashlib.sha256(data).hexdigest() != manifest.stream_sha256:
        raise CheckpointRejected(manifest.id, f"{STREAM} is damaged or was altered (its digest does not fit)")
    view = memoryview(data)
    if bytes(view[: len(PRELUDE)]) != PRELUDE:
        raise CheckpointRejected(manifest.id, f"{STREAM} does not begin as this version writes it")
    return view


def _checked_buffers(store: Store, manifest: Manifest) -> tuple[dict[str, bytearray], frozenset[str]]:
    """All buffers whose digest fits, and the names of the others. In threads: reading and hashing release the GIL."""

    def read(digest: str) -> bytearray | None:
        data = bytearray(manifest.buffers[digest])
        try:
            with store.read(manifest.id, buffer_name(digest)) as file:
                count = cast("io.BufferedIOBase", file).readinto(data)
                whole = count == len(data) and not file.read(1)
        except OSError:
            return None
        return data if whole and hashlib.sha256(data).hexdigest() == digest else None

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="gpufair-restore") as pool:
        found = dict(zip(manifest.buffers, pool.map(read, manifest.buffers), strict=True))
    good = {digest: data for digest, data in found.items() if data is not None}
    return good, frozenset(found) - frozenset(good)


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
    """Hands out the buffers that the current record asks for. Equal content was stored once; each use gets its own."""

    def __init__(self, data: dict[str, bytearray], uses: Counter[str]) -> None:
        self._data, self._uses = data, uses
        self._next: Iterator[str] = iter(())

    def expect(self, digests: tuple[str, ...]) -> None:
        self._next = iter(digests)

    def __iter__(self) -> _Buffers:
        return self

    def __next__(self) -> bytearray:
        digest = next(self._next)
        # Not the original where there are several uses: the first user may change it before the next one asks.
        return self._data[digest] if self._uses[digest] == 1 else bytearray(self._data[digest])


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
        buffers: dict[str, bytearray],
        namespace: dict[str, Any],
    ) -> None:
        self.lost: dict[str, str] = {}
        self._stream, self._records, self._namespace = stream, records, namespace
        self._skipped: dict[Record, str] = {}
        self._missing: dict[int, str] = {}  # memo entry -> the variable that should have made it
        self._uses: dict[Record, Use] = {}  # filled only once something has failed
        self._buffers = _Buffers(buffers, Counter(digest for record in records for digest in record.buffers))
        self._source = _Source()
        self._unpickler = self._fresh({NAMESPACE: namespace})
        self._source.set(PRELUDE)
        self._unpickler.load()

    def skip(self, record: Record, reason: str) -> None:
        """Do not load this one."""
        self._skipped[record] = reason

    def __iter__(self) -> Iterator[tuple[Record, Any]]:
        for number, record in enumerate(self._records):
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
        place = 1 + sum(self._use(earlier).made for earlier in self._records[:number])  # entry 0 is the namespace
        before = self._unpickler.memo.copy()
        memo = {n: Lost() if n in self._missing else before[n] for n in range(place)}
        self._buffers.expect(record.buffers)
        memo = salvage(self._data(record), self._buffers, {NAMESPACE: self._namespace}, memo)
        for n, value in memo.items():
            if type(value) is Lost:
                self._missing.setdefault(n, record.name)
        known = {str(n): None if type(value) is Lost else value for n, value in memo.items()}
        self._unpickler = self._fresh(known | {NAMESPACE: self._namespace})
        # PROTO 5, then for each entry SHORT_BINUNICODE its number, BINPERSID, MEMOIZE, POP, then NONE, STOP.
        entries = (str(n).encode() for n in range(len(memo)))
        self._source.set(b"\x80\x05" + b"".join(b"\x8c%c%bQ\x940" % (len(n), n) for n in entries) + b"N.")
        self._unpickler.load()
