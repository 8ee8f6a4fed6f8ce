"""What a pod could not report before it had to end: it is left in a file beside the workload's records."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

from gpufair.node.pod_config import LEFT_FILE
from gpufair.wire import Report, WireError, from_json

MOST_BYTES = 16 << 20
_log = logging.getLogger(__name__)


def left_behind(record_dir: Path, pod: str, workload: str, incarnation: int) -> list[Report]:
    """The reports that the agent in ``pod`` left when no service was there, oldest first. Blocks.

    Whoever takes them in calls ``taken`` once they are durable. The folder is the workload's own to write to, so nothing
    in the file is trusted further than a report of that workload is.
    """
    try:
        data = json.loads(_read(_file(record_dir, pod)))
        found = [from_json(Report, one) for one in data["reports"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError, RecursionError, WireError) as err:
        _log.warning("what pod %s has left behind cannot be read: %s: %s", pod, type(err).__name__, err)
        return []
    return [one for one in found if (one.workload, one.incarnation) == (workload, incarnation)]


def taken(record_dir: Path, pod: str) -> None:
    """What was left behind is durable elsewhere. Blocks."""
    try:
        _file(record_dir, pod).unlink(missing_ok=True)
    except OSError as err:
        _log.warning("what pod %s has left behind cannot be removed: %s", pod, err)


def _file(record_dir: Path, pod: str) -> Path:
    return record_dir / LEFT_FILE.format(pod=pod)


def _read(path: Path) -> Any:
    # It may be anything at that name: a pipe would block, a link lead elsewhere.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
            raise ValueError(f"it is no plain file of at most {MOST_BYTES} bytes")
        return file.read(MOST_BYTES)
