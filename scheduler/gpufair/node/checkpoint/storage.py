"""Where checkpoints lie: a directory of the machine (``folder``), or any store that fsspec knows (``remote``).

``CHECKPOINT/manifest.json`` makes a checkpoint; what it holds lies in ``buffers/``, by content, shared by all checkpoints
of the directory. The manifest is written last and removed first. So a store needs no transactions: whatever dies
half-way leaves files that no manifest names, and a later sweep clears them away.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import BinaryIO, Protocol

MANIFEST = "manifest.json"
BUFFERS = "buffers"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def valid_id(checkpoint: str) -> bool:
    """Whether ``checkpoint`` may name a checkpoint: it becomes a folder, so it must not reach out of its directory."""
    return _ID.fullmatch(checkpoint) is not None and checkpoint != BUFFERS


class Store(Protocol):
    """A directory of checkpoints. All methods raise ``OSError``. ``put`` and the readers are called from threads."""

    def ids(self) -> list[str]:
        """Names of all checkpoints, finished or not; empty if the directory does not exist."""

    def create(self, checkpoint: str) -> None:
        """Begin a checkpoint: until ``release`` it is marked as being written, and nothing is swept.

        Raises:
            FileExistsError: A finished checkpoint has this name. Unfinished remains are cleared away.
        """

    def buffers(self) -> dict[str, int]:
        """The files in ``buffers/`` that are complete, with their bytes."""

    def put(self, name: str, data: memoryview | bytes) -> None:
        """Write a file of ``buffers/``, whole or not at all; durable at ``publish`` at the latest."""

    def publish(self, checkpoint: str, manifest: bytes) -> None:
        """Make everything put so far durable, then the manifest, in this order."""

    def release(self, checkpoint: str) -> None:
        """The writer is done with this checkpoint, well or badly."""

    def being_written(self, checkpoint: str) -> bool:
        """Whether a live process is writing it. A store that cannot know says True while anything is written."""

    def manifest_size(self, checkpoint: str) -> int | None:
        """Bytes of the manifest, None if there is none."""

    def manifest(self, checkpoint: str) -> bytes:
        """The manifest."""

    def read(self, name: str) -> BinaryIO:
        """A file of ``buffers/`` to read."""

    def remove(self, checkpoint: str) -> None:
        """Remove a checkpoint. What it held stays until a sweep."""

    def sweep(self, needed: Callable[[], set[str] | None]) -> list[str]:
        """Remove what is in ``buffers/`` and is not ``needed``.

        ``needed`` is asked once nobody can be writing, and nobody can begin before the sweep is over; None: leave all
        alone. Where somebody writes, nothing is removed.

        Returns: What was removed.
        """

    def used_bytes(self, *, by_user: bool) -> int:
        """Bytes of all files here, or of all directories beside this one (one user's sessions) and this one."""
