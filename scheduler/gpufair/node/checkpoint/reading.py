"""Getting pieces back from the store: each is decoded, and its digest compared, before anybody uses it."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import cast

from gpufair.node.checkpoint.coding import RAW, Coder, NotReadable
from gpufair.node.checkpoint.deposit import THREADS
from gpufair.node.checkpoint.manifest import Manifest, Piece
from gpufair.node.checkpoint.memory import Memory, digest_of
from gpufair.node.checkpoint.storage import Store

_LARGE_BYTES = 2 << 20


def room(size: int) -> memoryview:
    """Memory for a buffer that the session will own; a large one is not written with zeros before it is filled."""
    # No huge pages: where memory is in pieces, making them took ten times what they save.
    large = size >= _LARGE_BYTES
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if large else bytearray(size))


class Damaged(Exception):
    """A piece is not what it should be; the text says why."""


class Reading:
    """Reads the pieces of one checkpoint."""

    def __init__(
        self, store: Store, manifest: Manifest, coder: Coder, arrived: Callable[[int], None] = lambda _: None
    ) -> None:
        """``arrived`` is told how many bytes have come, in the threads that read; it must not fail."""
        self._store, self._manifest, self._coder, self._arrived = store, manifest, coder, arrived

    def fetch(self, digest: str, into: memoryview, *, proven: Callable[[memoryview], str] = digest_of) -> None:
        """Fill ``into`` with a piece.

        Args:
            proven: Gives the digest of what was read.

        Raises:
            Damaged: Missing, truncated, altered, or not to be decoded here.
        """
        piece = self._manifest.pieces.get(digest)
        if piece is None or piece.size != into.nbytes:
            raise Damaged("the manifest contradicts itself")
        try:
            self._read(self._coder.name(digest, piece.coding), piece, into)
        except FileNotFoundError as err:
            raise Damaged("it is not there") from err
        except OSError as err:
            raise Damaged(f"it could not be read ({err.strerror or err})") from err
        except NotReadable as err:
            raise Damaged(str(err)) from err
        if proven(into) != digest:
            raise Damaged("it is damaged or was altered (its digest does not fit)")
        self._arrived(piece.size)

    def _read(self, name: str, piece: Piece, into: memoryview) -> None:
        raw = piece.coding == RAW
        target = into if raw else memoryview(bytearray(piece.stored))
        with self._store.read(name) as file:
            at = 0
            while at < target.nbytes and (count := cast("io.RawIOBase", file).readinto(target[at:])):
                at += count
            if at != target.nbytes or file.read(1):
                raise NotReadable(f"it has not the {target.nbytes} bytes that it should have")
        if not raw:
            self._coder.decode(piece.coding, target, into)

    def all(
        self, wanted: Sequence[tuple[Sequence[str], memoryview]], memory: Memory | None = None
    ) -> list[list[str | None]]:
        """Fill each of these with its pieces, in threads: reading, digesting and decoding let go of the lock.

        Args:
            memory: Told what the bytes are, so that a later save need not read them.

        Returns: For each piece of each what is wrong with it, None if nothing is.
        """
        trusted = memory is not None and memory.tracking

        def proven(view: memoryview) -> str:
            return digest_of(view) if memory is None else memory.learn(view, None, trusted=trusted)

        def one(job: tuple[str, memoryview]) -> str | None:
            try:
                self.fetch(*job, proven=proven)
            except Damaged as err:
                return str(err)
            return None

        jobs = [list(zip(digests, self._parts(digests, data), strict=True)) for digests, data in wanted]
        with ThreadPoolExecutor(THREADS, thread_name_prefix="gpufair-restore") as pool:
            outcomes = iter(list(pool.map(one, [job for group in jobs for job in group])))
        return [[next(outcomes) for _ in group] for group in jobs]

    def _parts(self, digests: Sequence[str], data: memoryview) -> list[memoryview]:
        sizes = [self._manifest.pieces[digest].size for digest in digests]
        starts = accumulate(sizes[:-1], initial=0)
        return [data[start : start + size] for start, size in zip(starts, sizes, strict=True)]

    def size(self, digests: Sequence[str]) -> int:
        """Bytes of pieces together."""
        return sum(self._manifest.pieces[digest].size for digest in digests)
