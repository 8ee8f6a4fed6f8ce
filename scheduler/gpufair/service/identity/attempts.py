"""Wrong tokens, counted by the address that shows them: who guesses is told to wait, and nobody else is.

A right token is never counted, so that one forgotten script locks nobody out who works from the same machine. Tokens are
too long to be guessed; what is saved is the work that guesses make, here and at the Hub.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final

from gpufair.service.problems import TooManyAttempts

SPAN_S: Final = 60.0
MOST: Final = 10_000  # addresses; the oldest is forgotten
_PREFIX: Final = 64  # bits of an IPv6 address: one machine has all that begin so
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seen:
    until: float
    times: int = 0
    shown: set[bytes] = field(default_factory=set)  # digests of different ones, at most as many as are allowed


class Attempts:
    """Args: per_minute: Wrong tokens that an address may show in a minute; 0: any number."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self._now = per_minute, now
        self._seen: dict[str, _Seen] = {}

    def worth_asking(self, address: str, shown: str) -> bool:
        """Whether somebody else may be asked about something that an address shows and that is not known here."""
        seen = self._of(address)
        return seen is None or (len(seen.shown) < self.per_minute and _digest(shown) not in seen.shown)

    def wrong(self, address: str, shown: str) -> None:
        """It was wrong.

        Raises:
            TooManyAttempts: As too many before it.
        """
        if not self.per_minute:
            return
        seen = self._of(address)
        if seen is None:
            seen = self._seen[_machine(address)] = _Seen(self._now() + SPAN_S)
            while len(self._seen) > MOST:
                del self._seen[next(iter(self._seen))]
        seen.times += 1
        if len(seen.shown) < self.per_minute:
            seen.shown.add(_digest(shown))
        if seen.times > self.per_minute:
            if seen.times == self.per_minute + 1:
                _log.warning("%s has shown %d wrong tokens within a minute", _machine(address)[:80], self.per_minute)
            raise TooManyAttempts(max(seen.until - self._now(), 1.0))

    def _of(self, address: str) -> _Seen | None:
        seen = self._seen.get(_machine(address))
        if seen is not None and seen.until <= self._now():
            del self._seen[_machine(address)]
            return None
        return seen


def _digest(shown: str) -> bytes:
    return hashlib.sha256(shown.encode()).digest()


def _machine(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(IPv6Address(int(found) >> (128 - _PREFIX) << (128 - _PREFIX)))
    return str(found)
