"""From the journal back to the state: the last snapshot, then every entry after it, as it was decided then."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from gpufair.core import snapshot as core_snapshot
from gpufair.core.errors import GpufairError
from gpufair.core.state import State
from gpufair.core.units import Instant, WorkloadId
from gpufair.service.storage import codec, stays
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.store import Loaded, Snapshot, StoreError
from gpufair.service.workloads.details import Detail

_AT_ONCE: Final = 64  # workloads as text: about a millisecond
SINCE_KEY: Final = "stays-since"  # Unix milliseconds from which on all stays are known


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a start begins with."""

    state: State
    details: dict[WorkloadId, Detail]
    snapshot_seq: int
    last_at: Instant


async def rebuild(journal: Journal, validate: bool = False) -> Recovered:
    """The state of the journal.

    Raises:
        StoreError: An entry is damaged, or was written by a version that this one can't follow; the text names it.
        StoreUnavailable: The journal can't be read.
    """
    return recover(await journal.load(), validate)


def recover(loaded: Loaded, validate: bool = False) -> Recovered:
    """The state of what was loaded. Nothing is decided anew.

    Raises:
        StoreError: As of ``rebuild``.
    """
    with _nothing_collected():
        return _recovered(loaded, validate)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """A whole state is made and nothing thrown away: to look for garbage again and again takes a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _recovered(loaded: Loaded, validate: bool) -> Recovered:
    state = _begin(loaded.snapshot, validate)
    for entry in loaded.tail:
        try:
            state.recover(codec.load_event(entry.event), codec.load_actions(entry.actions))
        except GpufairError as err:
            raise StoreError(
                f"journal entry {entry.seq} (written by gpufair {entry.core}) does not fit: {err}; "
                "use the version that wrote it, or restore the journal from a backup"
            ) from err
    # They could only be dropped now: what follows an older snapshot may still name them.
    state.drop(WorkloadId(workload) for workload in loaded.gone)
    details: dict[WorkloadId, Detail] = {}
    for workload, detail in loaded.details.items():
        try:
            details[WorkloadId(workload)] = Detail.from_dict(detail)
        except (TypeError, KeyError) as err:
            raise StoreError(f"the details of workload {workload!r} in the journal are damaged: {err}") from err
    seq = loaded.snapshot.seq if loaded.snapshot else 0
    return Recovered(state, details, seq, state.now)


async def agree_on_stays(journal: Journal, state: State) -> None:
    """Have stays agree with the state of a journal that was read.

    Raises:
        StoreUnavailable: The journal can't be read or written.
    """
    holding = [state.workload(one) for one in state.facts.holding]
    differed = await journal.within(partial(stays.reconcile, holding=holding))
    if differed or await journal.meta(SINCE_KEY) is None:
        await journal.set_meta(SINCE_KEY, str(state.now))


def take_snapshot(state: State, seq: int, breathe: Callable[[], object] = lambda: None) -> Snapshot:
    """The state after entry ``seq``. To be called in a thread, on a copy.

    Args:
        breathe: Called after each millisecond or so of work, to leave others something of the interpreter. There is a second
            of work in a large lab: a thread that took half of a Python which has enough to do made everybody wait.
    """
    plain = core_snapshot.snapshot(state, breathe)
    texts: list[str] = []
    for workload in plain.pop("workloads"):
        if len(texts) % _AT_ONCE == 0:
            breathe()
        texts.append(_text(workload))
    return Snapshot.of(seq, state.now, f'{{"workloads":[{",".join(texts)}],{_text(plain)[1:]}')


def _text(plain: object) -> str:
    return json.dumps(plain, separators=(",", ":"))


def _begin(snapshot: Snapshot | None, validate: bool) -> State:
    if snapshot is None:
        # Never the configured options: those are journalled as the first event, so that a recovery repeats exactly.
        return State(validate=validate)
    try:
        return core_snapshot.restore(json.loads(snapshot.text()), validate)
    except (GpufairError, ValueError) as err:
        raise StoreError(
            f"the snapshot after journal entry {snapshot.seq} cannot be read ({err}); "
            "use the version of gpufair that wrote it, or restore the journal from a backup"
        ) from err
