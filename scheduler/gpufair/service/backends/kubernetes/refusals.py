"""Nodes that do not take a pod after all: the next try waits, longer each time, and not for ever.

Such a pod ends at once, and its workload would be sent to the same node at once, hundreds of times a minute: a device plugin
that is broken is not mended by that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

FIRST_S: Final = 1.0
MOST_S: Final = 60.0
MOST: Final = 5  # in a row; from then on it counts as a start that has failed
_REMEMBERED_S: Final = 3600.0


class Refusals:
    """Of each workload by each node, in a row."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._found: dict[tuple[str, str], tuple[int, float]] = {}

    def note(self, workload: str, node: str) -> tuple[int, float]:
        """One more. Returns how many there are by now, and for how many seconds nothing is to be tried."""
        now = self._now()
        self._found = {key: one for key, one in self._found.items() if now - one[1] < _REMEMBERED_S}
        count = self._found.get((workload, node), (0, 0.0))[0] + 1
        self._found[workload, node] = count, now
        return count, min(MOST_S, FIRST_S * 2.0 ** min(count - 1, 30))

    def forget(self, workload: str, node: str) -> None:
        """It was taken."""
        self._found.pop((workload, node), None)
