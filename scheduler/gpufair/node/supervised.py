"""The agent's view of one supervisor: starting it, listening to it, cleaning up after one that was killed.

A supervisor that runs as the owner of its workload has a folder of that account's within the agent's. What the agent
goes by is in its own folder; what it reads from the other may have been made up, and is only about that workload.
"""

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gpufair.node.files import is_locked, read_json, try_lock, write_json, write_private
from gpufair.node.gpus import await_release
from gpufair.node.link import LINE_LIMIT
from gpufair.node.owners import Account
from gpufair.node.processes import Proc, alive, end_all, identify, no_new_privileges, send
from gpufair.node.record_lines import mark_ended
from gpufair.node.reports import TERMINAL, ReportLog, read, well_formed
from gpufair.node.supervisor import LOCK_FILE, START_FILE, STATUS_FILE
from gpufair.node.theirs import passage, read_theirs

ACKNOWLEDGED_FILE = "acknowledged"
TUNNEL_FILES = ("tunnel.crt", "tunnel.key")
OWN_FOLDER, LINK_FILE = "own", "link"  # of a supervisor that runs as its owner
_SECRET_FILES = (START_FILE, "kernel.json", "checkpoint.key", STATUS_FILE, TUNNEL_FILES[1])
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_log = logging.getLogger(__name__)


class Supervised:
    """One incarnation of a workload on this node, from ``start`` until its last report is acknowledged."""

    def __init__(
        self,
        workload: str,
        incarnation: int,
        folder: Path,
        on_report: Callable[[Supervised, dict[str, Any]], None],
        account: Account | None = None,
    ) -> None:
        """``account``: as whom its supervisor runs; None: as the agent."""
        self.workload, self.incarnation, self.folder = workload, incarnation, folder
        self.account = account
        self.place = folder if account is None else folder / OWN_FOLDER  # the supervisor's
        self._uid = None if account is None else account.uid
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
        cls,
        root: Path,
        workload: str,
        incarnation: int,
        on_report: Callable[[Supervised, dict[str, Any]], None],
        account: Account | None = None,
    ) -> Supervised:
        """For a new start. Raises ``ValueError`` where the workload's id cannot name a folder."""
        if not _NAME.fullmatch(workload) or incarnation < 0:
            raise ValueError(f"{workload!r} cannot be the name of a folder")
        return cls(workload, incarnation, root / f"{workload}.{incarnation}", on_report, account)

    @classmethod
    def found(cls, folder: Path, on_report: Callable[[Supervised, dict[str, Any]], None]) -> Supervised | None:
        """For a folder that an earlier agent left; None if nothing is left to do there."""
        workload, _, incarnation = folder.name.rpartition(".")
        start = read_json(folder / START_FILE)
        if start is None or not _NAME.fullmatch(workload) or not incarnation.isdigit():
            return None
        account = None if start.get("account") is None else Account.read(start["account"])
        self = cls(workload, int(incarnation), folder, on_report, account)
        self.devices, self.tag = tuple(start["devices"]), str(start["tag"])
        with suppress(OSError, ValueError):
            self._heard = int((folder / ACKNOWLEDGED_FILE).read_text())
        for report in self._written():
            self.last[report["kind"]] = report
            if report["kind"] in TERMINAL and report["n"] <= self._heard:
                self.wipe()  # the agent before us died just before it would have
                return None
        return self

    def launch(self, start: dict[str, Any], files: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Write ``start.json`` and start the supervisor, which finds ``files`` in its folder.

        Raises:
            OSError: It could not be started. The folder may exist then.
        """
        self.devices, self.tag = tuple(start["devices"]), str(start["tag"])
        if not any((self.folder / name).exists() for name in (START_FILE, ACKNOWLEDGED_FILE)):
            shutil.rmtree(self.folder, ignore_errors=True)  # an agent died while it made this folder
        self.folder.mkdir(mode=0o700, parents=True)
        if self.account is not None:
            passage(self.folder)
        with self._listener() as listener:
            port = listener.getsockname()[1] if self.account is None else 0
            start = {**start, "port": port, "token": secrets.token_hex(16)}
            write_json(self.folder / START_FILE, start, durable=False)
            lock = try_lock(self.folder / LOCK_FILE)
            assert lock is not None, "the folder is new"
            try:
                self._popen = self._spawn(start, files, lock, listener.fileno())
            finally:
                os.close(lock)  # the supervisor has it

    def _listener(self) -> socket.socket:
        if self.account is None:
            return socket.create_server(("127.0.0.1", 0))
        # Any account could open a port that a killed supervisor has left, and be taken for it. Here only root comes in.
        listener = socket.socket(socket.AF_UNIX)
        with _short(self.folder / LINK_FILE) as path:
            listener.bind(path)
            os.chmod(path, 0o600)  # noqa: PTH101  # no Path of this: it is a way to the file, not its name
        listener.listen()
        return listener

    def _spawn(
        self, start: dict[str, Any], files: Mapping[str, bytes], lock: int, listener: int
    ) -> subprocess.Popen[bytes]:
        # -P: a file in the agent's folder must not be taken for a module; -s: nor one in its owner's home.
        flags = ["-P"] if self.account is None else ["-P", "-s"]
        # -m would import runpy, which takes as long as all the rest.
        argv = [sys.executable, *flags, "-c", "from gpufair.node.supervisor import main; main()"]
        argv += [str(self.place), str(lock), str(listener)]
        if self.place != self.folder:
            self.place.mkdir(mode=0o700)
            write_json(self.place / START_FILE, start, durable=False)
        for name, data in files.items():
            write_private(self.place / name, data, durable=False)
        with open(self.place / "supervisor.log", "ab", opener=_private) as log:
            common: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            common |= {"pass_fds": (lock, listener), "start_new_session": True}
            if (account := self.account) is None:
                return subprocess.Popen(argv, **common)
            # Last the folder: from then on anything may be in it, so nothing is made or written there.
            for path in (*self.place.iterdir(), self.place):
                os.chown(path, account.uid, account.gid)
            return subprocess.Popen(
                argv,
                **common,
                user=account.uid,
                group=account.gid,
                extra_groups=account.groups,
                umask=0o077,
                cwd=self.place,
                env=account.environment(),
                preexec_fn=no_new_privileges(),  # noqa: PLW1509  # it is one system call, prepared before
            )

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
        await self._catch_up()
        while not self.finished:
            if self.running:
                with suppress(OSError, ValueError, EOFError, RecursionError, asyncio.LimitOverrunError):
                    await self._listen()
                    pause = 0.02
            if self._popen is not None:
                self._popen.poll()  # reap
            await self._catch_up()
            if self.finished:
                return
            if not self.running:
                await self._after_death()
                await self._catch_up()
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    async def _listen(self) -> None:
        start = read_json(self.folder / START_FILE) or {}
        if self.account is None:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(start["port"]), limit=LINE_LIMIT)
        else:
            with _short(self.folder / LINK_FILE) as path:
                reader, writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT)
        try:
            writer.write(json.dumps({"token": start["token"], "after": self._heard}).encode() + b"\n")
            for data in self._due.values():
                writer.write(data)
            self._writer = writer
            while text := await reader.readline():
                message = json.loads(text)
                if not isinstance(message, dict):
                    continue
                if well_formed(report := message.get("report")):
                    await self._all_gone(report)
                    self._pass_on(report)
                else:
                    self._due.pop(str(message.get("taken")), None)
        finally:
            self._writer = None
            writer.transport.abort()

    async def _all_gone(self, report: dict[str, Any]) -> None:
        """What its owner's supervisor says of the end is made true: others get its GPUs."""
        if self.account is not None and report["kind"] in TERMINAL and report["n"] > self._heard:
            await asyncio.to_thread(end_all, None, self.tag, patience_s=0.0, uid=self._uid)

    def _pass_on(self, report: dict[str, Any]) -> None:
        if report["n"] <= self._heard:
            return
        if self.account is not None and report["kind"] == "serving":
            report = {**report, "body": {**report["body"], "devices": list(self.devices)}}  # the agent gave them
        self._heard = report["n"]
        self.last[report["kind"]] = report
        self.finished = self.finished or report["kind"] in TERMINAL
        self._on_report(self, report)

    def _written(self) -> list[dict[str, Any]]:
        """The reports of the supervisor, then those that an agent made after its death."""
        if self.account is None:
            return read(self.folder)
        return [*read(self.place, self._uid), *read(self.folder)]

    async def _catch_up(self) -> None:
        for report in await asyncio.to_thread(self._written) if self.account else self._written():
            self.last[report["kind"]] = report
            await self._all_gone(report)
            self._pass_on(report)

    def _status(self) -> dict[str, Any]:
        """What the supervisor wrote down of itself."""
        if self._uid is None:
            return read_json(self.place / STATUS_FILE) or {}
        try:
            status = json.loads(read_theirs(self.place / STATUS_FILE, self._uid))
        except (OSError, ValueError, RecursionError):
            return {}
        return status if isinstance(status, dict) else {}

    def _kill_supervisor(self) -> None:
        pid = self._popen.pid if self._popen is not None else _number(self._status().get("pid"))
        # While its lock is held it lives, so the id in its own file is its own and nobody else's.
        if not self.finished and pid > 1 and self.running and (process := identify(pid)) is not None:
            _log.error("the supervisor of %s does not obey; killing it", self.folder.name)
            send(process, signal.SIGKILL, self._uid)

    # ---------------------------------------------------------------- after the supervisor

    async def _after_death(self) -> None:
        """End what a killed supervisor left, and report what it cannot."""
        start = read_json(self.folder / START_FILE) or {}
        status = self._status()
        known = status.get("child")
        child = Proc(_number(known[0]), _number(known[1])) if isinstance(known, list) and len(known) == 2 else None
        # The session is only searched while its leader's id means the same process or none: never a stranger's.
        stranger = child is not None and identify(child.pid) not in {None, child}
        session = None if child is None or stranger else child.pid
        processes = await asyncio.to_thread(
            end_all, session, str(start.get("tag", "")), patience_s=0.0, uid=self._uid
        )
        if child is not None and (self.account is None or not alive(child)):  # a living one may be a stranger's
            processes |= {child}
        with suppress(OSError, KeyError):
            generation = _number(status.get("generation"))
            mark_ended(Path(start["args"]["record_dir"]), self.incarnation, generation, self._uid)
        held = await asyncio.to_thread(await_release, list(self.devices), [p.pid for p in processes])
        left = sorted(p.pid for p in processes if alive(p))
        extra = {"leftover": {"processes": left, "gpus": held}} if held or left else {}
        _log.warning("the supervisor of %s was killed; %d processes ended", self.folder.name, len(processes))
        log = ReportLog(self.folder, self._heard)
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
        for folder in {self.place, self.folder}:
            for name in _SECRET_FILES:
                with suppress(OSError):
                    (folder / name).unlink(missing_ok=True)


def prune_finished(root: Path, live: Mapping[tuple[str, int], Supervised], keep: int = 50) -> None:
    """Delete the oldest folders of finished workloads beyond ``keep``; their logs are for people to read."""
    folders = {item.folder for item in live.values()}
    done = [path for path in root.iterdir() if path not in folders and not (path / START_FILE).exists()]
    for path in sorted(done, key=lambda p: p.stat().st_mtime)[: max(len(done) - keep, 0)]:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A way to a socket that is short enough for the system, however long its own is."""
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
