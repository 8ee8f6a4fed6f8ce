"""Holds a workload to the memory it may use: measured, warned of near the limit, and ended above it.

What counts is what a machine cannot take back: the anonymous and shared memory of all processes of the workload, each
page once (shared ones in parts). Pages of mapped files are no use of memory: they are dropped when somebody needs the
room. An address space as wide as CUDA's counts for what is really there, which RLIMIT_AS cannot tell.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpufair.node.processes import Proc, find

NEAR, FAR = 0.9, 0.8  # of the limit: the owner is warned above, and that is withdrawn below
DEFAULT_PART = 2  # who asks for no memory and no GPUs may use 1/2 of what the node has
# Between two measurements, at least, and how many times as long as one takes: from half of the limit on it is looked at
# more often.
PAUSE_S, TIMES = 1.0, 50
CLOSE_PAUSE_S, CLOSE_TIMES = 0.25, 5
_GIB = 1 << 30
_PROC = Path("/proc")
_CHEAP = ("RssAnon:", "RssShmem:")
_EXACT = ("Pss_Anon:", "Pss_Shmem:")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """How much a workload may use on this node. ``asked``: its owner named it; else it is the node's rule."""

    size_bytes: int
    asked: bool = True

    def near(self, used_bytes: int) -> str:
        """The warning."""
        return f"It uses {gib(used_bytes)} of the {self._may()}. Above that it is ended: {self._advice(used_bytes)}"

    def over(self, used_bytes: int) -> str:
        """Why it was ended."""
        return f"over its memory limit: it used {gib(used_bytes)} of the {self._may()}; {self._advice(used_bytes)}"

    def _may(self) -> str:
        if self.asked:
            return f"{gib(self.size_bytes)} that it asked for"
        return f"{gib(self.size_bytes)} that a workload may use here which asks for no memory (half of the node's)"

    @staticmethod
    def _advice(used_bytes: int) -> str:
        enough = -(-used_bytes * 3 // 2 // _GIB) if used_bytes >= _GIB else 1
        return f"free some, or ask for more, like --memory {enough}GiB, or by another profile"


def limit_of(asked_bytes: int, gpus: int, node_bytes: int) -> MemoryLimit | None:
    """The limit of a workload on one node; None: it has none.

    Args:
        asked_bytes: What it asked for there; 0: nothing.
        gpus: Its GPUs there. Where it has some, the node is mostly its own.
        node_bytes: Memory of the node; 0: unknown.
    """
    if asked_bytes:
        return MemoryLimit(asked_bytes)
    if not gpus and node_bytes:
        return MemoryLimit(node_bytes // DEFAULT_PART, asked=False)
    return None


def gib(size_bytes: int) -> str:
    """A size for people, like 4.2 GiB or 310 MiB."""
    return f"{size_bytes / _GIB:.1f} GiB" if size_bytes >= _GIB else f"{size_bytes / (1 << 20):.0f} MiB"


def used(processes: Iterable[Proc], enough_bytes: int = 0) -> int:
    """Bytes that these use. Where the cheap figure, which counts shared pages for each, is below ``enough_bytes``,
    that one is given: the exact one would not be more."""
    every = list(processes)
    cheap = sum(_sum(one, "status", _CHEAP) for one in every)
    if cheap < enough_bytes:
        return cheap
    return sum(_sum(one, "smaps_rollup", _EXACT) for one in every)


def _sum(process: Proc, file: str, names: tuple[str, ...]) -> int:
    try:
        lines = (_PROC / str(process.pid) / file).read_text().splitlines()
    except OSError:  # it has just ended, or is none of ours
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))


class MemoryWatch:
    """Measures for as long as the workload lives.

    Args:
        limit: What it may use.
        session: The session id of its first process now.
        tag: Value of ``GPUFAIR_TAG`` of its processes.
        remark: Takes the warning, and "" when it holds no longer.
        over: Ends it. Called with the reason; from then on it is measured on only once that is done.
    """

    def __init__(
        self,
        limit: MemoryLimit,
        session: Callable[[], int],
        tag: str,
        remark: Callable[[str], None],
        over: Callable[[str], Any],
    ) -> None:
        self._limit, self._session, self._tag = limit, session, tag
        self._remark, self._over = remark, over
        self._warned = False

    async def run(self) -> None:
        """For ever; cancel it at the end."""
        while True:
            begun = time.monotonic()
            size = await asyncio.to_thread(self._measure)
            took = time.monotonic() - begun
            if size > self._limit.size_bytes:
                self._warned = False
                await self._over(self._limit.over(size))
            elif size >= NEAR * self._limit.size_bytes and not self._warned:
                self._warned = True
                self._remark(self._limit.near(size))
            elif size < FAR * self._limit.size_bytes and self._warned:
                self._warned = False
                self._remark("")
            close = size * 2 > self._limit.size_bytes
            await asyncio.sleep(max(CLOSE_PAUSE_S, CLOSE_TIMES * took) if close else max(PAUSE_S, TIMES * took))

    def _measure(self) -> int:
        return used(find(self._session(), self._tag), int(NEAR * self._limit.size_bytes))


def watch(
    start: dict[str, Any],
    session: Callable[[], int],
    remark: Callable[[str], None],
    over: Callable[[str], Any],
) -> asyncio.Task[None] | None:
    """Begin to hold a workload to its limit, if it has one. ``start`` is the content of ``start.json``."""
    limit = start.get("memory_limit")
    if limit is None:
        return None
    it = MemoryWatch(MemoryLimit(**limit), session, start["tag"], remark, over)
    return asyncio.create_task(it.run(), name="memory")
