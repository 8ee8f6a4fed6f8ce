"""A real `jupyter lab` in a home of its own, and a real Chromium that looks at it."""

from __future__ import annotations

import json
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import nbformat
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, expect, sync_playwright

T = TypeVar("T")

# Of another environment, to look at what a wheel installs there, with another release of JupyterLab.
PYTHON = os.environ.get("GPUFAIR_LAB_PYTHON", sys.executable)
CHROMIUM = os.environ.get("GPUFAIR_CHROMIUM", "/usr/bin/chromium")
# Debian's browser in a container: no sandbox of its own, no GPU, no calls home, little shared memory.
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
# Lab answers in 4 s on an idle machine with two cores; a loaded one took 20.
LIMIT_MS = 60_000
START_S = 60.0

CURRENT_KERNEL = "window.jupyterapp?.shell?.currentWidget?.sessionContext?.session?.kernel"


@dataclass(frozen=True)
class Lab:
    """A running server. ``root`` is the folder that its file browser shows; ``again`` kills it and starts the next one."""

    url: str
    token: str
    root: Path
    log: Path
    again: Callable[[], None]

    def request(self, method: str, path: str, body: object = None) -> Any:
        """Call the server's API; the answer's JSON, None where there is none."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=data, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def write_notebook(self, name: str, kernel: str, cells: dict[str, str]) -> Path:
        """A notebook with these code cells (id -> source)."""
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(source, id=cell_id) for cell_id, source in cells.items()],
            metadata={"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}},
        )
        path = self.root / name
        nbformat.write(notebook, path)
        return path

    def open(self, page: Page, name: str) -> str:
        """Open a notebook, wait until its kernel is connected; the kernel's id."""
        page.goto(f"{self.url}lab/tree/{name}?reset&token={self.token}")
        page.wait_for_function(f"{CURRENT_KERNEL}?.connectionStatus === 'connected'", timeout=START_S * 1000)
        kernel_id: str = page.evaluate(f"{CURRENT_KERNEL}.id")
        return kernel_id


def isolated_environment(home: Path) -> dict[str, str]:
    """This environment, with every place where Jupyter or we keep something moved under ``home``."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "GPUFAIR", "XDG_"))}
    places = {
        "HOME": "",
        "IPYTHONDIR": "ipython",
        "JUPYTER_CONFIG_DIR": "jupyter/config",
        "JUPYTER_DATA_DIR": "jupyter/data",
        "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
        "JUPYTERLAB_SETTINGS_DIR": "lab/settings",
        "JUPYTERLAB_WORKSPACES_DIR": "lab/workspaces",
        "XDG_CACHE_HOME": "xdg/cache",
        "XDG_CONFIG_HOME": "xdg/config",
        "XDG_DATA_HOME": "xdg/data",
        "XDG_RUNTIME_DIR": "xdg/runtime",
        "XDG_STATE_HOME": "xdg/state",
    }
    for name, place in places.items():
        path = home / place
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        env[name] = str(path)
    # A debugger's frozen-module warning in each kernel's log helps nobody here.
    env["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    return env


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_lab(
    home: Path, options: list[str] | None = None, environment: dict[str, str] | None = None
) -> Iterator[Lab]:
    """Start JupyterLab under ``home``, stop it and what it started on leaving."""
    env = isolated_environment(home) | (environment or {})
    root = home / "notebooks"
    root.mkdir()
    overrides = Path(env["JUPYTER_CONFIG_DIR"], "labconfig", "default_setting_overrides.json")
    overrides.parent.mkdir(parents=True)
    quiet = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
    overrides.write_text(json.dumps(quiet), encoding="utf-8")

    port, token, log = _free_port(), secrets.token_hex(16), home / "lab.log"
    command = [
        *(PYTHON, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"),
        *("--ServerApp.port_retries=0", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root}"),
        *("--LabApp.expose_app_in_browser=True", "--LabApp.extension_manager=readonly"),
        *(options or []),
    ]
    servers: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        with log.open("ab") as output:
            server = subprocess.Popen(command, cwd=home, env=env, stdout=output, stderr=output, start_new_session=True)
        servers.append(server)
        _wait_until_up(lab, server)

    def again() -> None:
        """As kill -9 does, with nobody's leave."""
        os.killpg(servers[-1].pid, signal.SIGKILL)
        servers[-1].wait()
        start()

    lab = Lab(f"http://127.0.0.1:{port}/", token, root, log, again)
    try:
        start()
        yield lab
    finally:
        for server in servers[-1:]:
            _stop(server)


def _wait_until_up(lab: Lab, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            lab.request("GET", "api/status")
        except (urllib.error.URLError, ConnectionError):
            if server.poll() is not None or time.monotonic() > deadline:
                said = lab.log.read_text(errors="replace")[-4000:]
                raise RuntimeError(f"jupyter lab did not come up; it said:\n{said}") from None
            time.sleep(0.1)
        else:
            return


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        # 20 s: it shuts its kernels down one by one.
        server.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def complaints(page: Page) -> list[str]:
    """What the console says of our front end's faults from now on, and of its modules that do not fit this JupyterLab."""
    told: list[str] = []

    def hear(said: ConsoleMessage) -> None:
        of_us = "gpufair" in said.text or "@gpufair" in said.location.get("url", "")
        if of_us and said.type in {"error", "warning"}:
            told.append(said.text)

    page.on("console", hear)
    return told


class Chromium:
    """One browser for many tests, each with a fresh page and nothing left of those before.

    In a thread of its own: Playwright's plain API keeps an event loop running in its thread, and fixtures of other
    tests could not close theirs.
    """

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Callable[[Playwright], None] | None] = queue.SimpleQueue()
        self._browser: Browser | None = None
        self._thread = threading.Thread(target=self._run, name="browser", daemon=True)
        self._thread.start()

    def look(self, look: Callable[[Page], T], screenshot_on_error: Path) -> T:
        """Run ``look`` on a fresh page, and hand back what it returns."""
        done: Future[T] = Future()

        def work(playwright: Playwright) -> None:
            try:
                if self._browser is None or not self._browser.is_connected():
                    self._browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
                done.set_result(_on_a_page(self._browser, look, screenshot_on_error))
            except BaseException as err:  # it is the test's, and raised there
                done.set_exception(err)

        self._asked.put(work)
        return done.result()

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        with sync_playwright() as playwright:
            # Expectations have a limit of their own.
            expect.set_options(timeout=LIMIT_MS)
            while (work := self._asked.get()) is not None:
                work(playwright)
            if self._browser is not None:
                self._browser.close()


def _on_a_page(browser: Browser, look: Callable[[Page], T], screenshot_on_error: Path) -> T:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    try:
        page.set_default_timeout(LIMIT_MS)
        return look(page)
    except BaseException:
        page.screenshot(path=screenshot_on_error)
        raise
    finally:
        # Those that the test itself opened, too.
        for context in browser.contexts:
            context.close()
