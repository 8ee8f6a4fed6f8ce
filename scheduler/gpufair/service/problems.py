"""Errors of the API: one table from class to HTTP status, one shape (problem+json)."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any, Final

from gpufair.core import errors as core
from gpufair.service.storage.announcements import TooManyAnnouncements, UnknownAnnouncement
from gpufair.service.storage.budget_requests import TooManyRequests, UnknownRequest
from gpufair.service.storage.store import StoreError, StoreUnavailable
from gpufair.service.workloads.asked import Closed, InternalError, Overloaded
from gpufair.service.workloads.pools import UnknownPool
from gpufair.wire import WireError


class Unauthorized(core.GpufairError):
    """No token, or one that nobody has."""

    def __str__(self) -> str:
        return (
            "a valid token is needed, as 'Authorization: Bearer ...'; the CLI and Jupyter find theirs in service.json"
        )


class Forbidden(core.GpufairError):
    """The token is good, but not for this."""


class NotFound(core.GpufairError):
    """There is no such thing."""


class TooLarge(core.GpufairError):
    """A body is beyond the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"the body is larger than {self.limit:,} bytes"


class BadRequest(core.GpufairError):
    """The request cannot be understood."""


class Conflict(core.GpufairError):
    """Somebody else was first: what is asked for does not fit what is so now."""


class MisdirectedHost(core.GpufairError):
    """A name in the Host header that isn't ours: a page of somebody else's, resolved to this address (DNS rebinding)."""

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.host = host

    def __str__(self) -> str:
        return f"this service is not {self.host!r}; use the URL in service.json, or a tunnel that keeps a loopback name"


class AsksTooOften(core.GpufairError):
    """A token asks more often than it may. Nothing of what was asked has happened."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s

    def __str__(self) -> str:
        return f"this token asks too often; ask again in {self.wait_s:.1f} s (`requests_per_s` in gpufair.toml)"


class TooManyAttempts(core.GpufairError):
    """An address has shown too many wrong tokens."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s

    def __str__(self) -> str:
        return (
            f"this address has shown too many wrong tokens; right ones are still good, others may be tried in {self.wait_s:.0f} s "
            "(`wrong_tokens_per_minute` in gpufair.toml)"
        )


class HubUnavailable(core.GpufairError):
    """The JupyterHub that alone knows a token does not say whose it is."""

    def __init__(self, why: str, wait_s: float) -> None:
        super().__init__(why, wait_s)
        self.why, self.wait_s = why, wait_s

    def __str__(self) -> str:
        return (
            f"this service does not know the token, and the JupyterHub that may know it does not say ({self.why}); "
            "ask again in a moment, or use a token of gpufair's own"
        )


class TooManyStreams(core.GpufairError):
    """Each event stream costs memory, so their number is limited."""


class CheckpointsUnreachable(core.GpufairError):
    """The store of the checkpoints does not answer, or refuses."""


class HelloFirst(core.GpufairError):
    """An agent's boot that the service doesn't know."""

    def __str__(self) -> str:
        return "this boot of the agent is not known here; say hello (again) first"


class UnknownPod(core.GpufairError):
    """A pod of which this service knows nothing, or nothing yet."""

    def __init__(self, pod: str) -> None:
        super().__init__(pod)
        self.pod = pod

    def __str__(self) -> str:
        return f"this service expects nothing of pod {self.pod!r}, at least not yet; say hello again in a moment"


# The first class that matches counts, so subclasses come before their bases.
STATUS: Final[tuple[tuple[type[BaseException], HTTPStatus], ...]] = (
    (Unauthorized, HTTPStatus.UNAUTHORIZED),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (core.NotAMember, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (core.UnknownWorkload, HTTPStatus.NOT_FOUND),
    (core.UnknownNode, HTTPStatus.NOT_FOUND),
    (core.WrongPhase, HTTPStatus.CONFLICT),
    (core.NodeNotLost, HTTPStatus.CONFLICT),
    (core.ExtensionRefused, HTTPStatus.CONFLICT),
    (HelloFirst, HTTPStatus.CONFLICT),
    (Conflict, HTTPStatus.CONFLICT),
    (UnknownRequest, HTTPStatus.NOT_FOUND),
    (UnknownPool, HTTPStatus.NOT_FOUND),
    (UnknownAnnouncement, HTTPStatus.NOT_FOUND),
    (TooManyAnnouncements, HTTPStatus.TOO_MANY_REQUESTS),
    (TooManyRequests, HTTPStatus.TOO_MANY_REQUESTS),
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (MisdirectedHost, HTTPStatus.MISDIRECTED_REQUEST),
    (BadRequest, HTTPStatus.BAD_REQUEST),
    (WireError, HTTPStatus.BAD_REQUEST),
    (Overloaded, HTTPStatus.TOO_MANY_REQUESTS),
    (AsksTooOften, HTTPStatus.TOO_MANY_REQUESTS),
    (TooManyAttempts, HTTPStatus.TOO_MANY_REQUESTS),
    (TooManyStreams, HTTPStatus.TOO_MANY_REQUESTS),
    (HubUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (CheckpointsUnreachable, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnknownPod, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE),
    (Closed, HTTPStatus.SERVICE_UNAVAILABLE),
    (InternalError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (core.Inconsistent, HTTPStatus.INTERNAL_SERVER_ERROR),
    # Whatever else the core refuses can't be carried out as asked.
    (core.GpufairError, HTTPStatus.UNPROCESSABLE_ENTITY),
)


def status_of(error: BaseException) -> HTTPStatus:
    """The status that ``error`` is answered with."""
    return next((status for cls, status in STATUS if isinstance(error, cls)), HTTPStatus.INTERNAL_SERVER_ERROR)


def problem(status: HTTPStatus, detail: str, error: str, **more: Any) -> dict[str, Any]:
    """The body of an error answer."""
    return {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        "detail": detail,
        "error": error,
    } | more


def problem_of(error: core.GpufairError) -> dict[str, Any]:
    """The body of the answer to ``error``."""
    more = {"line": error.line} if isinstance(error, core.BudgetError) else {}
    return problem(status_of(error), str(error), type(error).__name__, **more)


def wait_of(error: core.GpufairError) -> int | None:
    """After how many seconds it may be asked again; None: the error does not say."""
    return math.ceil(error.wait_s) if isinstance(error, AsksTooOften | TooManyAttempts | HubUnavailable) else None
