"""Which of several services writes to a cluster: who holds its Lease (``coordination.k8s.io/v1``)."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpufair.service.backends.kubernetes.api import Api


class Lease:
    """One service's part in it. ``hold`` takes it when it is free, renews it, and gives it back when cancelled.

    Args:
        identity: Who this is, unlike any other process.
        duration_s: How long others wait after the last renewal that they have seen.
        renew_deadline_s: For how long a renewal is good for its holder; less than ``duration_s``, so that the
            holder knows that it is none before anybody else is.
        retry_s: Between two tries.
        changed: Called in the event loop with ``held`` when that changes.
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
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        raise NotImplementedError

    @property
    def held(self) -> bool:
        """Whether this service may write now. It tells time itself, so it becomes False even when everything hangs."""
        raise NotImplementedError

    @property
    def holder(self) -> str:
        """Who holds it as far as is known; "": nobody."""
        raise NotImplementedError

    async def wait_held(self) -> None:
        """Return when this service holds it."""
        raise NotImplementedError

    async def hold(self) -> None:
        """Take, renew and take again until cancelled; then give it back. No answer of the server ends it."""
        raise NotImplementedError
