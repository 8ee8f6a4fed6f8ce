"""Which checkpoints a directory holds, which of them are whole, and which may go."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from gpufair.node.checkpoint.errors import CheckpointMissing, CheckpointRejected
from gpufair.node.checkpoint.manifest import MAX_MANIFEST_BYTES, STREAM, Manifest, buffer_name, unsealed
from gpufair.node.checkpoint.storage import MANIFEST, Store, open_store, valid_id

_CHUNK = 4 << 20


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint as the lists show it. ``lost`` are (name, reason) of what was not saved."""

    id: str
    sequence: int
    created_s: float
    size_bytes: int
    saved: tuple[str, ...]
    lost: tuple[tuple[str, str], ...]


def read_manifest(store: Store, checkpoint: str, key: bytes, directory: str) -> Manifest:
    """The manifest of a finished checkpoint, its signature checked.

    Raises:
        CheckpointMissing: There is none, or it was never finished.
        CheckpointRejected: Its signature does not fit.
    """
    size = store.size(checkpoint, MANIFEST) if valid_id(checkpoint) else None
    if size is None:
        raise CheckpointMissing(checkpoint, directory)
    if size > MAX_MANIFEST_BYTES:
        raise CheckpointRejected(checkpoint, f"its manifest has {size} bytes and may have {MAX_MANIFEST_BYTES}")
    with store.read(checkpoint, MANIFEST) as file:
        return unsealed(file.read(MAX_MANIFEST_BYTES), checkpoint=checkpoint, key=key)


def listing(directory: str, key: bytes, *, store: Store | None = None) -> list[CheckpointInfo]:
    """The valid checkpoints, oldest first. Valid: signed with ``key``, and every file is there in its full size.

    Content is not read (see ``verify``); unfinished, foreign and truncated ones are left out.
    """
    store = store or open_store(directory)
    found = []
    for name in store.ids():
        try:
            manifest = read_manifest(store, name, key, directory)
        except (CheckpointMissing, CheckpointRejected, OSError):
            continue
        if _complete(store, manifest):
            found.append(_info(manifest))
    return sorted(found, key=lambda info: (info.sequence, info.created_s))


def latest(directory: str, key: bytes, *, store: Store | None = None) -> CheckpointInfo | None:
    """The newest valid checkpoint, None if there is none."""
    found = listing(directory, key, store=store)
    return found[-1] if found else None


def verify(directory: str, id: str, key: bytes, *, store: Store | None = None) -> CheckpointInfo:  # noqa: A002
    """Read a checkpoint from end to end without unpickling anything.

    Raises:
        CheckpointMissing: There is none, or it was never finished.
        CheckpointRejected: Its signature does not fit, or a file is missing, truncated or altered; the text says which.
    """
    store = store or open_store(directory)
    manifest = read_manifest(store, id, key, directory)
    files = {STREAM: (manifest.stream_size, manifest.stream_sha256)}
    files |= {buffer_name(digest): (size, digest) for digest, size in manifest.buffers.items()}
    for name, (size, expected) in files.items():
        if store.size(id, name) != size:
            raise CheckpointRejected(id, f"{name} has {store.size(id, name) or 0} bytes and must have {size}")
        digest = hashlib.sha256()
        with store.read(id, name) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        if digest.hexdigest() != expected:
            raise CheckpointRejected(id, f"{name} is damaged or was altered (its digest does not fit)")
    return _info(manifest)


def prune(directory: str, key: bytes, *, keep: int = 2, store: Store | None = None) -> list[str]:
    """Remove all valid checkpoints but the newest ``keep``, and the remains of saves that died.

    Never removed: the newest valid one, whatever ``keep`` says; one that is being written; and any that this key
    cannot verify, because it is not ours to judge.

    Returns: The names of what was removed.
    """
    store = store or open_store(directory)
    valid = listing(directory, key, store=store)
    old = [info.id for info in valid[: -max(keep, 1)]]
    dead = [name for name in store.ids() if store.size(name, MANIFEST) is None and not store.being_written(name)]
    for name in [*old, *dead]:
        store.remove(name)
    return [*old, *dead]


def _complete(store: Store, manifest: Manifest) -> bool:
    return store.size(manifest.id, STREAM) == manifest.stream_size and all(
        store.size(manifest.id, buffer_name(digest)) == size for digest, size in manifest.buffers.items()
    )


def _info(manifest: Manifest) -> CheckpointInfo:
    saved = tuple(record.name for record in manifest.records if record.kind == "variable")
    return CheckpointInfo(manifest.id, manifest.sequence, manifest.created_s, manifest.size_bytes, saved, manifest.lost)
