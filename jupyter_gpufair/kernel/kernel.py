"""ipykernel with control messages for checkpoint, restore and preemption notice.

========================== ==============================================================================
request (control channel)   content -> content of the reply
========================== ==============================================================================
gpufair_checkpoint_request  {directory, id, sequence, key_file, wait_s = 0, hold_s = 0, within_s = 0} ->
                            {status: "skipped", reason, expected_s} (only with within_s), or
                            {status: "ok", id, sequence, size_bytes, duration_s, saved, prompt, inside, lost: [[name, reason]],
                             notes: [[name, text]]}, or
                            {status: "kept", id} (only with hold_s: a cell was cut that runs again from this checkpoint;
                            or, id null, the last one stays, since nothing has been run in this kernel or loaded into it)
gpufair_restore_request     {directory, id, key_file, wait_s = 0} ->
                            {status: "ok", restored, lost: [[name, reason]], warnings: [text]}
gpufair_preflight_request   {within_s = 2, wait_s = 0} -> {status: "ok", parkable, size_bytes, seconds, bytes_per_s,
                            measured, taken_s, left_out, variables: [{name, kind, state, size_bytes, seconds, reason}]}
gpufair_progress_request    {} -> {status: "ok", fraction} of the restore that is under way
gpufair_notice_request      {text, deadline_s} -> {status: "ok"}
========================== ==============================================================================

Each may be answered {status: "error", reason} instead, with reason "busy: …" if a cell did not end in time. The first
three are answered when their work at a cell boundary is done (or, for a checkpoint, at a safe point of the running cell);
other control messages are handled meanwhile. ``prompt`` is the number of the first cell that is not in the checkpoint as a
whole; ``inside`` says that it is the running one, which has reached a safe point.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ipykernel.ipkernel import IPythonKernel

from gpufair.core.errors import GpufairError
from gpufair.workload import companions, runtime
from gpufair.workload.loops import positions
from jupyter_gpufair.kernel import requests
from jupyter_gpufair.kernel.again import Again
from jupyter_gpufair.kernel.away import Away
from jupyter_gpufair.kernel.boundary import Boundary, Job, uninterrupted
from jupyter_gpufair.kernel.magic import Magic
from jupyter_gpufair.kernel.notice import Notice, NoticeBoard
from jupyter_gpufair.kernel.work import Work
from jupyter_gpufair.offer import ASK

# With no cell running the main thread takes a job within milliseconds, unless a completion or a GUI loop occupies it.
_IDLE_WAIT_S = 5.0
_HOLD_POLL_S = 0.05

Content = dict[str, Any]


class GpufairKernel(IPythonKernel):
    """See the module. Everything else is ipykernel's."""

    control_msg_types = [  # noqa: RUF012 - as in the base class
        *IPythonKernel.control_msg_types,
        "gpufair_checkpoint_request",
        "gpufair_restore_request",
        "gpufair_notice_request",
        "gpufair_preflight_request",
        "gpufair_progress_request",
    ]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        # The tip in the banner is drawn anew for each kernel_info_request, from the user's own random generator: results
        # would depend on how often a client or a supervisor asked.
        shell: Any = self.shell
        shell.enable_tip = False
        self._boundary = Boundary()
        self._notices = NoticeBoard(self.shell)
        self._work = Work(self.shell)
        self._held_until = 0.0  # monotonic
        self._prompt = self._last_prompt = 0  # number of the last cell, of the main shell's and of all
        self.away = Away(self._work, self._notices)
        self._again = Again(self._work, self._boundary, self.away)
        self._notices.again = lambda: self._again.begins_with
        self._magic = Magic(self.shell, self.preflight, self._work.recipes, self._again.switch)
        shell.magics_manager.register_lazy("cpu", "jupyter_gpufair.cpu")  # with Dask, which is not loaded until then
        runtime.attach(self)

    # ------------------------------------------------------------------ cells
    async def execute_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """Run a cell; before it is a boundary, and after it."""
        if threading.current_thread() is threading.main_thread():
            # Cells that are queued already would otherwise all come before a waiting checkpoint.
            self._boundary.run_jobs()
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and (refusal := await self._again.begin(parent, lambda: self._ask("checkpoint", parent))):
            self._refuse(stream, ident, parent, refusal)
            return
        await self._hold()
        with self._boundary.cell():
            await super().execute_request(stream, ident, parent)  # type: ignore[no-untyped-call]
        self.io_loop.add_callback(self._run_jobs)

    async def do_execute(self, *args: Any, **kwargs: Any) -> Content:
        """Run code, and call a preemption by its name."""
        self._work.dirty = True
        reply: Content = await super().do_execute(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._work.dirty = True  # a checkpoint inside the cell does not hold the rest of it
        cut = self._notices.relabel(reply)
        if threading.current_thread() is threading.main_thread():
            positions.cell_ended(cut=cut)
            self._again.ended(reply, cut=cut)
        if self._work.recipes.on:
            shell: Any = self.shell
            source = shell.transform_cell(kwargs["code"] if "code" in kwargs else args[0])
            self._work.recipes.ran(source, self._prompt, shell.user_ns, ok=reply.get("status") == "ok")
        return reply

    async def do_shutdown(self, restart: bool) -> Content:
        """Called for the end that a user asked for, of the kernel or of its variables: no preemption ends one so."""
        companions.ended()
        reply: Content = super().do_shutdown(restart)  # type: ignore[no-untyped-call]
        return reply

    # ------------------------------------------------------------------ asked by the user's code
    def safe_point(self) -> bool:
        """See ``gpufair.safe_point``."""
        if not self._boundary.waiting:
            return False
        taken = self._work.taken
        self._boundary.run_inside()
        if self._work.taken == taken:
            return False
        while time.monotonic() < self._held_until:  # usually this is where the process ends
            time.sleep(_HOLD_POLL_S)
        self._work.resume()
        return True

    def namespace(self) -> Content:
        """The variables of the session."""
        shell: Any = self.shell
        variables: Content = shell.user_ns
        return variables

    def _publish_execute_input(self, code: str, parent: Content, execution_count: int) -> None:
        """As ipykernel, and say in the metadata which cell it is, so that a recorder can put the outputs under it."""
        if not self.session:
            return
        self._last_prompt = execution_count
        if threading.current_thread() is threading.main_thread():
            self._prompt = execution_count
        cell = {
            "cell_id": (parent.get("metadata") or {}).get("cellId"),
            "code_sha256": hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest(),
        }
        self.session.send(
            self.iopub_socket,
            "execute_input",
            {"code": code, "execution_count": execution_count},
            parent=parent,
            ident=self._topic("execute_input"),  # type: ignore[no-untyped-call]
            metadata={"gpufair": cell},
        )
        if told := self._again.told(parent):
            for kind, content in (("clear_output", {"wait": False}), ("stream", {"name": "stderr", "text": told})):
                self.session.send(self.iopub_socket, kind, content, parent=parent, ident=self._topic(kind))  # type: ignore[no-untyped-call]

    def _refuse(self, stream: Any, ident: Any, parent: Content, evalue: str) -> None:
        """Answer a cell that must not begin."""
        if self.session:
            error = {"ename": "NotRun", "evalue": evalue, "traceback": [f"\x1b[0;31mNotRun\x1b[0m: {evalue}"]}
            self.session.send(self.iopub_socket, "error", error, parent=parent, ident=self._topic("error"))  # type: ignore[no-untyped-call]
            self.session.send(stream, "execute_reply", {"status": "error", **error}, parent, ident=ident)

    def _ask(self, word: str, parent: Content) -> None:
        """Ask the supervisor for something, on behalf of a cell."""
        if self.session:
            asked = {"metadata": {"gpufair": {"ask": word}}}
            self.session.send(self.iopub_socket, ASK, asked, parent=parent, ident=self._topic(ASK))  # type: ignore[no-untyped-call]

    @contextmanager
    def _cancel_on_sigint(self, future: Any) -> Iterator[None]:
        """As ipykernel, for a cell with top-level await; and wake the loop, which sleeps while such a cell waits.

        ipykernel's handler adds its callback with tornado's ``add_callback``, and that writes to the loop's wake-up
        pipe only from other threads. So the interrupt would take effect whenever the next timer or socket fires.
        """
        with super()._cancel_on_sigint(future):
            cancel: Any = signal.getsignal(signal.SIGINT)
            loop: Any = self.io_loop

            def handle(number: int, frame: FrameType | None) -> None:
                cancel(number, frame)
                loop.asyncio_loop.call_soon_threadsafe(lambda: None)

            signal.signal(signal.SIGINT, handle)
            yield

    async def _hold(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            await self._until_released()
            return
        if time.monotonic() < self._held_until:
            with uninterrupted():
                await self._until_released()
        self._work.resume()

    async def _until_released(self) -> None:
        while time.monotonic() < self._held_until:
            await asyncio.sleep(_HOLD_POLL_S)

    async def _run_jobs(self) -> None:
        # ipykernel 7 holds this lock while a shell message is handled; 6 handles them one by one anyway.
        lock: asyncio.Lock | None = getattr(self, "_main_asyncio_lock", None)
        if lock is None:
            self._boundary.run_jobs()
            return
        async with lock:
            self._boundary.run_jobs()

    def preflight(self, within_s: float) -> Any:
        """See ``gpufair.preflight``."""
        return self._work.preflight(within_s)

    # ------------------------------------------------------------------ control messages (control thread)
    async def gpufair_checkpoint_request(self, stream: Any, ident: Any, parent: Content) -> None:
        """Save the session at the next cell boundary."""

        def prepared() -> tuple[float, Callable[[], Content]]:
            asked = requests.checkpoint_request(parent["content"])
            return asked.wait_s, lambda: self._checkpoint(asked)

        self._at_boundary("gpufair_checkpoint_reply", stream, ident, parent, prepared, inside=True)

    async def gpufair_restore_request(self, stream: Any, ident: Any, parent: Content) -> None:
        """Load a checkpoint into the live namespace at the next cell boundary."""

        def prepared() -> tuple[float, Callable[[], Content]]:
            asked = requests.restore_request(parent["content"])
            return asked.wait_s, lambda: self._work.restore(asked)

        self._at_boundary("gpufair_restore_reply", stream, ident, parent, prepared)

    async def gpufair_preflight_request(self, stream: Any, ident: Any, parent: Content) -> None:
        """Say what a checkpoint would be like, at the next cell boundary."""

        def prepared() -> tuple[float, Callable[[], Content]]:
            asked = requests.preflight_request(parent["content"])
            look = self._work.preflight
            return asked.wait_s, lambda: {"status": "ok", **look(asked.within_s).as_dict(requests.MAX_VERDICTS)}

        self._at_boundary("gpufair_preflight_reply", stream, ident, parent, prepared)

    async def gpufair_progress_request(self, stream: Any, ident: Any, parent: Content) -> None:
        """Say how far a restore has come; answered at once."""
        reply: Content = {"status": "ok", "fraction": self._work.progress}
        self._answer("gpufair_progress_reply", stream, ident, parent, reply)

    async def gpufair_notice_request(self, stream: Any, ident: Any, parent: Content) -> None:
        """Remember, or forget, that the session is about to be preempted."""
        reply: Content = {"status": "ok"}
        try:
            asked = requests.notice_request(parent["content"])
        except GpufairError as err:
            reply = {"status": "error", "reason": str(err)}
        else:
            notice = Notice(asked.text, asked.deadline_s) if asked.text else None
            self._notices.post(notice)
            self._work.announce(notice)
            if not asked.text:
                self._held_until = 0.0
        self._answer("gpufair_notice_reply", stream, ident, parent, reply)

    def _at_boundary(
        self,
        kind: str,
        stream: Any,
        ident: Any,
        parent: Content,
        prepared: Callable[[], tuple[float, Callable[[], Content]]],
        *,
        inside: bool = False,
    ) -> None:
        """Have the prepared work done between cells, or say why not; answered either way.

        Args:
            inside: Inside a cell as well, where it reaches a safe point.
        """
        loop = stream.io_loop  # the control thread's: its socket must be used there only

        def answer(reply: Content) -> None:
            loop.add_callback(self._answer, kind, stream, ident, parent, reply)

        try:
            wait_s, work = prepared()
        except GpufairError as err:
            answer({"status": "error", "reason": str(err)})
            return
        running = self._boundary.busy
        if running and wait_s == 0:
            answer({"status": "error", "reason": "busy: a cell is running"})
            return
        job = Job(lambda: self._told(work), answer, inside=inside)
        self._boundary.submit(job)
        self.io_loop.add_callback(self._run_jobs)
        wait_s = max(wait_s, 0.0 if running else _IDLE_WAIT_S)

        def give_up() -> None:
            if job.take():
                answer({"status": "error", "reason": f"busy: no cell boundary was reached within {wait_s:g} s"})

        loop.call_later(wait_s, give_up)

    def _answer(self, kind: str, stream: Any, ident: Any, parent: Content, reply: Content) -> None:
        if self.session:
            self.session.send(stream, kind, reply, parent, ident=ident)

    # ------------------------------------------------------------------ work (main thread, between cells)
    def _told(self, work: Callable[[], Content]) -> Content:
        """The outcome of ``work``, whatever happens: somebody waits for the reply."""
        try:
            return work()
        except GpufairError as err:
            return {"status": "error", "reason": str(err)}
        except Exception as err:
            self.log.exception("A checkpoint or restore failed in an unforeseen way")
            return {"status": "error", "reason": f"internal error ({type(err).__name__}: {err}); see the kernel's log"}

    def _checkpoint(self, asked: requests.CheckpointRequest) -> Content:
        if asked.within_s:
            if self._boundary.waiting:  # one that was asked for
                return {"status": "skipped", "reason": "another checkpoint is due", "expected_s": 0.0}
            expected_s, reason = self._work.expected(asked.within_s, inside=self._boundary.busy)
            if reason:
                return {"status": "skipped", "reason": reason, "expected_s": expected_s}
        if asked.hold_s and not self._boundary.busy and (kept := self._again.kept()) is not None:
            self._held_until = time.monotonic() + asked.hold_s
            return kept
        if asked.hold_s and asked.sequence > 1 and self._work.untouched and not self._boundary.busy:
            # It came in place of one that died or was restarted. What that one had saved would be buried under nothing.
            self._held_until = time.monotonic() + asked.hold_s
            return {"status": "kept", "id": None}
        reply = self._work.checkpoint(asked, inside=self._boundary.busy)
        reply["inside"] = self._boundary.busy
        reply["prompt"] = self._prompt if reply["inside"] else self._last_prompt + 1
        if asked.hold_s:
            self._held_until = time.monotonic() + asked.hold_s
        return reply
