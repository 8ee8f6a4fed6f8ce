"""Deciding a journal anew: does this core, on this machine, decide to the byte what was decided then?"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpufair.core import snapshot as core_snapshot
from gpufair.core.errors import GpufairError
from gpufair.core.state import State
from gpufair.core.units import Instant
from gpufair.service.archives.archive_file import Kept
from gpufair.service.storage import codec
from gpufair.service.storage.store import Entry

KEPT_DIFFERENCES = 20  # the rest is counted


class BadSnapshot(GpufairError):
    """A snapshot to begin from cannot be read."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry about which this core decides otherwise.

    Args:
        entry: As it was recorded.
        decided: The actions that were decided now, as the journal would have them; "" if the event was refused.
        error: Why the event, or what was recorded about it, does not fit the state.
    """

    entry: Entry
    decided: str
    error: str = ""

    @property
    def pair(self) -> tuple[Any, Any]:
        """The first action that differs, as recorded and as decided; None stands for no further action."""
        recorded, decided = (_listed(text) for text in (self.entry.actions, self.decided))
        for at in range(max(len(recorded), len(decided))):
            one, other = (each[at] if at < len(each) else None for each in (recorded, decided))
            if one != other:
                return one, other
        return None, None


@dataclass(slots=True)
class Replayed:
    """What came of it. ``differences`` are the first ones; ``differing`` counts all."""

    began_after: int = 0
    events: int = 0
    actions: int = 0
    started_at: Instant | None = None
    ended_at: Instant | None = None
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)  # entries that are not as they were written
    cores: dict[str, int] = field(default_factory=dict)  # versions that decided, with the number of entries
    policies: dict[str, int] = field(default_factory=dict)  # digests of the options in force
    protected_preemptions: int = 0
    stopped: str = ""  # why it ended before the journal did

    @property
    def same(self) -> bool:
        """Whether every decision was recorded as it is decided now, and no entry was changed since."""
        return not (self.differing or self.damaged or self.stopped)


def replay(
    entries: Iterable[Kept],
    start: Mapping[str, Any] | None = None,
    after: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Replayed:
    """Decide each event anew and compare with what was recorded, byte for byte.

    After a difference the recorded decision is taken for granted, so that each difference stands for itself.

    Args:
        entries: All that follow the state it starts from.
        start: A snapshot of that state; None: the empty one.
        after: The entry that the snapshot was taken after.
        progress: Told the number of each entry.

    Raises:
        BadSnapshot: ``start`` cannot be read.
    """
    found = Replayed(began_after=after)
    try:
        state = core_snapshot.restore(start) if start is not None else State()
    except GpufairError as err:
        raise BadSnapshot(f"the snapshot cannot be read: {err}") from err
    # Recorded decisions are applied to one state, and made anew on another, which is the first one's copy after a
    # difference: copying one for each event would take most of the time.
    trial = state.copy()
    for kept in entries:
        entry = kept.entry
        _count(found, kept)
        try:
            event = codec.load_event(entry.event)
        except GpufairError as err:
            _note(found, Difference(entry, "", str(err)))
            found.stopped = f"entry {entry.seq} holds no event that this version knows"
            break
        try:
            decided, error = codec.dump_actions(trial.handle(event)), ""
        except GpufairError as err:
            decided, error = "", f"{type(err).__name__}: {err}"
        try:
            state.recover(event, codec.load_actions(entry.actions))
        except (GpufairError, LookupError, AssertionError, ValueError) as err:
            _note(found, Difference(entry, decided, error or f"what is recorded does not fit the state: {err!r}"))
            found.stopped = f"what entry {entry.seq} records does not fit, so nothing behind it can be compared"
            break
        if error or decided != entry.actions:
            _note(found, Difference(entry, decided, error))
            trial = state.copy()
        if progress is not None:
            progress(entry.seq)
    found.protected_preemptions = state.protected_preemptions
    return found


def _count(found: Replayed, kept: Kept) -> None:
    entry = kept.entry
    found.events += 1
    found.actions += len(_listed(entry.actions))
    found.started_at = Instant(entry.at_ms) if found.started_at is None else found.started_at
    found.ended_at = Instant(entry.at_ms)
    found.cores[entry.core] = found.cores.get(entry.core, 0) + 1
    found.policies[entry.policy] = found.policies.get(entry.policy, 0) + 1
    if kept.intact is False:
        found.damaged.append(entry.seq)


def _note(found: Replayed, difference: Difference) -> None:
    found.differing += 1
    if len(found.differences) < KEPT_DIFFERENCES:
        found.differences.append(difference)


def _listed(text: str) -> list[Any]:
    try:
        value = json.loads(text) if text else []
    except ValueError:
        return [text]  # damaged: shown as it is
    return value if isinstance(value, list) else [value]
