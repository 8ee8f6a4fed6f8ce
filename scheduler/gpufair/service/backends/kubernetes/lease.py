"""Which of several services writes to a cluster: who holds its Lease (``coordination.k8s.io/v1``).

As client-go does it: the clocks of others are not trusted. What another one wrote is good for as long as it promised, counted
here from the moment at which it was first seen. The holder counts from before it asked, and for less, so it knows that it is
none any more before anybody else can be one, even if the server hangs or this process was stopped for a while.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.service.backends.kubernetes.api import Api
from gpufair.service.backends.kubernetes.marks import ANNOTATION, Marks, OtherJournal
from gpufair.service.backends.kubernetes.problems import Conflict, KubernetesProblem, Missing

GROUP: Final = "/apis/coordination.k8s.io/v1"

_JITTER: Final = 0.2
_LEAST_S: Final = 0.1  # that a call is given
_RELEASE_S: Final = 2.0
_log = logging.getLogger(__name__)

Record = dict[str, Any]  # the ``spec`` of a Lease


class Lease:
    """One service's part in it. ``hold`` takes it when it is free, renews it, and gives it back when cancelled.

    Args:
        identity: Who this is, unlike any other process.
        duration_s: How long others wait after the last renewal that they have seen.
        renew_deadline_s: For how long a renewal is good for its holder; less than ``duration_s``, so that the
            holder knows that it is none before anybody else is.
        retry_s: Between two tries; less than ``renew_deadline_s``.
        changed: Called in the event loop with ``held`` when that changes. What it raises is logged.
        marks: Of the journal; one of another journal is not taken. None: whoever had it may have had any.

    Attributes:
        refused: Why it is not taken though it is free; "": it is.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration_s: float = 15.0,
        renew_deadline_s: float = 10.0,
        retry_s: float = 2.0,
        changed: Callable[[bool], None] | None = None,
        marks: Marks | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < retry_s < renew_deadline_s < duration_s:
            raise ValueError(
                f"a Lease needs 0 < retry_s < renew_deadline_s < duration_s, not {retry_s:g}, {renew_deadline_s:g}, {duration_s:g}"
            )
        if not identity:
            raise ValueError("a Lease needs an identity: an empty one says that nobody holds it")
        self._api, self._name, self._namespace = api, name, namespace
        self._path: Final = f"{GROUP}/namespaces/{namespace}/leases"
        self.identity: Final = identity
        self._duration_s, self._renew_s, self._retry_s = duration_s, renew_deadline_s, retry_s
        self._changed, self._now, self._marks = changed, now, marks
        self.refused = ""
        self._mark = self._known_mark = ""  # the one that was seen last, and one that is of this journal
        self._seen: Record = {}  # the record as it was last seen, and since when it has been so
        self._seen_at = now()
        self._good_until: float | None = None  # of the last renewal; None: not held
        self._told = False
        self._taken = asyncio.Event()
        self._said = ""
        self._leaving = False

    @property
    def held(self) -> bool:
        """Whether this service may write now. It tells time itself, so it becomes False even when everything hangs."""
        return self._good_until is not None and self._now() < self._good_until

    @property
    def holder(self) -> str:
        """Who holds it as far as is known; "": nobody."""
        return str(self._seen.get("holderIdentity") or "")

    async def wait_held(self) -> None:
        """Return when this service holds it."""
        while not self.held:
            self._taken.clear()
            await self._taken.wait()

    async def hold(self) -> None:
        """Take, renew and take again until cancelled; then give it back. No answer of the server ends it."""
        self._leaving = False
        watching = asyncio.create_task(self._tell_when_it_ends())
        try:
            while True:
                await self._try()
                await asyncio.sleep(self._retry_s * random.uniform(1, 1 + _JITTER))
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await self._release()

    async def _tell_when_it_ends(self) -> None:
        # Beside the tries: one that hangs must not hide that time is up.
        while True:
            if self.held:
                await asyncio.sleep(max(0.0, (self._good_until or 0.0) - self._now()))
            else:
                self._tell()
                self._taken.clear()
                await self._taken.wait()

    async def _try(self) -> None:
        try:
            await self._take_or_renew()
            self._said = self.refused = ""
        except GpufairError as problem:  # the journal is asked, too
            if isinstance(problem, OtherJournal):
                self.refused, self._good_until = str(problem), None
            if str(problem) != self._said:
                self._said = str(problem)
                _log.warning("the Lease %s/%s cannot be had: %s", self._namespace, self._name, problem)
        self._tell()

    async def _take_or_renew(self) -> None:
        try:
            found = await self._call("GET", f"{self._path}/{self._name}")
        except Missing:
            found = None
        began = self._now()
        if found is not None:
            spec = found.get("spec")
            self._observe(spec if isinstance(spec, dict) else {})
            self._mark = _mark_of(found)
        # One that is deleted is still believed in by who held it.
        if self.holder not in {"", self.identity}:
            self._good_until = None  # somebody else has it, whatever was thought here
            if self._now() < self._seen_at + _promised_s(self._seen, self._duration_s):
                return
        await self._compare()
        if found is None:
            await self._create(began)
            return
        # Ours, but given up by ourselves as too old: nobody took it since, so it is renewed as if it were held.
        spec = self._record(of=self._seen)
        try:
            answer = await self._call("PUT", f"{self._path}/{self._name}", self._marked(found | {"spec": spec}))
        except Conflict:
            return  # somebody was quicker: look again
        self._won(answer, began)

    async def _create(self, began: float) -> None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._record(of={}),
        }
        try:
            answer = await self._call("POST", self._path, self._marked(body))
        except Conflict:
            return
        self._won(answer, began)

    async def _compare(self) -> None:
        """Raises ``OtherJournal`` where whoever wrote last had another one. One that is deleted is still remembered."""
        if self._marks is None or self._mark in {"", self._known_mark}:
            return
        if why := await self._marks.strange(self._mark):
            raise OtherJournal(f"{self._namespace}/{self._name}", self._mark, why)
        self._known_mark = self._mark

    def _marked(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._marks is None:
            return body
        meta = body["metadata"]
        return body | {"metadata": meta | {"annotations": (meta.get("annotations") or {}) | {ANNOTATION: self._marks.now()}}}

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        # No try may outlast what it renews; who holds nothing may take a renewal's time.
        left = self._renew_s if self._good_until is None else self._good_until - self._now()
        timeout_s = max(_LEAST_S, min(self._renew_s / 2, left if left > 0 else self._renew_s))
        return await self._api.call(method, path, body, timeout_s=timeout_s, urgent=True)

    def _record(self, of: Record) -> Record:
        ours = of.get("holderIdentity") == self.identity
        now = _timestamp()
        transitions = of.get("leaseTransitions")
        so_far = transitions if isinstance(transitions, int) else 0
        return of | {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._duration_s),
            "acquireTime": (ours and of.get("acquireTime")) or now,
            "renewTime": now,
            # A Lease that is new has been handed over from nobody.
            "leaseTransitions": so_far if ours or not of else so_far + 1,
        }

    def _observe(self, record: Record) -> None:
        if record != self._seen:
            self._seen, self._seen_at = record, self._now()

    def _won(self, answer: dict[str, Any], began: float) -> None:
        spec = answer.get("spec")
        self._observe(spec if isinstance(spec, dict) else {})
        if self.holder == self.identity:
            self._mark = self._known_mark = _mark_of(answer)
            self._good_until = began + self._renew_s
            self._taken.set()

    def _tell(self) -> None:
        held = self.held
        if held == self._told:
            return
        self._told = held
        lease = f"{self._namespace}/{self._name}"
        if held:
            _log.info("this service (%s) holds the Lease %s", self.identity, lease)
        elif self._leaving:
            _log.info("this service (%s) gives the Lease %s back", self.identity, lease)
        else:
            by = f"{self.holder!r} has it" if self.holder not in {"", self.identity} else "it was not renewed in time"
            _log.warning("this service (%s) does not hold the Lease %s any more: %s", self.identity, lease, by)
        if self._changed is not None:
            try:
                self._changed(held)
            except Exception:  # noqa: BLE001
                _log.exception("what follows the Lease %s/%s failed at a change", self._namespace, self._name)

    async def _release(self) -> None:
        """Let the next one take it at once. Best effort: whoever cannot be told waits for ``duration_s``."""
        was_held = self.held
        self._good_until, self._leaving = None, True
        self._tell()
        if not was_held:
            return
        path = f"{self._path}/{self._name}"
        try:
            found = await self._api.call("GET", path, timeout_s=_RELEASE_S / 2, urgent=True)
            spec = found.get("spec")
            if not isinstance(spec, dict) or spec.get("holderIdentity") != self.identity:
                return
            free = spec | {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _timestamp()}
            await self._api.call("PUT", path, self._marked(found | {"spec": free}), timeout_s=_RELEASE_S / 2, urgent=True)
            self._seen = free
        except KubernetesProblem as problem:
            _log.info("the Lease %s/%s was not given back: %s", self._namespace, self._name, problem)


def _mark_of(lease: dict[str, Any]) -> str:
    notes = (lease.get("metadata") or {}).get("annotations")
    return str(notes.get(ANNOTATION) or "") if isinstance(notes, dict) else ""


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _promised_s(record: Record, otherwise: float) -> float:
    told = record.get("leaseDurationSeconds")
    return float(told) if isinstance(told, int | float) and told > 0 else otherwise
