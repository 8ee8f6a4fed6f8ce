"""The doors of the Jupyter side: none of our routes answers a stranger, and none acts for another page."""

from __future__ import annotations

import http.cookiejar
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

from jupyter_gpufair.app import GpufairExtension
from tests.integration.jupyter.fake_service import FakeService
from tests.integration.jupyter.server import Server

METHODS = ("get", "post", "put", "patch", "delete")
CHANGING = METHODS[1:]
KERNEL = "00000000-0000-0000-0000-000000000000"
GROUPS = {"kernel_id": KERNEL, "path": "ws", "number": "1"}


def example(pattern: str) -> str:
    """A path that the pattern of a route matches."""
    path = re.sub(r"\(\?P<(\w+)>((?:[^()]|\([^()]*\))*)\)", lambda group: GROUPS.get(group[1], _first(group[2])), pattern)
    path = path.replace("/?", "/")
    assert re.fullmatch(pattern, path), (pattern, path)
    return path


def _first(choices: str) -> str:
    return KERNEL if "[" in choices or "\\" in choices else choices.split("|", maxsplit=1)[0]


def every_route() -> Iterator[tuple[str, str]]:
    """(method, path) of all that is there."""
    for pattern, handler, *_ in GpufairExtension.handlers:
        for method in METHODS:
            if getattr(handler, method).__qualname__.partition(".")[0] not in {"RequestHandler", "WebSocketHandler"}:
                yield method.upper(), example(pattern)


class Browser:
    """Keeps cookies, follows nothing."""

    def __init__(self, server: Server) -> None:
        self._server, self.jar = server, http.cookiejar.CookieJar()

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *_: object) -> None:
                """No."""

        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar), Stay)

    def log_in(self) -> None:
        """As the link that Jupyter prints does."""
        assert self.ask("GET", f"/lab?token={self._server.token}")[0] in {200, 302, 404}
        assert any(cookie.name.startswith("username-") for cookie in self.jar)

    def ask(self, method: str, path: str, **headers: str) -> tuple[int, str]:
        """(status, text)."""
        data = None if method == "GET" else b"{}"
        given = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self._server.url + path, data=data, method=method, headers=given)
        try:
            with self._opener.open(request, timeout=20) as answer:
                return answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as err:
            return err.code, err.read().decode(errors="replace")

    @property
    def xsrf(self) -> str:
        """What only the server's own pages can read."""
        return next(urllib.parse.unquote(cookie.value or "") for cookie in self.jar if cookie.name == "_xsrf")


def test_no_route_answers_a_stranger(server: Server) -> None:
    """A walk through all of them."""
    routes = list(every_route())
    assert len(routes) >= 25, routes
    for method, path in routes:
        status, text = Browser(server).ask(method, path)
        assert status == 403 or (status == 302 and method == "GET"), (method, path, status, text[:300])


def test_no_other_page_acts_with_a_readers_cookie(server: Server, service: FakeService) -> None:
    """A browser sends the cookie by itself; what a page has to add to it, others cannot read."""
    reader = Browser(server)
    reader.log_in()
    kernel = server.new()
    routes = [(method, path) for method, path in every_route() if method != "GET"]
    assert len(routes) >= 10
    for method, path in routes:
        mine = path.replace(KERNEL, kernel)
        for headers in ({}, {"X_XSRFToken": "guessed"}, {"Origin": "http://evil.example"}):
            status, text = reader.ask(method, mine, **headers)
            # Of what another page asks Jupyter says that it is not there.
            assert status == (404 if "Origin" in headers else 403), (method, mine, headers, status, text[:300])
    # Nor does any look from another site show anything.
    status, _ = reader.ask("GET", "/gpufair/sessions", Origin="http://evil.example", Sec_Fetch_Site="cross-site")
    assert status in {403, 404}
    assert service.runs[kernel].calls == ["submit"]
    # With it the same browser may: the walk above was refused for what it lacked.
    status, text = reader.ask("POST", f"/gpufair/sessions/{kernel}/checkpoint", X_XSRFToken=reader.xsrf)
    assert status != 403, text[:300]
