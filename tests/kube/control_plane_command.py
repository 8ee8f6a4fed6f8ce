"""The control plane from a shell: a keeper process has it until it is told to end.

`up` starts the keeper and prints the path of an administrator's kubeconfig; `down` ends it. `kill-api` and `start-api`
are a crash of the API server and its return.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.kube.control_plane import READY_WITHIN_S, ControlPlane
from tests.kube.programs import cache, find

STATE = "keeper.json"
"""In the folder of the running one: the keeper's pid, and what it does."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kube.control_plane", description="A real Kubernetes control plane on loopback.")
    parser.add_argument("what", choices=("up", "down", "status", "kill-api", "start-api", "keep"))
    parser.add_argument("--folder", type=Path, default=cache() / "running", help="its data, keys and logs (default: %(default)s)")
    options = parser.parse_args()
    folder: Path = options.folder
    if options.what == "keep":
        _keep(folder)
        return
    keeper = _keeper(folder)
    if options.what == "up":
        if keeper is None:
            _start(folder)
        print(folder / "kubeconfig")
        print(f"export GPUFAIR_TEST_KUBECONFIG={folder / 'kubeconfig'}", file=sys.stderr)
    elif keeper is None:
        print("no control plane is running", file=sys.stderr)
        sys.exit(0 if options.what == "down" else 1)
    elif options.what == "status":
        print(_state(folder)["does"], folder / "kubeconfig")
    elif options.what == "down":
        _stop(keeper, folder)
    else:
        _tell(keeper, folder, options.what)


def _start(folder: Path) -> None:
    programs = find()
    if isinstance(programs, str):
        sys.exit(f"The control plane can't start: there is {programs}.")
    if folder.exists():
        # Only what an earlier keeper has left; anything else is somebody's.
        if not (folder / STATE).exists() and any(folder.iterdir()):
            sys.exit(f"{folder} holds something else: give another --folder, or empty it.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, mode=0o700)
    with (folder / "keeper.log").open("ab") as log:
        command = [sys.executable, "-m", "tests.kube.control_plane", "keep", "--folder", str(folder)]
        keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    until = time.monotonic() + 2 * READY_WITHIN_S
    while _state(folder).get("does") != "runs":
        if keeper.poll() is not None or time.monotonic() > until:
            keeper.terminate()
            sys.exit(f"The control plane did not start:\n{(folder / 'keeper.log').read_text()[-2000:]}")
        time.sleep(0.1)


def _keep(folder: Path) -> None:
    """The keeper: start everything, and do what signals say."""
    programs = find()
    if isinstance(programs, str):
        sys.exit(programs)
    woken, told = threading.Event(), list[signal.Signals]()

    def heed(number: int, _: object) -> None:
        told.append(signal.Signals(number))
        woken.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, heed)
    _say(folder, "starts")
    with ControlPlane(folder, programs) as plane:
        _say(folder, "runs")
        down = False
        while True:
            woken.wait(1.0)
            woken.clear()
            while told:
                number = told.pop(0)
                if number == signal.SIGUSR1 and not down:
                    plane.kill_api()
                    down = True
                    _say(folder, "API server is down")
                elif number == signal.SIGUSR2 and down:
                    plane.start_api()
                    down = False
                    _say(folder, "runs")
                elif number in {signal.SIGTERM, signal.SIGINT}:
                    return
            if name := plane.ended():
                sys.exit(f"{name} has ended by itself; see {folder / name}.log")


def _stop(keeper: int, folder: Path) -> None:
    os.kill(keeper, signal.SIGTERM)
    until = time.monotonic() + 30.0
    while _keeper(folder) is not None:
        if time.monotonic() > until:
            os.kill(keeper, signal.SIGKILL)  # its children end with it
            break
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def _tell(keeper: int, folder: Path, what: str) -> None:
    wanted = "API server is down" if what == "kill-api" else "runs"
    os.kill(keeper, signal.SIGUSR1 if what == "kill-api" else signal.SIGUSR2)
    until = time.monotonic() + READY_WITHIN_S
    while _state(folder).get("does") != wanted:
        if time.monotonic() > until or _keeper(folder) is None:
            sys.exit(f"the keeper did not do it; see {folder / 'keeper.log'}")
        time.sleep(0.05)


def _say(folder: Path, does: str) -> None:
    new = folder / f"{STATE}.new"
    new.write_text(json.dumps({"pid": os.getpid(), "does": does}))
    new.replace(folder / STATE)


def _state(folder: Path) -> dict[str, str | int]:
    with suppress(OSError, ValueError):
        state: dict[str, str | int] = json.loads((folder / STATE).read_text())
        return state
    return {}


def _keeper(folder: Path) -> int | None:
    """Its pid, if it is alive: a pid that the system has given to somebody else is none."""
    pid = _state(folder).get("pid")
    if not isinstance(pid, int):
        return None
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"tests.kube.control_plane" in words or any(word.endswith(b"control_plane.py") for word in words):
            return pid
    return None
