"""The fake API server's HTTP: answers, streams, faults, and connections that break."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

from tests.kube.answers import Refused
from tests.kube.discovery import described
from tests.kube.faults import Fault, Faults
from tests.kube.matching import Matches, selected
from tests.kube.requests import Asked, read_request
from tests.kube.rights import Action, Rights, User
from tests.kube.store import Item, Store, as_seen
from tests.kube.verbs import Verbs

BOOKMARKS_S = 60.0
BOOKMARK_BEFORE_END_S = 2.0
LONGEST_WATCH_S = 1800.0
LOG = 200_000


class Served:
    """What the handlers share."""

    def __init__(self) -> None:
        self.store = Store()
        self.rights = Rights(self.store)
        self.verbs = Verbs(self.store, self.rights)
        self.faults = Faults()
        self.watches: set[ApiHandler] = set()
        # (method, path with query, user) of each request, in order; the oldest of very many are dropped.
        self.log: deque[tuple[str, str, str]] = deque(maxlen=LOG)
        self.bookmarks_s = BOOKMARKS_S


class ApiHandler(RequestHandler):
    served: Served

    def initialize(self, served: Served) -> None:
        self.served = served

    def set_default_headers(self) -> None:
        self.clear_header("Server")

    def on_connection_close(self) -> None:
        self.served.watches.discard(self)

    def log_exception(self, *args: Any) -> None:
        if not isinstance(args[1], StreamClosedError):
            super().log_exception(*args)

    async def prepare(self) -> None:
        request = self.request
        assert request.method is not None
        path = urlsplit(request.uri or "").path
        faults = self.served.faults.of(request.method, path)
        for fault in faults:
            if fault.how == "delay":
                await asyncio.sleep(fault.delay_s)
        ends = next((fault for fault in faults if fault.how != "delay"), None)
        try:
            if ends is not None and ends.how == "cut before":
                self.cut()
                return
            await self._serve(ends)
        except Refused as refused:
            self._refuse(refused)
        if not self._finished:
            self.finish()

    async def _serve(self, fault: Fault | None) -> None:
        request = self.request
        path = urlsplit(request.uri or "").path
        if path in {"/healthz", "/livez", "/readyz"} and fault is None:
            self.finish("ok")
            return
        user = self.served.rights.user(request.headers.get("Authorization"))
        self.served.log.append((request.method or "", request.uri or "", user.name))
        if fault is not None and fault.how == "answer":
            raise Refused(fault.status, fault.message, fault.reason, retry_after_s=fault.retry_after_s)
        if (answer := described(request.method or "", path)) is not None:
            self._answer(200, answer)
            return
        if path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            self._answer(201, self._access_review(user))
            return
        asked = read_request(request.method or "", request.uri or "", request.body, request.headers.get("Content-Type", ""))
        self.served.rights.check(user, asked.action())
        if asked.watching:
            await self._watch(asked)
            return
        status, value = self.served.verbs.carry_out(asked)
        if fault is not None:
            self.cut()
            return
        self._answer(status, value)

    def _access_review(self, user: User) -> dict[str, Any]:
        review: dict[str, Any] = json.loads(self.request.body)
        asked = review["spec"].get("resourceAttributes") or {}
        sub = asked.get("subresource")
        resource = f"{asked.get('resource', '')}/{sub}" if sub else asked.get("resource", "")
        action = Action(asked.get("verb", ""), asked.get("group", ""), resource, asked.get("namespace", ""), asked.get("name", ""))
        return {**review, "status": {"allowed": self.served.rights.allowed(user, action)}}

    def _answer(self, status: int, value: Mapping[str, Any] | Item) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(value.text if isinstance(value, Item) else json.dumps(value))

    def _refuse(self, refused: Refused) -> None:
        if refused.retry_after_s is not None:
            self.set_header("Retry-After", str(refused.retry_after_s))
        self._answer(refused.code, refused.status())

    def cut(self) -> None:
        """The connection ends here, whatever was going over it."""
        self._finished = True
        self._auto_finish = False
        connection: Any = self.request.connection
        connection.stream.close()

    # ------------------------------------------------------------------ watches

    async def _watch(self, asked: Asked) -> None:
        matches = selected(asked.resource, asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""))
        self.set_header("Content-Type", "application/json")
        self.served.watches.add(self)
        try:
            with suppress(StreamClosedError):
                await self._stream(asked, matches)
        finally:
            self.served.watches.discard(self)

    async def _stream(self, asked: Asked, matches: Matches) -> None:
        store, now = self.served.store, time.monotonic
        ends = now() + min(asked.number("timeoutSeconds") or LONGEST_WATCH_S, LONGEST_WATCH_S)
        bookmarks = asked.query.get("allowWatchBookmarks") in {"1", "true", "True"}
        next_bookmark = _next_bookmark(now(), ends, self.served.bookmarks_s)
        version = asked.number("resourceVersion") or 0
        # Sent at once: who watches learns that it does before anything happens.
        await self.flush()
        if version == 0:
            version = store.version
            for item in store.items(asked.resource, asked.namespace):
                if matches(item.obj):
                    self._event("ADDED", item.text)
            await self.flush()
        while (left := ends - now()) > 0 and self in self.served.watches:
            try:
                changes = store.since(version)
            except Refused as refused:
                self._event("ERROR", json.dumps(refused.status()).encode())
                break
            for change in changes:
                version = change.version
                if (seen := as_seen(change, asked.resource, asked.namespace, matches)) is not None:
                    self._event(seen[0], seen[1].text)
            if bookmarks and now() >= next_bookmark:
                empty = {"kind": asked.resource.kind, "apiVersion": asked.resource.api_version, "metadata": {"resourceVersion": str(version)}}
                self._event("BOOKMARK", json.dumps(empty).encode())
                next_bookmark = _next_bookmark(now(), ends, self.served.bookmarks_s)
            await self.flush()
            if version == store.version:
                await store.wait(max(0.0, min(left, next_bookmark - now() if bookmarks else left)))

    def _event(self, kind: str, obj: bytes) -> None:
        self.write(b'{"type":"%s","object":%s}\n' % (kind.encode(), obj))


def _next_bookmark(now: float, ends: float, every_s: float) -> float:
    before_end = ends - BOOKMARK_BEFORE_END_S
    regular = now + every_s
    return min(regular, before_end) if before_end > now else regular


def handlers(served: Served) -> list[tuple[str, Callable[..., Any], dict[str, Any]]]:
    return [(r".*", ApiHandler, {"served": served})]
