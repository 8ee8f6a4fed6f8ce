"""What the API server says when it can't do as it is told: one `Status` object and an HTTP status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.kube.resources import Resource

REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Refused(Exception):
    """Answer with ``code``; ``retry_after_s`` becomes the header."""

    def __init__(
        self,
        code: int,
        message: str,
        reason: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = REASONS.get(code, "Unknown") if reason is None else reason
        self.details = dict(details or {})
        self.retry_after_s = retry_after_s
        if retry_after_s is not None:
            self.details["retryAfterSeconds"] = retry_after_s

    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }


def success(details: Mapping[str, Any] | None = None, code: int | None = None) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        **({"details": dict(details)} if details else {}),
        **({"code": code} if code else {}),
    }


def _about(resource: Resource, name: str) -> dict[str, Any]:
    return {"name": name, **({"group": resource.group} if resource.group else {}), "kind": resource.plural}


def not_found(resource: Resource, name: str) -> Refused:
    return Refused(404, f'{resource.qualified} "{name}" not found', details=_about(resource, name))


def exists(resource: Resource, name: str) -> Refused:
    return Refused(409, f'{resource.qualified} "{name}" already exists', "AlreadyExists", _about(resource, name))


def conflict(resource: Resource, name: str, why: str) -> Refused:
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return Refused(409, message, details=_about(resource, name))


def modified(resource: Resource, name: str) -> Refused:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def forbidden(resource: Resource, name: str, why: str) -> Refused:
    return Refused(403, f'{resource.qualified} "{name}" is forbidden: {why}', details=_about(resource, name))


def invalid(resource: Resource, name: str, causes: list[tuple[str, str]]) -> Refused:
    """``causes``: (field, what is wrong with it)."""
    said = [f"{where}: {what}" for where, what in causes]
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details = {
        **_about(resource, name),
        "kind": resource.kind,
        "causes": [{"reason": "FieldValueInvalid", "message": what, "field": where} for where, what in causes],
    }
    return Refused(422, f'{resource.kind}{f".{resource.group}" if resource.group else ""} "{name}" is invalid: {text}', details=details)


def expired(asked: int, oldest: int) -> Refused:
    return Refused(410, f"too old resource version: {asked} ({oldest})")
