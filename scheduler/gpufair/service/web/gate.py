"""What every request passes before anything of it is read: whose address it used, who it is, how large it is.

Plain ASGI, in front of all routes, so that a route that forgets nothing can forget this neither.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpufair.core.errors import GpufairError
from gpufair.service.identity.auth import Authenticator, Principal, Role
from gpufair.service.identity.pace import Pace
from gpufair.service.problems import (
    MisdirectedHost,
    NotFound,
    TooLarge,
    Unauthorized,
    problem_of,
    status_of,
    wait_of,
)
from gpufair.wire import MAX_BODY_BYTES

OPEN_PATHS = re.compile(r"/healthz|/api/v1/healthz|/readyz|/|/dashboard(?:/[a-z.]*)?")
_AGENT = re.compile(r"/api/v1/agents/([^/]+)(?:/|$)")
_POD = re.compile(r"/api/v1/pods/([^/]+)(?:/|$)")
_NODE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_POD_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class Gate:
    """ASGI middleware.

    Args:
        app: What is behind it.
        authenticator: Knows the tokens.
        hosts: Names, besides loopback ones, under which the service may be asked; None: any.
        per_s: Requests of one token a second; 0: any number. Operators, who ask for many people, and agents are not counted.
    """

    def __init__(
        self, app: ASGIApp, authenticator: Authenticator, hosts: Iterable[str] | None = (), per_s: float = 0.0
    ) -> None:
        self._app, self._authenticator = app, authenticator
        self._pace = Pace(per_s)
        self._hosts = None if hosts is None else LOOPBACK_NAMES | {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # there are no websockets here: an unanswered handshake is refused by the server
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._check_host(headers.get("host", ""))
            if OPEN_PATHS.fullmatch(scope["path"]) is None:
                who = scope["gpufair.principal"] = await self._known(scope, headers)
                if who.role not in {Role.OPERATOR, Role.AGENT}:
                    self._pace.take(who.key)
            declared = headers.get("content-length", "0")
            if not declared.isdigit() or int(declared) > MAX_BODY_BYTES:
                raise TooLarge(MAX_BODY_BYTES)
            limited = _Limited(receive)
            await self._app(scope, limited.receive, _Guarded(send, limited).send)
            if limited.exceeded:
                raise TooLarge(MAX_BODY_BYTES)
        except GpufairError as err:
            await _answer(send, err)

    def _check_host(self, host: str) -> None:
        if self._hosts is None:
            return
        name = re.sub(r":\d+$", "", host).lower()
        if name not in self._hosts:
            raise MisdirectedHost(host[:200])

    async def _known(self, scope: Scope, headers: dict[str, str]) -> Principal:
        try:
            return await self._who(scope, headers)
        except Unauthorized:
            if shown := headers.get("authorization") or cookie_of(headers):
                self._authenticator.attempts.wrong(address_of(scope), shown)
            raise

    async def _who(self, scope: Scope, headers: dict[str, str]) -> Principal:
        authorization = headers.get("authorization")
        if match := _AGENT.match(scope["path"]):
            node = match[1]
            if _NODE.fullmatch(node) is None:
                await self._authenticator.admit(authorization, address_of(scope))  # 401 before anything is told about names
                raise NotFound(f"{node[:80]!r} is no name of a node")
            return self._authenticator.agent(authorization, node)
        if match := _POD.match(scope["path"]):
            pod = match[1]
            if _POD_NAME.fullmatch(pod) is None:
                await self._authenticator.admit(authorization, address_of(scope))  # as above
                raise NotFound(f"{pod[:80]!r} is no name of a pod")
            return self._authenticator.pod(authorization, pod)
        # Browsers send a cookie by themselves, so it is good for looking only.
        looks = authorization is None and scope["method"] == "GET" and of_our_page(headers)
        if looks and (cookie := cookie_of(headers)):
            return self._authenticator.visitor(cookie)
        return await self._authenticator.admit(authorization, address_of(scope))


class _Limited:
    """Counts what is read, since a chunked body declares no length."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read = 0
        self.exceeded = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._read += len(message.get("body", b""))
            if self._read > MAX_BODY_BYTES:
                self.exceeded = True
                return {"type": "http.disconnect"}  # what is behind stops reading
        return message


class _Guarded:
    """Adds the headers that every answer has; drops an answer to a body that was too large to be read."""

    def __init__(self, send: Send, limited: _Limited) -> None:
        self._send, self._limited = send, limited

    async def send(self, message: Message) -> None:
        if self._limited.exceeded:
            return
        if message["type"] == "http.response.start":
            own = message.get("headers", [])
            names = {name for name, _ in own}
            message = {**message, "headers": [*own, *(one for one in _HEADERS if one[0] not in names)]}
        await self._send(message)


_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]


def address_of(scope: Mapping[str, Any]) -> str:
    """Who asks, by their address; "" for who has none."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def cookie_name(headers: Mapping[str, str]) -> str:
    """What the cookie is called: browsers tell hosts apart, but not ports, and each may be another service."""
    port = re.search(r":(\d+)$", headers.get("host", ""))
    return f"gpufair-{port[1]}" if port else "gpufair"


def cookie_of(headers: Mapping[str, str]) -> str | None:
    """The cookie of a browser that logged in."""
    for one in headers.get("cookie", "")[:16_384].split(";"):
        name, _, value = one.strip().partition("=")
        if name == cookie_name(headers) and value:
            return value[:512]
    return None


def of_our_page(headers: Mapping[str, str], *, certainly: bool = False) -> bool:
    """Whether a request is not from somebody else's page. Pages can forge none of these headers.

    Args:
        certainly: For what changes something: who says nothing is refused.
    """
    if (site := headers.get("sec-fetch-site")) is not None:
        return site == "same-origin" or (site == "none" and not certainly)
    if (origin := headers.get("origin")) is not None:
        return origin.partition("://")[2] == headers.get("host")
    return not certainly


async def _answer(send: Send, error: GpufairError) -> None:
    status = status_of(error)
    body = json.dumps(problem_of(error), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        *_HEADERS,
    ]
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    if (wait_s := wait_of(error)) is not None:
        headers.append((b"retry-after", str(wait_s).encode()))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
