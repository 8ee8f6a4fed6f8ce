"""Where the pickler's stream goes: into the store piece by piece, or nowhere, only to be compared."""

from __future__ import annotations

import hashlib
import pickle
import time
from concurrent.futures import Future
from typing import Any, Protocol

from gpufair.node.checkpoint.deposit import Deposit
from gpufair.node.checkpoint.memory import PIECE_BYTES

# A piece ends with a record once it is so large: a later change of a variable leaves the pieces before it as they are.
_ENOUGH_BYTES = 256 << 10
_FRAME = 0x95


class OutOfTime(Exception):
    """The time for a look at all variables is over."""


class Sink(Protocol):
    """A file for the pickler.

    Attributes:
        size: Bytes written so far.
        ended: Whether a piece has ended in or with the last record.
        aside: Where to write to instead, if anywhere.
        error: What stopped the writing, if that was no fault of a variable.
    """

    size: int
    error: Exception | None
    ended: bool
    aside: bytearray | None

    def write(self, data: Any) -> int: ...

    def discard(self) -> None:
        """From now on do nothing but count."""

    def end_record(self) -> str:
        """The sha256 of what was written since the last call. A piece may end with it (``ended``)."""


class Digests:
    """Keeps nothing but digests."""

    def __init__(self, deadline: float | None = None) -> None:
        """``deadline`` (monotonic): give up then, with ``OutOfTime``."""
        self.size = 0
        self.error: Exception | None = None
        self.aside: bytearray | None = None
        self.ended = False
        self._held = 0  # bytes of the current piece
        self._deadline = deadline
        self._digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        """Count and digest."""
        if self.aside is not None:
            self.aside += data
            return len(data)
        if self._deadline is not None and time.monotonic() > self._deadline:
            self.error = OutOfTime()
            raise self.error
        size = len(data) if type(data) is bytes else memoryview(data).nbytes
        self.size += size
        self._held += size
        self._digest.update(data)
        return size

    def discard(self) -> None:
        """Go on: counting costs little."""

    def end_record(self) -> str:
        """See ``Sink``. Where a piece ends depends on nothing but sizes, so that streams can be compared."""
        self.ended = self._held >= _ENOUGH_BYTES
        if self.ended:
            self._held = 0
        digest, self._digest = self._digest.hexdigest(), hashlib.sha256()
        return digest


class Pieces(Digests):
    """Puts the stream into the store while it is written."""

    def __init__(self, deposit: Deposit) -> None:
        super().__init__()
        self._deposit: Deposit | None = deposit
        self._piece = bytearray()
        self._done: list[Future[str]] = []

    def write(self, data: Any) -> int:
        """Count, digest and put."""
        size = super().write(data)
        if self._deposit is not None and self.aside is None:
            view = memoryview(data).cast("B")
            while len(self._piece) + len(view) >= PIECE_BYTES:
                part = PIECE_BYTES - len(self._piece)
                self._piece += view[:part]
                view = view[part:]
                self._put()
            self._piece += view
        return size

    def _put(self) -> None:
        assert self._deposit is not None
        for done in self._done:
            if done.done() and (err := done.exception()) is not None:
                self.error = err if isinstance(err, Exception) else None  # a full disk is no variable's fault
                raise err
        self._done.append(self._deposit.stream(self._piece))
        self._piece = bytearray()

    def discard(self) -> None:
        """See ``Sink``: a pass that has failed only looks for the other failures."""
        self._deposit = None

    def end_record(self) -> str:
        """See ``Sink``; ends a piece, too, if it is large enough."""
        digest = super().end_record()
        if self.ended and self._piece and self._deposit is not None:
            self._put()
        return digest

    def digests(self) -> tuple[str, ...]:
        """The pieces, all of them written."""
        if self._piece:
            self._put()
        return tuple(done.result() for done in self._done)


def _twice(thing: object) -> bytes:
    return pickle.dumps((thing, thing), protocol=5)


class MemoCounter:
    """How many entries the memo of a pickler has, which it does not tell.

    A fresh object is pickled twice in one tuple: the second time the pickler writes under which number it has the
    first. The reader makes the same entries (``ENTRY``).
    """

    ENTRY = _twice([])

    def __init__(self, pickler: pickle.Pickler, sink: Sink) -> None:
        self._pickler, self._sink = pickler, sink

    def count(self) -> int:
        """The entry that the next object will make."""
        fresh: list[Any] = []
        self._sink.aside = told = bytearray()
        try:
            self._pickler.dump((fresh, fresh))
        finally:
            self._sink.aside = None
        at = 11 if told[2] == _FRAME else 2  # PROTO 5, perhaps FRAME with its length
        # EMPTY_LIST, MEMOIZE, then BINGET or LONG_BINGET with the number, then TUPLE2, MEMOIZE, STOP
        return 2 + int.from_bytes(told[at + 3 : -3], "little")
