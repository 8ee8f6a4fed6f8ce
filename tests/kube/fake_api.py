"""A small Kubernetes API server in this process: real HTTP on loopback, faults on command.

It keeps what the scheduler relies on: the objects of `resources.py`, versions and conflicts, selectors, watches,
binding, graceful deletion, eviction, owners, tokens with roles, quotas. `tests/integration/kubernetes/test_fake_api_*.py`
holds it against a real API server.

    with FakeApi() as api:
        path = api.kubeconfig(tmp_path / "kubeconfig")
        api.fail("POST", r"/pods$", status=503, count=2, retry_after_s=1)

It schedules nothing and runs nothing: `fake_node.py` is the kubelet.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from tornado.httpserver import HTTPServer
from tornado.web import Application

from tests.kube.certificates import write_certificates
from tests.kube.controllers import Controllers
from tests.kube.faults import Fault
from tests.kube.http_server import Served, handlers
from tests.kube.kubeconfig import write_kubeconfig
from tests.kube.resources import BY_PLURAL
from tests.kube.rights import MASTERS, User
from tests.kube.verbs import NAMESPACES

Value = TypeVar("Value")

NAMESPACES_AT_START = ("default", "kube-system", "kube-public", "kube-node-lease")
ANSWERS_WITHIN_S = 30.0


class FakeApi:
    """Its methods may be called from any thread.

    Args:
        controller_delay_s: How long after a change its controllers act.
        tls: A folder for certificates: HTTPS, as every real one has it. (`kubectl` sends no token without.)
    """

    def __init__(self, port: int = 0, controller_delay_s: float = 0.02, tls: Path | None = None) -> None:
        self._controller_delay_s = controller_delay_s
        self._authority = self._tls = None
        if tls is not None:
            write_certificates(tls)
            self._authority = tls / "ca.crt"
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(tls / "server.crt", tls / "server.key")
        # Bound for as long as we live and never listening: the port stays ours while we are down.
        self._place = _bound(port)
        self.port: int = self._place.getsockname()[1]
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fake-api", daemon=True)
        self._thread.start()
        assert self._ready.wait(ANSWERS_WITHIN_S), "the fake API server did not start"

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, and all of its connections. May be called twice."""
        if self._thread.is_alive():
            self._call(self._close)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(ANSWERS_WITHIN_S)
        self._place.close()

    # ------------------------------------------------------------------ who may do what

    def kubeconfig(self, path: Path, token: str | None = None, namespace: str = "default") -> Path:
        """Write a kubeconfig: the administrator's where no token is given."""
        return write_kubeconfig(path, self.url, token or self.admin_token, ca_file=self._authority, namespace=namespace)

    def token(self, name: str, *groups: str) -> str:
        """A user's token. Without a role bound to it nothing is allowed; roles are objects, as in any cluster."""
        return self._call(lambda: self._served.rights.token(User(name, groups)))

    def account_token(self, namespace: str, account: str) -> str:
        return self._call(lambda: self._served.rights.account_token(namespace, account))

    def revoke(self, token: str) -> None:
        """From now on this token is answered with 401."""
        self._call(lambda: self._served.rights.revoke(token))

    # ------------------------------------------------------------------ looking

    @property
    def requests(self) -> list[tuple[str, str, str]]:
        """(method, path with query, user) of each request that had a good token, in order."""
        return self._call(lambda: [*self._served.log])

    def objects(self, plural: str, namespace: str = "") -> list[dict[str, Any]]:
        return self._call(lambda: [item.obj for item in self._served.store.items(BY_PLURAL[plural], namespace)])

    @property
    def version(self) -> int:
        return self._call(lambda: self._served.store.version)

    @property
    def watches(self) -> int:
        """How many watches are open."""
        return self._call(lambda: len(self._served.watches))

    # ------------------------------------------------------------------ faults

    def fail(
        self,
        method: str | None,
        path: str,
        *,
        status: int,
        count: int = 1,
        message: str = "told to fail by a test",
        reason: str | None = None,
        retry_after_s: int | None = None,
    ) -> Fault:
        """Answer the next ``count`` requests whose path matches (a regular expression, searched) so, and do nothing."""
        fault = Fault("answer", method, re.compile(path), count, status, reason, message, retry_after_s)
        return self._call(lambda: self._served.faults.plan(fault))

    def cut(self, method: str | None, path: str, *, carried_out: bool, count: int = 1) -> Fault:
        """Break the connection of the next ``count`` requests, after or before they are carried out."""
        fault = Fault("cut after" if carried_out else "cut before", method, re.compile(path), count)
        return self._call(lambda: self._served.faults.plan(fault))

    def delay(self, method: str | None, path: str, *, delay_s: float, count: int = 1) -> Fault:
        """Let the next ``count`` requests wait before they are carried out."""
        fault = Fault("delay", method, re.compile(path), count, delay_s=delay_s)
        return self._call(lambda: self._served.faults.plan(fault))

    def mend(self) -> None:
        """No more planned faults."""
        self._call(self._served.faults.clear)

    def cut_watches(self) -> int:
        """Break all watches; how many there were."""

        def cut() -> int:
            watches = [*self._served.watches]
            for watch in watches:
                watch.cut()
            self._served.watches.clear()
            return len(watches)

        return self._call(cut)

    def forget_history(self) -> None:
        """A watch from any version seen so far, and the next page of any list, gets 410."""

        def forget() -> None:
            self._served.store.forget()
            self._served.verbs.forget_pages()

        self._call(forget)

    def down(self) -> None:
        """Break all connections and refuse new ones. Objects stay."""
        self._call(self._stop_listening)

    def up(self) -> None:
        """Listen again at the same port. What a restart forgets is forgotten."""
        self.forget_history()
        self._call(self._listen)

    def restart(self, down_s: float = 0.0) -> None:
        """Go down, come up again after ``down_s`` seconds."""
        self.down()
        time.sleep(down_s)
        self.up()

    # ------------------------------------------------------------------ its thread

    def _run(self) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._begin)
        try:
            self._loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()

    def _begin(self) -> None:
        self._served = Served()
        self._controllers = Controllers(self._served.store, self._served.verbs, self._controller_delay_s)
        for name in NAMESPACES_AT_START:
            self._served.store.create(
                NAMESPACES,
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name},
                    "spec": {"finalizers": ["kubernetes"]},
                    "status": {"phase": "Active"},
                },
            )
        self.admin_token = self._served.rights.token(User("admin", (MASTERS, "system:authenticated")))
        self._listen()
        self._ready.set()

    def _listen(self) -> None:
        application = Application(handlers(self._served), log_function=lambda _: None)
        self._server = HTTPServer(application, max_body_size=1 << 25, ssl_options=self._tls)
        listening = _bound(self.port)
        listening.listen(512)
        self._server.add_sockets([listening])

    def _stop_listening(self) -> None:
        self._server.stop()
        for connection in [*self._server._connections]:
            connection.stream.close()
        self._served.watches.clear()
        self._served.store.wake()

    def _close(self) -> None:
        self._controllers.close()
        self._stop_listening()

    def _call(self, act: Callable[[], Value]) -> Value:
        """Run ``act`` in the server's thread, between two requests."""

        async def run() -> Value:
            return act()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(ANSWERS_WITHIN_S)


def _bound(port: int) -> socket.socket:
    place = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    place.setblocking(False)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    place.bind(("127.0.0.1", port))
    return place
