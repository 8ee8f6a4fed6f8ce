"""A gate, and around it as much of Jupyter, of a session and of a kernel as it looks at."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from jupyter_client.session import Session as JupyterSession

from gpufair.client import Workload
from jupyter_gpufair.held import Gate
from jupyter_gpufair.held_file import HeldFile, held_folder

BOUND_S = 5.0


class Stream:
    """A zmq stream that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[list[bytes]] = []
        self.socket = self
        self.linger = 0
        self.over = False
        self.receive: Any = None

    def send_multipart(self, parts: list[bytes], *_: Any, **__: Any) -> None:
        assert not self.over
        self.sent.append(parts)

    def on_recv(self, receive: Any) -> None:
        self.receive = receive

    def flush(self, flag: int) -> None:
        assert not self.over

    def close(self, linger: int = 0) -> None:
        self.over = True

    def closed(self) -> bool:
        return self.over


class Manager:
    """A kernel manager that hands out such streams."""

    def __init__(self) -> None:
        self.session = JupyterSession(key=b"k")
        self.streams: list[tuple[str, Stream]] = []
        self.execution_state = "busy"
        self.log = logging.getLogger("test")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("connect_"):
            raise AttributeError(name)

        def connect(identity: bytes) -> Stream:
            self.streams.append((name.removeprefix("connect_"), Stream()))
            return self.streams[-1][1]

        return connect

    def shells(self) -> list[Stream]:
        return [stream for name, stream in self.streams if name == "shell"]


class FakeSession:
    """As much of a session as a gate looks at."""

    def __init__(self, state: str = "queued") -> None:
        self.kernel_id = "k"
        self.workload = Workload("k", state)
        self.attached: tuple[int, int] | None = None
        self.kernel_died = False
        self.ended = False
        self.tell: Any = None
        self.record: list[dict[str, Any]] = []
        self.resumed = 0

    async def ask(self, _verb: object) -> list[dict[str, Any]]:
        """What the record says."""
        return list(self.record)

    async def resume(self) -> None:
        self.resumed += 1

    @property
    def state(self) -> str:
        return self.workload.state

    @property
    def serving(self) -> bool:
        return self.state == "running" and self.attached is not None

    def listen(self, listener: Any, loop: object) -> Any:
        self.tell = lambda: listener(self)
        return lambda: None

    def becomes(self, state: str, attached: tuple[int, int] | None = None, **more: Any) -> None:
        self.workload, self.attached = replace(self.workload, state=state, **more), attached
        self.tell()


class Client:
    """A websocket connection."""

    def __init__(self) -> None:
        self.session = JupyterSession(session="client")
        self.hears = True
        self.channels = {"shell": 1}
        self.said: list[tuple[str, str, dict[str, Any], str]] = []
        self.got: list[tuple[str, list[bytes]]] = []

    def say(self, channel: str, kind: str, content: dict[str, Any], parent: dict[str, Any]) -> None:
        self.said.append((channel, kind, content, parent.get("msg_id", "")))

    def handle_outgoing_message(self, channel: str, parts: list[bytes]) -> None:
        self.got.append((channel, parts))

    def replies(self) -> list[tuple[str, dict[str, Any]]]:
        return [(msg_id, content) for channel, _, content, msg_id in self.said if channel == "shell"]


class World:
    """A gate with a client, in a running loop."""

    def __init__(self, state: str = "queued") -> None:
        self.km, self.session, self.client = Manager(), FakeSession(state), Client()
        kept = HeldFile(held_folder(), "k")
        self.gate = Gate(self.km, self.session, kept)  # type: ignore[arg-type]  # as much of one as is used
        self.gate.join(self.client)
        self.count = 0

    def cell(self, code: str = "1", **content: Any) -> str:
        self.count += 1
        header = {"msg_id": f"m{self.count}", "msg_type": "execute_request", "session": "client"}
        pack = self.km.session.pack
        parts = [pack(header), b"{}", b"{}", pack({"code": code, **content})]
        self.gate.submit(self.client, parts)
        return f"m{self.count}"

    def sent(self) -> list[str]:
        """Ids of the cells that reached a kernel."""
        return [msg_id for msg_id in self.requests() if len(msg_id) < 10]  # others are questions of the gate itself

    def requests(self) -> list[str]:
        """Ids of all that reached a kernel's shell channel, in order."""
        unpack = self.km.session.unpack
        return [str(unpack(parts[2])["msg_id"]) for shell in self.km.shells() for parts in shell.sent]

    async def answer_questions(self, *, recorded: bool = True) -> None:
        """The kernel answers what a gate asks to learn whether all before it has begun."""
        for count in (1, 2):
            await self.until(lambda count=count: len(self.requests()) == count)
            question = self.requests()[-1]
            if recorded:
                self.session.record.append({"msg_id": question, "status": "ok", "state": "done"})
            self.answer(question)

    def answer(self, msg_id: str, **content: Any) -> None:
        """The kernel replies."""
        reply = self.km.session.msg(
            "execute_reply", {"status": "ok", **content}, parent={"msg_id": msg_id, "session": "client"}
        )
        self.km.shells()[-1].receive(self.km.session.serialize(reply))

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(BOUND_S):
            while not true():
                await asyncio.sleep(0.005)
