"""Saving a namespace: every variable that can be saved, a reason for each one that cannot, all or nothing on disk."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import sys
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, BinaryIO, cast

from gpufair.node.checkpoint import process
from gpufair.node.checkpoint.errors import CheckpointFailed
from gpufair.node.checkpoint.manifest import MIN_KEY_BYTES, STREAM, Manifest, Record, buffer_name, versions
from gpufair.node.checkpoint.pickler import PRELUDE, SessionPickler
from gpufair.node.checkpoint.reasons import explain
from gpufair.node.checkpoint.storage import Store, open_store, valid_id
from gpufair.node.checkpoint.views import Views

EXTRA_BUDGET_BYTES = 64 << 20  # old cell outputs are a convenience; they must not double a checkpoint

# Names that Python and IPython keep in the namespace for themselves.
_OWNED = re.compile(
    r"_+|_\d+|_i{1,3}|_i\d+|_(oh|dh|ih|sh|exit_code)|__session__|__vsc_ipynb_file__"
    r"|__(name|doc|package|loader|spec|builtins?|file|annotations)__"
)


@dataclass(frozen=True, slots=True)
class SaveResult:
    """What was saved. ``lost`` are (name, reason) of the variables that are not in the checkpoint."""

    id: str
    sequence: int
    size_bytes: int
    duration_s: float
    saved: tuple[str, ...]
    lost: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Captured:
    """One pass over the variables."""

    records: list[Record] = field(default_factory=list)
    buffers: list[memoryview] = field(default_factory=list)
    buffers_of: list[range] = field(default_factory=list)  # for each record, which of ``buffers``
    failed: dict[str, str] = field(default_factory=dict)
    failed_extras: set[str] = field(default_factory=set)
    stream_size: int = 0
    stream_sha256: str = ""


def save(
    namespace: dict[str, Any],
    *,
    directory: str,
    id: str,  # noqa: A002 - the word of the wire
    sequence: int,
    key: bytes,
    meta: Mapping[str, Any],
    hidden: frozenset[str] = frozenset(),
    extras: Sequence[tuple[str, object]] = (),
    unsavable: Mapping[str, str] | None = None,
    store: Store | None = None,
) -> SaveResult:
    """Save the variables of ``namespace`` as checkpoint ``id``.

    Call it where no cell runs, in the thread that runs the cells: what another thread changes meanwhile is torn.

    Args:
        namespace: The live globals of the session. Not changed.
        directory: Folder of this session's checkpoints, or a URL that fsspec knows.
        id: Name of the checkpoint: letters, digits, ``._-``, at most 128.
        sequence: Number of the checkpoint; of two valid ones the larger is the newer.
        key: Signs it; at least 16 bytes.
        meta: JSON-able facts of the caller, given back by ``load``.
        hidden: Names to leave out without a word (those that the shell defined).
        extras: Objects of the caller's own, (name, object), given back by ``load``. Saved after the variables and with
            their identities, in order, as long as they fit into ``EXTRA_BUDGET_BYTES``.
        unsavable: Variables that the caller knows not to be savable, with the reasons.
        store: For tests; by default the one that ``directory`` names.

    Raises:
        CheckpointFailed: Nothing was saved (a full disk, say). No trace of it is left, earlier checkpoints are whole.
    """
    began = time.monotonic()
    if not valid_id(id):
        raise CheckpointFailed(id, "its name may hold letters, digits and ._- only, and at most 128 of them")
    if len(key) < MIN_KEY_BYTES:
        raise CheckpointFailed(id, f"the key has {len(key)} bytes and must have {MIN_KEY_BYTES} at least")
    try:
        store = store or open_store(directory)
        store.create(id)
    except (OSError, ImportError, ValueError) as err:
        raise CheckpointFailed(id, _told(err, directory)) from err
    try:
        captured, lost = _capture(store, id, namespace, hidden, [*process.generators(), *extras], unsavable or {})
        records, sizes = _write_buffers(store, id, captured)
        manifest = Manifest(
            id=id,
            sequence=sequence,
            created_s=time.time(),
            versions=versions(),
            stream_size=captured.stream_size,
            stream_sha256=captured.stream_sha256,
            records=tuple(records),
            buffers=sizes,
            lost=tuple(lost.items()),
            cwd=process.working_directory(),
            sys_path=tuple(str(entry) for entry in sys.path),
            meta=dict(meta),
        )
        sealed = manifest.sealed(key)
        store.publish(id, sealed)
    except BaseException as err:
        with suppress(OSError):  # without its manifest it counts as absent; the next prune clears it away
            store.remove(id)
        if isinstance(err, OSError | MemoryError):
            raise CheckpointFailed(id, _told(err, directory)) from err
        raise
    finally:
        store.release(id)
    saved = tuple(record.name for record in records if record.kind == "variable")
    return SaveResult(
        id, sequence, manifest.size_bytes + len(sealed), time.monotonic() - began, saved, tuple(lost.items())
    )


def _told(err: BaseException, directory: str) -> str:
    if isinstance(err, OSError) and err.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        full = "the quota is used up" if err.errno == errno.EDQUOT else "there is no space left"
        return f"{full} in {directory}; free space there, or delete large variables"
    if isinstance(err, MemoryError):
        return "there was not enough memory; delete large variables"
    return f"{directory}: {getattr(err, 'strerror', None) or err}"


def _candidates(namespace: dict[str, Any], hidden: frozenset[str]) -> list[tuple[str, object]]:
    """The variables to save, in the order in which they must be loaded.

    Plain data first: should an object later in the order not load elsewhere, it takes nothing with it that was
    already there. Then modules, classes and functions, because ``__setstate__`` of an object may use them.
    """
    items = cast("list[tuple[Any, object]]", list(namespace.items()))  # globals()[5] = ... is legal
    chosen = [
        (name, value)
        for name, value in items
        if isinstance(name, str) and name not in hidden and not _OWNED.fullmatch(name)
    ]
    return sorted(chosen, key=lambda item: _rank(item[1]))


_PLAIN = (int, float, complex, bool, str, bytes, bytearray, type(None))
_CONTAINERS = (list, tuple, dict, set, frozenset)


def _rank(value: object) -> int:
    kind = type(value)
    if kind in _PLAIN or (kind.__module__ == "numpy" and not getattr(getattr(value, "dtype", None), "hasobject", True)):
        return 0
    if kind is types.ModuleType:
        return 1
    if issubclass(kind, type | types.FunctionType):
        return 2
    return 3 if kind in _CONTAINERS else 4


def _capture(
    store: Store,
    checkpoint: str,
    namespace: dict[str, Any],
    hidden: frozenset[str],
    extras: list[tuple[str, object]],
    unsavable: Mapping[str, str],
) -> tuple[_Captured, dict[str, str]]:
    """Pickle what can be pickled.

    Optimistic: usually nothing fails and one pass is enough. After a failure the memo holds halves of objects, so the
    pass only goes on to find the other failures, and the next one leaves all of those out.
    """
    variables = _candidates(namespace, hidden)
    lost: dict[str, str] = {name: unsavable[name] for name, _ in variables if name in unsavable}
    dropped: set[str] = set()
    while True:
        with store.write(checkpoint, STREAM) as file:
            captured = _pass(
                file,
                namespace,
                [item for item in variables if item[0] not in lost],
                [item for item in extras if item[0] not in dropped],
            )
        if not captured.failed and not captured.failed_extras:
            return captured, lost
        lost |= captured.failed
        dropped |= captured.failed_extras


class _Sink:
    """Counts, digests and writes the stream; after ``discard`` it does nothing any more."""

    def __init__(self, file: BinaryIO) -> None:
        self._file: BinaryIO | None = file
        self._digest = hashlib.sha256()
        self.size = 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._file is not None:
            try:
                self._file.write(view)
            except OSError as err:  # a full disk is no variable's fault; the pass ends with it
                self.error = err
                raise
            self._digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def discard(self) -> None:
        self._file = None

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def _pass(
    file: BinaryIO, namespace: dict[str, Any], variables: list[tuple[str, object]], extras: list[tuple[str, object]]
) -> _Captured:
    sink = _Sink(file)
    sink.write(PRELUDE)
    pickler = SessionPickler(cast("IO[bytes]", sink), namespace, Views(value for _, value in variables))
    done = _Captured(buffers=pickler.buffers)
    extra_from = -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside other people's reducers are not the user's cell's
        for kind, name, value in [*(("variable", *v) for v in variables), *(("extra", *e) for e in extras)]:
            start, first = sink.size, len(pickler.buffers)
            if kind == "extra" and extra_from < 0:
                extra_from = start + sum(buffer.nbytes for buffer in pickler.buffers)
            try:
                if kind == "extra" and sys.getsizeof(value) > EXTRA_BUDGET_BYTES:
                    continue
                pickler.last = value
                pickler.dump(value)
            except BaseException as err:  # __reduce__ is the user's code and may raise anything
                if sink.error is not None:
                    raise sink.error from err
                sink.discard()
                if kind == "extra":
                    done.failed_extras.add(name)
                else:
                    done.failed[name] = explain(name, value, pickler.last, err)
                continue
            if kind == "extra" and sink.size + sum(b.nbytes for b in pickler.buffers) - extra_from > EXTRA_BUDGET_BYTES:
                break  # the bytes of this one stay in the stream, unused
            done.records.append(Record(kind, name, start, sink.size - start))
            done.buffers_of.append(range(first, len(pickler.buffers)))
    if not done.failed and not done.failed_extras:
        done.stream_size, done.stream_sha256 = sink.size, sink.hexdigest()
    return done


def _write_buffers(store: Store, checkpoint: str, captured: _Captured) -> tuple[list[Record], dict[str, int]]:
    """Write the buffers that are used, each content once. Digests are computed ahead, in threads."""
    wanted = [number for numbers in captured.buffers_of for number in numbers]
    digests: dict[int, str] = {}
    sizes: dict[str, int] = {}
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1), thread_name_prefix="gpufair-digest") as pool:
        ahead = pool.map(lambda number: hashlib.sha256(captured.buffers[number]).hexdigest(), wanted)
        for number, digest in zip(wanted, ahead, strict=True):
            digests[number] = digest
            if digest not in sizes:
                raw = captured.buffers[number]
                with store.write(checkpoint, buffer_name(digest)) as file:
                    file.write(raw)
                sizes[digest] = raw.nbytes
    records = [
        Record(record.kind, record.name, record.offset, record.size, tuple(digests[n] for n in numbers))
        for record, numbers in zip(captured.records, captured.buffers_of, strict=True)
    ]
    return records, sizes
