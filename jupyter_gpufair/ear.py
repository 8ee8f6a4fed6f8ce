"""What a client hears of its kernel, as far as it concerns the gate: which cell has begun, and what is not for clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_client.session import Session as JupyterSession

from jupyter_gpufair.offer import cut_from

if TYPE_CHECKING:
    from jupyter_gpufair.held import Gate


class Ear:
    """Of one client."""

    def __init__(self) -> None:
        self._cut = ""  # the cell that was cut and runs again: its kernel's idle is not its end

    def hear(self, gate: Gate, session: JupyterSession, parts: list[Any]) -> bool:
        """Note a message of the kernel's iopub; whether clients need not see it.

        Args:
            session: What unpacks it.
            parts: Signature, header, parent header, metadata, content, buffers.
        """
        if b'"cut"' in raw(parts[3]) and cut_from(session.unpack(parts[3])) is not None:
            self._cut = str(session.unpack(parts[2]).get("msg_id", ""))
        elif self._cut and b'"idle"' in raw(parts[4]) and session.unpack(parts[2]).get("msg_id") == self._cut:
            self._cut = ""
            return True
        if gate.listening and session.unpack(parts[1]).get("msg_type") == "execute_input":
            gate.heard(str(session.unpack(parts[2]).get("msg_id", "")))
        return gate.own.session.encode() in raw(parts[2])  # the gate's own knocking caused it


def raw(part: Any) -> bytes:
    """The bytes of a part: bytes already, or a zmq Frame."""
    return bytes(memoryview(part))
