"""Since when a workload has not touched the GPUs that it holds. Unknown is said by saying nothing.

Touched is a GPU on which something computes or has a context, by NVML; and where NVML cannot say no for certain (it is not
there, or we are in a container) one whose device file a process of the workload holds open, which is what every library
does before it computes. Virtual GPUs have no device: nothing is known of them, unless their node names files for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gpufair.node.gpus import computing, is_virtual
from gpufair.node.processes import by_tag, open_files, sees_all

DEVICE_FILES = ("/dev/nvidia[0-9]*",)  # of real GPUs, where the node names no others
# After so many looks what is true is told again: a service that was started meanwhile has not heard it, and one that waits
# for it to have been true for long enough looks at the time when it hears.
REPEAT = 6
Key = tuple[str, int]  # workload, incarnation


@dataclass(frozen=True, slots=True)
class Holder:
    """A workload that holds GPUs: their ids, and the tag of its processes."""

    devices: tuple[str, ...]
    tag: str


def touched(holders: Mapping[Key, Holder], files: Sequence[str] = ()) -> dict[Key, bool]:
    """Whether each touches one of its GPUs now; left out where that cannot be known. Blocks.

    Args:
        holders: All that hold GPUs here.
        files: Patterns of the device files of this node's GPUs, if they are named.
    """
    answers = computing([device for one in holders.values() for device in one.devices])
    certain = sees_all()
    found: dict[Key, bool] = {}
    looked: dict[Key, tuple[Holder, Sequence[str]]] = {}
    for key, one in holders.items():
        told = [answers.get(device) for device in one.devices]
        if any(told):
            found[key] = True
        elif certain and told and None not in told:
            found[key] = False
        elif patterns := files or (() if any(map(is_virtual, one.devices)) else DEVICE_FILES):
            looked[key] = one, patterns
    processes = by_tag(one.tag for one, _ in looked.values())
    for key, (one, patterns) in looked.items():
        opened = {path for pid in processes[one.tag] for path in open_files(pid)}
        if not opened:  # whoever runs has something open: we may not look
            continue
        found[key] = any(fnmatchcase(path, pattern) for path in opened for pattern in patterns)
    return found


class Watch:
    """What is known of each workload, and what of it is news."""

    def __init__(self, repeat_s: float) -> None:
        """``repeat_s``: what is true is news again after that."""
        self._repeat_s = repeat_s
        self._since: dict[Key, float] = {}  # when it was last seen to touch them, or first seen at all
        self._told: dict[Key, tuple[bool, float]] = {}  # what was reported last, and when

    def look(self, seen: Mapping[Key, bool], now_s: float) -> list[tuple[Key, dict[str, Any]]]:
        """Take in one look at ``now_s`` (Unix seconds); what to report of it. Who is not in it is forgotten."""
        self._since = {key: now_s if seen[key] else self._since.get(key, now_s) for key in seen}
        self._told = {key: told for key, told in self._told.items() if key in seen}
        news = []
        for key, used in seen.items():
            said, at = self._told.get(key, (not used, 0.0))
            if said != used or not 0 <= now_s - at < self._repeat_s:
                self._told[key] = used, now_s
                news.append((key, {"unused_since_s": None if used else self._since[key]}))
        return news


async def watch(
    holders: Callable[[], Mapping[Key, Holder]],
    report: Callable[[Key, dict[str, Any]], None],
    files: Sequence[str],
    pause_s: float,
) -> None:
    """Look at all who hold GPUs, for ever.

    Args:
        holders: Who they are now.
        report: Takes the body of a report about one of them.
        files: See ``touched``.
        pause_s: Between two looks.
    """
    known = Watch(REPEAT * pause_s)
    while True:
        for key, body in known.look(await asyncio.to_thread(touched, holders(), files), time.time()):
            report(key, body)
        await asyncio.sleep(pause_s)
