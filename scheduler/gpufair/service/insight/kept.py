"""What can be done with the checkpoints of a workload, in a folder or at a URL. Blocking; called in threads."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpufair.node import checkpoint
from gpufair.node.checkpoint import CheckpointMissing, CheckpointRejected
from gpufair.node.checkpoint.catalogue import files_of
from gpufair.node.checkpoint.folder import open_store
from gpufair.node.checkpoint.storage import BUFFERS, SCHEME, Store
from gpufair.service.problems import CheckpointsUnreachable, NotFound

_BLOCK = 1 << 20

# Each of these functions takes the place of one workload's checkpoints and raises ``CheckpointsUnreachable`` where it
# cannot be read.


def _account_of(directory: str) -> int | None:
    """Whose checkpoints these are, where they are not the service's own: those of an account that runs its own workloads.

    Such an account has the key that signs them, and may put anything in place of a file, so nobody else opens them.
    """
    place = directory.removeprefix("file://")
    if SCHEME.match(place):
        return None
    try:
        uid = Path(place).parent.stat().st_uid  # the folder of all of a user's; what is in it may be exchanged
    except FileNotFoundError:
        return None
    except OSError as err:
        raise CheckpointsUnreachable(f"the checkpoints in {directory} cannot be reached: {err.strerror}") from err
    return None if uid == os.geteuid() else uid


@contextmanager
def _opened(directory: str) -> Iterator[Store]:
    if (uid := _account_of(directory)) is not None:
        raise CheckpointsUnreachable(
            f"the checkpoints in {directory} belong to the account with user id {uid}, under which these sessions run, and "
            "are its alone: the service doesn't open them; look at the folder as that account"
        )
    try:
        yield open_store(directory)
    except (OSError, ImportError) as err:
        why = getattr(err, "strerror", None) or err
        raise CheckpointsUnreachable(f"the checkpoints in {directory} cannot be reached: {why}") from err


def present(directory: str, reported: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of ``reported`` that are still there, newest first; of an account's own all, since only it can look."""
    if _account_of(directory) is not None:
        return list(reversed(reported))
    with _opened(directory) as store:
        names = set(_finished(store))
    return [one for one in reversed(reported) if one["id"] in names]


def verified(directory: str, key: bytes) -> list[dict[str, Any]]:
    """Each finished checkpoint and whether it is whole, newest first."""
    found = []
    with _opened(directory) as store:
        for name in _finished(store):
            try:
                info = checkpoint.verify(directory, name, key, store=store)
            except (CheckpointMissing, CheckpointRejected, OSError) as err:
                found.append({"id": name, "ok": False, "reason": str(err)})
            else:
                found.append({"ok": True, "reason": "", **asdict(info), "saved": len(info.saved)})
    return sorted(found, key=lambda one: (-one.get("sequence", 0), one["id"]))


def pruned(directory: str, key: bytes, keep: int, keep_s: float) -> list[str]:
    """Remove old ones; their names."""
    with _opened(directory) as store:
        return checkpoint.prune(directory, key, keep=keep, keep_s=keep_s, store=store)


def exported(directory: str, key: bytes, name: str) -> Iterator[bytes]:
    """One checkpoint and the files it needs as a tar file, in blocks. It can be loaded where it is unpacked.

    Raises:
        NotFound: There is no such checkpoint, or it is not whole.
    """
    with _opened(directory) as store:
        try:
            files = files_of(directory, name, key, store=store)
        except (CheckpointMissing, CheckpointRejected) as err:
            raise NotFound(str(err)) from err
        manifest, there = store.manifest(name), store.buffers()
    *buffers, last = files
    names = [file.removeprefix(f"{BUFFERS}/") for file in buffers]
    missing = [file for file in names if file not in there]
    if missing:
        raise NotFound(f"checkpoint {name!r} lacks its file {BUFFERS}/{missing[0]}")
    return _tar(store, {file: there[file] for file in names}, last, manifest)


def _tar(store: Store, sizes: dict[str, int], last: str, manifest: bytes) -> Iterator[bytes]:
    for name, size in sizes.items():
        yield _header(f"{BUFFERS}/{name}", size)
        with store.read(name) as file:
            while block := file.read(_BLOCK):
                yield block
        yield bytes(-size % tarfile.BLOCKSIZE)
    yield _header(last, len(manifest)) + manifest + bytes(-len(manifest) % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info.tobuf(tarfile.PAX_FORMAT)


def _finished(store: Store) -> list[str]:
    return [name for name in store.ids() if store.manifest_size(name) is not None]
