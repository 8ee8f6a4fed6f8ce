"""A copy of what an API server holds, kept up to date: list once, then watch."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from gpufair.service.backends.kubernetes.api import Api, Pause
from gpufair.service.backends.kubernetes.asked import asked
from gpufair.service.backends.kubernetes.problems import Gone, KubernetesProblem, Unavailable, problem_of
from gpufair.service.backends.kubernetes.stream import Event, Stream

Object = dict[str, Any]
Key = tuple[str, str]  # namespace ("" where there is none), name
ChangeKind = Literal["added", "modified", "deleted"]

_LIST_S: Final = 30.0  # for one page, tries included
_QUIET_S: Final = 15.0  # beyond the end that was asked for
_SHORT_S: Final = 1.0  # a stream that ends sooner is no stream
_AT_ONCE: Final = 200  # changes told before others in the loop have a turn
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """One object became another."""

    kind: ChangeKind
    object: Object  # as it is now; deleted: as it was last
    before: Object | None = None  # as it was known before; None: it was not
    # Whether the server said so. False: it was deleted while nobody looked, and how it ended was not seen.
    told: bool = True


class Reflector:
    """The objects at one path, by (namespace, name). ``run`` keeps them; read them in its event loop.

    Args:
        path: A collection: ``/api/v1/pods``, ``/api/v1/namespaces/x/pods``.
        labels: A label selector; "": all.
        fields: A field selector; "": all.
        changed: Called in the event loop after ``objects`` has it, in the server's order. What it raises is logged.
        page: Objects to a list call.
        watch_s: After how long the server ends a stream, and a new one begins where it ended. A connection that is
            dead without a word is noticed some seconds later.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        *,
        labels: str = "",
        fields: str = "",
        changed: Callable[[Change], None] | None = None,
        page: int = 500,
        watch_s: float = 60.0,
        pause: Pause | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._path, self._changed = api, path, changed
        self._selectors = {"labelSelector": labels or None, "fieldSelector": fields or None}
        self._page: Final = page
        self._in_pages = True
        self._watch_s, self._now = watch_s, now
        self._pause = pause or Pause()
        self._objects: dict[Key, Object] = {}
        self._names: dict[str, Key] = {}
        self._version: str | None = None  # up to which all is known; None: a list is due
        self._synced = asyncio.Event()
        self._stale_since: float | None = now()
        self._trouble: KubernetesProblem | None = None
        self._asked: Final = asked("GET", path, {"watch": True})

    @property
    def objects(self) -> Mapping[Key, Object]:
        """All, by (namespace, name), without ``managedFields``. They are shared: change none."""
        return MappingProxyType(self._objects)

    def by_uid(self, uid: str) -> Object | None:
        """The one with this uid."""
        key = self._names.get(uid)
        return None if key is None else self._objects[key]

    @property
    def stale_since(self) -> float | None:
        """Since when no stream is open, as ``now`` tells time; None: one is, and ``objects`` follows the server."""
        return self._stale_since

    @property
    def trouble(self) -> KubernetesProblem | None:
        """Why it is stale; None: it is not, or has only begun."""
        return self._trouble

    async def synced(self) -> None:
        """Return when the first list is complete, and its changes told."""
        await self._synced.wait()

    async def run(self) -> None:
        """Keep ``objects`` until cancelled; no answer of the server ends it. It ends within a second of that."""
        while True:
            try:
                if self._version is None:
                    await self._list()
                await self._follow(self._version or "")
            except Gone as problem:
                _log.info("%s", problem)
                self._version = None
                await self._wait(problem)
            except KubernetesProblem as problem:
                if "too large resource version" in problem.said.lower():
                    self._version = None  # the server knows less than we saw: it was put back to an older state
                await self._wait(problem)

    async def _wait(self, problem: KubernetesProblem) -> None:
        self._lose()
        if not isinstance(problem, Gone) and str(problem) != str(self._trouble):
            _log.warning("%s", problem)
        self._trouble = problem
        await asyncio.sleep(self._pause.after(problem))

    def _lose(self) -> None:
        if self._stale_since is None:
            self._stale_since = self._now()

    # -- list -----------------------------------------------------------------------------------------------------

    async def _list(self) -> None:
        found: dict[Key, Object] = {}
        token: str | None = None
        while True:
            limit = self._page if self._in_pages else None
            query = self._selectors | {"limit": limit, "continue": token}
            try:
                answer = await self._api.call("GET", self._path, query=query, retry_s=_LIST_S)
            except Gone:
                # More came between two pages than the server remembers: next time everything at once.
                self._in_pages = token is None
                raise
            about = answer.get("metadata")
            items = answer.get("items") or []
            if not isinstance(about, dict) or not isinstance(items, list) or not about.get("resourceVersion"):
                raise Unavailable(asked("GET", self._path), "its answer is no list")
            kind = {"apiVersion": answer.get("apiVersion"), "kind": str(answer.get("kind") or "").removesuffix("List")}
            for item in items:
                found[self._key(item)] = kind | item  # which items of a list do not say themselves
            token = about.get("continue") or None
            if token is None:
                break
        self._in_pages = True
        await self._replace(found)
        self._version = str(about["resourceVersion"])
        self._synced.set()

    async def _replace(self, found: dict[Key, Object]) -> None:
        told = 0
        for key in [key for key, known in self._objects.items() if key not in found or _uid(found[key]) != _uid(known)]:
            self._forget(key)
            told = await _turn(told)
        for key, item in found.items():
            known = self._objects.get(key)
            if known is None or _version(known) != _version(item):
                self._keep(key, item)
                told = await _turn(told)

    # -- watch ----------------------------------------------------------------------------------------------------

    async def _follow(self, version: str) -> None:
        # Drawn, so that the streams of many do not all end at once.
        watch_s = max(1, round(self._watch_s * random.uniform(0.8, 1.2)))
        query = self._selectors | {
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": version,
            "timeoutSeconds": watch_s,
        }
        brought, began = 0, self._now()
        async with Stream(self._api, self._path, query, quiet_s=watch_s + _QUIET_S) as stream:
            if self._trouble is not None:
                _log.info("Kubernetes answers again: %s", self._asked)
            self._stale_since = self._trouble = None
            try:
                async for batch in stream.batches():
                    brought += sum(self._apply(event) for event in batch)
                    if brought:
                        self._pause.reset()
                    await asyncio.sleep(0)
            finally:
                self._lose()
        if self._now() - began >= _SHORT_S:
            self._pause.reset()
        elif not brought:
            raise Unavailable(self._asked, "the stream ended as soon as it had begun")

    def _apply(self, event: Event) -> bool:
        """Whether it was news."""
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            code = item.get("code")
            raise problem_of(self._asked, code if isinstance(code, int) else 500, item)
        if kind not in {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}:
            raise Unavailable(self._asked, f"the stream brought an event of the unknown type {kind[:40]!r}")
        if kind == "BOOKMARK":
            version = _version(item)
        else:
            key, version = self._key(item), _version(item)
        if not _newer(version, self._version or ""):
            return False  # said twice
        if kind == "DELETED":
            known = self._objects.get(key)
            if known is not None and _uid(known) == _uid(item):
                self._forget(key, item)
        elif kind != "BOOKMARK":
            known = self._objects.get(key)
            if known is not None and _uid(known) != _uid(item):
                self._forget(key)
            self._keep(key, item)
        self._version = version
        return True

    # -- both -----------------------------------------------------------------------------------------------------

    def _key(self, item: object) -> Key:
        about = item.get("metadata") if isinstance(item, dict) else None
        if (
            not isinstance(about, dict)
            or not about.get("name")
            or not about.get("uid")
            or not about.get("resourceVersion")
        ):
            raise Unavailable(self._asked, "it brought an object without a name, a uid or a resourceVersion")
        # A third of an object's bytes, and nobody here reads it.
        about.pop("managedFields", None)
        return str(about.get("namespace") or ""), str(about["name"])

    def _keep(self, key: Key, item: Object) -> None:
        before = self._objects.get(key)
        self._objects[key] = item
        self._names[_uid(item)] = key
        self._tell(Change("added" if before is None else "modified", item, before))

    def _forget(self, key: Key, last: Object | None = None) -> None:
        before = self._objects.pop(key)
        self._names.pop(_uid(before), None)
        self._tell(Change("deleted", before if last is None else last, before, told=last is not None))

    def _tell(self, change: Change) -> None:
        if self._changed is None:
            return
        try:
            self._changed(change)
        except Exception:  # noqa: BLE001
            # One that breaks must not keep the copy from following the server.
            _log.exception("what follows %s failed at a change", self._path)


async def _turn(told: int) -> int:
    if told % _AT_ONCE == _AT_ONCE - 1:
        await asyncio.sleep(0)
    return told + 1


def _uid(item: Object) -> str:
    return str(item["metadata"]["uid"])


def _version(item: Object) -> str:
    about = item.get("metadata")
    return str(about.get("resourceVersion") or "") if isinstance(about, dict) else ""


def _newer(version: str, known: str) -> bool:
    # Within one kind of object the server's events come in this order; versions that are no numbers are only told apart.
    if version.isdecimal() and known.isdecimal():
        return int(version) > int(known)
    return bool(version) and version != known
