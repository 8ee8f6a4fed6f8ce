"""Whether answers are what the API's schema promises: every answer that a test of the service gets is compared with it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from gpufair.client.json_schema import REF
from gpufair.service.api import routed

HOW = "say what it answers: `responses=answers(KIND)` at the route, and the field in that class (gpufair.client.types, answers, insight)"


@cache
def document() -> dict[str, Any]:
    """The contract of this version."""
    told: dict[str, Any] = routed("test").openapi()
    return told


@cache
def _closed() -> dict[str, Any]:
    """Its schemas, in which a field that is not described is none: users may meet new fields, we may not forget them."""
    return {
        name: schema | ({"additionalProperties": False} if "properties" in schema else {})
        for name, schema in document()["components"]["schemas"].items()
    }


@cache
def _validator(ref: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": ref, "components": {"schemas": _closed()}})


def errors_of(kind: str, value: object) -> list[str]:
    """What is wrong with ``value`` as an answer of this kind."""
    found = sorted(_validator(f"{REF}{kind}").iter_errors(value), key=lambda error: list(map(str, error.absolute_path)))
    return [f"{'.'.join(map(str, error.absolute_path)) or 'it'}: {error.message[:300]}" for error in found]


@cache
def _paths() -> list[tuple[re.Pattern[str], str]]:
    found = [(re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))), path) for path in document()["paths"]]
    # The one with the fewest names in it is meant: /budgets/why before /budgets/{x}.
    return sorted(found, key=lambda one: one[1].count("{"))


def problems(method: str, path: str, status: int, media_type: str, body: object) -> list[str]:
    """Why an answer is not what the contract says; empty if it is."""
    template = next((known for pattern, known in _paths() if pattern.fullmatch(path)), None)
    operation = document()["paths"].get(template, {}).get(method.lower())
    if operation is None:
        # The document itself, and what is not there: for that there are only problems.
        return [] if path.endswith("/openapi.json") or status >= 400 else [f"it is in no contract; {HOW}"]
    told = operation["responses"]
    response = told.get(str(status)) or told.get(f"{status // 100}XX")
    if response is None:
        return [f"a status {status} is not foreseen; {HOW}"]
    content = response.get("content", {}).get(media_type)
    if content is None:
        return [f"{media_type} is not foreseen for {status}; {HOW}"]
    ref = content["schema"].get("$ref")
    if ref is None:
        return [f"its {media_type} is not described; {HOW}"]
    return [f"{one}; {HOW}" for one in errors_of(ref.removeprefix(REF), body)]


document()  # at once: a test's agent has little time to say hello


async def check(response: httpx.Response) -> None:
    """Hook of a client: compare the answer with the contract.

    Raises:
        AssertionError: It is something else.
    """
    media_type = response.headers.get("content-type", "").partition(";")[0]
    if not media_type.endswith("json"):
        return  # streams and texts
    await response.aread()
    request = response.request
    found = problems(request.method, request.url.path, response.status_code, media_type, response.json())
    assert not found, f"{request.method} {request.url.path}: {found[0]}"


