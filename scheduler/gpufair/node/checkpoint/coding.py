"""From the bytes of a piece to the bytes of its file and back: compression where it pays, encryption where it is on."""

from __future__ import annotations

import hashlib
import hmac
import os
import time
import zlib
from collections.abc import Mapping
from typing import Any, Protocol

from gpufair.node.checkpoint.options import Compression, StoreOptions

RAW, ZLIB, ZSTD, SEALED = "raw", "zlib", "zstd", "+aes-256-gcm"
_NONCE_BYTES = 12
_SEAL_BYTES = _NONCE_BYTES + 16  # and the tag
_SAMPLE_BYTES, _SLICES = 1 << 20, 16
_WORTH = 0.85  # of its size: below this a sample is worth a look at the clock
# Write rates differ by a factor of a hundred; until one was measured, that of a busy shared disk.
ASSUMED_WRITE_BYTES_S = 200e6


class NotReadable(Exception):
    """A file cannot be turned into what it should hold; the text says why."""


class _Compressor(Protocol):
    def compress(self, data: Any, /) -> bytes: ...


class _Zlib:
    """Level 1: the fastest there is in the standard library."""

    def compress(self, data: Any, /) -> bytes:
        return zlib.compress(data, 1)


def zstandard() -> Any:
    """The library, None where it is not installed."""
    try:
        import zstandard  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return zstandard


def readable(codings: set[str]) -> str | None:
    """What is missing here to read files of these codings, None if nothing is."""
    if any(ZSTD in coding for coding in codings) and zstandard() is None:
        return "it is compressed with zstd; install the package zstandard"
    if any(SEALED in coding for coding in codings) and cipher(bytes(32)) is None:
        return "it is encrypted; install the package cryptography"
    return None


def cipher(key: bytes) -> Any:
    """AES-GCM, None where the package cryptography is not installed."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an optional extra
    except ImportError:
        return None
    return AESGCM(key)


def derived(key: bytes, use: str) -> bytes:
    """A key for one use; knowing it tells nothing of ``key``."""
    return hmac.new(key, f"gpufair checkpoint {use} 1".encode(), hashlib.sha256).digest()


class Coder:
    """Codes and decodes for one user. Safe from several threads."""

    def __init__(self, key: bytes, options: StoreOptions) -> None:
        """Raises: NotReadable: Encryption is on and cannot be had."""
        self._compression: Compression = options.compression
        self._encrypt = options.encryption
        self._key = derived(key, "encryption")
        self._names = derived(key, "names")
        if self._encrypt and cipher(self._key) is None:
            raise NotReadable(
                "this store is to be encrypted, which needs the package cryptography; "
                "install it beside the kernel: pip install 'jupyter-gpufair[encryption]'"
            )
        library = zstandard()
        self._method = ZLIB if library is None else ZSTD
        self._compressor: _Compressor = _Zlib() if library is None else _Zstd(library)
        self.write_bytes_s = ASSUMED_WRITE_BYTES_S

    @property
    def seals(self) -> bool:
        """Whether files are encrypted."""
        return self._encrypt

    def name(self, digest: str, coding: str) -> str:
        """The file of a piece. By content; where it is encrypted, keyed, so that the name gives nothing away."""
        method, _, sealed = coding.partition("+")
        if sealed:
            digest = hmac.new(self._names, digest.encode(), hashlib.sha256).hexdigest()
        return digest + ("" if method == RAW else f".{method}") + (".aes" if sealed else "")

    def found(self, digest: str, size: int, present: Mapping[str, int]) -> tuple[str, int] | None:
        """The coding and the stored bytes of a piece that is in the store already, as this coder would have it."""
        for method in (RAW, self._method):
            coding = method + (SEALED if self._encrypt else "")
            stored = present.get(self.name(digest, coding))
            whole = size + (_SEAL_BYTES if self._encrypt else 0)
            if stored is not None and (stored == whole if method == RAW else 0 < stored < whole):
                return coding, stored
        return None

    def pays(self, view: memoryview) -> bool:
        """Whether a sample of 1 MiB from all over a buffer says that it is written sooner when it is compressed."""
        if self._compression == "never":
            return False
        sample = _sample(view)
        first = sample[: len(sample) // _SLICES]
        if len(self._compressor.compress(first)) > _WORTH * len(first):
            return False  # noise, mostly: most of the cost of asking is saved
        began = time.thread_time()
        left = len(self._compressor.compress(sample)) / len(sample)
        cost_s = (time.thread_time() - began) / len(sample)
        return left <= _WORTH and cost_s < (1 - left) / self.write_bytes_s

    def encode(self, data: memoryview, *, compress: bool) -> tuple[str, memoryview | bytes]:
        """The coding and the bytes to be stored of a piece."""
        coding: str = RAW
        stored: memoryview | bytes = data
        if compress:
            smaller = self._compressor.compress(data)
            if len(smaller) <= _WORTH * data.nbytes:
                coding, stored = self._method, smaller
        if self._encrypt:
            coding, stored = coding + SEALED, self.seal(stored)
        return coding, stored

    def decode(self, coding: str, stored: memoryview, into: memoryview) -> None:
        """Fill ``into`` with the piece. Never makes more than fits. Raises: NotReadable."""
        method, _, sealed = coding.partition("+")
        if sealed:
            stored = memoryview(self.opened(stored))
        try:
            data = _expanded(method, stored, into.nbytes)
        except (zlib.error, ValueError) as err:
            raise NotReadable("it does not decompress") from err
        if len(data) != into.nbytes:
            raise NotReadable("it has another size than it should")
        into[:] = data

    def seal(self, data: memoryview | bytes) -> bytes:
        """Encrypt; what comes out is 28 bytes longer."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = cipher(self._key).encrypt(nonce, data, None)  # of its own: several threads seal
        return nonce + sealed

    def opened(self, sealed: memoryview | bytes) -> bytes:
        """What ``seal`` was given. Raises: NotReadable: Altered, or sealed with another key."""
        opener = cipher(self._key)
        if opener is None:
            raise NotReadable("it is encrypted; install the package cryptography")
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as in ``cipher``

        try:
            data: bytes = opener.decrypt(bytes(sealed[:_NONCE_BYTES]), sealed[_NONCE_BYTES:], None)
        except (InvalidTag, ValueError) as err:
            raise NotReadable("it does not decrypt: it was altered, or it belongs to another user") from err
        return data


class _Zstd:
    """Level 1. A compressor of its own for each call: one object must not be used by two threads."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def compress(self, data: Any, /) -> bytes:
        packed: bytes = self._library.ZstdCompressor(level=1).compress(data)
        return packed


def _sample(view: memoryview) -> memoryview:
    if view.nbytes <= _SAMPLE_BYTES:
        return view
    width, step = _SAMPLE_BYTES // _SLICES, view.nbytes // _SLICES
    return memoryview(b"".join(view[n * step : n * step + width] for n in range(_SLICES)))


def _expanded(method: str, stored: memoryview, size: int) -> memoryview | bytes:
    if method == RAW:
        return stored
    if method == ZLIB:
        return zlib.decompressobj().decompress(stored, size + 1)
    if method == ZSTD:
        library = zstandard()
        if library is None:
            raise NotReadable("it is compressed with zstd; install the package zstandard")
        try:
            with library.ZstdDecompressor().stream_reader(stored) as reader:
                data: bytes = reader.read(size + 1)
        except library.ZstdError as err:
            raise NotReadable("it does not decompress") from err
        return data
    raise NotReadable(f"it is coded as {method!r}, which this version does not know")
