"""What plain clients find in the place of a kernel: answers while there is none, no strangers, and every output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.session import Session as JupyterSession

from jupyter_gpufair.front import Front
from jupyter_gpufair.relay import CHANNELS, Relay
from tests.unit.jupyter.gate_world import FakeSession

BOUND_S = 30.0
KINDS = {"shell": zmq.ROUTER, "stdin": zmq.ROUTER, "control": zmq.ROUTER, "iopub": zmq.XPUB, "hb": zmq.REP}


class Place:
    """A front, and who is before and behind it."""

    def __init__(self) -> None:
        self.context = zmq.asyncio.Context()
        session: Any = FakeSession()
        self.session = session
        self.session.key = "secret"
        self.session.relay = Relay(asyncio.get_running_loop())
        self.session.relay.start()
        self.front = Front(self.session, "julia")
        self.speech = JupyterSession(key=b"secret", session="client")
        self.shell = self.client(zmq.DEALER, "shell")
        self.iopub = self.client(zmq.SUB, "iopub")
        self.kernel = {channel: self.context.socket(kind) for channel, kind in KINDS.items()}
        self.kernel["iopub"].sndhwm = 0
        self.connection: dict[str, Any] = {"ip": "127.0.0.1"} | {
            f"{channel}_port": self.kernel[channel].bind_to_random_port("tcp://127.0.0.1") for channel in CHANNELS
        }

    def client(self, kind: int, channel: str) -> zmq.asyncio.Socket:
        socket = self.context.socket(kind)
        if kind == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(f"tcp://127.0.0.1:{self.front.ports[channel]}")
        return socket

    def serve(self) -> None:
        """A kernel is there."""
        self.session.relay.attach(self.connection, (1, 1))
        self.session.becomes("running", (1, 1))

    async def ask(self, kind: str, key: bytes = b"secret", **content: Any) -> str:
        speech = JupyterSession(key=key, session="client")
        message = speech.msg(kind, content=content)
        await self.shell.send_multipart(speech.serialize(message))
        return str(message["header"]["msg_id"])

    async def answer(self) -> tuple[str, str, dict[str, Any]]:
        """(kind, request, content) of the next answer to the client."""
        frames = await asyncio.wait_for(self.shell.recv_multipart(), BOUND_S)
        _, _, header, parent, _, content = frames
        return json.loads(header)["msg_type"], json.loads(parent)["msg_id"], json.loads(content)


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    made = Place()
    try:
        yield made
    finally:
        await made.front.close()
        made.session.relay.close()
        made.context.destroy(linger=0)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not true():
            await asyncio.sleep(0.01)


async def test_it_introduces_itself_for_a_kernel_that_is_not_there() -> None:
    """A client that gets no answer gives up after a minute, and a queue may be longer."""
    async with place() as here:
        msg_id = await here.ask("kernel_info_request")
        kind, request, content = await here.answer()
        assert (kind, request, content["language_info"]["name"]) == ("kernel_info_reply", msg_id, "julia")


async def test_a_kernel_that_goes_away_leaves_no_question_open() -> None:
    """nbclient asks once for the language, and waits without a limit."""
    async with place() as here:
        here.serve()
        await until(lambda: here.front.gate.session.serving)
        msg_id = await here.ask("kernel_info_request")
        asked = await asyncio.wait_for(here.kernel["shell"].recv_multipart(), BOUND_S)
        assert json.loads(asked[3])["msg_id"] == msg_id
        here.session.relay.detach()
        here.session.becomes("queued", None)
        kind, request, _ = await here.answer()
        assert (kind, request) == ("kernel_info_reply", msg_id)


async def test_who_has_no_key_is_not_answered() -> None:
    """Its ports are open to every account of the machine."""
    async with place() as here:
        await here.ask("execute_request", key=b"guessed", code="1")
        await here.shell.send_multipart([b"no", b"message"])
        msg_id = await here.ask("kernel_info_request")
        assert (await here.answer())[1] == msg_id
        assert not here.front.gate.cells()


async def test_cells_for_a_dead_kernel_are_refused() -> None:
    """Nobody restarts it, so they would wait for ever."""
    async with place() as here:
        here.serve()
        here.session.kernel_died = True
        here.session.becomes("running", None)
        msg_id = await here.ask("execute_request", code="1")
        kind, request, content = await here.answer()
        assert (kind, request, content["ename"]) == ("execute_reply", msg_id, "KernelDied")


async def test_a_slow_client_misses_nothing() -> None:
    """More messages than sockets hold: the kernel's wait, for nobody else would say them again."""
    count = 5000
    async with place() as here:
        here.serve()
        kernel = here.kernel["iopub"]
        heard = asyncio.ensure_future(here.iopub.recv_multipart())
        n = 0
        while not heard.done():  # until both subscriptions are there
            await kernel.send_multipart(here.speech.serialize(here.speech.msg("stream", {"text": "first"})))
            await asyncio.sleep(0.02)
        for n in range(count):
            await kernel.send_multipart(here.speech.serialize(here.speech.msg("stream", {"text": f"{n:08}" + "x" * 1000})))
        await asyncio.sleep(0.5)  # it does something else meanwhile
        texts: list[str] = []
        while not texts or not texts[-1].startswith(f"{n:08}"):
            frames = await asyncio.wait_for(here.iopub.recv_multipart(), BOUND_S)
            texts.append(json.loads(frames[-1])["text"])
        assert [text[:8] for text in texts if text != "first"] == [f"{n:08}" for n in range(count)]
