"""What waits in a process that nobody succeeds: papermill's cells end with papermill."""

from __future__ import annotations

from typing import Any

from jupyter_gpufair.cell import Cell


class Unkept:
    """In the place of a ``HeldFile``."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.notes: dict[str, dict[str, Any]] = {}

    def hold(self, cell: Cell) -> None:
        """A cell waits."""

    def again(self, cell: Cell) -> None:
        """A cell waits to run again."""

    def over(self, msg_id: str) -> None:
        """A cell does not wait any more."""

    def note(self, execution: dict[str, Any]) -> None:
        """Its author is there, and is told."""

    async def synced(self) -> bool:
        """What there is to keep is kept."""
        return True

    def close(self, *, forget: bool) -> None:
        """Nothing is left."""
