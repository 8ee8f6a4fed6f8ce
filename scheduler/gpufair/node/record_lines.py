"""The lines of a record: IOPub messages as JSON, and two marks of our own. Shared by its writer and its reader."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpufair.node.theirs import open_theirs

TRUNCATED = "gpufair_truncated"  # the file has reached its limit; outputs that follow are left out
ENDED = "gpufair_ended"  # the kernel is gone; what ran does not run any more


def line(body: Sequence[bytes]) -> bytes:
    """A message as a line. The frames are JSON already; a line end between its tokens may become a blank."""
    header, parent, metadata, content = (part.replace(b"\n", b" ").replace(b"\r", b" ") for part in body[:4])
    return b'{"header":%b,"parent_header":%b,"metadata":%b,"content":%b,"buffers":%d}\n' % (
        header,
        parent,
        metadata,
        content,
        len(body) - 4,
    )


def marker(kind: str, content: dict[str, Any], parent: bytes = b"{}") -> bytes:
    """A line of our own in the record."""
    header = {"msg_type": kind, "at_s": time.time()}
    return line([json.dumps(header).encode(), parent, b"{}", json.dumps(content).encode()])


def mark_ended(record_dir: Path, incarnation: int, generation: int, uid: int | None = None) -> None:
    """Close the record of a kernel whose supervisor was killed. Does nothing where there is none.

    Args:
        uid: Whose the record is, where that is somebody else.
    """
    path = record_dir / f"iopub-{incarnation}-{generation}.jsonl"
    if not path.is_file():
        return
    with open(path if uid is None else open_theirs(path, uid, os.O_WRONLY | os.O_APPEND), "ab") as file:
        file.write(b"\n" + marker(ENDED, {}))
