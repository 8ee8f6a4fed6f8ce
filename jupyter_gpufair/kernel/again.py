"""Cells that run again when a preemption cuts them: the kernel's part.

Who sends cells through a gate (``jupyter_gpufair.again``) says with each whether it would send it again. Where the user
wants that too, the session is saved before the cell begins, and a cut leaves it at that: the state in the middle is not
saved, and the reply names the checkpoint from which the cell can begin anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from gpufair.core.errors import GpufairError
from jupyter_gpufair.kernel.away import Away
from jupyter_gpufair.kernel.boundary import Boundary
from jupyter_gpufair.kernel.work import Work
from jupyter_gpufair.offer import AWAY, offer_in, tagged

_SAVE_S = 5.0  # until the supervisor has asked for the checkpoint; the checkpoint itself takes what it takes
_POLL_S = 0.01

Content = dict[str, Any]


class BadSwitch(GpufairError):
    """``%gpufair rerun`` was asked for something else than on or off."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word

    def __str__(self) -> str:
        return f"%gpufair rerun knows on and off, not {self.word!r}"


class Again:
    """Of one kernel; its methods belong to the main thread."""

    def __init__(self, work: Work, boundary: Boundary, away: Away) -> None:
        self._work, self._boundary, self._away = work, boundary, away
        self._offered = self._wanted = self._cut = False
        self._before: str | None = None  # the checkpoint of the moment before the running cell

    async def begin(self, parent: Content, ask: Callable[[], None]) -> str | None:
        """A cell is about to begin; see to it that it can begin anew, if it is to. ``ask`` has the session saved.

        Returns: Why it must not begin; None: it may.
        """
        metadata = parent.get("metadata") or {}
        offer = offer_in(metadata)
        self._before, self._cut, self._offered = None, False, offer is not None
        if lost := self._away.begin(str(parent.get("header", {}).get("msg_id", "")), offer):
            return lost
        if offer is None:
            self._wanted = False
            return None
        if offer.begins_with not in {None, AWAY} and offer.begins_with != self._work.loaded:
            return "This cell was cut, and the session did not come back as it was before it. So it was not run again."
        silent = bool(parent.get("content", {}).get("silent"))
        self._wanted = offer.again and not silent and (self._work.rerun or tagged(metadata))
        if self._wanted:
            if self._unsaved:
                ask()
                await self._saved()
            self._before = None if self._unsaved else self._work.newest
        return None

    @property
    def _unsaved(self) -> bool:
        return self._work.dirty or self._work.newest is None

    async def _saved(self) -> None:
        until = time.monotonic() + _SAVE_S
        while self._unsaved and time.monotonic() < until:
            self._boundary.run_jobs()
            await asyncio.sleep(_POLL_S)

    @property
    def begins_with(self) -> str | None:
        """The checkpoint with which the running cell can begin anew: the one before it, if none was taken inside it."""
        return self._before if self._work.newest == self._before else None

    def ended(self, reply: Content, *, cut: bool) -> None:
        """The cell has ended: say in its reply what follows from that, to a gate."""
        if not self._offered:
            return
        reply["gpufair"] = {"rerun": self._work.rerun}
        self._away.ended(reply)
        if self._wanted and cut and not self._away.left:
            self._cut = self.begins_with is not None
            reply["gpufair"]["from"] = self.begins_with

    def kept(self) -> Content | None:
        """The answer to who wants to save the session for a preemption; None: it has to be saved."""
        return {"status": "kept", "id": self._before} if self._cut and self.begins_with is not None else None

    @staticmethod
    def told(parent: Content) -> str:
        """What a cell that runs again is to show first."""
        offer = offer_in(parent.get("metadata") or {})
        return offer.text if offer is not None else ""

    def switch(self, line: str) -> str:
        """``%gpufair rerun [on|off]``: for all cells that follow. The switch is saved with the session."""
        if line not in {"", "on", "off"}:
            raise BadSwitch(line)
        if line:
            self._work.rerun = line == "on"
        return f"rerun is {'on' if self._work.rerun else 'off'}"
