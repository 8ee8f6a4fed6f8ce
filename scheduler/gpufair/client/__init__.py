"""The service's clients: all that Jupyter and the command line see of the scheduler.

Names are looked up on first use: completing a flag on the command line must not pay for an HTTP stack.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpufair.client.aio import AsyncClient
    from gpufair.client.embedded import ensure_service, ensure_service_async
    from gpufair.client.endpoint import Endpoint, discover
    from gpufair.client.errors import (
        BadAnswer,
        ClientError,
        NotFound,
        Refused,
        ServiceError,
        Unauthorized,
        Unavailable,
    )
    from gpufair.client.exchange import Patience
    from gpufair.client.follow import Announced, Disconnected, Event, Others, Resync, Synced, WorkloadEvent
    from gpufair.client.sync import Client
    from gpufair.client.types import Workload

__all__ = [
    "Announced",
    "AsyncClient",
    "BadAnswer",
    "Client",
    "ClientError",
    "Disconnected",
    "Endpoint",
    "Event",
    "NotFound",
    "Others",
    "Patience",
    "Refused",
    "Resync",
    "ServiceError",
    "Synced",
    "Unauthorized",
    "Unavailable",
    "Workload",
    "WorkloadEvent",
    "discover",
    "ensure_service",
    "ensure_service_async",
]

_HOMES = {
    "aio": ("AsyncClient",),
    "embedded": ("ensure_service", "ensure_service_async"),
    "endpoint": ("Endpoint", "discover"),
    "errors": ("BadAnswer", "ClientError", "NotFound", "Refused", "ServiceError", "Unauthorized", "Unavailable"),
    "exchange": ("Patience",),
    "follow": ("Announced", "Disconnected", "Event", "Others", "Resync", "Synced", "WorkloadEvent"),
    "sync": ("Client",),
    "types": ("Workload",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"gpufair.client.{_HOME[name]}"), name)
    raise AttributeError(f"module 'gpufair.client' has no attribute {name!r}")
