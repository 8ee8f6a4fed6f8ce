"""Who wants to hear of changes: each subscriber has a bounded line of its own, so that a slow one harms nobody."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

OTHERS_S = 1.0  # between two notes that something of others has changed
EXPECTED_S = 60.0  # for so long whoever stopped listening is expected back
CAPACITY = 2048  # changes; a reader that is further behind gets a fresh listing instead


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """A Workload object as it became, or what everybody is told (``kind``); ``id`` says which change that was."""

    id: str
    view: dict[str, Any]
    kind: str = "workload"
    texts: dict[bool, str] = field(default_factory=dict)  # as it is sent to those who may see all of it, and to others

    def concerns(self, user: str | None) -> bool:
        """Whether a subscriber to this user's (None: everybody's) changes is told."""
        return user is None or self.kind != "workload" or self.view.get("user") == user


OTHERS = Change("", {})  # something changed that is not this subscriber's


class Subscription:
    """One subscriber's line of changes; None among them says that some were dropped: list anew.

    Args:
        user: Whose workloads it is told of; None: all. Of others' it hears that there was something (``OTHERS``), every
            ``OTHERS_S`` at most.
        since: Which change was the last before it.
        missed: Those that it is told first.
    """

    def __init__(
        self, user: str | None = None, capacity: int = CAPACITY, since: str = "", missed: Iterable[Change] = ()
    ) -> None:
        self.user, self.since = user, since
        self._line: deque[Change | None] = deque(missed)
        self._others, self._quiet_until = False, 0.0  # monotonic
        self._capacity = capacity
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: Change) -> None:
        """Add a change; a line that is full is emptied and begins with the note that changes were dropped."""
        if len(self._line) >= self._capacity:
            # Every change carries the whole workload, so a listing makes up for all that was missed.
            self._line.clear()
            self._line.append(None)
        self._line.append(item)
        self._wake()

    def put_others(self) -> None:
        """Note that something changed that is not its own."""
        if not self._others:
            self._others = True
            self._wake()

    def close(self) -> None:
        """Have nobody wait any longer."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> Change | None:
        """Wait for the next change; its own come first."""
        while not self._ready():
            await self._wait(None)
        return self._line.popleft()

    async def take(self, within_s: float) -> list[Change | None]:
        """All changes that there are, its own first. Waits for one; nothing: none came in time, or it was closed."""
        until = time.monotonic() + within_s
        while not self._ready() and not self._closed and (left_s := until - time.monotonic()) > 0:
            await self._wait(left_s)
        found = list(self._line)
        self._line.clear()
        return found

    def _ready(self) -> bool:
        if not self._line and self._others and time.monotonic() >= self._quiet_until:
            self._others, self._quiet_until = False, time.monotonic() + OTHERS_S
            self._line.append(OTHERS)
        return bool(self._line)

    async def _wait(self, within_s: float | None) -> None:
        """Return when something new is there, or it is time to tell of others. One waits at a time."""
        if self._others:
            quiet_s = self._quiet_until - time.monotonic()
            within_s = quiet_s if within_s is None else min(quiet_s, within_s)
        loop = asyncio.get_running_loop()
        # No task and no event: there are hundreds of these, and each change of anybody's wakes some.
        self._waiter = loop.create_future()
        timer = None if within_s is None else loop.call_later(max(0.0, within_s), self._wake)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


class Broadcast:
    """Hands each change to every subscriber."""

    def __init__(self) -> None:
        self._subscriptions: dict[str | None, list[Subscription]] = {}  # by whose changes they hear of
        self._listeners = 0
        self._left: dict[str | None, float] = {}  # when somebody last stopped listening (monotonic)
        # By whose change nobody heard: the number of the last one. None: anybody's.
        self._unheard: dict[str | None, int] = {}
        # Numbers begin anew with each start, so that a change of another process is never taken for one of this.
        self._boot, self._count = secrets.token_hex(4), 0
        self._last: deque[Change] = deque(maxlen=CAPACITY)
        self._dropped = 0  # number of the last change that is not remembered any more

    @property
    def listeners(self) -> int:
        """How many listen."""
        return self._listeners

    def wants(self, user: str) -> bool:
        """Whether anybody listens to changes of this user's workloads, or will again in a moment."""
        if None in self._subscriptions or user in self._subscriptions:
            return True
        # Who was cut off a moment ago comes back, and would then have to be told everything anew.
        left = max(self._left.get(user, 0.0), self._left.get(None, 0.0))
        return bool(left) and time.monotonic() - left < EXPECTED_S

    def unheard(self, user: str) -> None:
        """Something of this user's changed, and nobody wants to be told what."""
        self._count += 1
        self._unheard[user] = self._unheard[None] = self._count
        for subscription in chain.from_iterable(self._subscriptions.values()):
            subscription.put_others()

    def subscribe(self, user: str | None = None, capacity: int = CAPACITY) -> Subscription:
        """Begin to listen, to one user's workloads or to all."""
        return self._joined(Subscription(user, capacity, self._id()))

    def resume(self, last: str, user: str | None = None) -> Subscription | None:
        """Go on listening after the change ``last``; None if what came since is not known any more."""
        if not self.can_resume(last, user):
            return None
        return self._joined(Subscription(user, since=last, missed=self._missed(last, user)))

    def can_resume(self, last: str, user: str | None = None) -> bool:
        """Whether all is known that came after the change ``last``."""
        boot, _, number = last.partition("-")
        if boot != self._boot or not (number.isascii() and number.isdecimal()) or len(number) > len(str(self._count)):
            return False
        return max(self._dropped, self._unheard.get(user, 0)) <= int(number) <= self._count

    def _missed(self, last: str, user: str | None) -> list[Change]:
        heard = int(last.rpartition("-")[2])
        return [one for one in self._last if _number(one) > heard and one.concerns(user)]

    def _joined(self, subscription: Subscription) -> Subscription:
        self._subscriptions.setdefault(subscription.user, []).append(subscription)
        self._listeners += 1
        return subscription

    def _remember(self, change: Change) -> None:
        if len(self._last) == CAPACITY:
            self._dropped = _number(self._last[0])
        self._last.append(change)

    def _id(self) -> str:
        return f"{self._boot}-{self._count}"

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop listening."""
        theirs = self._subscriptions.get(subscription.user, [])
        if subscription in theirs:
            theirs.remove(subscription)
            self._listeners -= 1
            self._left[subscription.user] = time.monotonic()
            if not theirs:
                del self._subscriptions[subscription.user]

    def publish(self, items: Iterable[dict[str, Any]]) -> None:
        """Tell everybody whom it concerns, in order."""
        everything, users = self._subscriptions.get(None, ()), set[str | None]()
        for item in items:
            change = self._changed(item, "workload")
            user = item.get("user")
            users.add(user)
            for subscription in (*everything, *(self._subscriptions.get(user, ()) if user is not None else ())):
                subscription.put(change)
        for user, subscriptions in self._subscriptions.items():
            if user is not None and users - {user}:
                for subscription in subscriptions:
                    subscription.put_others()

    def announce(self, notices: dict[str, Any]) -> None:
        """Tell all subscribers what everybody is to see from now on."""
        change = self._changed(notices, "announcements")
        for subscription in chain.from_iterable(self._subscriptions.values()):
            subscription.put(change)

    def _changed(self, item: dict[str, Any], kind: str) -> Change:
        self._count += 1
        change = Change(self._id(), item, kind)
        self._remember(change)
        return change


def _number(change: Change) -> int:
    return int(change.id.rpartition("-")[2])
