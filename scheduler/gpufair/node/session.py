"""The life of a kernel under its supervisor: serving, saving, preemption, restart, end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufair.node import child as children
from gpufair.node import memory_limit
from gpufair.node.autosave import Autosave
from gpufair.node.child import Child
from gpufair.node.control import KernelGone
from gpufair.node.gpus import await_release
from gpufair.node.holding import hold
from gpufair.node.live_kernel import LiveKernel
from gpufair.node.processes import alive
from gpufair.node.reports import ReportLog
from gpufair.node.saving import LIMIT_S, CheckpointFailed, Saver, short
from gpufair.node.tunnel import Tunnel, TunnelFailed, TunnelOptions

RESTART_WAIT_S = 60.0  # a dead kernel keeps its GPUs this long
RESTORE_READY_S = 60.0
SAVE_WAIT_S = 60.0
TERM_PATIENCE_S = 1.0
ACTIVITY_INTERVAL_S = 0.25  # 500 small cells are no reason for 1,000 reports
START_TRIES = 3  # with other ports, if somebody took one between our choice and the kernel's bind
_log = logging.getLogger(__name__)


class Session:
    """Runs one incarnation of a kernel. ``command`` may be called at any time on the event loop; ``run`` ends with it."""

    def __init__(
        self,
        start: dict[str, Any],
        folder: Path,
        reports: ReportLog,
        first: Child,
        on_status: Callable[[dict[str, Any]], None],
    ) -> None:
        self._start = start
        self._args = start["args"]
        self._folder = folder
        self._reports = reports
        self._on_status = on_status
        self._phase = "starting"
        self._kernel = self._attach(first)
        self._saver = Saver(start, folder / "checkpoint.key", reports)
        self._autosave = Autosave(
            float(self._args.get("autosave_share") or 0.0), self._save_if_cheap, lambda: self._kernel.busy
        )
        self._turn = asyncio.Lock()  # save, restore and restart: one after the other
        self._work: set[asyncio.Task[None]] = set()
        self._final: asyncio.Task[None] | None = None
        self._stopping = False
        self._ended = asyncio.Event()
        self._busy_news = False  # a cell began or ended since the last report
        self._activity: asyncio.TimerHandle | None = None
        self._activity_at = 0.0
        self._tunnel: Tunnel | None = None  # for a kernel that is reached from other machines
        self._via: dict[str, Any] = {}  # how
        self._memory = memory_limit.watch(start, lambda: self._kernel.child.pid, self._say, self._over_memory)

    # ---------------------------------------------------------------- from outside

    async def run(self) -> None:
        """Serve until all is over and everything is reported and cleaned up."""
        self._spawn(self._begin())
        await self._ended.wait()
        if self._memory is not None:
            self._memory.cancel()
        if self._tunnel is not None:
            await self._tunnel.close()

    def command(self, kind: str, args: dict[str, Any]) -> None:
        """Take a command (see ``wire.Command``). Returns at once."""
        match kind:
            case "stop":
                self._finish(self._stop(), stop=True)
            case "preempt":
                self._finish(self._preempt(float(args["deadline_s"]), str(args.get("text", ""))), stop=False)
            case _ if self._final is not None:
                _log.info("%s came too late: the end has begun", kind)
            case "save":
                self._spawn(self._save())
            case "hold":
                self._spawn(self._hold(float(args["wait_s"]), float(args["hold_s"])))
            case "restore":
                self._spawn(self._restore(str(args["id"])))
            case "restart":
                self._restart_command(args.get("generation"))
            case "interrupt":
                self._spawn(self._kernel.interrupt())
            case "preflight":
                self._spawn(self._preflight())
            case _:
                _log.warning("unknown command %r", kind)

    def _asked(self, word: str) -> None:
        """The notebook itself asks."""
        if word == "checkpoint":
            self.command("save", {})

    # ---------------------------------------------------------------- start

    def _attach(self, child: Child) -> LiveKernel:
        record = Path(self._args["record_dir"]) / f"iopub-{self._start['incarnation']}-{child.generation}.jsonl"
        kernel = LiveKernel(child, self._args["kernel_key"], record, self._busy_changed, self._asked)
        task = asyncio.create_task(self._await_death(kernel), name="death")
        task.add_done_callback(_log_failure)
        return kernel

    async def _begin(self) -> None:
        await self._open_tunnel()
        if not self._args.get("restore"):
            self._serve(await self._saver.unhooked.resumed(self._kernel))
            return
        async with self._turn:
            self._set_phase("restoring")
            self._reports.add("progress", {"step": "restoring", "fraction": 0.0})
            kernel = self._kernel
            try:
                if kernel.child.problem:
                    raise CheckpointFailed(kernel.child.problem)
                if kernel.child.image:
                    lost = await self._saver.woken(kernel, RESTORE_READY_S)
                else:
                    lost = await self._saver.restore(kernel, self._args["restore"], ready_s=RESTORE_READY_S, wait_s=0.0)
                if kernel.gone.done():
                    raise KernelGone(kernel.gone.result())
            except (CheckpointFailed, KernelGone) as err:
                # The checkpoint stays as it is; the user gets an empty kernel and is told why.
                self._saver.keep_all = True
                lost = [["*", kernel.ended_for or short(str(err))]]
                if kernel.gone.done() and not await self._relaunch():
                    return
                self._serve(lost, restored=bool(self._start.get("image")))  # an image is not loaded into a kernel that runs
            else:
                self._serve(lost)

    async def _open_tunnel(self) -> None:
        if not (options := self._start.get("tunnel")):
            return
        self._tunnel = Tunnel(
            TunnelOptions.read(options), self._args["kernel_key"], lambda: self._kernel.child.connection
        )
        try:
            self._via = {"via": await self._tunnel.start()}
        except TunnelFailed as err:
            # It runs, and is saved; its owner is told why nothing of it is seen.
            _log.error("%s", err)
            self._reports.add("remark", {"text": str(err)})

    def _serve(self, lost: list[list[str]], *, restored: bool = True) -> None:
        """``restored`` False: the checkpoint can still be loaded, if its owner wishes."""
        child = self._kernel.child
        self._set_phase("serving")
        self._reports.add(
            "serving",
            {
                "generation": child.generation,
                "connection": {**child.connection, **self._via},
                "devices": self._start["devices"],
                "lost": lost,
                **({} if restored else {"restored": False}),
            },
        )

    def _set_phase(self, phase: str) -> None:
        self._phase = phase
        child = self._kernel.child
        self._on_status(
            {
                "phase": phase,
                "generation": child.generation,
                "child": [child.identity.pid, child.identity.started],
                "last_checkpoint": self._saver.last,
            }
        )

    # ---------------------------------------------------------------- activity

    def _busy_changed(self, _busy: bool) -> None:
        if self._phase == "serving":
            self._autosave.cell()
        self._busy_news = True
        if self._activity is None:
            wait = self._activity_at + ACTIVITY_INTERVAL_S - time.monotonic()
            self._activity = asyncio.get_running_loop().call_later(max(wait, 0.0), self._report_activity)

    def _report_activity(self) -> None:
        self._activity = None
        # A cell that came and went between two reports leaves the kernel as idle as before, and yet somebody is at work.
        if self._busy_news and not self._stopping:
            self._activity_at = time.monotonic()
            self._busy_news = False
            self._reports.add("activity", {"busy": self._kernel.busy})

    # ---------------------------------------------------------------- death and restart

    async def _await_death(self, kernel: LiveKernel) -> None:
        code = await asyncio.shield(kernel.gone)
        if kernel.child.ending or kernel is not self._kernel or self._final is not None:
            return
        if self._phase == "restoring":
            return  # _begin sees it
        if not kernel.heard and _port_was_taken(kernel.child):
            _log.warning("another process took a port of the kernel; choosing others")
            self._spawn(self._again())
            return
        self._set_phase("dead")
        why = {"reason": kernel.ended_for} if kernel.ended_for else {}
        self._reports.add("kernel_died", {"generation": kernel.child.generation, "code": code, **why})
        await kernel.end(self._start["tag"], patience_s=0.0)  # what it started would hold the GPUs
        await asyncio.sleep(RESTART_WAIT_S)
        if self._phase == "dead" and kernel is self._kernel:
            self._finish(self._end(busy=False), stop=False)

    async def _over_memory(self, why: str) -> None:
        """The kernel goes, and can be restored in the memory that there is. Nobody is cut while he is saved to leave."""
        if self._final is None and self._phase != "dead":
            _log.warning("the kernel is killed: %s", why)
            kernel = self._kernel
            with suppress(OSError), kernel.child.log.open("ab") as log:
                log.write(f"gpufair: the kernel was killed: {why}\n".encode())
            await kernel.kill(self._start["tag"], why)

    def _say(self, text: str) -> None:
        """Something that its owner should know."""
        if not self._stopping:
            self._reports.add("remark", {"text": text})

    async def _again(self) -> None:
        async with self._turn:
            if self._kernel.child.generation < START_TRIES:
                if await self._relaunch():
                    self._serve([])
            else:
                self._finish(self._fail("the kernel found its ports in use three times; see kernel.log"), stop=True)

    def _restart_command(self, generation: int | None) -> None:
        if generation is not None and int(generation) < self._kernel.child.generation:
            _log.info("restart of generation %s was done before", generation)
            return
        for task in set(self._work):  # a restart gives up what it would otherwise wait for
            task.cancel()
        self._spawn(self._restart())

    async def _restart(self) -> None:
        async with self._turn:
            if await self._relaunch():
                self._serve([])

    async def _relaunch(self) -> bool:
        """Replace the kernel by a new one. False: it could not be started, and the end has begun."""
        old = self._kernel
        self._set_phase("starting")
        await old.end(self._start["tag"], patience_s=0.0)
        try:
            new = children.start_kernel(self._start, self._folder, old.child.generation + 1)
        except OSError as err:
            self._finish(self._fail(short(str(err))), stop=True)
            return False
        self._kernel = self._attach(new)
        self._set_phase("starting")
        self._busy_changed(False)
        return True

    # ---------------------------------------------------------------- save and restore

    async def _save(self) -> None:
        async with self._turn:
            try:
                kernel = self._kernel
                # Asked first: from a kernel that doesn't know the question no answer would ever come.
                await asyncio.wait_for(self._saver.probe(kernel), SAVE_WAIT_S)
                await self._saver.save(kernel, wait_s=SAVE_WAIT_S, limit_s=SAVE_WAIT_S + LIMIT_S)
            except TimeoutError:
                self._reports.add("checkpoint_failed", {"reason": "the kernel did not answer in time"})
            except (CheckpointFailed, KernelGone) as err:
                self._reports.add("checkpoint_failed", {"reason": short(str(err))})
            else:
                self._autosave.saved()
                self._set_phase(self._phase)

    async def _hold(self, wait_s: float, hold_s: float) -> None:
        try:
            until_s = await hold(self._saver, self._kernel, wait_s=wait_s, hold_s=hold_s)
        except TimeoutError:
            self._reports.add("not_held", {"reason": "the kernel did not answer in time"})
        except (CheckpointFailed, KernelGone) as err:
            self._reports.add("not_held", {"reason": short(str(err))})
        else:
            self._autosave.saved()
            self._set_phase(self._phase)
            self._reports.add("held", {"until_s": until_s})

    async def _save_if_cheap(self, within_s: float, wait_s: float) -> dict[str, Any]:
        kernel = self._kernel
        # A task of its own: when a preemption makes an end of asking, what is being saved still counts.
        task = asyncio.create_task(self._saver.save_if_cheap(kernel, within_s=within_s, wait_s=wait_s), name="autosave")
        task.add_done_callback(_ignore_failure)
        content = await asyncio.shield(task)
        if content["status"] == "ok":
            self._set_phase(self._phase)
        return content

    async def _preflight(self) -> None:
        """Report what a checkpoint would be like now."""
        async with self._turn:
            try:
                body = await self._saver.preflight(self._kernel, wait_s=SAVE_WAIT_S)
            except (CheckpointFailed, KernelGone) as err:
                body = {"parkable": False, "reason": short(str(err))}
            self._reports.add("preflight", body)

    async def _restore(self, checkpoint: str) -> None:
        async with self._turn:
            try:
                lost = await self._saver.restore(self._kernel, checkpoint, ready_s=SAVE_WAIT_S, wait_s=SAVE_WAIT_S)
            except (CheckpointFailed, KernelGone) as err:
                self._reports.add("restore_failed", {"reason": short(str(err))})
            else:
                self._reports.add("restored", {"id": checkpoint, "lost": lost})

    # ---------------------------------------------------------------- the end

    def _finish(self, ending: Coroutine[Any, Any, None], *, stop: bool) -> None:
        """Begin the end. The first preemption counts; a stop overrides it."""
        if self._ended.is_set() or self._stopping or (self._final is not None and not stop):
            ending.close()
            return
        if self._final is not None:
            self._final.cancel()
        self._autosave.cancel()
        self._stopping = stop
        current = asyncio.current_task()
        for task in set(self._work) - {current}:
            task.cancel()
        self._final = asyncio.create_task(ending, name="end")
        self._final.add_done_callback(_log_failure)

    async def _stop(self) -> None:
        await self._end(busy=self._kernel.busy, patience_s=0.0)

    async def _fail(self, reason: str) -> None:
        await self._end(busy=False, patience_s=0.0, report=("start_failed", {"reason": reason}))

    async def _preempt(self, deadline_s: float, text: str) -> None:
        """Checkpoint and stop by the deadline. A failed checkpoint frees nothing before it."""
        deadline = time.monotonic() + deadline_s - time.time()
        kernel, phase = self._kernel, self._phase
        if phase in {"dead", "restoring"}:  # nothing has changed since the last checkpoint
            await self._end(busy=False)
            return
        self._set_phase("checkpointing")
        self._reports.add("progress", {"step": "checkpointing", "fraction": 0.0})
        interrupted = await self._saver.save_by(kernel, deadline, text, deadline_s)
        await self._end(busy=interrupted or kernel.busy)

    async def _end(
        self, *, busy: bool, patience_s: float = TERM_PATIENCE_S, report: tuple[str, dict[str, Any]] | None = None
    ) -> None:
        kernel, stopped = self._kernel, self._stopping
        self._stopping = True  # from here on nothing may interfere
        extra: dict[str, Any] = {}
        self._set_phase("stopping")
        processes = await kernel.end(self._start["tag"], patience_s=patience_s)
        if report is None and not stopped and (unsaved := self._saver.unsaved(kernel)):
            extra["unsaved"] = unsaved
        held = await asyncio.to_thread(await_release, self._start["devices"], [p.pid for p in processes])
        kind, body = report or ("released", {"busy": busy, **extra})
        left = sorted(p.pid for p in processes if alive(p))
        if held or left:
            _log.error("not all is free: processes %s could not be killed; GPUs still held: %s", left, held)
            body = {**body, "leftover": {"processes": left, "gpus": held}}
        self._set_phase(kind)
        self._reports.add(kind, body)
        self._ended.set()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        task.add_done_callback(_log_failure)


def _log_failure(task: asyncio.Task[None]) -> None:
    with suppress(asyncio.CancelledError):
        if (error := task.exception()) is not None:
            _log.error("%s failed", task.get_name(), exc_info=error)


def _ignore_failure(task: asyncio.Task[dict[str, Any]]) -> None:
    if not task.cancelled():
        task.exception()  # who asked has heard of it, or does not care any more


def _port_was_taken(child: Child) -> bool:
    try:
        tail = child.log.read_bytes()[-20_000:]
    except OSError:
        return False
    return b"Address already in use" in tail
