"""One API server: JSON in, JSON out, in threads, with patience for what passes by itself."""

from __future__ import annotations

import asyncio
import functools
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as LateError

from gpufair.service.backends.kubernetes.asked import JSON, Asked, Request
from gpufair.service.backends.kubernetes.bucket import Bucket
from gpufair.service.backends.kubernetes.connection import Connection, Place, connect
from gpufair.service.backends.kubernetes.problems import (
    KubernetesProblem,
    Throttled,
    TooLarge,
    Unauthorized,
    Unavailable,
    problem_of,
)
from gpufair.service.backends.kubernetes.threads import Threads, ThreadsClosed

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

RETRY_S: Final = 60.0  # for which it is usually worth asking again

_PIECE: Final = 1 << 16
_LATER: Final = 1.0  # seconds that a thread has to say itself that time is up
_URGENT: Final = 2  # threads that calls of the Lease have for themselves
_FIRST_S, _MOST_S = 0.1, 10.0  # between two tries
_STREAMS: Final = 16  # connections kept beside those of the threads


@dataclass(frozen=True, slots=True)
class Limits:
    """How hard an API server is asked. The figures carry 50 starts a second, three calls each, twice over."""

    threads: int = 24  # calls at a time
    per_s: float = 300.0  # calls a second in the long run; 0: any number
    burst: int = 600  # calls that may come together
    answer_bytes: int = 64 << 20  # of one answer; a page of 500 pods is about 5 MB


class Api:
    """Use ``open`` to make one, and ``close`` it. Methods are for its event loop, which they never block."""

    def __init__(self, connection: Connection, limits: Limits = Limits()) -> None:
        self.connection: Final = connection
        self._limits: Final = limits
        self._threads = Threads(limits.threads, "gpufair-kube")
        self._urgent = Threads(_URGENT, "gpufair-kube-urgent")
        self._bucket = Bucket(limits.per_s, limits.burst)
        self._closed = False

    @classmethod
    async def open(
        cls,
        kubeconfig: Path | None = None,
        context: str = "",
        *,
        limits: Limits = Limits(),
    ) -> Self:
        """Read how the server is reached. It is not asked yet, so a server that is away is no error here.

        Args:
            kubeconfig: None: the cluster that this process runs in, else what ``kubectl`` would take.
            context: "": the current one.

        Raises:
            NoApiServer: The settings lead nowhere.
        """
        place = Place(kubeconfig, context)
        first = Threads(1, "gpufair-kube-open")
        try:
            return cls(await first.run(lambda: connect(place, limits.threads + _STREAMS)), limits)
        finally:
            first.close()

    @property
    def namespace(self) -> str:
        """That of the kubeconfig's context or of the pod's account."""
        return self.connection.namespace

    async def close(self) -> None:
        """Begin no more calls. Those that hang are left to their threads."""
        self._closed = True
        self._threads.close()
        self._urgent.close()
        self.connection.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | list[Any] | None = None,
        query: Mapping[str, Any] | None = None,
        *,
        content_type: str = JSON,
        timeout_s: float = 30.0,
        urgent: bool = False,
        retry_s: float = 0.0,
    ) -> dict[str, Any]:
        """What the server answers.

        Asked again, where ``retry_s`` gives time for that, is what passes by itself: 429, 5xx, 401 (a token being renewed),
        broken connections, silence. A POST may have gone through before its connection broke: it is repeated, and the 409
        that follows is the caller's to look at.

        Args:
            path: From the root, as ``/api/v1/namespaces/x/pods``.
            query: Values are strings, numbers or booleans; None is left out.
            timeout_s: For one answer, from when the rate limit lets its call pass.
            urgent: Past the rate limit, by threads of its own: for what must not wait behind a crowd.
            retry_s: For how long it is asked again, ``RETRY_S`` usually; 0: it is asked once.

        Raises:
            KubernetesProblem: The one that fits (``gpufair.service.backends.kubernetes.problems``); of several tries the last.
        """
        request = Request(method, path, body, query, content_type)
        ends = time.monotonic() + retry_s
        pause = Pause()
        while True:
            left_s = max(0.1, ends - time.monotonic()) if retry_s else timeout_s
            try:
                return await self._once(request, min(timeout_s, left_s), urgent=urgent)
            except (Throttled, Unavailable, Unauthorized) as problem:
                wait_s = pause.after(problem)
                if time.monotonic() + wait_s >= ends:
                    raise
                await asyncio.sleep(wait_s)

    async def _once(self, request: Request, timeout_s: float, *, urgent: bool) -> dict[str, Any]:
        if not urgent:
            await self._bucket.take()
        exchange = functools.partial(self._exchange, request, timeout_s)
        try:
            async with asyncio.timeout(timeout_s + _LATER):
                return await (self._urgent if urgent else self._threads).run(exchange)
        except TimeoutError:
            raise Unavailable(request.asked, f"it did not answer within {timeout_s:g} s") from None
        except ThreadsClosed:
            raise Unavailable(request.asked, "this connection has been closed", perhaps_done=False) from None

    # -- in threads -----------------------------------------------------------------------------------------------

    def send(self, request: Request, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
        """The answer's head; its body is still to be read, and the answer to be closed. It blocks: for threads.

        Raises:
            KubernetesProblem: The connection broke, or the answer is an error.
        """
        what = request.asked
        if self._closed:
            raise Unavailable(what, "this connection has been closed", perhaps_done=False)
        headers = self.connection.headers(what) | {"Accept": JSON, "User-Agent": "gpufair"}
        data = None
        if request.body is not None:
            headers["Content-Type"] = request.content_type
            data = json.dumps(request.body, separators=(",", ":")).encode()
        try:
            response = self.connection.pool.request(
                request.method,
                self.connection.url + request.target,
                body=data,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (HTTPError, OSError) as err:
            raise broken(what, err) from err
        if response.status < HTTPStatus.OK or response.status >= HTTPStatus.MULTIPLE_CHOICES:
            try:
                told = response.read(_PIECE)
            except (HTTPError, OSError):
                told = b""
            finally:
                response.close()
            raise problem_of(what, response.status, told, response.headers.get("Retry-After"))
        return response

    def settle(self) -> None:
        """At the end of each answer: a connection that is given back after ``close`` is ended, too. For threads."""
        if self._closed:
            self.connection.close()

    def _exchange(self, request: Request, timeout_s: float) -> dict[str, Any]:
        what, ends = request.asked, time.monotonic() + timeout_s
        response = self.send(request, urllib3.Timeout(total=timeout_s))
        pieces, size = [], 0
        try:
            while piece := response.read1(_PIECE):
                size += len(piece)
                if size > self._limits.answer_bytes:
                    raise TooLarge(what, f"the answer is larger than {self._limits.answer_bytes:,} bytes")
                if time.monotonic() > ends:
                    raise Unavailable(what, f"the answer was not complete within {timeout_s:g} s")
                pieces.append(piece)
        except (HTTPError, OSError) as err:
            response.close()
            raise broken(what, err) from err
        except KubernetesProblem:
            response.close()
            raise
        response.release_conn()
        self.settle()
        try:
            answer = json.loads(b"".join(pieces))
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            kind = response.headers.get("Content-Type", "no type")
            raise Unavailable(what, f"its answer is no JSON object ({kind}, {size:,} bytes)", status=response.status)
        return answer


class Pause:
    """How long to wait between tries: twice as long each time, drawn, so that clients who fail together come apart."""

    def __init__(self, first_s: float = _FIRST_S, most_s: float = _MOST_S) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._tries = 0

    def after(self, problem: KubernetesProblem) -> float:
        """Seconds to wait now, and at least as many as the server asks for."""
        whole = min(self._most_s, self._first_s * 2.0 ** min(self._tries, 30))
        self._tries += 1
        return max(problem.retry_after_s or 0.0, whole * random.uniform(0.5, 1.0))

    def reset(self) -> None:
        """It went well: begin small again."""
        self._tries = 0


def broken(what: Asked, err: Exception) -> Unavailable:
    """The problem that a broken connection is."""
    never_sent = isinstance(err, NewConnectionError | ConnectTimeoutError)
    late = isinstance(err, LateError | TimeoutError) and not never_sent
    said = "it did not answer in time" if late else f"the connection failed ({err})"
    return Unavailable(what, said, perhaps_done=not never_sent)
