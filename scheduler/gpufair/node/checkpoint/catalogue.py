"""Which checkpoints a directory holds, which of them are whole, and which may go."""

from __future__ import annotations

import time
from dataclasses import dataclass

from gpufair.node.checkpoint.coding import Coder
from gpufair.node.checkpoint.errors import CheckpointMissing, CheckpointRejected
from gpufair.node.checkpoint.folder import open_store
from gpufair.node.checkpoint.manifest import MAX_MANIFEST_BYTES, Manifest, files_unproven, unsealed
from gpufair.node.checkpoint.options import StoreOptions
from gpufair.node.checkpoint.reading import Damaged, Reading
from gpufair.node.checkpoint.storage import BUFFERS, MANIFEST, Store, valid_id


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint as the lists show it.

    Attributes:
        size_bytes: What a restore brings back.
        stored_bytes: What its files take, shared ones included.
        lost: (name, reason) of what was not saved.
        torn: Why its values may not belong together; empty if nothing speaks against it.
    """

    id: str
    sequence: int
    created_s: float
    size_bytes: int
    saved: tuple[str, ...]
    lost: tuple[tuple[str, str], ...]
    stored_bytes: int = 0
    torn: str = ""
    encrypted: bool = False


def read_manifest(store: Store, checkpoint: str, coder: Coder, key: bytes, directory: str) -> Manifest:
    """The manifest of a finished checkpoint, its signature checked.

    Raises:
        CheckpointMissing: There is none, or it was never finished.
        CheckpointRejected: Its signature does not fit.
    """
    size = store.manifest_size(checkpoint) if valid_id(checkpoint) else None
    if size is None:
        raise CheckpointMissing(checkpoint, directory)
    if size > MAX_MANIFEST_BYTES:
        raise CheckpointRejected(checkpoint, f"its manifest has {size} bytes and may have {MAX_MANIFEST_BYTES}")
    return unsealed(store.manifest(checkpoint), checkpoint=checkpoint, key=key, coder=coder)


def listing(directory: str, key: bytes, *, store: Store | None = None) -> list[CheckpointInfo]:
    """The valid checkpoints, oldest first. Valid: signed with ``key``, and every file is there in its full size.

    Content is not read (see ``verify``); unfinished, foreign and truncated ones are left out.
    """
    return [_info(manifest) for manifest in _valid(store or open_store(directory), key, directory)]


def _valid(store: Store, key: bytes, directory: str) -> list[Manifest]:
    coder, found = Coder(key, StoreOptions()), []
    names = store.ids()
    present = store.buffers() if names else {}
    for name in names:
        try:
            manifest = read_manifest(store, name, coder, key, directory)
        except (CheckpointMissing, CheckpointRejected, OSError):
            continue
        if all(present.get(file) == manifest.pieces[digest].stored for file, digest in manifest.files(coder).items()):
            found.append(manifest)
    return sorted(found, key=lambda manifest: (manifest.sequence, manifest.created_s))


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
    store, coder = store or open_store(directory), Coder(key, StoreOptions())
    manifest = read_manifest(store, id, coder, key, directory)
    reading = Reading(store, manifest, coder)
    for name, digest in manifest.files(coder).items():
        try:
            reading.fetch(digest, memoryview(bytearray(manifest.pieces[digest].size)))
        except Damaged as err:
            raise CheckpointRejected(id, f"of its file buffers/{name}: {err}") from err
    return _info(manifest)


def files_of(directory: str, id: str, key: bytes, *, store: Store | None = None) -> list[str]:  # noqa: A002
    """All files of a checkpoint, by their path in ``directory``. Raises: as ``verify``, but content is not read."""
    store, coder = store or open_store(directory), Coder(key, StoreOptions())
    manifest = read_manifest(store, id, coder, key, directory)
    return [f"{BUFFERS}/{name}" for name in manifest.files(coder)] + [f"{id}/{MANIFEST}"]


def prune(directory: str, key: bytes, *, keep: int = 2, keep_s: float = 0.0, store: Store | None = None) -> list[str]:
    """Remove what is too old or too much, the remains of saves that died, and the files that nothing needs any more.

    Never removed: the newest valid one, whatever the rules say; one that is being written; and any that this key
    cannot verify, because it is not ours to judge.

    Args:
        keep: So many of the newest valid ones stay, at least one.
        keep_s: And of those the ones that are younger than this; 0: all.

    Returns: The names of the checkpoints that were removed.
    """
    store = store or open_store(directory)
    valid = _valid(store, key, directory)
    since = time.time() - keep_s if keep_s else 0.0
    stay = {m.id for m in valid[-max(keep, 1) :] if m.created_s >= since} | {m.id for m in valid[-1:]}
    old = [manifest.id for manifest in valid if manifest.id not in stay]
    for name in old:
        store.remove(name)
    dead, _ = _swept(store, key)
    return [*old, *dead]


def sweep(directory: str, key: bytes, *, store: Store | None = None) -> list[str]:
    """Remove the files of ``buffers/`` that no checkpoint needs, unless somebody is saving. Returns their names."""
    return _swept(store or open_store(directory), key)[1]


def _swept(store: Store, key: bytes) -> tuple[list[str], list[str]]:
    """Remove what dead saves have left. Only where nobody can be saving: a folder may just have been made.

    Returns: The names of checkpoints without a manifest that are gone, and of files.
    """
    dead: list[str] = []

    def needed() -> set[str] | None:
        for name in store.ids():
            if store.manifest_size(name) is None and not store.being_written(name):
                store.remove(name)
                dead.append(name)
        return _needed(store, key)

    files = store.sweep(needed)
    return dead, files


def _needed(store: Store, key: bytes) -> set[str] | None:
    """The files that any checkpoint here may need, valid or not; None if that cannot be known."""
    coder, needed = Coder(key, StoreOptions()), set[str]()
    for name in store.ids():
        size = store.manifest_size(name)
        if size is None or size > MAX_MANIFEST_BYTES:
            continue  # no version loads that
        files = files_unproven(store.manifest(name), coder)
        if files is None:
            return None
        needed |= files
    return needed


def _info(manifest: Manifest) -> CheckpointInfo:
    saved = tuple(record.name for record in manifest.records if record.kind == "variable")
    stored = sum(piece.stored for piece in manifest.pieces.values())
    sealed = any("+" in piece.coding for piece in manifest.pieces.values())
    return CheckpointInfo(
        manifest.id,
        manifest.sequence,
        manifest.created_s,
        manifest.size_bytes,
        saved,
        manifest.lost,
        stored,
        manifest.torn,
        sealed,
    )
