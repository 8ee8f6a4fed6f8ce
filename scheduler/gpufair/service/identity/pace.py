"""How often a token may ask: a bucket for each, which fills at a steady rate and holds what came together in a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gpufair.service.problems import AsksTooOften

HELD_S: Final = 10.0  # a page or a sweep asks many things at once, and then nothing for a while
_MOST: Final = 10_000  # buckets; full ones are no different from none


class Pace:
    """Args: per_s: requests a second in the long run; 0: any number."""

    def __init__(self, per_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._now = per_s, now
        self._buckets: dict[str, tuple[float, float]] = {}  # by token: requests left, as of when

    def take(self, token: str) -> None:
        """One request of the token with this name.

        Raises:
            AsksTooOften: It has none left.
        """
        if not self._per_s:
            return
        now, most = self._now(), self._per_s * HELD_S
        left, since = self._buckets.get(token, (most, now))
        left = min(most, left + (now - since) * self._per_s)
        if left < 1:
            raise AsksTooOften((1 - left) / self._per_s)
        self._buckets[token] = left - 1, now
        if len(self._buckets) > _MOST:
            self._buckets = {
                name: (left, since) for name, (left, since) in self._buckets.items() if left + (now - since) * self._per_s < most
            }
