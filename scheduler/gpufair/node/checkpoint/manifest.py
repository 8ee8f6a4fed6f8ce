"""The signed table of contents of a checkpoint: what is in it, how large, with which digests, made by which versions.

Unpickling is running code, so nothing is unpickled before the signature of the manifest and the digests it vouches for
have been checked.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import platform
import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpufair.node.checkpoint.coding import Coder, NotReadable
from gpufair.node.checkpoint.errors import CheckpointRejected

FORMAT = 2  # 1 had its buffers in a folder of each checkpoint
MAX_MANIFEST_BYTES = 64 << 20  # 100,000 variables with 10 buffers each are about 30 MB
MIN_KEY_BYTES = 16
_DOMAIN = b"gpufair checkpoint manifest 1\n"  # of all formats: so that another one is told by name

# Objects of these change their pickled form between major versions; the rest of the world is the user's own matter.
_VERSIONED = (
    *("cloudpickle", "numpy", "pandas", "scipy", "sklearn", "torch"),
    *("cupy", "jax", "matplotlib", "polars", "pyarrow"),
)


# Tuples: after each cell one is made for each variable, and a frozen dataclass takes five times as long.
class Record(NamedTuple):
    """One object of the stream, in loading order. ``kind`` is ``variable`` or ``extra`` (the caller's own).

    Attributes:
        memo: The first entry of the shared memo that it makes, where a piece of the stream begins: so what comes after a
            damaged piece keeps its numbers. None elsewhere.
        buffers: Its out-of-band buffers in the order in which the stream asks for them, by place in the manifest's list.
        fingerprint: sha256 of its pickle; with the digests of its buffers it says whether the variable has changed.
    """

    kind: str
    name: str
    offset: int
    size: int
    memo: int | None = None
    buffers: tuple[int, ...] = ()
    fingerprint: str = ""


class Piece(NamedTuple):
    """A file of ``buffers/``. ``size`` is that of its content, ``stored`` that of the file."""

    size: int
    stored: int
    coding: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module.

    Attributes:
        stream: The pickles, one after the other, as the sha256 of each piece.
        buffers: Each buffer likewise.
        pieces: All of these, by sha256.
        torn: Why the values may not belong together; empty if nothing speaks against it.
        lost: (name, reason) of what could not be saved.
        notes: (name, text) of what will not be quite what it was.
        environment: Environment variables that the session has changed; None for those that it has removed.
        withheld: Names of those that are not kept.
        settings: Settings of libraries: library -> name -> value.
    """

    id: str
    sequence: int
    created_s: float
    versions: dict[str, str]
    stream: tuple[str, ...]
    records: tuple[Record, ...]
    buffers: tuple[tuple[str, ...], ...]
    pieces: dict[str, Piece]
    lost: tuple[tuple[str, str], ...]
    cwd: str
    sys_path: tuple[str, ...]
    meta: dict[str, Any]
    torn: str = ""
    notes: tuple[tuple[str, str], ...] = ()
    environment: dict[str, str | None] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes that a restore brings back: shared ones count as often as they are used."""
        return sum(self.pieces[d].size for digests in (self.stream, *self.buffers) for d in digests)

    def files(self, coder: Coder) -> dict[str, str]:
        """The files it needs: name to sha256 of the content."""
        return {coder.name(digest, piece.coding): digest for digest, piece in self.pieces.items()}

    def sealed(self, key: bytes, coder: Coder) -> bytes:
        """The bytes of the manifest file."""
        body: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        text = _canonical(body | {"format": FORMAT})
        data = b'{"signature": "%s", "body": %s}' % (_sign(text, key).encode(), text)
        if coder.seals:  # names of variables tell a lot
            data = json.dumps({"sealed": base64.b64encode(coder.seal(data)).decode()}).encode()
        return data


def unsealed(data: bytes, *, checkpoint: str, key: bytes, coder: Coder) -> Manifest:
    """The manifest in ``data``, once its signature has been checked.

    Raises:
        CheckpointRejected: Damaged, altered, signed with another key, copied from another checkpoint, or of a format
            that this version does not know.
    """
    try:
        outer = _opened(json.loads(data), coder)
        body, signature = outer["body"], outer["signature"]
        expected = _sign(_canonical(body), key)
    except NotReadable as err:
        raise CheckpointRejected(checkpoint, f"its manifest is not readable: {err}") from err
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
    fields["records"] = tuple(_record(*values) for values in body["records"])
    fields["stream"] = tuple(body["stream"])
    fields["buffers"] = tuple(tuple(digests) for digests in body["buffers"])
    fields["pieces"] = {digest: Piece(*piece) for digest, piece in body["pieces"].items()}
    fields["lost"] = tuple((name, reason) for name, reason in body["lost"])
    fields["notes"] = tuple((name, text) for name, text in body.get("notes", ()))
    fields["withheld"] = tuple(body.get("withheld", ()))
    fields["sys_path"] = tuple(body["sys_path"])
    return Manifest(**fields)


def _opened(outer: Any, coder: Coder) -> Any:
    if isinstance(outer, dict) and "sealed" in outer:
        return json.loads(coder.opened(base64.b64decode(outer["sealed"], validate=True)))
    return outer


def files_unproven(data: bytes, coder: Coder) -> set[str] | None:
    """The files that a manifest names whose signature does not fit: whatever it is, it may be of use to somebody.

    Returns: None if it is encrypted with another key, so that nobody here can tell. Empty for what no version can read.
    """
    try:
        outer = json.loads(data)
        pieces = _opened(outer, coder)["body"]["pieces"]
        return {coder.name(digest, piece[2]) for digest, piece in pieces.items()}
    except NotReadable:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return set()


def _record(*values: Any) -> Record:
    record = Record(*values)
    return record._replace(buffers=tuple(record.buffers))


def _canonical(body: object) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _sign(canonical: bytes, key: bytes) -> str:
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
