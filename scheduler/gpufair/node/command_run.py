"""The life of a command under its supervisor: it runs to its end, or is told to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufair.node import memory_limit
from gpufair.node.child import NOTICE_FILE, Child
from gpufair.node.files import write_json
from gpufair.node.gpus import await_release
from gpufair.node.processes import alive, end_all, find, send
from gpufair.node.reports import ReportLog

WRITE_DOWN_S = 5.0  # for the first process of a workload that is over its memory limit, if it is not the large one
_log = logging.getLogger(__name__)


class CommandRun:
    """Runs one incarnation of a command."""

    def __init__(
        self,
        start: dict[str, Any],
        folder: Path,
        reports: ReportLog,
        child: Child,
        on_status: Callable[[dict[str, Any]], None],
    ) -> None:
        self._start = start
        self._folder = folder
        self._reports = reports
        self._child = child
        self._on_status = on_status
        self._preempted = asyncio.Event()
        self._stopped = asyncio.Event()
        self._deadline = 0.0
        self._timed_out = False
        self._over = ""  # why it is ended by us, for all that it did wrong

    def command(self, kind: str, args: dict[str, Any]) -> None:
        """Take a command (see ``wire.Command``). Returns at once."""
        if kind == "stop":
            self._stopped.set()
        elif kind == "preempt" and not self._preempted.is_set():
            self._deadline = time.monotonic() + float(args["deadline_s"]) - time.time()
            notice = {"deadline_s": float(args["deadline_s"]), "text": str(args.get("text", ""))}
            self._give_notice(notice | ({"outcome": "timed out"} if self._timed_out else {}))
            self._preempted.set()
        elif kind == "save":
            self._reports.add("checkpoint_failed", {"reason": "a command saves its state by itself, at SIGTERM"})
        else:
            _log.info("%s means nothing to a command", kind)

    async def run(self) -> None:
        """Wait for its end, and report it when all is cleaned up."""
        self._status("serving")
        self._reports.add("serving", {"generation": 1, "connection": {}, "devices": self._start["devices"], "lost": []})
        ended = asyncio.create_task(asyncio.to_thread(self._child.popen.wait))
        limit = self._start["args"].get("run_limit_s")
        timer = None if limit is None else asyncio.get_running_loop().call_later(limit, self._time_out)
        memory = memory_limit.watch(self._start, lambda: self._child.pid, self._say, self._over_memory)
        waits = {event: asyncio.create_task(event.wait()) for event in (self._preempted, self._stopped)}
        await asyncio.wait({ended, *waits.values()}, return_when=asyncio.FIRST_COMPLETED)
        by_itself = ended.done()
        if memory is not None:
            memory.cancel()
        if timer is not None:
            timer.cancel()
        patience = 0.0
        if not by_itself and not self._stopped.is_set():
            self._status("checkpointing")
            patience = max(self._deadline - time.monotonic(), 0.0)
        # A stop that comes during the patience of a preemption cuts it short.
        ending = asyncio.create_task(
            asyncio.to_thread(end_all, self._child.pid, self._start["tag"], patience_s=patience)
        )
        await asyncio.wait({ending, waits[self._stopped]}, return_when=asyncio.FIRST_COMPLETED)
        if not ending.done():
            await asyncio.to_thread(end_all, self._child.pid, self._start["tag"], patience_s=0.0)
        processes = await ending | {self._child.identity}
        for wait in waits.values():
            wait.cancel()
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(ended), 5.0)
        held = await asyncio.to_thread(await_release, self._start["devices"], [p.pid for p in processes])
        extra: dict[str, Any] = {}
        if held or (left := sorted(p.pid for p in processes if alive(p))):
            _log.error("not all is free: processes %s could not be killed; GPUs still held: %s", left, held)
            extra = {"leftover": {"processes": left, "gpus": held}}
        if self._over:
            code = ended.result() if ended.done() else -signal.SIGKILL
            self._status("exited")
            self._reports.add("exited", {"outcome": "failed", "code": code, "reason": self._over, **extra})
        elif by_itself:
            code = ended.result()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            body = {"outcome": "failed" if code else "completed", "code": code, "reason": how if code else ""}
            self._status("exited")
            self._reports.add("exited", {**body, **extra})
        elif self._timed_out:
            code = ended.result() if ended.done() else -signal.SIGKILL
            self._status("exited")
            self._reports.add("exited", {"outcome": "timed out", "code": code, "reason": "its time is over", **extra})
        else:
            self._status("released")
            self._reports.add("released", {"busy": True, **extra})

    def _time_out(self) -> None:
        """It has run for as long as it may. A preemption that was announced before goes on as one."""
        if not self._preempted.is_set():
            self._timed_out = True
            deadline_s = time.time() + float(self._start["args"].get("grace_s", 0.0))
            self.command("preempt", {"deadline_s": deadline_s, "text": "It has run for as long as its owner allows."})

    async def _over_memory(self, why: str) -> None:
        """End it. What its first process has started is killed at once; that one can still write down why, unless it is
        itself what is too large. Nobody is cut while he saves himself to leave."""
        if self._over or self._preempted.is_set():
            return
        self._over = why
        with suppress(OSError), self._child.log.open("ab") as log:
            log.write(f"gpufair: {why}\n".encode())
        first = self._child.identity
        every = await asyncio.to_thread(find, first.pid, self._start["tag"])
        large = memory_limit.used([first]) * 2 > memory_limit.used(every)
        patience = 0.0 if large else WRITE_DOWN_S
        self._give_notice({"deadline_s": time.time() + patience, "text": why, "outcome": "failed"})
        for process in every - {first}:
            send(process, signal.SIGKILL)
        self._deadline = time.monotonic() + patience
        self._preempted.set()

    def _say(self, text: str) -> None:
        """Something that its owner should know."""
        self._reports.add("remark", {"text": text})

    def _give_notice(self, notice: dict[str, Any]) -> None:
        """Before SIGTERM, so that whoever handles that finds the reason and the deadline."""
        try:
            write_json(self._folder / NOTICE_FILE, notice, durable=False)
            if self._child.notice_fd is not None:
                os.write(self._child.notice_fd, json.dumps(notice).encode() + b"\n")  # far below what a pipe takes
        except OSError as err:  # a full disk, or it has closed its end: SIGTERM comes all the same
            _log.warning("the notice was not delivered: %s", err)

    def _status(self, phase: str) -> None:
        identity = self._child.identity
        self._on_status({"phase": phase, "generation": 1, "child": [identity.pid, identity.started]})
