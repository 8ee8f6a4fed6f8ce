"""The objects of the fake API server, in the order of one counter; what watches are told.

Objects are never changed in place: each write puts a new one, so that a list of them is a snapshot for ever.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from tests.kube.answers import exists, expired, modified, not_found
from tests.kube.matching import Matches
from tests.kube.resources import Resource

HISTORY = 20_000
"""Changes that a watch can go back: enough for every test, and a bound for long runs."""

FIRST_VERSION = 1000


def stamp(at: datetime | None = None) -> str:
    """A time as the API server writes it: whole seconds."""
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Item:
    """One version of one object."""

    def __init__(self, resource: Resource, obj: dict[str, Any]) -> None:
        self.resource = resource
        self.obj = obj

    @cached_property
    def text(self) -> bytes:
        return json.dumps(self.obj).encode()

    @property
    def name(self) -> str:
        name: str = self.obj["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.obj["metadata"].get("namespace", "")
        return namespace

    @property
    def uid(self) -> str:
        uid: str = self.obj["metadata"]["uid"]
        return uid

    @property
    def version(self) -> int:
        return int(self.obj["metadata"]["resourceVersion"])


@dataclass(frozen=True)
class Change:
    version: int
    before: Item | None
    after: Item | None
    # What a watch shows of a deletion: the last state, with the version of the deletion.
    gone: Item | None = None

    @property
    def resource(self) -> Resource:
        item = self.after or self.before
        assert item is not None
        return item.resource


Key = tuple[str, str]


class Store:
    """Used in one thread only."""

    def __init__(self) -> None:
        self.version = FIRST_VERSION
        self.oldest = FIRST_VERSION
        self.by_resource: dict[Resource, dict[Key, Item]] = {}
        self.by_uid: dict[str, Item] = {}
        self._history: deque[Change] = deque()
        self._changed = asyncio.Event()
        # Told of each change, in order, after it is stored.
        self.listeners: list[Callable[[Change], None]] = []

    # ------------------------------------------------------------------ reading

    def find(self, resource: Resource, namespace: str, name: str) -> Item | None:
        return self.by_resource.get(resource, {}).get((namespace, name))

    def get(self, resource: Resource, namespace: str, name: str) -> Item:
        item = self.find(resource, namespace, name)
        if item is None:
            raise not_found(resource, name)
        return item

    def items(self, resource: Resource, namespace: str = "") -> Iterator[Item]:
        """In the order of their names; of all namespaces where ``namespace`` is empty."""
        there = self.by_resource.get(resource, {})
        keys = sorted(there) if not namespace else sorted(key for key in there if key[0] == namespace)
        return iter([there[key] for key in keys])

    # ------------------------------------------------------------------ writing

    def create(self, resource: Resource, obj: dict[str, Any]) -> Item:
        metadata = obj["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in self.by_resource.setdefault(resource, {}):
            raise exists(resource, metadata["name"])
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = stamp()
        return self._put(resource, key, obj)

    def replace(self, item: Item, obj: dict[str, Any]) -> Item:
        """Nothing is written where nothing changed. Refuses with 409 what was made from an older version."""
        metadata = obj["metadata"]
        if metadata.get("resourceVersion") not in {None, "", item.obj["metadata"]["resourceVersion"]}:
            raise modified(item.resource, item.name)
        metadata["resourceVersion"] = item.obj["metadata"]["resourceVersion"]
        if obj == item.obj:
            return item
        return self._put(item.resource, (item.namespace, item.name), obj, before=item)

    def remove(self, item: Item) -> Item:
        """The last state, as a watch shows it."""
        self.by_resource[item.resource].pop((item.namespace, item.name))
        self.by_uid.pop(item.uid, None)
        self.version += 1
        last = Item(item.resource, _at_version(item.obj, self.version))
        self._tell(Change(self.version, item, None, last))
        return last

    def _put(self, resource: Resource, key: Key, obj: dict[str, Any], before: Item | None = None) -> Item:
        self.version += 1
        item = Item(resource, _at_version(obj, self.version))
        self.by_resource[resource][key] = item
        self.by_uid[item.uid] = item
        self._tell(Change(self.version, before, item))
        return item

    def _tell(self, change: Change) -> None:
        self._history.append(change)
        if len(self._history) > HISTORY:
            self.oldest = self._history.popleft().version
        self.wake()
        for listener in self.listeners:
            listener(change)

    # ------------------------------------------------------------------ history

    def forget(self) -> None:
        """No watch can begin at a version that anybody has seen so far."""
        self._history.clear()
        self.version += 1
        self.oldest = self.version

    def since(self, version: int) -> list[Change]:
        """The changes after ``version``. Refuses with 410 where they are forgotten."""
        if version < self.oldest:
            raise expired(version, self.oldest)
        news: list[Change] = []
        for change in reversed(self._history):
            if change.version <= version:
                break
            news.append(change)
        return news[::-1]

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Until something changes, or the time is up."""
        event = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            pass


def _at_version(obj: Mapping[str, Any], version: int) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}


def as_seen(change: Change, resource: Resource, namespace: str, matches: Matches) -> tuple[str, Item] | None:
    """The event of a watch with this selector, or None where it shows nothing."""
    if change.resource is not resource:
        return None
    before = _seen(change.before, namespace, matches)
    after = _seen(change.after, namespace, matches)
    if after is not None:
        return ("ADDED" if before is None else "MODIFIED"), after
    if before is None:
        return None
    if change.gone is not None:
        return "DELETED", change.gone
    # It left the selection: shown in its old state, with the version of the change.
    return "DELETED", Item(resource, _at_version(before.obj, change.version))


def _seen(item: Item | None, namespace: str, matches: Matches) -> Item | None:
    if item is None or (namespace and item.namespace != namespace) or not matches(item.obj):
        return None
    return item
