"""Who wants to hear of changes: each subscriber has a bounded line of its own, so that a slow one harms nobody."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

OTHERS_S = 1.0  # between two notes that something of others has changed
EXPECTED_S = 60.0  # for so long whoever stopped listening is expected back
CAPACITY = 2048  # changes; a reader that is further behind gets a fresh listing instead


class Change(NamedTuple):
    """A Workload object as it became, or what everybody is told (``kind``); ``id`` says which change that was."""

    id: str
    view: dict[str, Any]
    kind: str = "workload"

    def concerns(self, user: str | None) -> bool:
        """Whether a subscriber to this user's (None: everybody's) changes is told."""
        return user is None or self.kind != "workload" or self.view.get("user") == user


OTHERS = Change("", {})  # something changed that is not this subscriber's

class Subscription:
    """One subscriber's line. ``get`` gives the next change; None says that changes were dropped: list anew.

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
        self._filled = asyncio.Event()

    def put(self, item: Change) -> None:
        """Add a change; a line that is full is emptied and begins with the note that changes were dropped."""
        if len(self._line) >= self._capacity:
            # Every change carries the whole workload, so a listing makes up for all that was missed.
            self._line.clear()
            self._line.append(None)
        self._line.append(item)
        self._filled.set()

    def put_others(self) -> None:
        """Note that something changed that is not its own."""
        if not self._others:
            self._others = True
            self._filled.set()

    async def get(self) -> Change | None:
        """Wait for the next change; its own come first."""
        while not self._line:
            quiet_s = self._quiet_until - time.monotonic() if self._others else None
            if quiet_s is not None and quiet_s <= 0:
                self._others, self._quiet_until = False, time.monotonic() + OTHERS_S
                return OTHERS
            self._filled.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(quiet_s):  # unlike ``wait_for`` it needs no task
                    await self._filled.wait()
        return self._line.popleft()


class Broadcast:
    """Hands each change to every subscriber."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()
        self._users: Counter[str | None] = Counter()
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
        return len(self._subscriptions)

    def wants(self, user: str) -> bool:
        """Whether anybody listens to changes of this user's workloads, or will again in a moment."""
        if self._users[None] or self._users[user]:
            return True
        # Who was cut off a moment ago comes back, and would then have to be told everything anew.
        left = max(self._left.get(user, 0.0), self._left.get(None, 0.0))
        return bool(left) and time.monotonic() - left < EXPECTED_S

    def unheard(self, user: str) -> None:
        """Something of this user's changed, and nobody wants to be told what."""
        self._count += 1
        self._unheard[user] = self._unheard[None] = self._count
        for subscription in self._subscriptions:
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
        self._subscriptions.add(subscription)
        self._users[subscription.user] += 1
        return subscription

    def _remember(self, change: Change) -> None:
        if len(self._last) == CAPACITY:
            self._dropped = _number(self._last[0])
        self._last.append(change)

    def _id(self) -> str:
        return f"{self._boot}-{self._count}"

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop listening."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            self._users[subscription.user] -= 1
            self._left[subscription.user] = time.monotonic()

    def publish(self, items: Iterable[dict[str, Any]]) -> None:
        """Tell everybody whom it concerns, in order."""
        for item in items:
            self._put(item, "workload")

    def announce(self, notices: dict[str, Any]) -> None:
        """Tell all subscribers what everybody is to see from now on."""
        self._put(notices, "announcements")

    def _put(self, item: dict[str, Any], kind: str) -> None:
        self._count += 1
        change = Change(self._id(), item, kind)
        self._remember(change)
        for subscription in self._subscriptions:
            if change.concerns(subscription.user):
                subscription.put(change)
            else:
                subscription.put_others()


def _number(change: Change) -> int:
    return int(change.id.rpartition("-")[2])
