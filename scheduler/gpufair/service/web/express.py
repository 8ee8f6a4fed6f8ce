"""A short way for the few routes that are asked hundreds of times a second.

FastAPI takes longer to find a route and to call it than most of our routes take. So what is asked most is answered here by the
same functions, with the same right and the same checks. Whatever is not exactly as declared is handed on, as if nobody had
looked at it: so FastAPI alone says what is wrong with a request.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.params import Body, Path
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpufair.service.web.rights import RIGHTS, Right, admit, key_of

_MISSING = inspect.Parameter.empty


class _Unusual(Exception):
    """It is to be handed on."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A parameter of a path or a query."""

    name: str
    kind: TypeAdapter[Any]
    default: Any


class _Short:
    """One route, taken apart once."""

    def __init__(self, route: APIRoute, prefix: str) -> None:
        self.method = "".join(route.methods or ())
        self.right: Right = RIGHTS[key_of(route, self.method)]
        path = route.path.removeprefix(prefix)
        self.path = re.compile(prefix + re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path))
        self._endpoint: Callable[..., Awaitable[Any]] = route.endpoint
        self._status = route.status_code or int(HTTPStatus.OK)
        self._path: list[_Asked] = []
        self._query: list[_Asked] = []
        self._body: tuple[str, TypeAdapter[Any]] | None = None
        self._request = self._response = ""
        hints = get_type_hints(route.endpoint, include_extras=True)
        for name, parameter in inspect.signature(route.endpoint).parameters.items():
            kind = hints[name]
            marks = getattr(kind, "__metadata__", ())
            if kind is Request:
                self._request = name
            elif kind is Response:
                self._response = name
            elif (inspect.isclass(kind) and issubclass(kind, BaseModel)) or any(isinstance(mark, Body) for mark in marks):
                self._body = name, TypeAdapter(kind)
            else:
                found = self._path if any(isinstance(mark, Path) for mark in marks) else self._query
                found.append(_Asked(name, TypeAdapter(kind), parameter.default))

    async def answer(self, scope: Scope, given: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Status and body.

        Raises:
            _Unusual: Something is not as declared. Nothing has been done.
            GpufairError: It is refused.
        """
        request = Request(scope)
        admit(request, self.right)
        arguments = dict(_values(self._path, given))
        arguments |= _values(self._query, _query(scope["query_string"]))
        if self._body is not None:
            name, kind = self._body
            try:
                arguments[name] = kind.validate_json(body)
            except ValidationError as err:
                raise _Unusual from err
        if self._request:
            arguments[self._request] = request
        response = Response(status_code=self._status)
        if self._response:
            arguments[self._response] = response  # to be told another status; these routes tell no more
        told = await self._endpoint(**arguments)
        return response.status_code, to_json(told, inf_nan_mode="null")


class Express:
    """ASGI middleware, behind the gate.

    Args:
        app: All routes.
        routes: Those that are answered here, of one method each, with JSON bodies.
        prefix: What comes before their paths.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[APIRoute], prefix: str) -> None:
        self._app = app
        self._routes = [_Short(route, prefix) for route in routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        found = self._find(scope) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        route, given = found
        read = await _whole(receive)
        if read is None:
            return  # whoever asked has gone, or sends more than he may
        try:
            status, body = await route.answer(scope, given, read)
        except _Unusual:
            await self._app(scope, _again(read, receive), send)
            return
        headers = [(b"content-length", str(len(body)).encode()), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _find(self, scope: Scope) -> tuple[_Short, dict[str, str]] | None:
        for route in self._routes:
            if route.method == scope["method"] and (match := route.path.fullmatch(scope["path"])) is not None:
                if scope["method"] != "GET" and not _is_json(scope):
                    return None
                return route, match.groupdict()
        return None


def _is_json(scope: Scope) -> bool:
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return kinds == [b"application/json"]


def _query(text: bytes) -> dict[str, str]:
    pairs = parse_qsl(text.decode("latin-1"), keep_blank_values=True)
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Unusual
    return found


def _values(asked: Iterable[_Asked], given: dict[str, str]) -> Iterator[tuple[str, Any]]:
    for one in asked:
        if one.name in given:
            try:
                yield one.name, one.kind.validate_python(given[one.name])
            except ValidationError as err:
                raise _Unusual from err
        elif one.default is _MISSING:
            raise _Unusual
        else:
            yield one.name, one.default


async def _whole(receive: Receive) -> bytes | None:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """What was read already, and then what comes."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return left.pop() if left else await receive()

    return read
