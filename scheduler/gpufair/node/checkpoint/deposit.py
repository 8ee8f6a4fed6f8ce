"""Putting the pieces of one checkpoint into the store, each content once, in threads: digests, copies and writes overlap."""

from __future__ import annotations

import errno
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

from gpufair.node.checkpoint.coding import Coder
from gpufair.node.checkpoint.manifest import Piece
from gpufair.node.checkpoint.memory import PIECE_BYTES, Memory, digest_of, pieces
from gpufair.node.checkpoint.options import StoreOptions
from gpufair.node.checkpoint.storage import Store

# Digesting and waiting for the disk overlap with one thread more than there are processors; each has 8 MiB of its own.
THREADS = min(4, (os.cpu_count() or 1) + 1)
_QUEUED = 2  # pieces of the stream that wait for a thread
_RATE_BYTES = 32 << 20  # what must have been written before a rate means something


class QuotaUsedUp(OSError):
    """A limit of the checkpoint store, not of the disk."""

    def __init__(self, whose: str, limit: int) -> None:
        super().__init__(
            errno.EDQUOT,
            f"the checkpoints of {whose} may take {limit / 2**20:,.0f} MiB, and with this one they would take more; "
            "delete large variables or old checkpoints, or have the limit raised",
        )


@dataclass
class _Limit:
    whose: str
    limit: int
    left: int


class Deposit:
    """See the module. Leave it as a context: that ends its threads."""

    def __init__(self, store: Store, coder: Coder, memory: Memory, options: StoreOptions) -> None:
        self.pieces: dict[str, Piece] = {}
        self.written_bytes = 0
        self._store, self._coder, self._memory = store, coder, memory
        self._present = store.buffers()
        self._limits = _limits(store, options)
        self._trusted = memory.tracking
        self._lock = threading.Lock()
        self._scratch = threading.local()
        self._slots = threading.Semaphore(THREADS + _QUEUED)
        self._began = time.monotonic()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="gpufair-checkpoint")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def stream(self, data: bytearray) -> Future[str]:
        """Put a piece of the stream, which nobody else holds. Waits where too many are under way: they take memory."""
        self._slots.acquire()
        view = memoryview(data)
        done = self._pool.submit(lambda: self._kept(digest_of(view), view, _Choice(self._coder, view)))
        done.add_done_callback(lambda _: self._slots.release())
        return done

    def buffer(self, view: memoryview) -> list[Future[str]]:
        """Put a buffer that the session goes on using."""
        choice = _Choice(self._coder, view)
        return [self._known(piece) or self._pool.submit(self._new, piece, choice) for piece in pieces(view)]

    def _known(self, piece: memoryview) -> Future[str] | None:
        """Nothing to do for what has not changed and is there."""
        digest = self._memory.digest(piece, trusted=self._trusted)
        if not digest:
            return None
        with self._lock:
            if digest not in self.pieces:
                found = self._coder.found(digest, piece.nbytes, self._present)
                if found is None:
                    return None
                self.pieces[digest] = Piece(piece.nbytes, found[1], found[0])
        done: Future[str] = Future()
        done.set_result(digest)
        return done

    def _new(self, piece: memoryview, choice: _Choice) -> str:
        scratch = getattr(self._scratch, "bytes", None)
        if scratch is None:
            scratch = self._scratch.bytes = memoryview(bytearray(PIECE_BYTES))
        copy = scratch[: piece.nbytes]
        return self._kept(self._memory.learn(piece, copy, trusted=self._trusted), copy, choice)

    def _kept(self, digest: str, data: memoryview, choice: _Choice) -> str:
        with self._lock:
            if digest in self.pieces:
                return digest
            found = self._coder.found(digest, data.nbytes, self._present)
            # Entered before it is written: another thread with the same content need not write it. Should the write
            # fail, the whole checkpoint does.
            self.pieces[digest] = Piece(data.nbytes, found[1] if found else 0, found[0] if found else "")
        if found is None:
            coding, stored = self._coder.encode(data, compress=choice.compress)
            size = len(stored)
            with self._lock:
                for limit in self._limits:
                    limit.left -= size
                    if limit.left < 0:
                        raise QuotaUsedUp(limit.whose, limit.limit)
            self._store.put(self._coder.name(digest, coding), stored)
            with self._lock:
                self.pieces[digest] = Piece(data.nbytes, size, coding)
                self.written_bytes += size
                if self.written_bytes >= _RATE_BYTES:
                    self._coder.write_bytes_s = self.written_bytes / (time.monotonic() - self._began)
        return digest


class _Choice:
    """Whether a buffer is compressed: found out once, when the first new piece of it is written."""

    def __init__(self, coder: Coder, view: memoryview) -> None:
        self._coder, self._view, self._lock = coder, view, threading.Lock()
        self._compress: bool | None = None

    @property
    def compress(self) -> bool:
        with self._lock:
            if self._compress is None:
                self._compress = self._coder.pays(self._view)
            return self._compress


def _limits(store: Store, options: StoreOptions) -> list[_Limit]:
    """What may still be written."""
    given = (("this session", options.session_bytes, False), ("this user", options.user_bytes, True))
    return [_Limit(whose, most, most - store.used_bytes(by_user=by_user)) for whose, most, by_user in given if most]
