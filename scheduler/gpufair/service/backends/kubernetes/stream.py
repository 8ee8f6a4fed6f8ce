"""The events of one watch, read in a thread of its own and handed to the event loop in batches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, Self

import urllib3
from urllib3.exceptions import HTTPError

from gpufair.service.backends.kubernetes.api import Api, broken
from gpufair.service.backends.kubernetes.asked import Request
from gpufair.service.backends.kubernetes.problems import KubernetesProblem, Unavailable

Event = dict[str, Any]

_PIECE: Final = 1 << 16
_LINE: Final = 8 << 20  # bytes of one event; an object of etcd's is at most 1.5 MB by default
_AHEAD: Final = 64  # batches that wait for the loop before the thread reads no more
_END_S: Final = 1.0  # that a thread is waited for; one that hangs in a connect is left to itself
_CONNECT_S: Final = 10.0


class Stream:
    """One watch. Use it as a context manager: entered, the server has begun to answer; left, nothing is read any more.

    Args:
        query: With ``watch``.
        open_s: Within how long the server must begin to answer.
        quiet_s: For how long a stream may say nothing before its connection counts as broken.
    """

    def __init__(
        self, api: Api, path: str, query: Mapping[str, Any], *, open_s: float = 15.0, quiet_s: float = 90.0
    ) -> None:
        self._api, self._request = api, Request("GET", path, query=dict(query))
        self._open_s, self._quiet_s = open_s, quiet_s
        self._what: Final = self._request.asked
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[list[Event] | KubernetesProblem | None] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._room = threading.Semaphore(_AHEAD)
        self._lock = threading.Lock()
        self._response: urllib3.BaseHTTPResponse | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """Raises:
        KubernetesProblem: The server does not begin, or refuses.
        """
        threading.Thread(target=self._read, name="gpufair-kube-watch", daemon=True).start()
        try:
            async with asyncio.timeout(self._open_s):
                first = await self._arrived.get()
        except TimeoutError:
            await self.close()
            raise Unavailable(
                self._what, f"it did not begin to answer within {self._open_s:g} s", perhaps_done=False
            ) from None
        except BaseException:
            await self.close()
            raise
        if isinstance(first, KubernetesProblem):
            await self.close()
            raise first
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def batches(self) -> AsyncGenerator[list[Event], None]:
        """Events as they come, some at a time; it ends where the server ends the stream in order.

        Raises:
            KubernetesProblem: The stream broke, or brought what is no event. What came before has been given.
        """
        while (batch := await self._arrived.get()) is not None:
            if isinstance(batch, KubernetesProblem):
                raise batch
            self._room.release()
            yield batch

    async def close(self) -> None:
        """Read no more; return at once, or after a second where the thread cannot be reached."""
        with self._lock:
            self._closed = True
            response = self._response
        if response is not None:
            # It may have ended by itself a moment ago.
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                response.shutdown()
        self._room.release()
        # Not wait_for: before Python 3.12 it may lose a cancellation that comes at the same moment.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._ended.wait()

    # -- in the thread --------------------------------------------------------------------------------------------

    def _read(self) -> None:
        last: KubernetesProblem | None = None
        try:
            timeout = urllib3.Timeout(connect=_CONNECT_S, read=self._quiet_s)
            response = self._api.send(self._request, timeout)
            try:
                with self._lock:
                    if self._closed:
                        return
                    self._response = response
                self._hand_over([])
                self._read_lines(response)
            finally:
                with self._lock:
                    self._response = None
                response.close()
                self._api.settle()
        except KubernetesProblem as problem:
            last = problem
        except (HTTPError, OSError) as err:
            last = broken(self._what, err)
        finally:
            self._hand_over(last)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._ended.set)

    def _read_lines(self, response: urllib3.BaseHTTPResponse) -> None:
        half = b""
        while not self._closed and (piece := response.read1(_PIECE)):
            *lines, half = (half + piece).split(b"\n")
            batch: list[Event] = []
            try:
                batch.extend(self._event(line) for line in lines if line.strip())
                if len(half) > _LINE:
                    raise Unavailable(self._what, f"the stream brought an event of more than {_LINE:,} bytes")
            finally:
                if batch:
                    self._room.acquire()
                    self._hand_over(batch)
        if half.strip() and not self._closed:
            raise Unavailable(self._what, "the stream ended within an event")

    def _event(self, line: bytes) -> Event:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict) and isinstance(event.get("type"), str) and isinstance(event.get("object"), dict):
            return event
        raise Unavailable(self._what, f"the stream brought what is no event ({len(line):,} bytes)")

    def _hand_over(self, batch: list[Event] | KubernetesProblem | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, batch)
