"""A service of a few lines that answers what a test tells it to, over real HTTP, and remembers what it was asked."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpufair.client import Endpoint

TOKEN = "sesame"


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, list[str]]
    token: str
    body: bytes
    content_type: str
    last_event_id: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """One answer. ``drop``: hang up without one. ``chunks``: a stream, which then stays open until ``hang_up``."""

    status: int = 200
    body: object = None
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    chunks: tuple[bytes, ...] | None = None
    hang_up: threading.Event | None = None


Route = Reply | list[Reply] | Callable[[Asked], Reply]


def problem(status: int, error: str, detail: str, **more: object) -> Reply:
    """An error as the service tells it."""
    body = {"type": "about:blank", "title": error, "status": status, "detail": detail, "error": error, **more}
    return Reply(status, body, {"Content-Type": "application/problem+json"})


class FakeService:
    """Routes are "METHOD /path"; a list is used up one by one, its last reply stays."""

    def __init__(self) -> None:
        self.routes: dict[str, Route] = {"GET /healthz": Reply(body={"ok": True})}
        self.asked: list[Asked] = []
        self.token = TOKEN
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.ending = threading.Event()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.url, self.token)

    def stop(self) -> None:
        self.ending.set()
        self.server.shutdown()
        for connection in list(self._open):  # a process that ends leaves none open
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server.server_close()
        self._thread.join(5)

    def announce(self, folder: Path) -> None:
        """Write ``service.json`` as the service does; our own pid is alive."""
        path = folder / "service.json"
        path.write_text(json.dumps({"url": self.url, "token": self.token, "pid": os.getpid(), "started_s": 1.0}))
        path.chmod(0o600)

    def calls(self, route: str) -> list[Asked]:
        method, path = route.split(" ")
        return [a for a in self.asked if (a.method, a.path) == (method, path)]

    def _reply(self, asked: Asked) -> Reply:
        route = self.routes.get(f"{asked.method} {asked.path}")
        if asked.path.startswith("/api") and asked.token != self.token:
            return problem(401, "Unauthorized", "this token opens nothing; use the one of service.json")
        if route is None:
            return problem(404, "UnknownWorkload", f"there is no {asked.path}")
        if callable(route):
            return route(asked)
        if isinstance(route, list):
            return route.pop(0) if len(route) > 1 else route[0]
        return route

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                fake._open.add(self.connection)

            def finish(self) -> None:
                fake._open.discard(self.connection)
                with suppress(OSError):
                    super().finish()

            def _serve(self) -> None:
                parts = urlsplit(self.path)
                asked = Asked(
                    self.command,
                    parts.path,
                    parse_qs(parts.query),
                    self.headers.get("Authorization", "").removeprefix("Bearer "),
                    self.rfile.read(int(self.headers.get("Content-Length") or 0)),
                    self.headers.get("Content-Type", ""),
                    self.headers.get("Last-Event-ID", ""),
                )
                fake.asked.append(asked)
                reply = fake._reply(asked)
                if reply.drop:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                elif reply.chunks is not None:
                    self._stream(reply)
                else:
                    body = reply.body if isinstance(reply.body, bytes) else _json(reply.body)
                    self.send_response(reply.status)
                    for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(body)))
                    with suppress(ConnectionError):  # a client may refuse to read all of it
                        self.end_headers()
                        self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _serve  # noqa: N815  # the base class's names

            def _stream(self, reply: Reply) -> None:
                self.close_connection = True
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for chunk in reply.chunks or ():
                    self.wfile.write(chunk)
                    self.wfile.flush()
                while reply.hang_up is not None and not reply.hang_up.wait(0.02) and not fake.ending.is_set():
                    pass

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _json(body: object) -> bytes:
    return b"" if body is None else json.dumps(body).encode()


@contextmanager
def serving() -> Iterator[FakeService]:
    """A fake service for the length of a block."""
    fake = FakeService()
    try:
        yield fake
    finally:
        fake.stop()


def workload(id: str = "3f2a81c0-0000-4000-8000-000000000001", **fields: Any) -> dict[str, Any]:  # noqa: A002  # the wire's word
    """A Workload object with every documented field."""
    return {
        "id": id,
        "name": "train",
        "kind": "session",
        "user": "ria",
        "allocation": "language/digits",
        "gpus": 1,
        "nodes": 1,
        "gpu_type": "",
        "min_runtime_s": 900.0,
        "state": "queued",
        "resumable": True,
        "priority": 0,
        "submitted_s": 1_000_000.0,
        "incarnation": 0,
        "generation": 0,
        "starts": 0,
        "preemptions": 0,
        "leases": [],
        "devices": [],
        "granted_s": None,
        "protected_until_s": None,
        "deadline_s": None,
        "position": 1,
        "estimate_s": None,
        "start_by_s": None,
        "waits_for": "",
        "reason": "",
        "busy": False,
        "beneficiary": None,
        "checkpoint": None,
        "lost": [],
        "restore_offered": False,
        "serving": False,
        "kernel_died": False,
        "outcome": None,
        "ended_s": None,
        "charged_gpu_s": 0.0,
        "notebook": "/home/ria/train.ipynb",
        "kernel_name": "gpufair-1gpu",
        "progress": None,
        **fields,
    }
