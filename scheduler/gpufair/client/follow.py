"""The service's event stream as typed events, and when to connect again: what both clients' ``events`` share."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from gpufair.client.announcing import Announcements
from gpufair.client.endpoint import Endpoint
from gpufair.client.errors import BadAnswer, ClientError, Refused, Unavailable, from_answer
from gpufair.client.exchange import Source
from gpufair.client.reading import read
from gpufair.client.sse import SseMessage, SseParser
from gpufair.client.types import Workload

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
# The service sends a comment every 15 s: three missed ones mean that the connection is dead without having closed.
SILENCE_S = 45.0
CONNECT_S = 5.0
RESUMED = "gpufair-resumed"  # the header that says that only what was missed follows
_ERROR_BYTES = 64 * 1024
_KINDS: Final[dict[str, type[Workload | Announcements]]] = {"workload": Workload, "announcements": Announcements}


@dataclass(frozen=True, slots=True)
class Resync:
    """A fresh listing begins: what was known before may be stale."""


@dataclass(frozen=True, slots=True)
class WorkloadEvent:
    """A workload of the listing, or one that changed."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Synced:
    """The listing is complete. ``live``: ids of all workloads that are not over; any other one is."""

    live: frozenset[str]


@dataclass(frozen=True, slots=True)
class Others:
    """Something changed that is not the user's whose workloads were asked for; once a second at most."""


@dataclass(frozen=True, slots=True)
class Announced:
    """What operators tell everybody, from now on; and the maintenance that is planned."""

    told: Announcements


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The stream broke and will be opened again after ``retry_in_s``."""

    reason: str
    retry_in_s: float


Event = Resync | WorkloadEvent | Synced | Others | Announced | Disconnected


class Follower:
    """Turns bytes and failures into events; does no I/O itself."""

    def __init__(self, where: Source) -> None:
        self._where = where
        self._failures = 0
        self._parser = SseParser()
        self._listing: set[str] | None = None
        self._refused_by: Endpoint | None = None
        self._last = ""  # which change was heard of last; "" while a listing is incomplete

    def headers(self) -> dict[str, str]:
        """What to ask with: a stream that broke goes on where it broke, if the service still can."""
        return {"Accept": "text/event-stream"} | ({"Last-Event-ID": self._last} if self._last else {})

    def opened(self, answered: Mapping[str, str]) -> list[Event]:
        """The stream answered 200, with these headers."""
        self._parser = SseParser()
        return [] if self._last and answered.get(RESUMED) == "1" else self._relist()

    def received(self, chunk: bytes) -> list[Event]:
        """Events in the bytes that came.

        Raises:
            StreamTooLarge: The stream is not what it should be.
        """
        messages = self._parser.feed(chunk)
        if messages:
            self._failures = 0  # it works: the next break is a new one
        return [event for message in messages for event in self._events(message)]

    def lost(self, err: Exception | None, endpoint: Endpoint | None) -> Disconnected:
        """The stream ended (``err`` None) or broke.

        Raises:
            Refused: The service said no, and asking again cannot change that.
        """
        if isinstance(err, Refused) and not self._may_change(err, endpoint):
            raise err
        self._where.lost()
        self._failures += 1
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10)) * random.uniform(0.75, 1.25)
        if err is None:
            reason = "the service closed the event stream"
        elif isinstance(err, ClientError):
            reason = str(err)
        else:
            reason = f"the event stream of {endpoint.url if endpoint else 'the service'} broke ({str(err) or type(err).__name__})"
        return Disconnected(reason, pause)

    def _may_change(self, err: Refused, endpoint: Endpoint | None) -> bool:
        """Whether looking again could turn this refusal around."""
        if err.status == 429:
            return True
        # A 401 from a service found in a folder may only mean that it was restarted with another token: look once more.
        again, self._refused_by = endpoint == self._refused_by, endpoint
        return err.status == 401 and self._where.may_move and not again

    def _relist(self) -> list[Event]:
        self._listing, self._last = set(), ""
        return [Resync()]

    def _events(self, message: SseMessage) -> list[Event]:
        if message.event == "resync":
            return self._relist()
        if message.event == "synced":
            live, self._listing = frozenset(self._listing or ()), None
            self._last = message.id
            return [Synced(live)]
        if message.event == "others":
            return [Others()]
        if message.event not in _KINDS:
            return []  # a newer service may say more
        try:
            told = read(_KINDS[message.event], json.loads(message.data))
        except (ValueError, BadAnswer) as err:
            log.warning("left out an event of the stream (%s) that makes no sense: %s", message.event, err)
            return []
        if isinstance(told, Announcements):
            self._last = self._last if self._listing is not None else message.id
            return [Announced(told)]
        workload = told
        if self._listing is None:
            self._last = message.id
        else:
            (self._listing.add if workload.live else self._listing.discard)(workload.id)
        return [WorkloadEvent(workload)]


def stream_timeout() -> httpx.Timeout:
    """Bounds for a stream: connecting is quick, silence is bounded by the keep-alive."""
    return httpx.Timeout(CONNECT_S, read=SILENCE_S)


def refusal(answer: httpx.Response, text: bytes) -> Exception:
    """The error in an answer to the stream request that is not 200."""
    try:
        body = json.loads(text[:_ERROR_BYTES])
    except ValueError:
        body = None
    if answer.status_code < 400:
        return BadAnswer(f"the event stream was answered by HTTP {answer.status_code}")
    said = from_answer(answer.status_code, body, text[:_ERROR_BYTES].decode(errors="replace"))
    if answer.status_code >= 500:
        return Unavailable("opening the event stream", f"the service cannot serve now: {said}", "trying again")
    return said
