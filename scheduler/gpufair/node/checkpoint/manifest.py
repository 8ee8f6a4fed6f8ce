"""The signed table of contents of a checkpoint: what is in it, how large, with which digests, made by which versions.

Unpickling is running code, so nothing is unpickled before the signature of the manifest and the digests it vouches for
have been checked.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import platform
import sys
from dataclasses import asdict, dataclass
from typing import Any

from gpufair.node.checkpoint.errors import CheckpointRejected

FORMAT = 1
STREAM = "objects.pkl"
MAX_MANIFEST_BYTES = 64 << 20  # 100,000 variables with 10 buffers each are about 30 MB
MIN_KEY_BYTES = 16
_DOMAIN = b"gpufair checkpoint manifest 1\n"

# Objects of these change their pickled form between major versions; the rest of the world is the user's own matter.
_VERSIONED = ("cloudpickle", "numpy", "pandas", "scipy", "sklearn", "torch")


@dataclass(frozen=True, slots=True)
class Record:
    """One object of the stream, in loading order. ``kind`` is ``variable`` or ``extra`` (the caller's own)."""

    kind: str
    name: str
    offset: int
    size: int
    buffers: tuple[str, ...] = ()  # sha256 of each out-of-band buffer, in the order the stream asks for them


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module. ``buffers`` maps the sha256 (= file name) of each buffer to its bytes."""

    id: str
    sequence: int
    created_s: float
    versions: dict[str, str]
    stream_size: int
    stream_sha256: str
    records: tuple[Record, ...]
    buffers: dict[str, int]
    lost: tuple[tuple[str, str], ...]
    cwd: str
    sys_path: tuple[str, ...]
    meta: dict[str, Any]

    @property
    def size_bytes(self) -> int:
        """Bytes of the checkpoint without the manifest itself."""
        return self.stream_size + sum(self.buffers.values())

    def sealed(self, key: bytes) -> bytes:
        """The bytes of the manifest file."""
        body = {"format": FORMAT, **asdict(self)}
        return json.dumps({"signature": _sign(body, key), "body": body}, ensure_ascii=True).encode()


def buffer_name(sha256: str) -> str:
    """File of a buffer. By content: the same bytes are written once, and a later checkpoint may find them there."""
    return f"buffers/{sha256}"


def unsealed(data: bytes, *, checkpoint: str, key: bytes) -> Manifest:
    """The manifest in ``data``, once its signature has been checked.

    Raises:
        CheckpointRejected: Damaged, altered, signed with another key, copied from another checkpoint, or of a format
            that this version does not know.
    """
    try:
        outer = json.loads(data)
        body, signature = outer["body"], outer["signature"]
        expected = _sign(body, key)
    except (ValueError, KeyError, TypeError, RecursionError) as err:
        raise CheckpointRejected(checkpoint, "its manifest is not readable; it was damaged or altered") from err
    if not isinstance(signature, str) or not hmac.compare_digest(signature.encode(), expected.encode()):
        raise CheckpointRejected(
            checkpoint, "its signature does not fit: it was altered, or it belongs to another user"
        )
    if body["format"] != FORMAT:
        raise CheckpointRejected(
            checkpoint,
            f"it has format {body['format']} and this version reads format {FORMAT}; use the version that wrote it",
        )
    if body["id"] != checkpoint:
        raise CheckpointRejected(checkpoint, f"it was written as {body['id']!r} and has been renamed or copied here")
    fields = {name: value for name, value in body.items() if name != "format"}
    fields["records"] = tuple(Record(**{**r, "buffers": tuple(r["buffers"])}) for r in body["records"])
    fields["lost"] = tuple((name, reason) for name, reason in body["lost"])
    fields["sys_path"] = tuple(body["sys_path"])
    return Manifest(**fields)


def _sign(body: object, key: bytes) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    return hmac.new(key, _DOMAIN + canonical, hashlib.sha256).hexdigest()


def versions() -> dict[str, str]:
    """What this process runs: Python, and the libraries of note that are imported."""
    found = {"python": platform.python_version(), "implementation": sys.implementation.name}
    for name in _VERSIONED:
        version = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(version, str):
            found[name] = version
    return found


def compare(saved: dict[str, str]) -> tuple[str | None, list[str]]:
    """Whether objects of the ``saved`` versions may be loaded here.

    Returns: A refusal (None if there is none), and warnings. Another minor version of Python is refused: code objects
        have another layout there, and loading one can crash the process instead of failing.
    """
    here = versions()
    was, now = saved["python"].split("."), here["python"].split(".")
    if saved["implementation"] != here["implementation"] or was[:2] != now[:2]:
        return (
            f"it was written by {saved['implementation']} {saved['python']} and this is {here['implementation']} "
            f"{here['python']}; resume it on Python {'.'.join(was[:2])}"
        ), []
    warnings = []
    for name, version in saved.items():
        if name in ("python", "implementation"):
            continue
        installed = here.get(name) or _installed(name)
        if installed is None:
            warnings.append(f"{name} {version} was loaded when the session was saved; it is not installed here")
        elif installed.split(".", maxsplit=1)[0] != version.split(".", maxsplit=1)[0]:
            warnings.append(f"saved with {name} {version}, restored with {name} {installed}")
    return None, warnings


def _installed(name: str) -> str | None:
    from importlib import metadata  # noqa: PLC0415 - not needed where the library is imported already

    try:
        return metadata.version({"sklearn": "scikit-learn"}.get(name, name))
    except metadata.PackageNotFoundError:
        return None
