"""What the last checkpoint of a session saw, so that the next one reads and writes only what has changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gpufair.node.checkpoint.manifest import Record
from gpufair.node.checkpoint.memory import Memory, digest_of, pieces
from gpufair.node.checkpoint.surroundings import Surroundings

UNKNOWN, _CHANGED = "unknown", "changed"


@dataclass(frozen=True, slots=True)
class Changes:
    """What is known of the variables since the last checkpoint.

    Attributes:
        changed: Those that differ, are new or are gone; large buffers that were written count without a look at what.
        unknown: Those that could not be looked at in the time given: any of them may have changed.
        taken_s: What it cost to find out.
        surroundings: Whether what the session has beside its variables differs: see ``surroundings``.
    """

    changed: tuple[str, ...]
    unknown: tuple[str, ...]
    taken_s: float
    surroundings: bool = False

    @property
    def none(self) -> bool:
        """Whether it is certain that nothing has changed."""
        return not self.changed and not self.unknown and not self.surroundings


class Tracker:
    """One per session, for the life of its process. Give it to every ``save``, ``load`` and ``look_for_changes``.

    Attributes:
        memory: What is known of its large buffers.
        last: The fingerprint of each variable in the last checkpoint; None before the first one.
        lost: Those that could not be saved in it.
        surroundings: What else it holds.
    """

    def __init__(self, *, track: bool = True) -> None:
        """``track``: False for a single save, after which nobody asks what has changed."""
        self.memory = Memory(track=track)
        self.last: dict[str, str] | None = None
        self.lost: frozenset[str] = frozenset()
        self.surroundings: Surroundings | None = None

    def close(self) -> None:
        """Let go of the memory that is watched: another tracker of the same process cannot watch it before."""
        self.memory.close()

    def saved(self, fingerprints: dict[str, str], lost: Collection[str], surroundings: Surroundings) -> None:
        """A checkpoint with these is complete, without those."""
        self.last, self.lost, self.surroundings = fingerprints, frozenset(lost), surroundings

    @staticmethod
    def fingerprints(records: Sequence[Record], buffers: Sequence[tuple[str, ...]]) -> dict[str, str]:
        """The fingerprint of each variable: of its pickle and of all its buffers."""
        return {
            record.name: _of(record, [digest for number in record.buffers for digest in buffers[number]])
            for record in records
            if record.kind == "variable"
        }

    def look(
        self,
        records: Sequence[Record],
        buffers_of: Sequence[range],
        buffers: Sequence[memoryview],
        *,
        read: bool,
        deadline: float | None = None,
    ) -> dict[str, str]:
        """The fingerprints now.

        Args:
            read: Digest the buffers of which it is not known whether they have changed. Otherwise their variables have
                no fingerprint but ``UNKNOWN``, or another word if they have certainly been written to.
            deadline: (monotonic) The rest is ``UNKNOWN``.
        """
        trusted = self.memory.tracking
        found = {}
        for record, numbers in zip(records, buffers_of, strict=True):
            if record.kind != "variable":
                continue
            if not numbers:
                found[record.name] = record.fingerprint
                continue
            digests: list[str] = []
            for piece in (piece for number in numbers for piece in pieces(buffers[number])):
                if deadline is not None and time.monotonic() > deadline:
                    digests = [UNKNOWN]
                    break
                digest = self.memory.digest(piece, trusted=trusted)
                if not digest and read:
                    digest = digest_of(piece)
                if not digest:
                    digests = [UNKNOWN if digest is None and not trusted else _CHANGED]
                    break
                digests.append(digest)
            found[record.name] = digests[0] if digests in ([UNKNOWN], [_CHANGED]) else _of(record, digests)
        return found


def _of(record: Record, digests: list[str]) -> str:
    return (
        hashlib.sha256(" ".join([record.fingerprint, *digests]).encode()).hexdigest() if digests else record.fingerprint
    )
