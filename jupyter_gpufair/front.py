"""A kernel's ports as plain clients see them (papermill, nbclient, console): with a gate behind them, and no server.

A relay alone moves bytes, so what a client had sent when the kernel went away would never be answered, and a cell that
reaches a new kernel before the client's subscription does would lose its outputs. So outside of a Jupyter server the
channels that carry cells end here. Cells go through a gate (``held``), as those of a browser do: they wait while no
kernel serves, touch a parked session, and get a truthful error when they are cut. Control and heartbeat need none of
this and stay with the relay.

All of it lives on the loop of the io thread, which runs also while a plain client's loop does not.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import zmq
from jupyter_client.session import DELIM
from jupyter_client.session import Session as JupyterSession
from zmq.eventloop.zmqstream import ZMQStream

from jupyter_gpufair import messages
from jupyter_gpufair.ear import Ear
from jupyter_gpufair.held import Gate
from jupyter_gpufair.offer import ASK
from jupyter_gpufair.relay import HOST, Relay
from jupyter_gpufair.session import Generation, Session
from jupyter_gpufair.unkept import Unkept

log = logging.getLogger(__name__)

MAX_ASKED = 10_000  # requests whose client is remembered; a gate holds a tenth of that
# nbclient gives up a cell as soon as it hears that its kernel is dead, though the answer to the cell is on its way.
MOURN_S = 2.0
FULL_AGAIN_S = 0.005  # a client takes no more output: until it is offered again
LINGER_MS = 500  # what was said last is on its way when this ends


class Front:
    """One for each kernel of this process. Its methods belong to the io thread.

    Attributes:
        ports: Where clients find the channels, the same for its whole life.
        gate: The door for cells.
        hears: Whether it hears the present kernel, and so do its clients.
        session: What signs and reads messages. (As of any ``Page`` of a gate.)
    """

    def __init__(self, kernel: Session, language: str) -> None:
        self._kernel, self._language = kernel, language
        self.session = JupyterSession(key=kernel.key.encode(), username="gpufair")
        self.hears = False
        self._ear = Ear()
        self._asked: OrderedDict[str, list[bytes]] = OrderedDict()  # who sent a request, by message id
        self._infos: dict[str, dict[str, Any]] = {}  # those that wait for the kernel itself to introduce itself
        self._attached: Generation | None = None
        self._over_s: float | None = None  # since when there is no kernel and will be none, monotonic
        self._out: deque[list[bytes]] = deque()  # for all clients
        self._full = False
        self._loop = asyncio.get_running_loop()
        self._faces = {"shell": _bound(zmq.ROUTER), "stdin": _bound(zmq.ROUTER), "iopub": _bound(zmq.PUB)}
        self.ports = {**kernel.relay.ports} | {name: _port(face.socket) for name, face in self._faces.items()}
        self.channels = {
            "shell": _joined(zmq.DEALER, kernel.relay, "shell"),
            "stdin": _joined(zmq.DEALER, kernel.relay, "stdin"),
            "iopub": _joined(zmq.SUB, kernel.relay, "iopub"),
        }
        self.gate = Gate(_Behind(kernel), kernel, Unkept())
        self.gate.join(self)
        self._unlisten = kernel.listen(self._told, self._loop)
        self._told(kernel)
        for name in ("shell", "stdin"):
            self._faces[name].on_recv(partial(self._asked_for, name))
            self.channels[name].on_recv(partial(self.handle_outgoing_message, name))
        self.channels["iopub"].on_recv(self._heard)

    @property
    def over(self) -> bool:
        """Whether there will be no kernel, unless it is restarted, and clients know what became of their cells."""
        return self._over_s is not None and time.monotonic() > self._over_s + MOURN_S

    async def at_gate(self, act: Callable[[Gate], None]) -> None:
        """Have something done at the gate, from another loop."""
        act(self.gate)

    async def close(self) -> None:
        """Answer what waits, and listen no more."""
        self._unlisten()
        self.gate.close(keep=False)
        self._flush()
        for stream in (*self._faces.values(), *self.channels.values()):
            stream.close(LINGER_MS)

    # ------------------------------------------------------------------ from clients
    def _asked_for(self, channel: str, frames: list[bytes]) -> None:
        try:
            who, parts = split(frames)
            self.session.deserialize(parts[:])  # whoever has no key asks for nothing
            header = self.session.unpack(parts[1])
            msg_id, kind = str(header["msg_id"]), str(header["msg_type"])
        except (ValueError, TypeError, KeyError) as err:
            log.warning("session %s: a message on its %s port was dropped: %s", self._kernel.kernel_id, channel, err)
            return
        if channel != "shell":
            self.channels[channel].send_multipart(frames[len(who) :])
            return
        self._asked[msg_id] = who
        while len(self._asked) > MAX_ASKED:
            self._asked.popitem(last=False)
        serving = self.gate.session.serving
        if kind == "execute_request":
            self.gate.submit(self, parts[1:])
            self._bury()
        elif kind == "kernel_info_request" and (not serving or self.gate.busy):
            self._introduce(header)  # who waits for it gives up after a minute, and the queue may take a night
        elif kind in messages.EMPTY_REPLIES and not serving:
            self.say("shell", kind.replace("_request", "_reply"), dict(messages.EMPTY_REPLIES[kind]), header)
            self.say("iopub", "status", {"execution_state": "idle"}, header)
        else:
            if kind == "kernel_info_request":
                self._infos[msg_id] = header
            self.channels["shell"].send_multipart(frames[len(who) :])

    def _introduce(self, header: dict[str, Any]) -> None:
        self.say("iopub", "status", {"execution_state": "busy"}, header)
        self.say("shell", "kernel_info_reply", messages.kernel_info(self._language), header)
        self.say("iopub", "status", {"execution_state": "idle"}, header)

    def _bury(self) -> None:
        """Nobody restarts a kernel here as a server does: cells for one that died would wait for ever."""
        if self._kernel.kernel_died:
            self.gate.give_up(messages.DIED, messages.DEAD_TEXT)

    def _told(self, kernel: Session) -> None:
        if not (kernel.ended or kernel.kernel_died):
            self._over_s = None
        elif self._over_s is None:
            self._over_s = time.monotonic()
        self._bury()
        if kernel.attached == self._attached:
            return
        self._attached = kernel.attached
        lost, self._infos = self._infos, {}
        for header in lost.values():  # a client would wait for ever for what the last kernel did not answer
            self._introduce(header)

    # ------------------------------------------------------------------ to clients
    def handle_outgoing_message(self, stream: Any, parts: list[Any]) -> None:
        """Pass on what the kernel answers or asks. ``stream``: the channel."""
        _, read = split(parts)
        self._send(stream, str(self.session.unpack(read[2]).get("msg_id", "")), parts)

    def say(self, channel: str, kind: str, content: Mapping[str, Any], parent: dict[str, Any]) -> None:
        """Send a message in the kernel's place."""
        message = self.session.msg(kind, content=dict(content), parent=parent)
        message["parent_header"] = parent
        if channel == "iopub":
            self._publish(self.session.serialize(message, ident=[f"kernel.gpufair.{kind}".encode()]))
        else:
            self._send(channel, str(parent.get("msg_id", "")), self.session.serialize(message))

    def _send(self, channel: str, msg_id: str, parts: list[Any]) -> None:
        self._infos.pop(msg_id, None)
        who = self._asked.get(msg_id)
        if channel == "shell":
            self._asked.pop(msg_id, None)
        if who is not None:
            self._faces[channel].send_multipart([*who, *parts])

    def _heard(self, frames: list[bytes]) -> None:
        _, parts = split(frames)
        if self._kernel.attached is not None:
            self.hears = True
        asks = ASK.encode() in parts[1]  # its supervisor, and nbclient logs an error for what it does not know
        if not self._ear.hear(self.gate, self.session, parts) and not asks:
            self._publish(frames)

    def _publish(self, frames: list[bytes]) -> None:
        self._out.append(frames)
        if not self._full:
            self._flush()

    def _flush(self) -> None:
        """Send what clients can take. While they can't, no more is taken from the kernel: nothing is dropped here."""
        socket = self._faces["iopub"].socket
        while self._out and not socket.closed:
            try:
                socket.send_multipart(self._out[0], zmq.NOBLOCK)
            except zmq.Again:
                if not self._full:
                    self._full = True
                    self.channels["iopub"].stop_on_recv()
                self._loop.call_later(FULL_AGAIN_S, self._flush)
                return
            self._out.popleft()
        if self._full and not socket.closed:
            self._full = False
            self.channels["iopub"].on_recv(self._heard)


class _Behind:
    """The kernel behind the relay, in the place of a kernel manager: all that a gate wants of one."""

    def __init__(self, kernel: Session) -> None:
        self.session = JupyterSession(key=kernel.key.encode())
        self.log = log
        self.execution_state = ""
        self._relay = kernel.relay

    def connect_shell(self, identity: bytes) -> ZMQStream:
        """A socket to it."""
        return _joined(zmq.DEALER, self._relay, "shell", identity)

    def connect_stdin(self, identity: bytes) -> ZMQStream:
        """A socket to it."""
        return _joined(zmq.DEALER, self._relay, "stdin", identity)

    def connect_control(self, identity: bytes) -> ZMQStream:
        """A socket to it."""
        return _joined(zmq.DEALER, self._relay, "control", identity)


def split(frames: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """To or from whom, and: signature, header, parent header, metadata, content, buffers.

    Raises: ValueError: It is no message of the protocol.
    """
    at = frames.index(DELIM)
    return frames[:at], frames[at + 1 :]


def _bound(kind: int) -> ZMQStream:
    socket: Any = zmq.Context.instance().socket(kind)
    if kind == zmq.ROUTER:
        socket.router_handover = True  # a client that connects again is the same one
    else:
        socket.setsockopt(zmq.XPUB_NODROP, 1)
    socket.bind(f"tcp://{HOST}:0")
    return ZMQStream(socket)


def _port(socket: Any) -> int:
    return int(socket.last_endpoint.decode().rpartition(":")[2])


def _joined(kind: int, relay: Relay, channel: str, identity: bytes | None = None) -> ZMQStream:
    socket: Any = zmq.Context.instance().socket(kind)
    socket.linger = 0
    if identity is not None:
        socket.identity = identity
    if kind == zmq.SUB:
        socket.subscribe(b"")
    socket.connect(f"tcp://{relay.host}:{relay.ports[channel]}")
    return ZMQStream(socket)
