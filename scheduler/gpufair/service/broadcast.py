"""Who wants to hear of changes: each subscriber has a bounded line of its own, so that a slow one harms nobody."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

CAPACITY = 2048  # changes; a reader that is further behind gets a fresh listing instead


class Change(NamedTuple):
    """A Workload object as it became; ``id`` says which change that was."""

    id: str
    view: dict[str, Any]


class Subscription:
    """One subscriber's line. ``get`` gives the next change; None says that changes were dropped: list anew.

    Args:
        since: Which change was the last before it.
        missed: Those that it is told first.
    """

    def __init__(self, capacity: int = CAPACITY, since: str = "", missed: Iterable[Change] = ()) -> None:
        self.since = since
        self._line: deque[Change | None] = deque(missed)
        self._capacity = capacity
        self._filled = asyncio.Event()

    def put(self, item: Change) -> None:
        """Add a change; a line that is full is emptied and begins with the note that changes were dropped."""
        if len(self._line) >= self._capacity:
            # Every change carries the whole workload, so a listing makes up for all that was missed.
            self._line.clear()
            self._line.append(None)
        self._line.append(item)
        self._filled.set()

    async def get(self) -> Change | None:
        """Wait for the next change."""
        while not self._line:
            self._filled.clear()
            await self._filled.wait()
        return self._line.popleft()


class Broadcast:
    """Hands each change to every subscriber."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        # Numbers begin anew with each start, so that a change of another process is never taken for one of this.
        self._boot, self._count = secrets.token_hex(4), 0
        self._last: deque[Change] = deque(maxlen=CAPACITY)

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._subscriptions)

    def subscribe(self, capacity: int = CAPACITY) -> Subscription:
        """Begin to listen."""
        return self._joined(Subscription(capacity, self._id()))

    def resume(self, last: str) -> Subscription | None:
        """Go on listening after the change ``last``; None if what came since is not known any more."""
        boot, _, number = last.partition("-")
        if boot != self._boot or not (number.isascii() and number.isdecimal()) or len(number) > len(str(self._count)):
            return None
        missed = self._count - int(number)
        if not 0 <= missed <= len(self._last):
            return None
        return self._joined(Subscription(since=last, missed=list(self._last)[len(self._last) - missed :]))

    def _joined(self, subscription: Subscription) -> Subscription:
        self._subscriptions.add(subscription)
        return subscription

    def _id(self) -> str:
        return f"{self._boot}-{self._count}"

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop listening."""
        self._subscriptions.discard(subscription)

    def publish(self, items: Iterable[dict[str, Any]]) -> None:
        """Tell everybody, in order."""
        for item in items:
            self._count += 1
            change = Change(self._id(), item)
            self._last.append(change)
            for subscription in self._subscriptions:
                subscription.put(change)
