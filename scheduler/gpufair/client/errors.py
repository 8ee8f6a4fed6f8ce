"""What can go wrong between a client and the service. Each says what was asked, what is true and what to do."""

from __future__ import annotations

from typing import Any

from gpufair.core.errors import GpufairError

_TEXT_LIMIT = 2000  # characters of a foreign answer that are worth showing


class ClientError(GpufairError):
    """Base: talking to the service failed."""


class BadAnswer(ClientError):
    """The service answered something that this version does not understand."""

    def __str__(self) -> str:
        return f"the service's answer makes no sense here ({self.args[0]}); are client and service of one version?"


class Unavailable(ClientError):
    """The service could not be reached, or said that it cannot serve now. Trying later may help."""

    def __init__(self, asked: str, true: str, next_step: str) -> None:
        super().__init__(asked, true)
        self.asked, self.true, self.next_step = asked, true, next_step

    def __str__(self) -> str:
        return f"{self.asked}: {self.true}; {self.next_step}"


class ServiceError(ClientError):
    """The service answered with an error.

    Attributes:
        status: HTTP status.
        error: Class name of the service's error (``MinRuntimeTooLong``), or "" if the answer named none.
        detail: The service's own sentence.
        body: The whole problem object, for fields beside these (``line`` of a ``BudgetError``, say).
    """

    def __init__(self, status: int, error: str, detail: str, body: dict[str, Any] | None = None) -> None:
        super().__init__(status, error, detail)
        self.status, self.error, self.detail, self.body = status, error, detail, body or {}

    def __str__(self) -> str:
        return self.detail


class Refused(ServiceError):
    """The request was understood and is not allowed, or makes no sense (any 4xx)."""


class NotFound(Refused):
    """There is no such thing (404)."""


class Unauthorized(Refused):
    """The token is missing, wrong, or not good enough (401, 403)."""


def from_answer(status: int, body: object, text: str) -> ServiceError:
    """The error in an answer of ``status`` >= 400. ``body``: its parsed JSON, None if it is none."""
    problem = body if isinstance(body, dict) else {}
    error = problem.get("error")
    detail = problem.get("detail") or problem.get("title")
    if not isinstance(detail, str):
        # FastAPI's own validation errors and proxies in between speak differently.
        detail = f"HTTP {status}: {str(detail or text or 'no reason given').strip()}"
    made: type[ServiceError] = ServiceError
    if status in {401, 403}:
        made = Unauthorized
    elif status == 404:
        made = NotFound
    elif 400 <= status < 500:
        made = Refused
    return made(status, error if isinstance(error, str) else "", detail[:_TEXT_LIMIT], problem)
