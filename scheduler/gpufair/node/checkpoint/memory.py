"""Which large buffers still hold what they held at the last checkpoint, without reading them where that can be known.

The answer is never a guess. A buffer counts as unchanged if the page tables say that none of its pages was written (see
``written``; the parts of pages at its two ends are compared), or, where they cannot say, if a keyed checksum of all its
bytes is the same. Failing both it is read and digested again.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from bisect import bisect_left, insort
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from gpufair.node.checkpoint.written import PAGE, WrittenPages, address_of

PIECE_BYTES = 8 << 20  # a change of one byte costs the digest and the write of so much
# The ends of tracked pieces are kept: at most two pages each, so this bounds the memory (to 32 MiB, mostly to half).
_MAX_TRACKED = 4096

Checksum = Callable[[memoryview], bytes]


@dataclass(slots=True)
class _Piece:
    digest: str
    first: int = 0  # pages that are tracked, and what the ends beside them hold
    last: int = 0
    head: bytes = b""
    tail: bytes = b""
    checksum: bytes | None = None
    seen: bool = True


def pieces(view: memoryview) -> list[memoryview]:
    """A buffer in the pieces in which it is stored."""
    if view.nbytes <= PIECE_BYTES:
        return [view] if view.nbytes else []
    return [view[at : at + PIECE_BYTES] for at in range(0, view.nbytes, PIECE_BYTES)]


def digest_of(view: memoryview) -> str:
    """The name of a content: sha256, in hex."""
    return hashlib.sha256(view).hexdigest()


def keyed_checksum() -> Checksum | None:
    """GMAC under a random key: at 4 GiB/s a sound witness of equality. None without the package cryptography."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an optional extra
    except ImportError:
        return None
    key, nonce = secrets.token_bytes(16), bytes(12)  # one nonce: all tags stay in this process
    return lambda view: AESGCM(key).encrypt(nonce, b"", view)  # one object for several threads is promised nowhere


class Memory:
    """What is known of the buffers of one session. Belongs to one process; threads may share it."""

    def __init__(self, *, track: bool = True) -> None:
        """``track``: use the page tables where the kernel lets us."""
        self._pages: WrittenPages | None = None
        if track:
            with suppress(OSError):
                self._pages = WrittenPages()
        self._checksum: Checksum | None = None
        self._asked_checksum = False
        self._known: dict[tuple[int, int], _Piece] = {}
        self._ranges: list[tuple[int, int]] = []  # tracked pages, sorted; they never overlap
        self._lock = threading.Lock()

    def close(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._ranges.clear()
        if self._pages is not None:
            self._pages.close()
            self._pages = None

    @property
    def tracking(self) -> bool:
        """Whether changes are found without reading."""
        return self._pages is not None and self._pages.trusted

    def by_pages(self, view: memoryview) -> bool:
        """Whether a piece is watched by the page tables."""
        piece = self._known.get((address_of(view), view.nbytes))
        return piece is not None and piece.checksum is None

    def begin(self) -> None:
        """A new look at all buffers begins; what is not asked for until ``end`` is forgotten."""
        for piece in self._known.values():
            piece.seen = False

    def end(self) -> None:
        """See ``begin``. Not for tidiness only: what nobody asks about may be freed and become something else."""
        with self._lock:
            for key in [key for key, piece in self._known.items() if not piece.seen]:
                self._forget(key)

    def digest(self, view: memoryview, *, trusted: bool) -> str | None:
        """The digest of a piece if it is known and still holds; empty if the piece has changed; None if not known.

        Args:
            view: One of ``pieces``.
            trusted: ``tracking``, asked for once per look: it costs 0.3 ms.
        """
        key = (address_of(view), view.nbytes)
        piece = self._known.get(key)
        if piece is None:
            return None
        piece.seen = True
        if self._still(piece, view, key, trusted=trusted):
            return piece.digest
        with self._lock:
            self._forget(key)
        return ""

    def _still(self, piece: _Piece, view: memoryview, key: tuple[int, int], *, trusted: bool) -> bool:
        if piece.checksum is not None:
            checksum = self._fast()
            return checksum is not None and checksum(view) == piece.checksum
        if self._pages is None or not trusted:
            return False
        if not self._pages.untouched(piece.first, piece.last):
            return False
        start, size = key
        head, tail = piece.first - start, start + size - piece.last
        # As bytes: views are compared number by number.
        return bytes(view[:head]) == piece.head and bytes(view[size - tail :]) == piece.tail

    def learn(self, view: memoryview, into: memoryview | None, *, trusted: bool) -> str:
        """Digest a piece, and know from now on whether it changes.

        Args:
            view: One of ``pieces``.
            into: Takes a copy, which is what is digested: other threads may write to ``view``. None: nobody else can.
            trusted: As for ``digest``.
        """
        key = (address_of(view), view.nbytes)
        piece = self._watch(view, key) if trusted else None
        try:
            if into is not None:
                into[:] = view.cast("B")
            copy = view if into is None else into
            checksum = self._fast() if piece is None else None
            digest = digest_of(copy)
            if piece is not None:
                head, tail = piece.first - key[0], key[0] + key[1] - piece.last
                piece.digest, piece.head, piece.tail = digest, bytes(copy[:head]), bytes(copy[key[1] - tail :])
            elif checksum is not None:
                piece = _Piece(digest, checksum=checksum(copy))
        except BaseException:
            if piece is not None:
                with self._lock:
                    self._ranges.remove((piece.first, piece.last))
            raise
        if piece is not None:
            with self._lock:
                self._known[key] = piece
        return digest

    def _watch(self, view: memoryview, key: tuple[int, int]) -> _Piece | None:
        """Protect the whole pages of a piece; None if that cannot be done or others watch some of them already."""
        start, size = key
        first, last = -(-start // PAGE) * PAGE, (start + size) // PAGE * PAGE
        if self._pages is None or last <= first:
            return None
        with self._lock:
            self._forget(key)
            if len(self._ranges) >= _MAX_TRACKED:
                return None
            at = bisect_left(self._ranges, (first, 0))
            neighbours = self._ranges[max(at - 1, 0) : at + 1]
            # Two watchers of a page would each take away the other's notice of a write.
            if any(first < end and begin < last for begin, end in neighbours):
                return None
            insort(self._ranges, (first, last))
        if not self._pages.protect(first, last):
            with self._lock:
                self._ranges.remove((first, last))
            return None
        return _Piece("", first=first, last=last)

    def _forget(self, key: tuple[int, int]) -> None:
        piece = self._known.pop(key, None)
        if piece is not None and piece.last:
            at = bisect_left(self._ranges, (piece.first, piece.last))
            del self._ranges[at]

    def _fast(self) -> Checksum | None:
        with self._lock:  # two threads must not come to have two keys
            if not self._asked_checksum:
                self._checksum, self._asked_checksum = keyed_checksum(), True
            return self._checksum
