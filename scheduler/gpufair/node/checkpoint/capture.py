"""Saving a namespace: every variable that can be saved, a reason for each one that cannot, all or nothing on disk."""

from __future__ import annotations

import errno
import re
import sys
import time
import types
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, cast

from gpufair.node.checkpoint import process, surroundings
from gpufair.node.checkpoint.catalogue import sweep
from gpufair.node.checkpoint.coding import Coder, NotReadable
from gpufair.node.checkpoint.deposit import Deposit, QuotaUsedUp
from gpufair.node.checkpoint.errors import CheckpointFailed
from gpufair.node.checkpoint.folder import open_store
from gpufair.node.checkpoint.manifest import MIN_KEY_BYTES, Manifest, Record, versions
from gpufair.node.checkpoint.options import StoreOptions
from gpufair.node.checkpoint.pickler import PRELUDE, SessionPickler
from gpufair.node.checkpoint.reasons import explain
from gpufair.node.checkpoint.sinks import Digests, MemoCounter, OutOfTime, Pieces, Sink
from gpufair.node.checkpoint.storage import Store, valid_id
from gpufair.node.checkpoint.tracker import UNKNOWN, Changes, Tracker
from gpufair.node.checkpoint.views import Devices, Views

EXTRA_BUDGET_BYTES = 64 << 20  # old cell outputs are a convenience; they must not double a checkpoint

# Names that Python and IPython keep in the namespace for themselves; all begin with an underscore.
_OWNED = re.compile(
    r"_+|_\d+|_i{1,3}|_i\d+|_(oh|dh|ih|sh|exit_code)|__session__|__vsc_ipynb_file__"
    r"|__(name|doc|package|loader|spec|builtins?|file|annotations)__"
)


@dataclass(frozen=True, slots=True)
class SaveResult:
    """What was saved.

    Attributes:
        size_bytes: What a restore brings back.
        lost: (name, reason) of the variables that are not in the checkpoint.
        written_bytes: What this save added to the store; the rest was there.
        torn: Why the values may not belong together; empty if nothing speaks against it.
        notes: (name, text) of those that are, and will not be quite what they were.
    """

    id: str
    sequence: int
    size_bytes: int
    duration_s: float
    saved: tuple[str, ...]
    lost: tuple[tuple[str, str], ...]
    written_bytes: int = 0
    torn: str = ""
    notes: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Captured:
    """One pass over the variables."""

    records: list[Record] = field(default_factory=list)
    buffers: list[memoryview] = field(default_factory=list)
    buffers_of: list[range] = field(default_factory=list)  # for each record, which of ``buffers``
    failed: dict[str, str] = field(default_factory=dict)
    failed_extras: set[str] = field(default_factory=set)
    notes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def used(self) -> list[int]:
        """Which of ``buffers`` records ask for, in order."""
        return [number for numbers in self.buffers_of for number in numbers]


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
    options: StoreOptions | None = None,
    tracker: Tracker | None = None,
    store: Store | None = None,
) -> SaveResult:
    """Save the variables of ``namespace`` as checkpoint ``id``.

    Call it where no cell runs, in the thread that runs the cells. If other threads of the user's are alive, a change
    that they make meanwhile is noticed, and the checkpoint says so (``torn``).

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
        options: Rules of the store.
        tracker: The session's own, kept from save to save: with it, what has not changed is not read again.
        store: For tests; by default the one that ``directory`` names.

    Raises:
        CheckpointFailed: Nothing was saved (a full disk, say). Earlier checkpoints are whole.
    """
    began = time.monotonic()
    if not valid_id(id):
        raise CheckpointFailed(id, "its name may hold letters, digits and ._- only, and at most 128 of them")
    if len(key) < MIN_KEY_BYTES:
        raise CheckpointFailed(id, f"the key has {len(key)} bytes and must have {MIN_KEY_BYTES} at least")
    options, tracker = options or StoreOptions(), tracker or Tracker(track=False)
    try:
        coder = Coder(key, options)
        store = store or open_store(directory)
        store.create(id)
    except (OSError, ImportError, ValueError, NotReadable) as err:
        if store is not None:
            store.release(id)
        raise CheckpointFailed(id, _told(err, directory)) from err
    others = process.user_threads()
    around = surroundings.current()
    try:
        tracker.memory.begin()
        with Deposit(store, coder, tracker.memory, options) as deposit:
            captured, lost, stream = _capture(deposit, namespace, hidden, [*process.extras(), *extras], unsavable or {})
            records, buffers = _put_buffers(deposit, captured)
        fingerprints = Tracker.fingerprints(records, buffers)
        torn = ""
        if others and (changed := _changed(namespace, records, buffers, hidden, lost, tracker)):
            torn = f"{changed} changed while it was saved; {len(others)} other threads were running ({others[0]})"
        manifest = Manifest(
            id=id,
            sequence=sequence,
            created_s=time.time(),
            versions=versions(),
            stream=stream,
            records=records,
            buffers=buffers,
            pieces=deposit.pieces,
            lost=tuple(lost.items()),
            notes=tuple(captured.notes),
            cwd=around.cwd,
            sys_path=around.sys_path,
            meta=dict(meta),
            torn=torn,
            environment=around.environment,
            withheld=around.withheld,
            settings=around.settings,
        )
        sealed = manifest.sealed(key, coder)
        store.publish(id, sealed)
        tracker.saved(fingerprints, lost.keys() - (unsavable or {}).keys(), around)
    except BaseException as err:
        with suppress(OSError):  # without its manifest it counts as absent
            store.remove(id)
            store.release(id)
            sweep(directory, key, store=store)  # what it has written may be what fills the disk
        if isinstance(err, OSError | MemoryError):
            raise CheckpointFailed(id, _told(err, directory)) from err
        raise
    finally:
        tracker.memory.end()
        store.release(id)
    saved = tuple(record.name for record in records if record.kind == "variable")
    return SaveResult(
        id,
        sequence,
        manifest.size_bytes,
        time.monotonic() - began,
        saved,
        tuple(lost.items()),
        deposit.written_bytes + len(sealed),
        torn,
        manifest.notes,
    )


def changes(
    namespace: dict[str, Any],
    tracker: Tracker,
    *,
    hidden: frozenset[str] = frozenset(),
    unsavable: Collection[str] = (),
    within_s: float | None = None,
) -> Changes:
    """What has changed since the last checkpoint that was saved or loaded with this ``tracker``.

    Call it where ``save`` may be called. Never says "unchanged" by guess: small objects are pickled and compared, large
    buffers are known by the page tables (or a checksum) to be as they were. Variables that cannot be saved are left out.

    Args:
        unsavable: Variables to leave out, as in ``save``.
        within_s: Stop then; what was not reached is ``unknown``.
    """
    with process.no_collection():  # to the end of all that a look makes: left alive, it would be gone through at once
        return _changes(namespace, tracker, hidden, unsavable, within_s)


def _changes(
    namespace: dict[str, Any],
    tracker: Tracker,
    hidden: frozenset[str],
    unsavable: Collection[str],
    within_s: float | None,
) -> Changes:
    began = time.monotonic()
    deadline = None if within_s is None else began + within_s
    variables = [variable for variable in _candidates(namespace, hidden) if variable[0] not in unsavable]
    if tracker.last is None:
        return Changes(tuple(name for name, _ in variables), (), time.monotonic() - began)
    seen = _look(namespace, [v for v in variables if v[0] not in tracker.lost], deadline, "nothing")
    now = tracker.look(seen.records, seen.buffers_of, seen.buffers, read=False, deadline=deadline)
    if now == tracker.last and len(now) == len(variables):  # as mostly, and known at once
        return Changes((), (), time.monotonic() - began, surroundings.current() != tracker.surroundings)
    still = set()
    with suppress(OutOfTime):
        for variable in variables:  # by themselves: a failure leaves the memo in disorder
            if variable[0] in tracker.lost:
                views = Views([variable[1]], "nothing")
                if _pass(Digests(deadline), namespace, [variable], [], views=views).records:
                    seen.failed[variable[0]] = "can be saved by now"
                else:
                    still.add(variable[0])
    reached = {**now, **seen.failed}
    last = tracker.last | dict.fromkeys(tracker.lost - still, "")
    known = {name for name in reached if now.get(name) != UNKNOWN} | still
    unknown = [name for name, _ in variables if name not in known]
    return Changes(
        changed=tuple(
            name
            for name in {**reached, **last}
            if name not in unknown and (name in seen.failed or now.get(name) != last.get(name))
        ),
        unknown=tuple(unknown),
        surroundings=surroundings.current() != tracker.surroundings,
        taken_s=time.monotonic() - began,
    )


def _told(err: BaseException, directory: str) -> str:
    if isinstance(err, QuotaUsedUp):
        return str(err.strerror)
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
        if isinstance(name, str) and name not in hidden and not (name.startswith("_") and _OWNED.fullmatch(name))
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
    deposit: Deposit,
    namespace: dict[str, Any],
    hidden: frozenset[str],
    extras: list[tuple[str, object]],
    unsavable: Mapping[str, str],
) -> tuple[_Captured, dict[str, str], tuple[str, ...]]:
    """Pickle what can be pickled, and put the stream into the store.

    Optimistic: usually nothing fails and one pass is enough. After a failure the memo holds halves of objects, so the
    pass only goes on to find the other failures, and the next one leaves all of those out. The same where it turns out
    that arrays share memory.
    """
    variables = _candidates(namespace, hidden)
    lost: dict[str, str] = {name: unsavable[name] for name, _ in variables if name in unsavable}
    dropped: set[str] = set()
    views = Views(value for _, value in variables)
    while True:
        sink = Pieces(deposit)
        captured = _pass(
            sink,
            namespace,
            [item for item in variables if item[0] not in lost],
            [item for item in extras if item[0] not in dropped],
            views=views,
        )
        if not captured.failed and not captured.failed_extras and not views.missed():
            return captured, lost, sink.digests()
        lost |= captured.failed
        dropped |= captured.failed_extras


def _look(
    namespace: dict[str, Any],
    variables: list[tuple[str, object]],
    deadline: float | None = None,
    devices: Devices = "copy",
) -> _Captured:
    """The passes of a save, to be compared and not kept; until the deadline, if there is one."""
    views = Views((value for _, value in variables), devices)
    again = True
    while again:
        seen, again = _Captured(), False
        with suppress(OutOfTime):
            _pass(Digests(deadline), namespace, variables, [], seen, views)
            again = views.missed()
    return seen


def _pass(
    sink: Sink,
    namespace: dict[str, Any],
    variables: list[tuple[str, object]],
    extras: list[tuple[str, object]],
    done: _Captured | None = None,
    views: Views | None = None,
) -> _Captured:
    """Pickle all once, into ``done``: what was complete when the sink gave up is there."""
    done = done or _Captured()
    sink.write(PRELUDE)
    views = views or Views(value for _, value in variables)
    views.forget()
    pickler = SessionPickler(cast("IO[bytes]", sink), namespace, views)
    memo, entry = MemoCounter(pickler, sink), cast("int | None", 1)  # entry 0 is the namespace
    done.buffers = pickler.buffers
    extra_from = -1
    with process.no_collection(), warnings.catch_warnings():
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
            fingerprint = sink.end_record()
            done.records.append(Record(kind, name, start, sink.size - start, entry, (), fingerprint))
            entry = memo.count() if sink.ended else None
            done.buffers_of.append(range(first, len(pickler.buffers)))
            if notes := pickler.shared.take_notes():
                done.notes += [(name, text) for text in notes]
    return done


def _put_buffers(deposit: Deposit, captured: _Captured) -> tuple[tuple[Record, ...], tuple[tuple[str, ...], ...]]:
    """Put the buffers that are used into the store."""
    under_way = [deposit.buffer(captured.buffers[number]) for number in captured.used]
    buffers = tuple(tuple(done.result() for done in parts) for parts in under_way)
    records, at = [], 0
    for record, numbers in zip(captured.records, captured.buffers_of, strict=True):
        records.append(record._replace(buffers=tuple(range(at, at + len(numbers)))))
        at += len(numbers)
    return tuple(records), buffers


def _changed(
    namespace: dict[str, Any],
    records: tuple[Record, ...],
    buffers: tuple[tuple[str, ...], ...],
    hidden: frozenset[str],
    lost: dict[str, str],
    tracker: Tracker,
) -> str:
    """The first variable that is not what it was when it was saved, empty if all are."""
    again = _look(namespace, [v for v in _candidates(namespace, hidden) if v[0] not in lost])
    was = Tracker.fingerprints(records, buffers)
    now = tracker.look(again.records, again.buffers_of, again.buffers, read=True)
    names = [*again.failed, *(name for name in {**was, **now} if was.get(name) != now.get(name))]
    return names[0] if names else ""
