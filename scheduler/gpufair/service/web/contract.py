"""The API's contract: the OpenAPI document that ``GET /api/v1/openapi.json`` and ``gpufair api-schema`` answer.

A route says beside its path what it answers, by one of the client's own classes (``answers``): FastAPI would check each answer
against a model as it is sent, which costs more than to make it, and would turn a slip into an error. What is true of every route
(problems, tokens, names of operations) is added here, to all of them.
"""

from __future__ import annotations

import inspect
import json
import re
from functools import cache
from importlib import resources
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gpufair.client import answers as whole
from gpufair.client.json_schema import REF, Schema, components

_ANSWERED: Final[dict[str, type]] = {}
_METHODS: Final = frozenset({"get", "put", "post", "delete", "patch"})
OPEN: Final = frozenset({"/healthz", "/readyz"})  # no token is needed
AGENTS: Final = frozenset({"agents", "pods"})  # whose routes want the token of one of these, and not a user's
_ABOUT: Final = """Everything that the `gpufair` command and Jupyter ask of the scheduler.

Instants are Unix seconds (`_s`), GPU time is GPU-seconds (`_gpu_s`), sizes are bytes. `null` means that it does not apply.
Fields may be added; none goes or changes its meaning before `/api/v2`. An error is `application/problem+json`."""


def answers(kind: type, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """``responses=`` of a route that answers JSON like ``kind``, a dataclass of the client."""
    _ANSWERED[kind.__name__] = kind
    return {status: {"content": {"application/json": {"schema": {"$ref": f"{REF}{kind.__name__}"}}}}}


def streams(media_type: str, description: str) -> dict[int | str, dict[str, Any]]:
    """``responses=`` of a route that answers something else than JSON."""
    content = {media_type: {"schema": {"type": "string"}}}
    return {200: {"description": description, "content": content}}


def answered() -> dict[str, Schema]:
    """The kinds of answers that there are once the routes are imported, and all that is in them."""
    return components([*_ANSWERED.values(), whole.Problem])


@cache
def examples() -> dict[str, Any]:
    """One of each kind of answer and of body, by its name in the schema."""
    text = resources.files("gpufair.service").joinpath("api_examples.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document, the same for the same version: its keys are sorted."""
    told = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
    schemas: dict[str, Schema] = told.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    ours = answered()
    if both := sorted(set(ours) & set(schemas)):
        raise ValueError(f"a body and an answer are both called {both[0]}")
    schemas |= ours
    for name, example in examples().items():
        if name in schemas:
            schemas[name]["examples"] = [example]
    told["components"]["securitySchemes"] = {
        "user": {"type": "http", "scheme": "bearer", "description": "The token of a user or an operator."},
        "agent": {"type": "http", "scheme": "bearer", "description": "The token of the agent of that node, or in that pod."},
    }
    for path, operations in told["paths"].items():
        for method in _METHODS & set(operations):
            _complete(path, method, operations[method])
    told["tags"] = [{"name": tag} for tag in sorted({_tag(path) for path in told["paths"]})]
    ordered: dict[str, Any] = json.loads(json.dumps(told, sort_keys=True))
    return ordered


def _tag(path: str) -> str:
    parts = path.removeprefix("/api/v1").split("/")
    return parts[1] if path.startswith("/api/v1") else "monitoring"


def _complete(path: str, method: str, told: dict[str, Any]) -> None:
    text = inspect.cleandoc(told.get("description", "")).replace("``", "`")
    told["summary"] = re.split(r"(?<=[.?!])\s|[:;] ", " ".join(text.split()), maxsplit=1)[0].rstrip(".")
    told["description"] = text
    told["tags"] = [_tag(path)]
    told["operationId"] = "_".join([method, *re.findall(r"\w+", path.removeprefix("/api/v1").replace("-", "_"))])
    told["security"] = [] if path in OPEN else [{"agent": []}] if _tag(path) in AGENTS else [{"user": []}]
    responses = told["responses"]
    responses.pop("422", None)
    for response in responses.values():
        for content in response.get("content", {}).values():
            schema = content.get("schema", {})
            if "$ref" in schema:  # FastAPI adds what it makes of the function's own annotation
                content["schema"] = {"$ref": schema["$ref"]}
    problems = {"4XX": "Refused, for the reason in `detail`.", "5XX": "It cannot be done now, for the reason in `detail`."}
    if path not in OPEN:
        problems["401"] = "No valid token."
    if "parameters" in told or "requestBody" in told:
        problems["422"] = "A parameter or a field is not what it has to be."
    problem = {"application/problem+json": {"schema": {"$ref": f"{REF}Problem"}}}
    for status, description in problems.items():
        responses.setdefault(status, {"description": description, "content": problem})
