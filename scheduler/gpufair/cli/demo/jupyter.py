"""A person at a browser, as far as the demo needs one: notebooks, sessions and cells over a real Jupyter server.

It speaks the server's public REST and websocket interface only, as JupyterLab does, so what the demo shows is what a
user gets.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from gpufair.core.errors import GpufairError

START_S = 60.0  # a cold server start took 5-25 s on a slow disk


class DemoFailed(GpufairError):
    """A step of the demo did not do what it must."""


@dataclass(slots=True)
class JupyterServer:
    """A real `jupyter server` (or `jupyter lab`) process with folders of its own."""

    process: subprocess.Popen[bytes]
    url: str
    token: str
    log: Path

    @classmethod
    async def start(cls, home: Path, notebooks: Path, env: Mapping[str, str], app: str = "server") -> JupyterServer:
        """Start one in ``home`` serving the folder ``notebooks``; returns when it listens.

        Raises: DemoFailed with the end of its log, if it does not come up in ``START_S``.
        """
        token = uuid.uuid4().hex
        folders = {
            name: home / name.lower() for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
        }
        for folder in (*folders.values(), notebooks):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = home / "jupyter.log"
        with log.open("wb") as out:
            process = subprocess.Popen(  # noqa: ASYNC220 - fork and exec, no waiting
                [sys.executable, "-m", "jupyter", app, "--no-browser", "--ip=127.0.0.1", "--ServerApp.port=0",
                 "--ServerApp.allow_root=True", f"--ServerApp.root_dir={notebooks}"],
                env={**os.environ, **{k: str(v) for k, v in folders.items()}, **env, "JUPYTER_TOKEN": token},
                stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        info = folders["JUPYTER_RUNTIME_DIR"]
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and process.poll() is None:
            for found in info.glob(f"jpserver-{process.pid}.json"):
                try:
                    return cls(process, json.loads(found.read_text())["url"].rstrip("/"), token, log)
                except (ValueError, KeyError):  # being written just now
                    pass
            await asyncio.sleep(0.05)
        process.kill()
        raise DemoFailed(f"the Jupyter server did not start; the end of its log:\n{log.read_text()[-2000:]}")

    @property
    def headers(self) -> dict[str, str]:
        """Headers that let a request in."""
        return {"Authorization": f"token {self.token}"}

    async def stop(self) -> None:
        """Stop it as Ctrl-C does; kill it if it does not end in 20 s."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                await asyncio.to_thread(self.process.wait, 20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                await asyncio.to_thread(self.process.wait)


@dataclass(slots=True)
class CellRun:
    """One execution of a cell, filled in as messages arrive."""

    msg_id: str
    text: str = ""
    error: str | None = None
    status: str | None = None
    idle: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def finished(self, timeout_s: float) -> CellRun:
        """Wait for the reply. Raises: DemoFailed when none came in ``timeout_s``."""
        try:
            await asyncio.wait_for(self.done.wait(), timeout_s)
        except TimeoutError:
            raise DemoFailed(f"a cell got no answer in {timeout_s:g} s; it had printed: {self.text[-300:]!r}") from None
        return self


class Notebook:
    """An open notebook: its document, its kernel and one websocket that stays open."""

    def __init__(self, server: JupyterServer, http: httpx.AsyncClient, cells: list[dict[str, Any]]) -> None:
        self._server, self._http, self._cells = server, http, cells
        self._runs: dict[str, CellRun] = {}
        self._session = uuid.uuid4().hex
        self.kernel_id = ""
        self.websocket_closed = False  # must stay False through preemption and restore
        self._socket: WebSocketClientConnection | None = None
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, server: JupyterServer, document: dict[str, Any], path: str, kernel_name: str) -> Notebook:
        """Save ``document`` at ``path`` on the server and open it with a kernel of ``kernel_name``."""
        http = httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=30.0)
        cells = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
        self = cls(server, http, cells)
        saved = await http.put(
            f"/api/contents/{path}", json={"type": "notebook", "format": "json", "content": document}
        )
        saved.raise_for_status()
        begun = await http.post(
            "/api/sessions", json={"path": path, "name": path, "type": "notebook", "kernel": {"name": kernel_name}}
        )
        if begun.is_error:
            raise DemoFailed(f"opening {path} with kernel {kernel_name} failed: {begun.text[:1500]}")
        self.kernel_id = begun.json()["kernel"]["id"]
        url = server.url.replace("http", "ws", 1) + f"/api/kernels/{self.kernel_id}/channels?session_id={self._session}"
        self._socket = await websocket_connect(HTTPRequest(url, headers=server.headers, connect_timeout=30.0))
        self._reader = asyncio.create_task(self._read())
        return self

    def run(self, index: int) -> CellRun:
        """Run the ``index``-th code cell; returns at once."""
        cell = self._cells[index]
        msg_id = uuid.uuid4().hex
        run = self._runs[msg_id] = CellRun(msg_id)
        header = {"msg_id": msg_id, "msg_type": "execute_request", "username": "", "session": self._session, "version": "5.3",
                  "date": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())}  # fmt: skip
        content = {"code": "".join(cell["source"]), "silent": False, "store_history": True, "user_expressions": {},
                   "allow_stdin": False, "stop_on_error": True}  # fmt: skip
        message = {"header": header, "parent_header": {}, "metadata": {"cellId": cell["id"]}, "content": content,
                   "channel": "shell", "buffers": []}  # fmt: skip
        assert self._socket is not None
        self._socket.write_message(json.dumps(message))
        return run

    async def session(self) -> dict[str, Any]:
        """What the status bar shows for this notebook."""
        answer = await self._http.get(f"/gpufair/sessions/{self.kernel_id}")
        answer.raise_for_status()
        shown: dict[str, Any] = answer.json()
        return shown

    async def kernel_ids(self) -> list[str]:
        """Ids of all kernels that the server knows."""
        return [kernel["id"] for kernel in (await self._http.get("/api/kernels")).json()]

    async def shut_down(self) -> None:
        """Shut the kernel down, as the user does from the menu."""
        (await self._http.delete(f"/api/kernels/{self.kernel_id}")).raise_for_status()

    async def close(self) -> None:
        """Close the browser tab; the kernel stays."""
        if self._reader is not None:
            self._reader.cancel()
        if self._socket is not None:
            self._socket.close()
        await self._http.aclose()

    async def _read(self) -> None:
        assert self._socket is not None
        while (raw := await self._socket.read_message()) is not None:
            message = json.loads(raw)
            run = self._runs.get(message.get("parent_header", {}).get("msg_id", ""))
            if run is None:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "stream":
                run.text += content["text"]
            elif kind == "error":
                run.error = f"{content['ename']}: {content['evalue']}"
            elif kind == "execute_reply":
                run.status = content["status"]
            elif kind == "status" and content["execution_state"] == "idle":
                run.idle = True
            # A cell is over when both its reply and its last output are here; they travel on two channels.
            if run.status is not None and run.idle:
                run.done.set()
        self.websocket_closed = True
