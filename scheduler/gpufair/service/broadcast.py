"""Who wants to hear of changes: each subscriber has a bounded line of its own, so that a slow one harms nobody."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

CAPACITY = 2048  # changes; a reader that is further behind gets a fresh listing instead


class Subscription:
    """One subscriber's line. ``get`` gives the next Workload object; None says that changes were dropped: list anew."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._line: deque[dict[str, Any] | None] = deque()
        self._capacity = capacity
        self._filled = asyncio.Event()

    def put(self, item: dict[str, Any]) -> None:
        """Add a change; a line that is full is emptied and begins with the note that changes were dropped."""
        if len(self._line) >= self._capacity:
            # Every change carries the whole workload, so a listing makes up for all that was missed.
            self._line.clear()
            self._line.append(None)
        self._line.append(item)
        self._filled.set()

    async def get(self) -> dict[str, Any] | None:
        """Wait for the next change."""
        while not self._line:
            self._filled.clear()
            await self._filled.wait()
        return self._line.popleft()


class Broadcast:
    """Hands each change to every subscriber."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._subscriptions)

    def subscribe(self, capacity: int = CAPACITY) -> Subscription:
        """Begin to listen."""
        subscription = Subscription(capacity)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop listening."""
        self._subscriptions.discard(subscription)

    def publish(self, items: Iterable[dict[str, Any]]) -> None:
        """Tell everybody, in order."""
        for item in items:
            for subscription in self._subscriptions:
                subscription.put(item)
