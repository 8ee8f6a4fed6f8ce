"""A real Jupyter server process with our extension, and a browser's side of it: REST and kernel websockets."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import websocket

from tests.integration.jupyter.fake_service import until

ROOT = Path(__file__).parents[3]
START_S = 60.0


def environment(home: Path, state_dir: Path) -> dict[str, str]:
    """This environment, with every place where Jupyter or we keep something moved under ``home``."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "GPUFAIR", "XDG_"))}
    for name, place in {
        "HOME": "", "IPYTHONDIR": "ipython", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "xdg",
    }.items():  # fmt: skip
        (home / place).mkdir(parents=True, exist_ok=True, mode=0o700)
        env[name] = str(home / place)
    python_path = os.pathsep.join([str(ROOT), str(ROOT / "scheduler")])
    return env | {"GPUFAIR_STATE_DIR": str(state_dir), "PYTHONPATH": python_path, "PYDEVD_DISABLE_FILE_VALIDATION": "1"}


@dataclass
class Server:
    """Use as a context manager."""

    home: Path
    state_dir: Path
    options: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    port: int = 0  # chosen at the first start, and kept: a restarted server has the address that open pages know

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        self.root = self.home / "notebooks"
        self.root.mkdir(parents=True, exist_ok=True)
        if not self.port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = self.home / "jupyter.log"
        command = [
            *(sys.executable, "-m", "jupyter", "server", "--no-browser", "--allow-root", f"--port={self.port}"),
            *("--ServerApp.port_retries=0", f"--ServerApp.root_dir={self.root}"),
            *("--ServerApp.jpserver_extensions={'jupyter_gpufair': True}", *self.options),
        ]
        env = environment(self.home, self.state_dir) | {"JUPYTER_TOKEN": self.token} | self.env
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=self.home, start_new_session=True)
        try:
            until(self._up, START_S, "the Jupyter server answers")
        except BaseException:
            self.kill()
            print(self.log.read_text(errors="replace")[-5000:])
            raise

    def _up(self) -> bool:
        assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]
        try:
            self.get("/api/status")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def stop(self, bound_s: float = 10.0) -> None:
        """As Ctrl-C (twice) does; it has to be gone within the bound."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(bound_s)

    def kill(self) -> None:
        """As kill -9 does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)

    def __exit__(self, kind: object, *_: object) -> None:
        self.kill()
        if kind is not None:
            print(self.log.read_text(errors="replace")[-8000:])

    # ------------------------------------------------------------------ REST
    def call(self, method: str, path: str, body: object = None, timeout_s: float = 20.0) -> tuple[int, Any]:
        """(status, JSON)."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout_s) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as err:
            status, text = err.code, err.read()
        return status, json.loads(text) if text else None

    def get(self, path: str) -> Any:
        """The JSON of a GET that must succeed."""
        status, value = self.call("GET", path)
        assert status == 200, (status, value)
        return value

    def new(self, path: str | None = None, kernel: str = "gpufair-digits") -> str:
        """Open a notebook, by default one that no test has opened; the kernel's id."""
        path = path or f"{uuid.uuid4().hex}.ipynb"
        body = {"path": path, "name": path.rsplit("/", 1)[-1], "type": "notebook", "kernel": {"name": kernel}}
        status, value = self.call("POST", "/api/sessions", body)
        assert status == 201, (status, value, self.log.read_text(errors="replace")[-3000:])
        return str(value["kernel"]["id"])

    def session(self, kernel_id: str) -> dict[str, Any]:
        """What the front end sees."""
        value: dict[str, Any] = self.get(f"/gpufair/sessions/{kernel_id}")
        return value

    def wait_for(self, kernel_id: str, state: str, timeout_s: float = 20.0) -> dict[str, Any]:
        """Wait for a state."""
        value: dict[str, Any] = until(
            lambda: (found := self.session(kernel_id))["state"] == state and found, timeout_s, f"{kernel_id} is {state}"
        )
        return value

    def kernels_ready(self) -> None:
        """Wait until the profiles' kernelspecs are there."""
        until(lambda: "gpufair-digits" in self.get("/api/kernelspecs")["kernelspecs"], 30, "kernelspec of the profile")


class Tab:
    """A page with one kernel websocket. ``hasty``: a cell that it sends in one packet with the handshake.

    Attributes:
        hasty: The message id of that cell.
    """

    def __init__(
        self, server: Server, kernel_id: str, session: str | None = None, timeout_s: float = 5.0, hasty: str | None = None
    ) -> None:
        self.session = session or uuid.uuid4().hex
        self.messages: list[dict[str, Any]] = []
        url = f"{server.url.replace('http', 'ws', 1)}/api/kernels/{kernel_id}/channels?session_id={self.session}"
        more: dict[str, Any] = {}
        if hasty is not None:
            self.hasty, message = self._message("execute_request", execution(hasty), "shell")
            frame = websocket.ABNF.create_frame(message, websocket.ABNF.OPCODE_TEXT).format()
            more["socket"] = _HastySocket(server.port, frame)
        self.ws = websocket.create_connection(url, timeout_s, header=[f"Authorization: token {server.token}"], **more)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.ws.close()

    def _message(
        self, kind: str, content: dict[str, Any], channel: str, metadata: dict[str, Any] | None = None
    ) -> tuple[str, str]:
        msg_id = uuid.uuid4().hex
        header = {
            "msg_id": msg_id, "msg_type": kind, "username": "", "session": self.session, "version": "5.3",
            "date": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime()),
        }  # fmt: skip
        message = {"header": header, "parent_header": {}, "metadata": metadata or {}, "content": content,
                   "channel": channel, "buffers": []}  # fmt: skip
        return msg_id, json.dumps(message)

    def send(
        self, kind: str, content: dict[str, Any], channel: str = "shell", metadata: dict[str, Any] | None = None
    ) -> str:
        """Send a request; its id."""
        msg_id, message = self._message(kind, content, channel, metadata)
        self.ws.send(message)
        return msg_id

    def run(self, code: str, *, tags: tuple[str, ...] = (), **more: Any) -> str:
        """Run a cell. ``tags``: of it, as JupyterLab sends them."""
        return self.send("execute_request", execution(code, **more), metadata={"tags": list(tags)} if tags else None)

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next message; None if none came."""
        self.ws.settimeout(timeout_s)
        try:
            raw = self.ws.recv()
        except websocket.WebSocketTimeoutException:
            return None
        assert raw, "the websocket was closed"
        message: dict[str, Any] = json.loads(raw)
        self.messages.append(message)
        return message

    def until(self, true: Callable[[], Any], timeout_s: float = 20.0, what: str = "") -> Any:
        """Read until ``true()``."""
        deadline = time.monotonic() + timeout_s
        while not (value := true()):
            left = deadline - time.monotonic()
            assert left > 0, f"not within {timeout_s:g} s: {what}; the last messages: {[brief(m) for m in self.messages[-12:]]}"
            self.receive(min(left, 0.2))
        return value

    def about(self, msg_id: str, kind: str | None = None) -> list[dict[str, Any]]:
        """Messages that a request caused."""
        return [
            m for m in self.messages
            if m["parent_header"].get("msg_id") == msg_id and kind in (None, m["header"]["msg_type"])
        ]  # fmt: skip

    def reply(self, msg_id: str, timeout_s: float = 20.0) -> dict[str, Any]:
        """The content of the reply, once it and the last output are here."""

        def over() -> Any:
            idle = [m for m in self.about(msg_id, "status") if m["content"]["execution_state"] == "idle"]
            replies = [m for m in self.about(msg_id) if m["channel"] == "shell"]
            return replies if idle and replies else None

        content: dict[str, Any] = self.until(over, timeout_s, "a reply")[0]["content"]
        return content

    def text(self, msg_id: str) -> str:
        """What a cell printed."""
        return "".join(m["content"]["text"] for m in self.about(msg_id, "stream"))


def brief(message: dict[str, Any]) -> tuple[str, str, str]:
    """For error texts."""
    return message["channel"], message["header"]["msg_type"], str(message["content"])[:80]


def execution(code: str, **more: Any) -> dict[str, Any]:
    """The content of a request to run a cell."""
    return {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False,
            "stop_on_error": True, **more}  # fmt: skip


class _HastySocket(socket.socket):
    """Sends something more in the packet of the first thing that it is told to send."""

    def __init__(self, port: int, more: bytes) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self._more = more
        self.connect(("127.0.0.1", port))

    def send(self, data: Any, flags: int = 0) -> int:
        more, self._more = self._more, b""
        self.sendall(bytes(data) + more, flags)
        return len(data)
