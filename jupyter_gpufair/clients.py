"""The clients of one kernel, as its gate speaks to them: answers go to whoever asked, outputs to all."""

from __future__ import annotations

from collections import deque
from typing import Any

from jupyter_client.session import Session as JupyterSession

from jupyter_gpufair.cell import Cell, Page

MAX_LEFT = 100  # answers kept for a client that went away and may come back (per kernel)


class Clients:
    """Those who are connected, and what is kept for those who were.

    Attributes:
        open: Their websockets.
    """

    def __init__(self, own: JupyterSession) -> None:
        self.open: set[Page] = set()
        self._own = own
        self._left: deque[tuple[str, str, list[bytes]]] = deque(maxlen=MAX_LEFT)
        self._last: Cell | None = None

    def join(self, page: Page) -> None:
        """A websocket opened: it hears what came for this client meanwhile."""
        self.open.add(page)
        client = page.session.session
        mine = [entry for entry in self._left if entry[0] == client]
        self._left = deque((entry for entry in self._left if entry[0] != client), maxlen=MAX_LEFT)
        for _, channel, parts in mine:
            page.handle_outgoing_message(channel, parts)

    def there(self, cell: Cell) -> bool:
        """Whether the page that sent it is connected."""
        return cell.origin is not None and cell.origin in self.open

    # ------------------------------------------------------------------ what the kernel says
    def deliver(self, cell: Cell, channel: str, parts: list[bytes]) -> None:
        """Hand on a message of the kernel."""
        page = cell.origin
        if page is not None and page in self.open and page.channels:
            page.handle_outgoing_message(channel, parts)
        else:
            self._left.append((cell.client, channel, parts))

    def answered(self, cell: Cell, parts: list[bytes]) -> None:
        """Hand on the reply to a cell."""
        self._last = cell
        self.deliver(cell, "shell", parts)

    def say_idle(self) -> None:
        """Close the last cell: its reply came, but the idle status after it may have gone with the kernel."""
        if self._last is not None:
            self.say(self._last, "iopub", "status", {"execution_state": "idle"})
            self._last = None

    # ------------------------------------------------------------------ in the kernel's place
    def refuse(self, cell: Cell, error: dict[str, Any]) -> None:
        """An error instead of a run. ``error``: an output as in a notebook."""
        self.say_error(cell, error)
        self.answer(cell, {"status": "error", **error, "traceback": []})

    def say_error(self, cell: Cell, error: dict[str, Any]) -> None:
        """Show an error under the cell."""
        self.say(cell, "iopub", "error", error)

    def answer(self, cell: Cell, content: dict[str, Any]) -> None:
        """A reply, and the end."""
        self.say(cell, "shell", "execute_reply", content)
        self.say(cell, "iopub", "status", {"execution_state": "idle"})

    def say(self, cell: Cell, channel: str, kind: str, content: dict[str, Any]) -> None:
        """To the one who asked; outputs to all, as a kernel's are."""
        if channel == "iopub":
            for page in tuple(self.open):
                page.say(channel, kind, content, cell.header)
        elif cell.origin is not None and cell.origin in self.open:
            cell.origin.say(channel, kind, content, cell.header)
        else:
            message = self._own.msg(kind, content=content, parent=cell.header)
            self._left.append((cell.client, channel, self._own.serialize(message)))
