"""Links that log a browser in: each good once, for a minute. What is in them is worthless afterwards, wherever it was kept."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from gpufair.service.identity.auth import Principal

LASTS_S: Final = 60.0
_MOST: Final = 1000


class Links:
    """In memory: who restarts the service asks for a new one."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._open: dict[str, tuple[float, Principal]] = {}

    def make(self, whose: Principal) -> str:
        """A code that can be redeemed once."""
        self._forget()
        code = secrets.token_urlsafe(32)
        self._open[code] = self._now() + LASTS_S, whose
        while len(self._open) > _MOST:
            del self._open[next(iter(self._open))]
        return code

    def redeem(self, code: str) -> Principal | None:
        """Whose code it is; None: it is none, was used, or is too old."""
        self._forget()
        found = self._open.pop(code, None)
        return None if found is None else found[1]

    def _forget(self) -> None:
        for code in [code for code, (until, _) in self._open.items() if until <= self._now()]:
            del self._open[code]
