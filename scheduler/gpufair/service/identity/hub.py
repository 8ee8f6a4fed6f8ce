"""Asks a JupyterHub whose a token is. What it said counts for a short while; of tokens only digests are kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx

from gpufair.service.problems import HubUnavailable
from gpufair.service.settings.hub_options import HubOptions

MOST_KEPT: Final = 10_000  # answers; the oldest goes
MOST_BYTES: Final = 1 << 20  # of an answer: an administrator's token lists many scopes
AT_ONCE: Final = 16  # questions
REST_S: Final = 1.0  # after a failure, in which nobody has to wait for the next one
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HubUser:
    """Whose a token is, in the Hub's own words. ``kind``: "user" or "service"."""

    kind: str
    name: str
    groups: frozenset[str]
    scopes: frozenset[str]

    @property
    def words(self) -> frozenset[str]:
        """What a role can be given for."""
        return frozenset(f"group:{name}" for name in self.groups) | {f"scope:{name}" for name in self.scopes}


def digest(token: str) -> str:
    """What is kept of a token."""
    # No salt and no slow hash: the Hub makes tokens of 128 random bits.
    return hashlib.sha256(token.encode()).hexdigest()


class Hub:
    """One Hub. ``open`` it, and ``close`` it when nobody asks any more."""

    def __init__(
        self,
        options: HubOptions,
        verify: ssl.SSLContext | bool = True,
        now: Callable[[], float] = time.monotonic,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.options = options
        self._now = now
        # No connection is kept, for the Hub may be started anew between two questions; nor is any proxy asked that some
        # variable names.
        self._client = httpx.AsyncClient(
            verify=verify,
            trust_env=False,
            limits=httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=0),
            transport=transport,
        )
        self._kept: dict[str, tuple[float, HubUser]] = {}  # by digest: until when it counts
        self._asking: dict[str, asyncio.Task[HubUser | None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._rests_until = 0.0

    @classmethod
    async def open(cls, options: HubOptions) -> Self:
        """Raises: OSError: The file of certificates cannot be read."""
        secure = options.url.startswith("https:")
        ca = None if options.ca is None else str(options.ca)
        return cls(options, await asyncio.to_thread(ssl.create_default_context, cafile=ca) if secure else False)

    async def close(self) -> None:
        """Whoever still waits for an answer is told that there is none."""
        for task in self._asking.values():
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        await self._client.aclose()

    def vouches(self, digest_of_token: str) -> bool:
        """Whether what the Hub said of a token, and was good, still counts."""
        until, _ = self._kept.get(digest_of_token, (0.0, None))
        return until > self._now()

    def knew(self, digest_of_token: str) -> bool:
        """Whether a token was good when the Hub was last asked about it."""
        return digest_of_token in self._kept

    async def whose(self, token: str) -> HubUser | None:
        """Whose a token is; None: nobody's.

        Raises:
            HubUnavailable: It is not known by heart, and the Hub does not say.
        """
        if not (token.isascii() and token.isprintable()):
            return None
        key = digest(token)
        until, user = self._kept.get(key, (0.0, None))
        if until > self._now():
            return user
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._asked(key, token))
            task.add_done_callback(lambda done: self._forget(key, done))
        try:
            return await asyncio.shield(task)  # others may wait for the same answer
        except asyncio.CancelledError:
            if task.cancelled():
                raise HubUnavailable("the configuration is being changed", REST_S) from None
            raise

    def _forget(self, key: str, done: asyncio.Task[HubUser | None]) -> None:
        self._asking.pop(key, None)
        if not done.cancelled():
            done.exception()  # everybody who waited may have gone

    async def _asked(self, key: str, token: str) -> HubUser | None:
        if (left := self._rests_until - self._now()) > 0:
            raise HubUnavailable("it did not answer a moment ago", left)
        try:
            async with asyncio.timeout(self.options.timeout / 1000), self._turns:
                user = await self._exchange(token)
        except (TimeoutError, httpx.HTTPError, ValueError) as err:
            # Not the text of the error: it may quote what was sent.
            why = str(err) if isinstance(err, _BadAnswer) else type(err).__name__
            self._rests_until = self._now() + REST_S
            _log.warning("the Hub at %s does not say whose tokens are: %s", self.options.url, why)
            raise HubUnavailable(why, REST_S) from err
        self._kept.pop(key, None)
        if user is not None:
            self._kept[key] = self._now() + self.options.cache / 1000, user
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return user

    async def _exchange(self, token: str) -> HubUser | None:
        headers = {"Authorization": f"token {token}", "Accept": "application/json"}
        async with self._client.stream("GET", f"{self.options.url}/user", headers=headers, timeout=None) as answer:
            if answer.status_code in {401, 403}:
                return None
            if answer.status_code != 200:
                raise _BadAnswer(f"it answered HTTP {answer.status_code}")
            data = bytearray()
            async for chunk in answer.aiter_bytes():
                data += chunk
                if len(data) > MOST_BYTES:
                    raise _BadAnswer(f"its answer is larger than {MOST_BYTES:,} bytes")
        return _read(data)


class _BadAnswer(ValueError):
    """Not what a Hub says."""


def _read(data: bytes | bytearray) -> HubUser:
    try:
        model: Any = json.loads(data)
    except (ValueError, RecursionError) as err:
        raise _BadAnswer("its answer is no JSON") from err
    if not isinstance(model, dict) or not isinstance(model.get("name"), str) or not isinstance(model.get("kind"), str):
        raise _BadAnswer("its answer tells no name; is that the address of a JupyterHub (2 or later)?")
    lists = [model.get(key, []) for key in ("groups", "scopes")]
    if not all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists):
        raise _BadAnswer("its answer has no lists of groups and scopes")
    return HubUser(model["kind"], model["name"], frozenset(lists[0]), frozenset(lists[1]))
