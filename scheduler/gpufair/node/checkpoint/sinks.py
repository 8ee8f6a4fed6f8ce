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
        error: What stopped the writing, if that was no fault of a variable.
    """

    size: int
    error: Exception | None
    aside: bytearray | None

    def write(self, data: Any) -> int: ...

    def discard(self) -> None:
        """From now on do nothing but count."""

    def end_record(self) -> str:
        """The sha256 of what was written since the last call."""


class Digests:
    """Keeps nothing but digests."""

    def __init__(self, deadline: float | None = None) -> None:
        """``deadline`` (monotonic): give up then, with ``OutOfTime``."""
        self.size = 0
        self.error: Exception | None = None
        self.aside: bytearray | None = None
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
        self._digest.update(data)
        return size

    def discard(self) -> None:
        """Go on: counting costs little."""

    def end_record(self) -> str:
        """See ``Sink``."""
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
        if self._deposit is not None and len(self._piece) >= _ENOUGH_BYTES:
            self._put()
        return super().end_record()

    def digests(self) -> tuple[str, ...]:
        """The pieces, all of them written."""
        if self._piece:
            self._put()
        return tuple(done.result() for done in self._done)


class MemoCounter:
    """How many entries the memo of a pickler has, which it does not tell.

    A fresh object is pickled twice: the second time the pickler writes under which number it has the first. The reader
    makes an entry for each of these objects as well (``ENTRY``).
    """

    ENTRY = pickle.dumps([], protocol=5)

    def __init__(self, pickler: pickle.Pickler, sink: Sink) -> None:
        self.next = 1  # entry 0 is the namespace
        self._pickler, self._sink = pickler, sink

    def count(self) -> None:
        """Set ``next`` to the entry that the next object will make."""
        counted: list[Any] = []
        self._sink.aside = told = bytearray()
        try:
            self._pickler.dump(counted)
            told.clear()
            self._pickler.dump(counted)
        finally:
            self._sink.aside = None
        at = 11 if told[2] == _FRAME else 2  # PROTO 5, perhaps FRAME with its length, then BINGET or LONG_BINGET
        self.next = 1 + int.from_bytes(told[at + 1 : -1], "little")
