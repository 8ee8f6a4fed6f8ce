"""Kernels that know nothing of checkpoints (R, Julia, a plain ipykernel): how they leave, and how they come back.

The contract is the same as for others: notice, time until the end of the grace, interrupt, stop. Variables are lost,
except what is kept by the hooks that the kernelspec names, or in a process image where the operator switched those on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import zmq.asyncio

from gpufair.node import process_image
from gpufair.node.control import Control, KernelGone
from gpufair.node.live_kernel import LiveKernel
from gpufair.node.process_image import ImageFailed

HOOK_S = 60.0  # of the grace at most, kept for the hook or the image
RESUME_S = 600.0
_TAIL = 200  # characters of a failed command's output
Hook = str | list[str]  # the text of a cell, or a command
_log = logging.getLogger(__name__)


class HookFailed(Exception):
    """A hook did not do what it should; the text says why."""


class Unhooked:
    """Of one incarnation."""

    def __init__(self, start: dict[str, Any]) -> None:
        launch = start["args"]["launch"]
        self._start, self._key = start, str(start["args"]["kernel_key"])
        self._on_preempt: Hook = launch.get("on_preempt") or ""
        self._on_resume: Hook = launch.get("on_resume") or ""
        self.outcome = "" if not self._on_preempt else "what its on_preempt hook saves is kept"

    @property
    def imaging(self) -> bool:
        """Whether the operator switched process images on."""
        return bool(os.environ.get(process_image.SWITCH))

    @property
    def loss(self) -> str:
        """What is said of its variables when it has left, or would leave."""
        return "this kernel cannot save its variables, so all are lost" + (f"; {self.outcome}" if self.outcome else "")

    async def leave(self, kernel: LiveKernel, deadline: float, image: Callable[[float], Any]) -> bool:
        """Let the cell end, interrupt it in time, and keep what can be kept. The caller ends the kernel then.

        Returns at once where something was kept, else at the deadline: until then its owner can save things himself.

        Args:
            deadline: Monotonic.
            image: Makes a process image within so many seconds; raises ``ImageFailed``.

        Returns: Whether a cell was interrupted.
        """
        left = deadline - time.monotonic()
        keeping = bool(self._on_preempt) or self.imaging
        interrupted = False
        if not await kernel.boundary(left - min(HOOK_S if keeping else 2.0, left / 2)):
            interrupted = True
            while kernel.busy and time.monotonic() < deadline - 0.1:
                await kernel.interrupt(1.0)
                await kernel.boundary(min(1.0, deadline - time.monotonic()))
        if kernel.busy:
            self.outcome = "a cell could not be stopped, so nothing could be kept" if keeping else ""
        elif keeping and await self._keep(kernel, deadline, image):
            return interrupted
        await asyncio.sleep(max(deadline - time.monotonic(), 0.0))
        return interrupted

    async def _keep(self, kernel: LiveKernel, deadline: float, image: Callable[[float], Any]) -> bool:
        if self._on_preempt:
            try:
                await self._run(kernel, self._on_preempt, deadline - time.monotonic())
            except (HookFailed, KernelGone) as err:
                self.outcome = f"its on_preempt hook failed: {err}"
            else:
                self.outcome = "what its on_preempt hook saved is kept"
        if self.imaging:
            try:
                await image(deadline - time.monotonic())
            except ImageFailed as err:
                _log.warning("%s", err)
                self.outcome = f"{self.outcome}; {err}".removeprefix("; ")
            else:
                return True
        return bool(self._on_preempt) and self.outcome.endswith("is kept")

    async def resumed(self, kernel: LiveKernel) -> list[list[str]]:
        """Run the hook for a start after the first. [name, reason] if it failed."""
        if not self._on_resume or self._start["incarnation"] <= 1:
            return []
        try:
            await self._run(kernel, self._on_resume, RESUME_S)
        except (HookFailed, KernelGone) as err:
            return [["*", f"the kernelspec's on_resume hook failed: {err}"]]
        return []

    async def _run(self, kernel: LiveKernel, hook: Hook, limit_s: float) -> None:
        try:
            async with asyncio.timeout(max(limit_s, 0.1)):
                await (self._cell(kernel, hook) if isinstance(hook, str) else self._command(hook))
        except TimeoutError:
            raise HookFailed(f"it was not done after {limit_s:.0f} s") from None

    async def _cell(self, kernel: LiveKernel, code: str) -> None:
        """Execute a cell, apart from the notebook's history. Any kernel can: this is Jupyter's own protocol."""
        connection = kernel.child.connection
        context = zmq.asyncio.Context()
        shell = Control(context, f"tcp://{connection['ip']}:{connection['shell_port']}", self._key)
        asked = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
        try:
            answer = asyncio.ensure_future(shell.ask("execute_request", asked | {"stop_on_error": False}))
            done, _ = await asyncio.wait({answer, kernel.gone}, return_when=asyncio.FIRST_COMPLETED)
            if answer not in done:
                raise KernelGone(kernel.gone.result())
            content = answer.result()
        finally:
            shell.close(None)
            context.term()
        if content.get("status") != "ok":
            raise HookFailed(f"{content.get('ename') or 'error'}: {content.get('evalue') or content.get('status')}")

    async def _command(self, argv: list[str]) -> None:
        """Run a command beside the kernel, in its folder and with its variables; ended with the kernel's processes."""
        cwd = self._start["args"]["launch"].get("cwd") or None
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env=dict(self._start["env"]),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as err:
            raise HookFailed(f"{argv[0]} cannot be started ({err.strerror})") from None
        said, _ = await process.communicate()
        if process.returncode:
            raise HookFailed(
                f"{argv[0]} ended with code {process.returncode}: {said.decode(errors='replace')[-_TAIL:]}"
            )
