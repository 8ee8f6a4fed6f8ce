"""The service as an agent sees it: a queue of commands and a list of reports, over real HTTP."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gpufair.wire import AgentHello, Command, Report, from_json, hello_proof, to_json

TOKEN = "a-token-of-this-test"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """An agent that is killed drops its connections: no news."""


class FakeService:
    """Give commands with ``command``, look at ``reports``. ``stop`` and ``start`` are a restart with loss of memory."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.reports: list[Report] = []
        self.hellos: list[AgentHello] = []
        self.expected: list[list[Any]] = []
        self.changed = threading.Condition()
        self.acknowledging = True
        self._boot: str | None = None
        self._commands: list[Command] = []
        self._seen: set[tuple[str, int]] = set()
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self._answer(service._commands_after)

            def do_POST(self) -> None:
                self._answer(service._hello if self.path.endswith("/hello") else service._reports)

            def _answer(self, act) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                url = urlsplit(self.path)
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, value = 401, {"detail": "wrong token"}
                else:
                    status, value = act(json.loads(body) if body else {}, parse_qs(url.query))
                data = json.dumps(value).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    self.close_connection = True

        self._boot = None
        self._server = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        (self.state_dir / "service.json").write_text(json.dumps({"url": url, "token": "not for agents"}))

    def stop(self) -> None:
        assert self._server is not None
        with self.changed:
            self._boot = "stopped"  # handlers that wait give up
            self._commands = []
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def _hello(self, body, _query):
        hello = from_json(AgentHello, body)
        with self.changed:
            self._boot = hello.boot
            self.hellos.append(hello)
            self.changed.notify_all()
            proof = hello_proof(TOKEN, hello.boot)
            return 200, {"after": len(self._commands), "expected": self.expected, "proof": proof}

    def _commands_after(self, _body, query):
        after, boot = int(query["after"][0]), query["boot"][0]
        deadline = time.monotonic() + float(query["wait_s"][0])
        with self.changed:
            while True:
                if boot != self._boot:
                    return 409, {"detail": "say hello first", "error": "HelloFirst"}
                if due := [to_json(c) for c in self._commands if c.seq > after]:
                    return 200, {"commands": due}
                left = deadline - time.monotonic()
                if left <= 0:
                    return 200, {"commands": []}
                self.changed.wait(left)

    def _reports(self, body, _query):
        with self.changed:
            if body["boot"] != self._boot:
                return 409, {"detail": "say hello first", "error": "HelloFirst"}
            if not self.acknowledging:
                return 503, {"detail": "the disk is full"}
            acked = 0
            for data in body["reports"]:
                report = from_json(Report, data)
                acked = report.seq
                if (body["boot"], report.seq) not in self._seen:
                    self._seen.add((body["boot"], report.seq))
                    self.reports.append(report)
            self.changed.notify_all()
            return 200, {"acked": acked}

    def command(self, kind: str, workload: str, incarnation: int = 1, **args: Any) -> None:
        with self.changed:
            if kind == "start":
                self.expected.append([workload, incarnation])
            self._commands.append(Command(len(self._commands) + 1, kind, workload, incarnation, args))
            self.changed.notify_all()

    def of(self, workload: str, kind: str | None = None, incarnation: int = 1) -> list[Report]:
        with self.changed:
            return [
                r
                for r in self.reports
                if (r.workload, r.incarnation) == (workload, incarnation) and kind in {None, r.kind}
            ]

    def kinds(self, workload: str, incarnation: int = 1) -> list[str]:
        return [report.kind for report in self.of(workload, incarnation=incarnation)]

    def wait(self, workload: str, kind: str, count: int = 1, timeout_s: float = 30.0, incarnation: int = 1) -> Report:
        """The ``count``-th report of this kind, once it is there."""
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while len(found := self.of(workload, kind, incarnation)) < count:
                left = deadline - time.monotonic()
                assert left > 0, (
                    f"no {kind} of {workload} in {timeout_s} s; there were {self.of(workload, None, incarnation)}"
                )
                self.changed.wait(left)
            return found[count - 1]

    def wait_hello(self, count: int, timeout_s: float = 20.0) -> AgentHello:
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while len(self.hellos) < count:
                left = deadline - time.monotonic()
                assert left > 0, f"only {len(self.hellos)} hellos in {timeout_s} s"
                self.changed.wait(left)
            return self.hellos[count - 1]
