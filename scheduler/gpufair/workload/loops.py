"""Loops that go on where they were after their session has been moved."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from gpufair.core.errors import GpufairError
from gpufair.workload import runtime
from gpufair.workload.preemption import safe_point

Item = TypeVar("Item")
DONE = -1  # position of a loop that has come to its end inside a cell that has not


class NotRepeatable(GpufairError):
    """The loop cannot be started again, because what it runs over is used up."""

    def __str__(self) -> str:
        return (
            "resumable() was given an iterator that is a variable of the session. It keeps its own place, or none; "
            "pass what it was made from (a list, a range, a DataLoader), or make it inside the call"
        )


class Positions:
    """How far the loops of the present cell have come, and what a restore brought back.

    The order of ``_running`` is the order in which the loops began, so that those inside another one come after it.
    """

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._pending: dict[str, int] = {}

    def begin(self, name: str) -> int:
        """A loop begins: how many of its items are finished already (DONE: all)."""
        position = self._pending.pop(name, 0)
        self._running.pop(name, None)
        self._running[name] = position
        return position

    def advance(self, name: str, finished: int) -> None:
        """So many items are finished; loops that began inside the last one are over, whether they say so or not."""
        names = list(self._running)
        if name in self._running:
            for inner in names[names.index(name) + 1 :]:
                del self._running[inner]
        self._running[name] = finished

    def cell_ended(self, *, cut: bool) -> None:
        """The cell is over. Unless a preemption cut it, its loops begin from the start when it runs again."""
        if not cut:
            self._running.clear()

    def saved(self) -> dict[str, int]:
        """For a checkpoint: the state from which the cell can go on."""
        return {**self._pending, **self._running}

    def restore(self, saved: dict[str, int]) -> None:
        """The next loops with these names go on from there, once."""
        self._running.clear()
        self._pending = {str(name): int(position) for name, position in saved.items()}


positions = Positions()


class resumable(Generic[Item]):  # noqa: N801 - used like `range` and `enumerate`
    """``for x in gpufair.resumable(items):`` goes on after the last finished item when the cell runs again after a move.

    What is guaranteed:

    - An item is finished when the loop asks for the next one, and that moment is a safe point
      (``gpufair.safe_point``). A checkpoint taken there holds the variables and the position together: the cell, run
      again after the restore, sees each later item once and no earlier one.
    - An item that is cut in the middle (the grace was shorter than the item) is not finished. It runs again as a whole,
      with the variables as it left them.
    - If the session falls back to an older checkpoint the loop falls back with it.
    - A loop that has ended is skipped if a later part of the same cell was cut. A loop left by ``break`` runs its last
      item again. Loops inside a resumable one are resumable too, and positions count for the main thread only.
    - The position is used by the first loop of that name after a restore; then, and whenever a cell ended by itself, a
      loop begins at the start.

    ``iterable`` must give the same items when the cell runs again: what is skipped is counted, not compared. A sequence is
    entered at the position; anything else is run through to there.

    Args:
        iterable: What to loop over.
        name: The loop's name in this session. By default it belongs to the text of its cell and its place there, so
            editing the cell begins anew; with a name the position survives an edit.

    Raises:
        NotRepeatable: The iterator is a variable of the session, so its own place comes back too, or is lost.
    """

    def __init__(self, iterable: Iterable[Item], name: str | None = None) -> None:
        self._iterable = iterable
        self.name = name if name is not None else _place(sys._getframe(1))  # noqa: SLF001 - CPython's, as logging does
        kernel = runtime.current() if iter(iterable) is iterable else None
        if kernel is not None and any(value is iterable for value in list(kernel.namespace().values())):
            raise NotRepeatable

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Item]:
        if threading.current_thread() is not threading.main_thread():
            yield from self._iterable
            return
        finished = positions.begin(self.name)
        if finished == DONE:
            return
        for item in self._from(finished):
            yield item
            finished += 1
            positions.advance(self.name, finished)
            safe_point()
        positions.advance(self.name, DONE)

    def _from(self, start: int) -> Iterable[Item]:
        items: Any = self._iterable
        if start and isinstance(items, Sequence):
            return (items[index] for index in range(start, len(items)))
        return islice(items, start, None)


def _place(frame: FrameType) -> str:
    """The place in the cell: IPython names a cell's file after a digest of its text, the folder after the process."""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}:{frame.f_lasti}"
