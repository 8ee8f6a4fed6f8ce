"""The pod that leads says so by a label, whatever the API server does meanwhile: a Service goes by it."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpufair.service.lifecycle.leading_pod import LABEL, LeadingPod, Pod
from gpufair.service.serve.serving import _unlink_own
from tests.authority import Authority

PATCH = "/api/v1/namespaces/gpufair/pods/gpufair-x"


class ApiServer(ThreadingHTTPServer):
    """Takes PATCHes; ``refusals`` are the statuses of the next answers."""

    def __init__(self, authority: Authority) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.said: list[str] = []
        self.asked: list[tuple[str, str, str]] = []
        self.refusals: list[int] = []
        signed = authority.sign("api")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed.certificate, signed.key)
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, self.headers["Authorization"], self.headers["Content-Type"]))
        status = self.server.refusals.pop(0) if self.server.refusals else 200
        if status == 200:
            self.server.said.append(body["metadata"]["labels"][LABEL])
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def api_server(account: Path) -> Iterator[ApiServer]:
    """One, and in ``account`` what a pod is given to speak with it."""
    authority = Authority(account)
    (account / "ca.crt").write_bytes(authority.file.read_bytes())
    (account / "token").write_text("first\n")
    with ApiServer(authority) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(10)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as server:
        yield server


@pytest.fixture
def pod(api: ApiServer, tmp_path: Path) -> Pod:
    return Pod("gpufair-x", "gpufair", f"https://127.0.0.1:{api.server_address[1]}", tmp_path)


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.005)


async def test_what_is_said_last_counts(api: ApiServer, pod: Pod) -> None:
    """A pod that led before its container died must not be found by the Service while it stands by."""
    async with LeadingPod(pod) as leading:
        leading.say(leads=False)
        await until(lambda: api.said == ["false"])
        leading.say(leads=True)
        await until(lambda: api.said == ["false", "true"])
    assert api.asked[0] == (PATCH, "Bearer first", "application/merge-patch+json")


async def test_it_asks_again_until_it_is_said(
    api: ApiServer, pod: Pod, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else nobody would find the leader after an API server's restart; the token may have been replaced meanwhile."""
    api.refusals = [500, 500, 403]
    with caplog.at_level(logging.WARNING):
        async with LeadingPod(pod, again_s=0.02) as leading:
            leading.say(leads=True)
            await until(lambda: len(api.asked) >= 1)
            (tmp_path / "token").write_text("second\n")
            await until(lambda: api.said == ["true"])
    assert api.asked[-1][1] == "Bearer second"
    assert len(caplog.records) == 2, "each kind of failure once"
    assert "its Service may not find it" in caplog.text


async def test_without_an_account_the_service_runs_on(pod: Pod, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "token").unlink()
    with caplog.at_level(logging.WARNING):
        async with LeadingPod(pod, again_s=0.02) as leading:
            leading.say(leads=True)
            await until(lambda: "No such file" in caplog.text)


def test_elsewhere_nobody_is_told() -> None:
    known = {"GPUFAIR_POD": "p", "GPUFAIR_POD_NAMESPACE": "n", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert Pod.own(known) == Pod("p", "n", "https://10.0.0.1:443")
    assert Pod.own(known | {"KUBERNETES_SERVICE_HOST": "fd00::1"}) == Pod("p", "n", "https://[fd00::1]:443")
    assert Pod.own(known | {"GPUFAIR_POD_ACCOUNT": "/a"}) == Pod("p", "n", "https://10.0.0.1:443", Path("/a"))
    assert all(Pod.own({name: known[name] for name in known if name != left}) is None for left in known)


def test_services_in_containers_do_not_take_each_others_file(tmp_path: Path) -> None:
    """They all have pid 1: one that ends later than its successor began must leave that one's file."""
    file = tmp_path / "service.json"
    file.write_text(json.dumps({"pid": 1, "epoch": 2}))
    _unlink_own(file, {"pid": 1, "epoch": 1})
    assert file.exists()
    _unlink_own(file, {"pid": 1, "epoch": 2})
    assert not file.exists()
