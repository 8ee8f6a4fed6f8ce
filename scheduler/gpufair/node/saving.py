"""Checkpoint and restore over a kernel's control channel: when to ask, how long to wait, what to report."""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpufair.core.errors import GpufairError
from gpufair.node import process_image
from gpufair.node.control import KernelGone
from gpufair.node.files import write_private
from gpufair.node.live_kernel import LiveKernel
from gpufair.node.progress import reported
from gpufair.node.reports import ReportLog
from gpufair.node.unhooked import Unhooked

RESERVE_FACTOR, RESERVE_S = 1.5, 2.0  # time kept for saving: the last duration times this, plus this
KEPT = 2  # valid checkpoints of a workload
PROBE_S = 0.5
LIMIT_S = 1800.0  # of one save or restore, where no deadline is nearer
MAX_WAIT_S = 86_400.0  # what our kernel accepts
UNABLE = "this kernel cannot be checkpointed"
LOST_LIMIT = 200  # entries of a report; a namespace of 10,000 generators must still fit into one
TEXT_LIMIT = 300
_log = logging.getLogger(__name__)


class CheckpointFailed(GpufairError):
    """A checkpoint or restore did not succeed. ``final``: trying again is of no use."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.final = reason, final

    def __str__(self) -> str:
        return self.reason


def short(text: str) -> str:
    """A reason, cut to what a report may hold."""
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"


def losses(content: dict[str, Any]) -> list[list[str]]:
    """The [name, reason] pairs of a reply, cut to what a report may hold."""
    pairs = [[short(str(name)), short(str(reason))] for name, reason in content.get("lost") or []]
    if len(pairs) > LOST_LIMIT:
        pairs = [*pairs[:LOST_LIMIT], ["…", f"and {len(pairs) - LOST_LIMIT} more; see the checkpoint's manifest"]]
    return pairs


class Saver:
    """Saves and restores the kernels of one incarnation, and reports what was saved."""

    def __init__(self, start: dict[str, Any], key_file: Path, reports: ReportLog) -> None:
        args = start["args"]
        self._start, self.unhooked = start, Unhooked(start)
        self._directory = str(args["checkpoint_dir"])
        self._incarnation = start["incarnation"]
        self._key, self._key_file = str(args["checkpoint_key"]), key_file
        self._store: dict[str, Any] = args.get("checkpoint_store") or {}
        self._reports = reports
        self._next = int(args["next_sequence"])
        self._begun_with = args.get("restore")
        self._running: asyncio.Task[None] | None = None
        self._asked: set[asyncio.Future[dict[str, Any]]] = set()
        self._duration_s = 0.0
        self._able: LiveKernel | None = None
        self._unable: LiveKernel | None = None  # the kernel that was found to know nothing of checkpoints
        self._held: tuple[LiveKernel, int, bool] | None = (
            None  # which kernel's cells the last checkpoint holds: see _ask
        )
        self.still: tuple[LiveKernel, float] | None = None  # all of it is saved, and until then (monotonic) no cell begins
        self.last: dict[str, Any] | None = None  # body of the last ``checkpointed`` report
        self.keep_all = False  # the state in the newest checkpoint could not be restored: delete none

    # ---------------------------------------------------------------- what the kernel can

    async def probe(self, kernel: LiveKernel, text: str = "", deadline_s: float | None = None) -> bool:
        """Give notice (without a text: withdraw it), and find out whether the kernel knows our messages.

        A kernel takes control messages one after the other and passes over those it doesn't know. So an answer to
        a later question, with none to the notice, says that it doesn't know. A kernel that is too busy to answer
        either (a C call that holds the GIL) is taken to know them.
        """
        if not text:
            self.still = None
        notice = kernel.control.ask("gpufair_notice_request", {"text": text, "deadline_s": deadline_s})
        with suppress(KernelGone):
            await asyncio.shield(kernel.control.ask("kernel_info_request", {}))
            try:
                await kernel.answer(notice, PROBE_S)
            except TimeoutError:
                self._unable = kernel
                for asked in self._asked:
                    asked.cancel()  # it would be waited for in vain
                return False
            self._able = kernel
        return True

    async def preflight(self, kernel: LiveKernel, *, wait_s: float) -> dict[str, Any]:
        """What a checkpoint would be like, looked at in the kernel's next pause between cells.

        Raises:
            CheckpointFailed: With the kernel's reason.
            KernelGone: It died meanwhile.
        """
        try:
            if not await asyncio.wait_for(self.probe(kernel), wait_s):
                raise CheckpointFailed(UNABLE, final=True)
            asked = kernel.control.ask("gpufair_preflight_request", {"wait_s": wait_s})
            content = await kernel.answer(asked, wait_s + LIMIT_S)
        except TimeoutError:
            raise CheckpointFailed("the kernel did not answer in time") from None
        if content.pop("status", None) != "ok":
            raise CheckpointFailed(_reason(content, "the kernel could not look at its variables"))
        variables = [{**one, "reason": short(str(one["reason"]))} for one in content["variables"]]
        left_out = int(content["left_out"]) + max(len(variables) - LOST_LIMIT, 0)
        return {**content, "variables": variables[:LOST_LIMIT], "left_out": left_out}

    # ---------------------------------------------------------------- save

    async def save(self, kernel: LiveKernel, *, wait_s: float, limit_s: float, hold_s: float = 0.0) -> None:
        """One attempt, in the kernel's next pause between cells. A late answer still counts as a checkpoint.

        Args:
            wait_s: How long to wait for the end of a running cell.
            limit_s: How long to wait in all.
            hold_s: For how long after a success no further cell may begin.

        Raises:
            CheckpointFailed: With the kernel's reason.
            KernelGone: It died meanwhile.
        """
        deadline = time.monotonic() + limit_s
        if self._running is not None and not self._running.done():  # asked for earlier and given up by who asked
            with suppress(CheckpointFailed, KernelGone, TimeoutError):
                await self._in_time(self._running, deadline)
        self._running = asyncio.create_task(self._ask(kernel, wait_s, hold_s), name="checkpoint")
        self._running.add_done_callback(_seen)
        try:
            await self._in_time(self._running, deadline)
        except TimeoutError:
            raise CheckpointFailed("the checkpoint was not complete when the time was over") from None

    @property
    def inside(self) -> bool:
        """Whether the last checkpoint was taken in the middle of a cell."""
        return self._held is not None and self._held[2]

    @staticmethod
    async def _in_time(task: asyncio.Task[None], deadline: float) -> None:
        await asyncio.wait_for(asyncio.shield(task), max(deadline - time.monotonic(), 0.0))

    async def save_if_cheap(self, kernel: LiveKernel, *, within_s: float, wait_s: float) -> dict[str, Any]:
        """Save if something has changed and the kernel expects to need less than ``within_s``.

        Nobody waits for it, and it waits for nobody: a save that is asked for meanwhile comes right after it, or in its
        place.

        Args:
            within_s: Above 0.
            wait_s: How long to wait for the end of a running cell, or a safe point in it.

        Returns: The kernel's answer: its ``status`` is ok or skipped, and then there is ``expected_s``.

        Raises:
            CheckpointFailed, KernelGone: As ``save``.
        """
        if self._able is not kernel and self._unable is not kernel:
            # From a kernel that doesn't know the question no answer would ever come.
            await self.probe(kernel)
        content = await self._request(kernel, wait_s=wait_s, hold_s=0.0, within_s=within_s)
        if content.get("status") != "skipped":
            self._take(kernel, content)
        return content

    async def _ask(self, kernel: LiveKernel, wait_s: float, hold_s: float) -> None:
        self._take(kernel, await self._request(kernel, wait_s=wait_s, hold_s=hold_s, within_s=0.0))

    async def _request(self, kernel: LiveKernel, *, wait_s: float, hold_s: float, within_s: float) -> dict[str, Any]:
        if self._unable is kernel:
            raise CheckpointFailed(UNABLE, final=True)
        sequence, self._next = self._next, self._next + 1
        self._prepare()
        asked = kernel.control.ask(
            "gpufair_checkpoint_request",
            {
                "directory": self._directory,
                "id": f"{sequence:06d}-{self._incarnation}",
                "sequence": sequence,
                "key_file": str(self._key_file),
                "wait_s": wait_s,
                "hold_s": hold_s,
                "within_s": within_s,
                "store": self._store,
            },
        )
        self._asked.add(asked)
        try:
            return await asked
        except asyncio.CancelledError:
            if self._unable is kernel:
                raise CheckpointFailed(UNABLE, final=True) from None
            raise
        finally:
            self._asked.discard(asked)

    def _take(self, kernel: LiveKernel, content: dict[str, Any]) -> None:
        """Report a checkpoint, if it is one."""
        if content.get("status") == "kept":
            # What was cut runs again from the checkpoint that is there, and that has all the other cells; or there were none.
            self._held = kernel, 1 << 62, False
            return
        if content.get("status") != "ok":
            raise CheckpointFailed(_reason(content, "the kernel could not save its variables"))
        if self.last is not None and int(content["sequence"]) < self.last["sequence"]:
            return  # overtaken by a newer one
        self._duration_s = float(content["duration_s"])
        self._held = kernel, int(content.get("prompt", 0)), content.get("inside") is True
        self.last = {
            "id": str(content["id"]),
            "sequence": int(content["sequence"]),
            "at_s": time.time(),
            "size_bytes": int(content["size_bytes"]),
            "duration_s": self._duration_s,
            "lost": losses(content),
        }
        self._reports.add("checkpointed", self.last)
        if not self.keep_all:
            # In a thread and awaited by nobody: the GPUs need not wait for the deletion of old files.
            asyncio.get_running_loop().run_in_executor(None, self._prune)

    def _prepare(self) -> None:
        """Make what the kernel needs for a save or restore, when it is needed: a disk that was full may not be any more."""
        try:
            if not self._key_file.exists():
                write_private(self._key_file, self._key.encode(), durable=False)
        except OSError as err:
            raise CheckpointFailed(f"{err.strerror}: {err.filename}") from err

    def _prune(self) -> None:
        try:
            key = bytes.fromhex(self._key)
            keep, keep_s = self._store.get("keep", KEPT), self._store.get("keep_s", 0.0)
            checkpoint = importlib.import_module("gpufair.node.checkpoint")
            checkpoint.prune(self._directory, key, keep=keep, keep_s=keep_s)
        except Exception:  # noqa: BLE001  # the new checkpoint is good; old ones only cost space
            _log.warning("old checkpoints could not be removed", exc_info=True)

    async def save_by(self, kernel: LiveKernel, deadline: float, text: str, deadline_s: float) -> bool:
        """Save before the deadline (monotonic): at the end of the cell, or interrupt it in time.

        Returns at once after a success, else at the deadline: a failed checkpoint must not free GPUs earlier.

        Args:
            text: What the user is told.
            deadline_s: The deadline as Unix seconds, for the user.

        Returns: Whether a cell was interrupted.
        """
        if self.still is not None and self.still[0] is kernel and time.monotonic() < self.still[1]:
            return False  # it was held before: see ``holding``
        grace = deadline - time.monotonic()
        reserve = min(RESERVE_FACTOR * self._duration_s + RESERVE_S, grace / 2)
        probe = asyncio.create_task(self.probe(kernel, text, deadline_s), name="notice")
        probe.add_done_callback(_seen)
        interrupter = _Interrupter(kernel, deadline - reserve)
        try:
            if not await self._save_repeatedly(kernel, deadline):
                if self._unable is kernel:
                    interrupter.cancel()
                    return await self.unhooked.leave(kernel, deadline, lambda limit_s: self._image(kernel, limit_s))
                await asyncio.sleep(max(deadline - time.monotonic(), 0.0))
            return interrupter.interrupted
        finally:
            interrupter.cancel()
            probe.cancel()

    async def _save_repeatedly(self, kernel: LiveKernel, deadline: float) -> bool:
        told, pause = "", 1.0
        while True:
            left = max(deadline - time.monotonic(), 0.1)
            try:
                # The kernel takes it before the next cell that is queued, and then begins none.
                await self.save(kernel, wait_s=min(left, MAX_WAIT_S), limit_s=left + 0.2, hold_s=min(left, MAX_WAIT_S))
                return True
            except (CheckpointFailed, KernelGone) as err:
                if (reason := short(str(err))) != told:
                    self._reports.add("checkpoint_failed", {"reason": reason})
                told = reason
                if isinstance(err, KernelGone) or err.final or time.monotonic() + pause >= deadline:
                    return False
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    async def _image(self, kernel: LiveKernel, limit_s: float) -> None:
        """Save a kernel without our hooks as an image of its process. Raises ``ImageFailed``."""
        sequence, self._next = self._next, self._next + 1
        image, began = f"{sequence:06d}-{self._incarnation}-image", time.monotonic()
        args, child = self._start["args"], kernel.child
        facts = {"pid": child.pid, "connection": child.connection}
        size = await asyncio.to_thread(process_image.dump, args, self._start["tag"], facts, image, limit_s)
        self._held = kernel, 1 << 62, False  # every cell there was
        self.last = {
            "id": image,
            "sequence": sequence,
            "at_s": time.time(),
            "size_bytes": size,
            "duration_s": time.monotonic() - began,
            "lost": [],
        }
        self._reports.add("checkpointed", self.last)
        asyncio.get_running_loop().run_in_executor(None, process_image.prune, args, image)

    def unsaved(self, kernel: LiveKernel) -> list[list[str]]:
        """[cell, reason] of the cells whose effects no checkpoint holds. The kernel must have been ended."""
        if self._unable is kernel and self.last is None:
            return [["*", short(self.unhooked.loss)]]
        first, inside = 0, False
        if self._held is not None and self._held[0] is kernel:
            first, inside = self._held[1:]
        if self.last is not None:
            stands = (
                f"the session goes back to its state of {time.strftime('%H:%M:%S', time.localtime(self.last['at_s']))}"
            )
        elif self._begun_with:
            stands = f"the session goes back to checkpoint {self._begun_with}, with which it began here"
        else:
            stands = "nothing was saved of this session yet"
        missing = [cell for cell in kernel.cells if cell.number >= first and not (inside and cell.number == first)]
        left_out = len(missing) - LOST_LIMIT // 2
        found = [
            [f"cell [{cell.number}]", short(f"what it did is lost: {stands}. It began with: {cell.line}")]
            for cell in missing[max(left_out, 0) :]
        ]
        return found if left_out <= 0 else [[f"{left_out} cells before", f"what they did is lost: {stands}"], *found]

    # ---------------------------------------------------------------- restore

    async def woken(self, kernel: LiveKernel, ready_s: float) -> list[list[str]]:
        """Wait until a kernel from a process image answers. Raises ``CheckpointFailed`` or ``KernelGone``."""
        try:
            await kernel.answer(kernel.control.ask("kernel_info_request", {}), ready_s)
        except TimeoutError:
            raise CheckpointFailed("the kernel from the process image does not answer") from None
        return []

    async def restore(self, kernel: LiveKernel, checkpoint: str, *, ready_s: float, wait_s: float) -> list[list[str]]:
        """Load a checkpoint into the kernel, in its next pause between cells.

        Args:
            ready_s: How long a kernel may take until it answers anything.
            wait_s: How long to wait for the end of a running cell.

        Returns: [name, reason] of what could not be brought back.

        Raises:
            CheckpointFailed: Nothing was loaded, or not all of it; the checkpoint is unchanged.
            KernelGone: The kernel died of it.
        """
        self._prepare()
        try:
            await kernel.answer(kernel.control.ask("kernel_info_request", {}), ready_s)
            if not await self.probe(kernel):
                raise CheckpointFailed("this kernel cannot load checkpoints", final=True)
            where = {"directory": self._directory, "id": checkpoint, "key_file": str(self._key_file)}
            asked = kernel.control.ask("gpufair_restore_request", {**where, "wait_s": wait_s})
            async with reported(kernel, self._reports):
                content = await kernel.answer(asked, LIMIT_S)
        except TimeoutError:
            raise CheckpointFailed("the kernel did not answer in time") from None
        if content.get("status") != "ok":
            raise CheckpointFailed(_reason(content, f"checkpoint {checkpoint} could not be loaded"))
        for warning in content.get("warnings") or []:
            _log.warning("restore of %s: %s", checkpoint, short(str(warning)))
        return losses(content)


class _Interrupter:
    """Interrupts a kernel once a second, from a moment on, for as long as a cell runs."""

    def __init__(self, kernel: LiveKernel, at: float) -> None:
        self.interrupted = False
        self._kernel = kernel
        self._task = asyncio.create_task(self._run(at), name="interrupt")
        self.cancel = self._task.cancel

    async def _run(self, at: float) -> None:
        await asyncio.sleep(max(at - time.monotonic(), 0.0))
        while self._kernel.busy:
            self.interrupted = True
            begun = time.monotonic()
            await self._kernel.interrupt(1.0)
            await self._kernel.boundary(1.0 - (time.monotonic() - begun))


def _reason(content: dict[str, Any], otherwise: str) -> str:
    return short(str(content.get("reason") or content.get("evalue") or otherwise))


def _seen(task: asyncio.Task[Any]) -> None:
    """Take note of a failure that nobody waits for any more, so that it isn't reported as forgotten."""
    if not task.cancelled():
        task.exception()
