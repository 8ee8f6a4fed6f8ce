"""Cells whose work goes on elsewhere, in the CPU pool, while their session moves: the kernel's part.

Such a cell ends early and is sent again by its gate (``jupyter_gpufair.again``) to the kernel that comes after. What it
waits for is saved with the session under the id of its message, so the second run finds it and only waits on. The cell is
therefore never run twice: a kernel that did not come back with it refuses the cell.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from jupyter_gpufair.kernel.notice import Left, NoticeBoard
from jupyter_gpufair.kernel.work import Work
from jupyter_gpufair.offer import AWAY, Offer

Content = dict[str, Any]
LOST = "What this cell waits for in the CPU pool did not come back with the session. So it was not run again."


def has_gpus() -> bool:
    """Whether this kernel runs under gpufair and was given GPUs."""
    return bool(os.environ.get("GPUFAIR_GPUS"))


class Away:
    """Of one kernel; its methods belong to the main thread."""

    def __init__(self, work: Work, notices: NoticeBoard) -> None:
        self._work, self._notices = work, notices
        self._cell = ""  # the running one, by the id of its message, if it may be sent again
        self._asks: Content = {}

    def begin(self, msg_id: str, offer: Offer | None) -> str | None:
        """A cell is about to begin. Returns: Why it must not."""
        self._cell, self._asks = msg_id if offer is not None and offer.again else "", {}
        if msg_id not in self._work.away:
            self._work.away.clear()  # nobody will ask for that again
            if offer is not None and offer.begins_with == AWAY:
                return LOST
        return None

    @property
    def possible(self) -> bool:
        """Whether the running cell would be sent again."""
        return bool(self._cell)

    @property
    def due(self) -> bool:
        """Whether the session is about to leave, and the running cell would be sent again."""
        return self.possible and self._notices.announced

    @property
    def found(self) -> Any:
        """What the running cell waited for before it was sent again; None if this is its first run."""
        task, _ = self._work.away.get(self._cell, (None, False))
        return task

    def leave(self, task: Any, text: str, *, release: bool) -> NoReturn:
        """End the cell; it waits for ``task`` again when it is sent again. ``release``: the session is to give back its GPUs."""
        _, released = self._work.away.get(self._cell, (None, False))
        self._work.away[self._cell] = task, released or release
        self._asks = {"from": AWAY, "move": release}
        raise Left(text)

    def over(self) -> None:
        """The cell needs to wait no more. One that gave GPUs back, and has none yet, wants the next cell to wait for them."""
        _, released = self._work.away.pop(self._cell, (None, False))
        self._asks = {"park": True} if released and not has_gpus() else {}

    @property
    def left(self) -> bool:
        """Whether the last cell ended by ``leave``."""
        return "from" in self._asks

    def ended(self, reply: Content) -> None:
        """Say to the gate what follows."""
        reply["gpufair"] |= self._asks
