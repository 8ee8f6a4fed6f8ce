"""A copy of what an API server holds, kept up to date: list once, then watch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gpufair.service.backends.kubernetes.api import Api

Object = dict[str, Any]
ChangeKind = Literal["added", "modified", "deleted"]


@dataclass(frozen=True, slots=True)
class Change:
    """One object became another."""

    kind: ChangeKind
    object: Object  # as it is now; deleted: as it was last
    before: Object | None = None  # as it was known before; None: it was not
    # Whether the server said so. False: it was deleted between two lists, and how it ended was not seen.
    told: bool = True


class Reflector:
    """The objects at one path, by (namespace, name). ``run`` keeps them; read them in its event loop.

    Args:
        path: A collection: ``/api/v1/pods``, ``/api/v1/namespaces/x/pods``.
        labels: A label selector; "": all.
        fields: A field selector; "": all.
        changed: Called in the event loop after ``objects`` has it, in the server's order. What it raises is logged.
        page: Objects to a list call.
        watch_s: After how long the server ends a quiet stream, and a new one begins where it ended.
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
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        raise NotImplementedError

    @property
    def objects(self) -> Mapping[tuple[str, str], Object]:
        """All, by (namespace, name). They are shared: change none."""
        raise NotImplementedError

    def by_uid(self, uid: str) -> Object | None:
        """The one with this uid."""
        raise NotImplementedError

    @property
    def stale_since(self) -> float | None:
        """Since when no stream is open, as ``now`` tells time; None: one is, and ``objects`` follows the server."""
        raise NotImplementedError

    async def synced(self) -> None:
        """Return when the first list is complete, and its changes told."""
        raise NotImplementedError

    async def run(self) -> None:
        """Keep ``objects`` until cancelled; no answer of the server ends it. It ends within a second of that."""
        raise NotImplementedError
