"""The agent's view of one supervisor: starting it, listening to it, cleaning up after one that was killed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufair.node.files import is_locked, read_json, try_lock, write_json
from gpufair.node.gpus import await_release
from gpufair.node.link import LINE_LIMIT
from gpufair.node.processes import Proc, alive, end_all, identify
from gpufair.node.record_lines import mark_ended
from gpufair.node.reports import TERMINAL, ReportLog, read
from gpufair.node.supervisor import LOCK_FILE, START_FILE, STATUS_FILE

ACKNOWLEDGED_FILE = "acknowledged"
_SECRET_FILES = (START_FILE, "kernel.json", "checkpoint.key", STATUS_FILE)
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_log = logging.getLogger(__name__)


class Supervised:
    """One incarnation of a workload on this node, from ``start`` until its last report is acknowledged."""

    def __init__(
        self, workload: str, incarnation: int, folder: Path, on_report: Callable[[Supervised, dict[str, Any]], None]
    ) -> None:
        self.workload, self.incarnation, self.folder = workload, incarnation, folder
        self.devices: tuple[str, ...] = ()
        self.tag = ""  # of its processes; see ``processes``
        self.last: dict[str, dict[str, Any]] = {}  # the newest report of each kind
        self.finished = False  # its terminal report is known
        self._on_report = on_report
        self._heard = 0  # number of the newest report passed on
        self._popen: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._due: dict[str, bytes] = {}  # commands that the supervisor has not taken yet
        self._killer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.workload, self.incarnation

    # ---------------------------------------------------------------- start and adoption

    @classmethod
    def at(
        cls, root: Path, workload: str, incarnation: int, on_report: Callable[[Supervised, dict[str, Any]], None]
    ) -> Supervised:
        """For a new start. Raises ``ValueError`` where the workload's id cannot name a folder."""
        if not _NAME.fullmatch(workload) or incarnation < 0:
            raise ValueError(f"{workload!r} cannot be the name of a folder")
        return cls(workload, incarnation, root / f"{workload}.{incarnation}", on_report)

    @classmethod
    def found(cls, folder: Path, on_report: Callable[[Supervised, dict[str, Any]], None]) -> Supervised | None:
        """For a folder that an earlier agent left; None if nothing is left to do there."""
        workload, _, incarnation = folder.name.rpartition(".")
        start = read_json(folder / START_FILE)
        if start is None or not _NAME.fullmatch(workload) or not incarnation.isdigit():
            return None
        self = cls(workload, int(incarnation), folder, on_report)
        self.devices, self.tag = tuple(start["devices"]), str(start["tag"])
        with suppress(OSError, ValueError):
            self._heard = int((folder / ACKNOWLEDGED_FILE).read_text())
        for report in read(folder):
            self.last[report["kind"]] = report
            if report["kind"] in TERMINAL and report["n"] <= self._heard:
                self.wipe()  # the agent before us died just before it would have
                return None
        return self

    def launch(self, start: dict[str, Any]) -> None:
        """Write ``start.json`` and start the supervisor. Raises ``OSError``; the folder then may exist."""
        self.devices, self.tag = tuple(start["devices"]), str(start["tag"])
        if not any((self.folder / name).exists() for name in (START_FILE, ACKNOWLEDGED_FILE)):
            shutil.rmtree(self.folder, ignore_errors=True)  # an agent died while it made this folder
        self.folder.mkdir(mode=0o700, parents=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            start = {**start, "port": listener.getsockname()[1], "token": secrets.token_hex(16)}
            write_json(self.folder / START_FILE, start, durable=False)
            self._spawn(listener)

    def _spawn(self, listener: socket.socket) -> None:
        lock = try_lock(self.folder / LOCK_FILE)
        assert lock is not None, "the folder is new"
        try:
            with open(self.folder / "supervisor.log", "ab", opener=_private) as log:
                self._popen = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",  # a file in the agent's folder must not be taken for a module
                        "-c",  # -m would import runpy, which takes as long as all the rest
                        "from gpufair.node.supervisor import main; main()",
                        str(self.folder),
                        str(lock),
                        str(listener.fileno()),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lock, listener.fileno()),
                    start_new_session=True,
                )
        finally:
            os.close(lock)  # the supervisor has it

    @property
    def running(self) -> bool:
        """Whether its supervisor lives."""
        return is_locked(self.folder / LOCK_FILE)

    # ---------------------------------------------------------------- listening and telling

    def follow(self) -> None:
        """Begin to pass on reports."""
        self.task = asyncio.create_task(self._follow(), name=f"follow {self.folder.name}")

    def tell(self, command: str, kind: str, args: dict[str, Any]) -> None:
        """Give a command, named ``command``, to the supervisor; again after a lost connection until it is taken."""
        data = json.dumps({"id": command, "kind": kind, "args": args}).encode() + b"\n"
        self._due[command] = data
        if self._writer is not None:
            self._writer.write(data)

    def kill_after(self, patience_s: float) -> None:
        """It was told to stop: kill the supervisor itself if it hasn't by then."""
        if self._killer is None:
            self._killer = asyncio.get_running_loop().call_later(patience_s, self._kill_supervisor)

    def acknowledged(self, number: int) -> None:
        """The service has the reports up to this one durably."""
        with suppress(OSError):  # at worst they are sent twice
            (self.folder / ACKNOWLEDGED_FILE).write_text(str(number))
        if self._writer is not None:
            self._writer.write(json.dumps({"acknowledged": number}).encode() + b"\n")

    async def _follow(self) -> None:
        pause = 0.02
        self._catch_up()
        while not self.finished:
            if self.running:
                with suppress(OSError, ValueError, EOFError, asyncio.LimitOverrunError):
                    await self._listen()
                    pause = 0.02
            if self._popen is not None:
                self._popen.poll()  # reap
            self._catch_up()
            if self.finished:
                return
            if not self.running:
                await self._after_death()
                self._catch_up()
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _listen(self) -> None:
        start = read_json(self.folder / START_FILE) or {}
        reader, writer = await asyncio.open_connection("127.0.0.1", int(start["port"]), limit=LINE_LIMIT)
        try:
            writer.write(json.dumps({"token": start["token"], "after": self._heard}).encode() + b"\n")
            for data in self._due.values():
                writer.write(data)
            self._writer = writer
            while text := await reader.readline():
                message = json.loads(text)
                if "report" in message:
                    self._pass_on(message["report"])
                else:
                    self._due.pop(str(message.get("taken")), None)
        finally:
            self._writer = None
            writer.transport.abort()

    def _pass_on(self, report: dict[str, Any]) -> None:
        if report["n"] <= self._heard:
            return
        self._heard = report["n"]
        self.last[report["kind"]] = report
        self.finished = self.finished or report["kind"] in TERMINAL
        self._on_report(self, report)

    def _catch_up(self) -> None:
        for report in read(self.folder):
            self.last[report["kind"]] = report
            self._pass_on(report)

    def _kill_supervisor(self) -> None:
        status = read_json(self.folder / STATUS_FILE) or {}
        pid = self._popen.pid if self._popen is not None else int(status.get("pid", 0))
        # While its lock is held it lives, so the id in its own file is its own and nobody else's.
        if not self.finished and pid > 1 and self.running:
            _log.error("the supervisor of %s does not obey; killing it", self.folder.name)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ---------------------------------------------------------------- after the supervisor

    async def _after_death(self) -> None:
        """End what a killed supervisor left, and report what it cannot."""
        start = read_json(self.folder / START_FILE) or {}
        status = read_json(self.folder / STATUS_FILE) or {}
        child = Proc(*status["child"]) if status.get("child") else None
        # The session is only searched while its leader's id means the same process or none: never a stranger's.
        stranger = child is not None and identify(child.pid) not in {None, child}
        session = None if child is None or stranger else child.pid
        processes = await asyncio.to_thread(end_all, session, str(start.get("tag", "")), patience_s=0.0)
        if child is not None:
            processes |= {child}
        with suppress(OSError, KeyError):
            mark_ended(Path(start["args"]["record_dir"]), self.incarnation, int(status["generation"]))
        held = await asyncio.to_thread(await_release, list(self.devices), [p.pid for p in processes])
        left = sorted(p.pid for p in processes if alive(p))
        extra = {"leftover": {"processes": left, "gpus": held}} if held or left else {}
        _log.warning("the supervisor of %s was killed; %d processes ended", self.folder.name, len(processes))
        log = ReportLog(self.folder)
        if "serving" in self.last:
            busy = bool(self.last.get("activity", {}).get("body", {}).get("busy", False))
            command = start.get("args", {}).get("launch", {}).get("type") == "command"
            log.add("released", {"busy": busy or command, **extra})
        else:
            log.add("start_failed", {"reason": "its supervisor was killed before it was up", **extra})
        log.close()

    def wipe(self) -> None:
        """Its last report is acknowledged: delete its secrets, keep its logs."""
        if self._killer is not None:
            self._killer.cancel()
        for name in _SECRET_FILES:
            with suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)


def prune_finished(root: Path, live: Mapping[tuple[str, int], Supervised], keep: int = 50) -> None:
    """Delete the oldest folders of finished workloads beyond ``keep``; their logs are for people to read."""
    folders = {item.folder for item in live.values()}
    done = [path for path in root.iterdir() if path not in folders and not (path / START_FILE).exists()]
    for path in sorted(done, key=lambda p: p.stat().st_mtime)[: max(len(done) - keep, 0)]:
        shutil.rmtree(path, ignore_errors=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
