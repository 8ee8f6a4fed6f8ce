"""A cell on its way through the gate."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol, Self

from gpufair.client import Workload

MOVING = frozenset({"parked", "queued", "starting", "restoring"})


class Page(Protocol):
    """A browser tab's websocket, as far as the gate needs one."""

    hears: bool  # whether it has heard its kernel since the last swap

    @property
    def channels(self) -> Any:
        """Its sockets to the kernel; empty while it is not connected."""

    @property
    def session(self) -> Any:
        """The Jupyter session whose messages it sends."""

    def handle_outgoing_message(self, stream: Any, outgoing_msg: list[Any]) -> None:
        """Pass on what came from the kernel."""

    def say(self, channel: str, kind: str, content: dict[str, Any], parent: dict[str, Any]) -> None:
        """Send a message of our own, as an answer to ``parent``."""


@dataclass(slots=True)
class Cell:
    """One ``execute_request``. ``parts``: header, parent header, metadata, content, buffers, as they travel."""

    msg_id: str
    client: str  # the client's session id
    header: dict[str, Any]
    parts: list[bytes]
    origin: Page | None
    stop_on_error: bool
    size: int
    late: list[bytes] | None = None  # the answer of an interrupted cell, kept until what happened is known
    late_s: float = 0.0  # when that came, Unix seconds
    began: bool = False  # a client has heard that it runs
    kept: bool = False  # it is written down (``held_file``)
    durable: bool = False  # and on the disk: it may be said to be held
    recovered: bool = False  # a server before us took it
    runs: int = 0  # so often it was cut and put back (``again``)
    again_from: str | None = None  # the checkpoint from which it runs again

    @classmethod
    def of(cls, parts: list[bytes], *, client: str | None = None, origin: Page | None = None) -> Self:
        """The cell of a message. ``client``: who sent it, if that is not for the header to say.

        Raises: ValueError, KeyError, AttributeError: It is no ``execute_request``.
        """
        header, content = json.loads(parts[0]), json.loads(parts[3])
        return cls(
            msg_id=str(header["msg_id"]),
            client=str(header.get("session", "")) if client is None else client,
            header=header,
            parts=parts,
            origin=origin,
            stop_on_error=bool(content.get("stop_on_error", True)) and not content.get("silent", False),
            size=sum(len(part) for part in parts),
        )

    @property
    def cell_id(self) -> str | None:
        """Which cell of the document it is, where the client says so."""
        found = self.metadata.get("cellId")
        return found if isinstance(found, str) else None

    @property
    def metadata(self) -> dict[str, Any]:
        """What the client says of the cell."""
        found = json.loads(self.parts[2] or b"{}")
        return found if isinstance(found, dict) else {}

    def never_began(self, workload: Workload, before: str | None, preemptions: int) -> bool:
        """Whether the kernel certainly did not begin it, so that it may be sent to the next one.

        It reached the kernel when a preemption had been decided and was not known here yet. A kernel that was saved for
        a preemption had ended what it ran, answered it, and begun nothing afterwards.

        Args:
            workload: The session, now that its kernel is gone.
            before: Its newest checkpoint when it was last running.
            preemptions: How many it had had then.
        """
        saved = workload.checkpoint is not None and workload.checkpoint.id != before
        preempted = workload.preemptions > preemptions and workload.state in MOVING
        subshell = bool(self.header.get("subshell_id"))
        return saved and preempted and self.late is None and not (self.began or subshell)
