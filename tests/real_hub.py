"""A real JupyterHub for tests: its API, a dummy authenticator, real spawned servers, and nothing in place of the proxy."""

from __future__ import annotations

import ctypes
import json
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

PR_SET_PDEATHSIG = 1
START_S = 60.0
CONFIG = """
from jupyterhub.proxy import Proxy


class NoProxy(Proxy):
    '''Whoever asks knows the servers' ports.'''

    should_start = False

    async def add_route(self, routespec, target, data):
        pass

    async def delete_route(self, routespec):
        pass

    async def get_all_routes(self):
        return {}


given = GIVEN
c.JupyterHub.proxy_class = NoProxy
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.hub_ip, c.JupyterHub.hub_port = "127.0.0.1", given["port"]
c.JupyterHub.bind_url = f"http://127.0.0.1:{given['front']}"
c.JupyterHub.db_url, c.JupyterHub.cookie_secret_file = "sqlite:///hub.sqlite", "cookie_secret"
c.JupyterHub.services = [{"name": "admin", "api_token": given["token"]}, {"name": "robot", "api_token": given["robot"]}]
c.JupyterHub.custom_scopes = {"custom:gpufair:operate": {"description": "Operate GPUs"}}
c.JupyterHub.load_roles = [
    {"name": "rule", "services": ["admin"],
     "scopes": ["admin:users", "admin:servers", "admin:groups", "tokens", "access:servers", "inherit", "custom:gpufair:operate"]},
    {"name": "user", "scopes": ["self"]},
    {"name": "gpu", "users": ["olga"], "scopes": ["custom:gpufair:operate"]},
]
c.SimpleLocalProcessSpawner.home_dir_template = given["home"] + "/{username}"
c.Spawner.cmd, c.Spawner.args = [given["python"], "-m", "jupyterhub.singleuser"], ["--allow-root"]
c.Spawner.port, c.Spawner.environment = given["server_port"], given["environment"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 60
c.LocalProcessSpawner.interrupt_timeout = c.LocalProcessSpawner.term_timeout = 2  # nobody has to be waited for
"""


def free_port() -> int:
    """One that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RealHub:
    """``start`` and ``stop`` it as often as you like: it keeps what it knows.

    Args:
        folder: For its database and its users' homes.
        environment: Of the servers that it spawns.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self.port, self.server_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}/hub/api"
        self.robot = secrets.token_hex(16)  # the token of a service of the Hub
        token = secrets.token_hex(16)
        given = {
            "port": self.port, "front": free_port(), "token": token, "robot": self.robot, "home": str(folder / "home"),
            "python": sys.executable, "server_port": self.server_port, "environment": dict(environment or {}),
        }  # fmt: skip
        (folder / "config.py").write_text(CONFIG.replace("GIVEN", json.dumps(given), 1))
        self._http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"token {token}"}, trust_env=False, timeout=30,
            limits=httpx.Limits(max_keepalive_connections=0),
        )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when it answers."""
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", "config.py"], cwd=self._folder, stdout=out, stderr=out,
                preexec_fn=lambda: ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509  # no thread here
            )  # fmt: skip
        until = time.monotonic() + START_S
        while True:
            try:
                self._http.get("/").raise_for_status()
                return
            except httpx.HTTPError:
                told = self.log.read_text(errors="replace")[-3000:]
                assert self._process.poll() is None, f"the Hub has ended:\n{told}"
                assert time.monotonic() < until, f"the Hub does not answer:\n{told}"
                time.sleep(0.1)

    @property
    def log(self) -> Path:
        """What it says."""
        return self._folder / "hub.log"

    def stop(self) -> None:
        """End it, and the servers that it spawned."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30)
            self._process = None

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The Hub's answer to its administrator."""
        answer = self._http.request(method, path, json=body)
        assert answer.is_success, (method, path, answer.status_code, answer.text[:500])
        return answer.json() if answer.content else None

    def add(self, *users: str, group: str = "") -> None:
        """Make users, in a group."""
        self.ask("POST", "/users", {"usernames": list(users)})
        if group:
            self.ask("POST", f"/groups/{group}")
            self.ask("POST", f"/groups/{group}/users", {"users": list(users)})

    def token(self, user: str, *scopes: str) -> tuple[str, str]:
        """A new token of a user, with all that they may or these scopes: its id and itself."""
        made = self.ask("POST", f"/users/{user}/tokens", {"note": "test"} | ({"scopes": list(scopes)} if scopes else {}))
        return made["id"], made["token"]

    def revoke(self, user: str, token_id: str) -> None:
        """Revoke a token."""
        self.ask("DELETE", f"/users/{user}/tokens/{token_id}")


@contextmanager
def real_hub(environment: Mapping[str, str] | None = None) -> Iterator[RealHub]:
    """A Hub that has started."""
    with tempfile.TemporaryDirectory(prefix="gpufair-hub-", ignore_cleanup_errors=True) as folder:
        hub = RealHub(Path(folder), environment)
        try:
            hub.start()
            yield hub
        finally:
            hub.stop()
            hub._http.close()
