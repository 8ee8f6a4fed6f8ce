"""What this machine has beside GPUs: processors that may be used, and memory."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_TOTAL = re.compile(r"^MemTotal:\s*(\d+) kB$", re.MULTILINE)


def cpus() -> int:
    """Processors that this process may use: in a container or under ``taskset`` fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes(meminfo: Path = _MEMINFO) -> int:
    """Memory of this machine; 0 if that cannot be known."""
    try:
        if found := _TOTAL.search(meminfo.read_text()):
            return int(found[1]) * 1024
    except OSError:
        pass  # not Linux
    try:
        return max(0, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (OSError, ValueError):
        return 0
