"""Shows an interrupt that the scheduler sent for what it is, instead of as a KeyboardInterrupt of unknown origin."""

from __future__ import annotations

import asyncio
import linecache
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from jupyter_gpufair.offer import AWAY, CUT

_STALE_S = 60.0  # after the deadline the kernel should be gone; whoever still interrupts is the user


class Preempted(Exception):
    """Only its name is used: it is what the front end shows."""


class Left(Exception):
    """Ends a cell that is sent again; its text is shown in the place of an error. See ``away``."""


class Notice(NamedTuple):
    """A preemption that has been announced. ``deadline_s`` is in Unix seconds, 0 if there is none."""

    text: str
    deadline_s: float

    def holds(self, now_s: float) -> bool:
        """Whether an interrupt that arrives now is its doing."""
        return not self.deadline_s or now_s <= self.deadline_s + _STALE_S


class NoticeBoard:
    """Watches how the shell shows errors. Install once per shell.

    The shell is not subclassed, because libraries recognise a notebook by the name of its class.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._show = shell._showtraceback  # noqa: SLF001 - ipykernel itself replaces it in the same way
        shell._showtraceback = self._showtraceback  # noqa: SLF001
        self._notice: Notice | None = None
        self._shown: Notice | None = None
        self._left = ""  # the text of a cell that has just left
        self.again: Callable[[], str | None] = lambda: (
            None
        )  # the checkpoint from which a cell that is cut now runs again

    def post(self, notice: Notice | None) -> None:
        """Announce, or withdraw with None. Any thread may call."""
        self._notice = notice

    @property
    def announced(self) -> bool:
        """Whether a preemption is coming."""
        notice = self._notice
        return notice is not None and notice.holds(time.time())

    def relabel(self, reply: dict[str, Any]) -> bool:
        """Make an execute_reply say what was shown, if a preemption was. Whether one was."""
        shown, self._shown = self._shown, None
        left, self._left = self._left, ""
        if left:
            reply["ename"], reply["evalue"] = Preempted.__name__, left
            return True
        if shown is None or reply.get("status") != "error":
            return False
        reply["ename"], reply["evalue"] = Preempted.__name__, shown.text
        return True

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        notice = self._notice
        if issubclass(etype, Left):
            self._left = str(evalue)
            self._say(f"{self._left}\n", AWAY)
            return
        # A cell with top-level await is cancelled instead of interrupted.
        interrupted = issubclass(etype, KeyboardInterrupt | asyncio.CancelledError)
        if notice is None or not interrupted or not notice.holds(time.time()):
            self._show(etype, evalue, stb)
            return
        self._notice, self._shown = None, notice  # for one interrupt: the next one may be the user's
        if (checkpoint := self.again()) is not None:
            self._say_again(notice, checkpoint)
            return
        lines = [f"\x1b[31mPreempted\x1b[39m: {notice.text}", *self._place(evalue)]
        self._show(Preempted, Preempted(notice.text), lines)

    def _say_again(self, notice: Notice, checkpoint: str) -> None:
        """One line instead of an error: nothing went wrong, and the cell has not ended."""
        at = time.strftime("%H:%M:%S")
        self._say(f"Preempted at {at}: {notice.text.rstrip('.')}. This cell runs again when the session is back.\n", checkpoint)

    def _say(self, text: str, checkpoint: str) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        hook = self._shell.displayhook
        content = {"name": "stderr", "text": text}
        hook.session.send(
            hook.pub_socket, "stream", content, hook.parent_header, metadata={"gpufair": {CUT: checkpoint}}
        )

    def _place(self, error: BaseException) -> list[str]:
        """Where in the cell it stopped: the innermost line of the notebook."""
        found: list[str] = []
        step = error.__traceback__
        while step is not None:
            filename = step.tb_frame.f_code.co_filename
            name = self._shell.compile.format_code_name(filename)
            if name is not None:
                source = linecache.getline(filename, step.tb_lineno).strip()
                found = [f"stopped in {' '.join(name)}, line {step.tb_lineno}: {source}"]
            step = step.tb_next
        return found
