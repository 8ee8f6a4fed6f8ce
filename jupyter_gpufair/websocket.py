"""A browser's websocket to a kernel of the scheduler. Kernels of other provisioners are handled as Jupyter does.

It opens at once, whatever state the session is in, and never closes because of a move. Cells go through the kernel's
gate (``held``); while no kernel serves, what a client needs to show a usable notebook is answered here.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import cached_property
from typing import Any

from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session as JupyterSession
from jupyter_server.services.kernels.connection.base import (
    deserialize_binary_message,
    deserialize_msg_from_ws_v1,
    serialize_msg_to_ws_v1,
)
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.websocket import WebSocketClosedError

from jupyter_gpufair import compat, messages
from jupyter_gpufair.ear import Ear
from jupyter_gpufair.held import Gate
from jupyter_gpufair.held_file import HeldFile, held_folder
from jupyter_gpufair.provisioner import GpufairProvisioner

V1 = "v1.kernel.websocket.jupyter.org"
STARTING = frozenset({"queued", "starting", "restoring"})


def gate_of(kernel_manager: Any) -> Gate | None:
    """The gate of a kernel, made when first asked for; None for kernels of other provisioners."""
    provisioner = getattr(kernel_manager, "provisioner", None)
    if not isinstance(provisioner, GpufairProvisioner) or provisioner.session is None:
        return None
    session = provisioner.session
    if provisioner.gate is None:
        provisioner.gate = Gate(kernel_manager, session, HeldFile(held_folder(), session.kernel_id), session.notify)
    return provisioner.gate


class GpufairWebsocketConnection(ZMQChannelsWebsocketConnection):
    """``ServerApp.kernel_websocket_connection_class``.

    Attributes:
        hears: Whether this client's subscription has reached the present kernel.
    """

    hears = False
    _joined = False
    _kernel_session: str | None = None  # the kernel's own session id, as this client saw it last
    _gate: Gate | None = None

    async def prepare(self) -> None:
        """Called by the handler before the handshake: for our kernels it waits for nothing."""
        self._gate = gate_of(self.kernel_manager)
        if self._gate is None:
            await super().prepare()  # type: ignore[no-untyped-call]
            return
        await compat.register_websocket_session(self)
        self.session.key = self.kernel_manager.session.key

    @cached_property
    def _ear(self) -> Ear:
        return Ear()

    def nudge(self) -> asyncio.Future[None]:
        """Called by ``connect``: the gate sees to it that the kernel is heard before a cell runs."""
        if self._gate is None:
            return super().nudge()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def connect(self) -> asyncio.Future[None] | None:  # type: ignore[override]  # as the class above it
        """Called by the handler after the handshake."""
        connected = super().connect()
        if self._gate is not None and connected is not None:
            gate = self._gate
            # After Jupyter's own callbacks, which replay what the kernel said meanwhile.
            connected.add_done_callback(lambda _: self._join(gate))
        return connected

    def _join(self, gate: Gate) -> None:
        if self.channels and not self._joined:
            self._joined = True
            gate.join(self)
            self._say_status(gate)

    def disconnect(self) -> None:  # type: ignore[override]  # as the class above it
        """Called when the websocket closed."""
        if self._gate is not None:
            self._gate.leave(self)
        super().disconnect()  # type: ignore[no-untyped-call]

    # ------------------------------------------------------------------ from the client
    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Called with each message of the client."""
        gate = self._gate
        if gate is None or not self.channels:
            super().handle_incoming_message(incoming_msg)
            return
        # What came with the handshake is read in the step that opened the websocket, before any callback: a gate that is
        # open for others would let a cell through that this client cannot hear yet.
        self._join(gate)
        channel, header, parts = self._read(incoming_msg)
        kind = header.get("msg_type")
        allowed = self.multi_kernel_manager.allowed_message_types
        if channel != "shell" or (allowed and kind not in allowed):
            super().handle_incoming_message(incoming_msg)
        elif kind == "execute_request":
            gate.submit(self, parts)
        elif kind == "kernel_info_request" and (not gate.session.serving or gate.busy):
            # A busy kernel would answer after its cell, and until then a reloaded page could not be used.
            self._answer_info(gate, header)
        elif kind in messages.EMPTY_REPLIES and not gate.session.serving:
            self.say("shell", str(kind).replace("_request", "_reply"), dict(messages.EMPTY_REPLIES[str(kind)]), header)
            self.say("iopub", "status", {"execution_state": "idle"}, header)
        else:
            super().handle_incoming_message(incoming_msg)

    def _read(self, incoming: Any) -> tuple[str, dict[str, Any], list[bytes]]:
        if self.subprotocol == V1:
            channel, parts = deserialize_msg_from_ws_v1(incoming)  # type: ignore[no-untyped-call]
            return channel, self.session.unpack(parts[0]), parts
        read: Any = deserialize_binary_message if isinstance(incoming, bytes) else json.loads
        message = read(incoming)
        pack = self.session.pack
        names = ("header", "parent_header", "metadata", "content")
        parts = [pack(message.get(name) or {}) for name in names] + list(message.get("buffers") or [])
        return str(message.get("channel") or "shell"), self.session.unpack(parts[0]), parts

    def _answer_info(self, gate: Gate, header: dict[str, Any]) -> None:
        self.say("iopub", "status", {"execution_state": "busy"}, header)
        self.say("shell", "kernel_info_reply", messages.kernel_info(), header)
        self.say("iopub", "status", {"execution_state": "idle"}, header)
        self._say_status(gate)

    def _say_status(self, gate: Gate) -> None:
        """What a client shows beside the kernel's name. Only states that the protocol knows may be sent."""
        if gate.session.state in STARTING:
            state = "starting"
        else:
            state = "busy" if gate.session.serving and gate.busy else "idle"
        self.say("iopub", "status", {"execution_state": state}, {})

    # ------------------------------------------------------------------ to the client
    def handle_outgoing_message(self, stream: Any, outgoing_msg: list[Any]) -> None:
        """Called with each message of the kernel, by our channels and by the gate."""
        gate = self._gate
        if (
            gate is not None
            and "iopub" in (stream, getattr(stream, "channel", None))
            and self._hear(gate, outgoing_msg)
        ):
            return
        super().handle_outgoing_message(stream, outgoing_msg)

    def _hear(self, gate: Gate, message: list[Any]) -> bool:
        """Note that the kernel is heard; whether the gate's own knocking caused this message: clients need not see it."""
        _, parts = self.session.feed_identities(message)  # signature, header, parent header, ...
        if not self.hears and gate.session.attached is not None:
            self._kernel_session = self.session.unpack(parts[1]).get("session")
            self.hears = True
            self._say_status(gate)
        return self._ear.hear(gate, self.session, parts)

    def say(self, channel: str, kind: str, content: dict[str, Any], parent: dict[str, Any]) -> None:
        """Send the client a message in the kernel's place."""
        message = self._speaker().msg(kind, content=content, parent=parent)
        message["parent_header"] = parent
        with suppress(WebSocketClosedError):  # its closing has not been noticed yet
            if self.subprotocol == V1:
                packed = serialize_msg_to_ws_v1(message, channel, self.session.pack)  # type: ignore[no-untyped-call]
                self.write_message(packed, binary=True)
            else:
                message |= {"channel": channel, "buffers": []}
                self.write_message(json.dumps(message, default=json_default))

    def _speaker(self) -> JupyterSession:
        # JupyterLab drops messages whose session differs from that of the message which came last.
        return JupyterSession(session=self._kernel_session or f"gpufair-{self.kernel_id}", username="gpufair")
