"""What both clients share: how a call becomes a request, an answer a result, and a failure a pause or an error."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import httpx

from gpufair.client.calls import Call
from gpufair.client.endpoint import START_IT, Endpoint, discover, from_folder
from gpufair.client.errors import BadAnswer, Unavailable, from_answer

Result = TypeVar("Result")

# The request never left, so sending it again is always safe.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs each request at INFO, which papermill shows
STANDBY_PAUSE_S = 0.3  # a new leader is there within seconds
_TOO_MANY = 429
_COME_AGAIN = frozenset({_TOO_MANY, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. One try waits ``timeout_s`` for an answer; no new try starts after ``total_s``."""

    timeout_s: float = 10.0
    tries: int = 5
    first_pause_s: float = 0.1
    longest_pause_s: float = 2.0
    total_s: float = 15.0

    def pause_s(self, tried: int) -> float:
        """Back-off after ``tried`` >= 1 tries, with jitter so that clients of a restarted service don't march in step."""
        return min(self.longest_pause_s, self.first_pause_s * 2.0 ** (tried - 1)) * random.uniform(0.75, 1.25)


class Source:
    """Gives the endpoint, and looks again after a failure: a restarted embedded service has another port and token."""

    def __init__(self, find: Callable[[], Endpoint]) -> None:
        self._find = find
        self.known: Endpoint | None = None  # no look needed

    def get(self) -> Endpoint:
        """The endpoint.

        Raises:
            Unavailable: None is known.
        """
        if self.known is None:
            self.known = self._find()
        return self.known

    def lost(self) -> None:
        """It didn't answer, or stands by: look again next time, elsewhere if there is another place."""
        self.known = self.known.next() if self.known and self.known.others else None

    @property
    def may_move(self) -> bool:
        """Whether looking again could find another address."""
        return self.known is None or self.known.folder is not None or bool(self.known.others)


def source(
    endpoint: Endpoint | None,
    url: str | None,
    token: str | None,
    folder: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
) -> Source:
    """The source for a client's arguments; an ``endpoint`` that was found in a folder is looked up there again."""
    if endpoint is None:
        return Source(lambda: discover(url, token, folder, environ))
    if endpoint.folder is None:
        return Source(lambda: endpoint)
    first, place = [endpoint], endpoint.folder
    return Source(lambda: first.pop() if first else from_folder(place))


def headers(endpoint: Endpoint, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Who we are. The token travels in this header only, never in an address."""
    own = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    return {"Accept": "application/json", **own, **(more or {})}


def arguments(endpoint: Endpoint, call: Call[Result], timeout_s: float) -> tuple[str, str, dict[str, object]]:
    """Method, address and keyword arguments for ``httpx.(Async)Client.request``."""
    more = {"Content-Type": call.content_type} if call.content_type else {}
    given: dict[str, object] = {"headers": headers(endpoint, more), "timeout": timeout_s}
    if call.params:
        given["params"] = dict(call.params)
    if call.json is not None:
        given["json"] = call.json
    if call.content is not None:
        given["content"] = call.content
    return call.method, endpoint.url + call.path, given


def result(call: Call[Result], answer: httpx.Response) -> Result:
    """What ``answer`` says.

    Raises:
        ServiceError: The service refused or failed.
        Unavailable: It cannot serve now (503 and the like).
        BadAnswer: It answered something else than documented.
    """
    try:
        body = answer.json() if answer.content else None
    except ValueError:
        body = None
    if answer.status_code in _COME_AGAIN:
        said = from_answer(answer.status_code, body, answer.text)
        raise Unavailable(call.asked, f"the service cannot serve now: {said}", "try again in a moment")
    if answer.is_error:
        raise from_answer(answer.status_code, body, answer.text)
    if not answer.is_success:
        raise BadAnswer(f"{call.asked} was answered by HTTP {answer.status_code}")
    if body is None and answer.content:
        raise BadAnswer(f"{call.asked} was not answered in JSON")
    return call.parse(body)


class Tries:
    """The tries of one call."""

    def __init__(self, call: Call[Result], patience: Patience, where: Source) -> None:
        self._call: Call[Result] = call
        self._patience, self._where = patience, where
        self._tried = 0
        self._until = time.monotonic() + patience.total_s

    def after_error(self, err: Exception, endpoint: Endpoint | None) -> float:
        """Seconds to pause before the next try.

        Raises:
            Unavailable: There is no next try: none is left, or repeating could do the thing twice.
        """
        self._tried += 1
        self._where.lost()
        if isinstance(err, Unavailable):  # no address at all
            if self._tried == 1 or not self._more():
                raise err
            return self._pause()
        if (isinstance(err, _NOT_SENT) or self._call.repeatable) and self._more(bool(endpoint and endpoint.others)):
            return self._pause()
        raise self._unavailable(err, endpoint) from err

    def after_answer(self, answer: httpx.Response) -> float | None:
        """Seconds to pause before the next try, None if this answer is final."""
        if answer.headers.get("Gpufair-Standby"):
            # Nothing was done there. Another one leads, or will in a moment; how often we ask says nothing.
            self._where.lost()
            left = self._until - time.monotonic()
            return min(STANDBY_PAUSE_S, left) if left > 0 else None
        self._tried += 1
        # Who is told when to ask again may do so: what was refused for its pace has not happened.
        paced = answer.status_code == _TOO_MANY and "Retry-After" in answer.headers
        again = paced or (self._call.repeatable and answer.status_code in _COME_AGAIN)
        if not again or not self._more():
            return None
        try:
            asked_for = float(answer.headers.get("Retry-After", "0"))
        except ValueError:  # a date: our own back-off will do
            asked_for = 0.0
        return min(max(self._pause(), asked_for), max(self._until - time.monotonic(), 0.0))

    def _more(self, others: bool = False) -> bool:
        return (others or self._tried < self._patience.tries) and time.monotonic() < self._until

    def _pause(self) -> float:
        return self._patience.pause_s(self._tried)

    def _unavailable(self, err: Exception, endpoint: Endpoint | None) -> Unavailable:
        url = endpoint.url if endpoint else "the service"
        if isinstance(err, httpx.TimeoutException):
            true = f"{url} did not answer within {self._patience.timeout_s:g} s"
        elif isinstance(err, httpx.ConnectError):
            true = f"nothing answers at {url} ({str(err) or 'connection refused'})"
        else:
            true = f"the connection to {url} broke ({str(err) or type(err).__name__})"
        if "CERTIFICATE_VERIFY_FAILED" in true:
            step = "name the file of the authority that signed its certificate in $GPUFAIR_CA"
        elif isinstance(err, _NOT_SENT):
            step = START_IT
        elif self._call.repeatable:
            step = "look at the service's log"
        else:
            step = "whether it was done is not known: look with `gpufair status` before asking again"
        return Unavailable(self._call.asked, true, step)
