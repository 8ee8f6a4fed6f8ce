"""This process's way to the scheduler's service: found or started, called, followed. Lives in the io thread."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gpufair.client import AsyncClient, Endpoint, Unavailable, ensure_service_async
from gpufair.core.errors import GpufairError

log = logging.getLogger(__name__)
Result = TypeVar("Result")

START_S = 20.0  # a cold start imports the whole service; on a loaded machine with two cores it took 6 s


class SchedulerLink:
    """One client for the process, and one attempt at a time to have a service behind it.

    Attributes:
        config: Configuration file for an embedded service that is started here; None for the default places.
        problem: Why there is no service, as a sentence; None while there is one or none was needed yet.
    """

    def __init__(self, config: str | None = None) -> None:
        self.config = config
        self.problem: str | None = None
        self.endpoint: Endpoint | None = None
        self._client: AsyncClient | None = None
        self._ensuring: asyncio.Task[Endpoint] | None = None

    @property
    def client(self) -> AsyncClient:
        """The client. Calls find the service by themselves, again after it moved."""
        if self._client is None:
            self._client = AsyncClient()
        return self._client

    @property
    def embedded(self) -> bool:
        """Whether a service of this machine is meant, which we may start."""
        return not os.environ.get("GPUFAIR_URL")

    @property
    def user(self) -> str | None:
        """For whom sessions are submitted where the token may act for others; None: for the token's owner."""
        return os.environ.get("GPUFAIR_USER") or None

    @property
    def local(self) -> bool:
        """Whether kernels find this machine's files and interpreters."""
        return self.endpoint is None or self.endpoint.loopback

    async def ready(self) -> Endpoint:
        """Find a service that answers, or start one; callers at the same time share the attempt.

        Raises: GpufairError: There is none; the text says why and what to do.
        """
        if self._ensuring is None or self._ensuring.done():
            self._ensuring = asyncio.get_running_loop().create_task(self._ensure())
        return await asyncio.shield(self._ensuring)

    async def _ensure(self) -> Endpoint:
        try:
            self.endpoint = await ensure_service_async(self.config, wait_s=START_S)
        except GpufairError as err:
            self.problem = str(err)
            raise
        self.problem = None
        return self.endpoint

    async def call(self, ask: Callable[[AsyncClient], Awaitable[Result]]) -> Result:
        """Ask the service; if none answers, bring one up and ask once more.

        Raises: GpufairError: The service said no, or there is none.
        """
        if self.endpoint is None:
            await self.ready()
        try:
            return await ask(self.client)
        except Unavailable as err:
            self.problem = str(err)
            log.info("the scheduler service does not answer (%s); looking for it again", err)
        await self.ready()
        return await ask(self.client)

    async def close(self) -> None:
        """Close the connections, and wait for nobody."""
        if self._ensuring is not None:
            self._ensuring.cancel()
            await asyncio.gather(self._ensuring, return_exceptions=True)
        if self._client is not None:
            await self._client.close()
            self._client = None
