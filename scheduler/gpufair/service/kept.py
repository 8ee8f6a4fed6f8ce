"""What can be done with the checkpoints that lie in a workload's folder. Blocking; called in threads."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpufair.node import checkpoint
from gpufair.node.checkpoint import CheckpointMissing, CheckpointRejected
from gpufair.node.checkpoint.catalogue import files_of
from gpufair.service.problems import NotFound

_BLOCK = 1 << 20


def verified(folder: Path, key: bytes) -> list[dict[str, Any]]:
    """Each finished checkpoint and whether it is whole, newest first."""
    found = []
    for name in _names(folder):
        try:
            info = checkpoint.verify(str(folder), name, key)
        except (CheckpointMissing, CheckpointRejected, OSError) as err:
            found.append({"id": name, "ok": False, "reason": str(err)})
        else:
            found.append({"ok": True, "reason": "", **asdict(info), "saved": len(info.saved)})
    return sorted(found, key=lambda one: (-one.get("sequence", 0), one["id"]))


def pruned(folder: Path, key: bytes, keep: int, keep_s: float) -> list[str]:
    """Remove old ones; their names."""
    return checkpoint.prune(str(folder), key, keep=keep, keep_s=keep_s) if folder.is_dir() else []


def exported(folder: Path, key: bytes, name: str) -> Iterator[bytes]:
    """One checkpoint and the files it needs as a tar file, in blocks. It can be loaded where it is unpacked.

    Raises:
        NotFound: There is no such checkpoint, or it is not whole.
    """
    try:
        files = files_of(str(folder), name, key)
    except (CheckpointMissing, CheckpointRejected) as err:
        raise NotFound(str(err)) from err
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise NotFound(f"checkpoint {name!r} lacks its file {missing[0]}")
    return _tar(folder, files)


def _tar(folder: Path, names: list[str]) -> Iterator[bytes]:
    for name in names:
        info = tarfile.TarInfo(name)
        with (folder / name).open("rb") as file:
            info.size, info.mode = (folder / name).stat().st_size, 0o600
            yield info.tobuf(tarfile.PAX_FORMAT)
            while block := file.read(_BLOCK):
                yield block
        yield bytes(-info.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _names(folder: Path) -> list[str]:
    return [path.parent.name for path in folder.glob("*/manifest.json")]
