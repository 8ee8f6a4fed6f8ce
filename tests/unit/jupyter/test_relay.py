"""The relay: five ports that stay, whoever is behind them."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from jupyter_gpufair import relay as module
from jupyter_gpufair.relay import CHANNELS, Relay

BOUND_S = 10.0


class Upstream:
    """A kernel of five ports that echoes, with its name before each connection's first byte."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.servers: dict[str, asyncio.Server] = {}
        self.connection: dict[str, object] = {"ip": "127.0.0.1"}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, connection: dict[str, object] | None = None) -> Upstream:
        for channel in CHANNELS:
            port = int(str(connection[f"{channel}_port"])) if connection else 0
            server = await asyncio.start_server(self._echo, "127.0.0.1", port)
            self.servers[channel] = server
            self.connection[f"{channel}_port"] = server.sockets[0].getsockname()[1]
        return self

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self.name)
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def stop(self) -> None:
        for server in self.servers.values():
            server.close()


@asynccontextmanager
async def opened() -> AsyncIterator[Relay]:
    relay = Relay(asyncio.get_running_loop())
    relay.start()
    try:
        yield relay
    finally:
        relay.close()


def with_relay(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Give a test an open relay. (The plugin that runs async tests here has no async fixtures.)"""

    @functools.wraps(test)
    async def run(**others: Any) -> None:
        async with opened() as relay:
            await test(relay, **others)

    signature = inspect.signature(test)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]  # pytest must not look for a fixture "relay"
        parameters=[given for name, given in signature.parameters.items() if name != "relay"]
    )
    return run


async def dial(relay: Relay, channel: str = "shell") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", relay.ports[channel])


async def read(reader: asyncio.StreamReader, count: int) -> bytes:
    return await asyncio.wait_for(reader.readexactly(count), BOUND_S)


@with_relay
async def test_all_channels_reach_the_kernel(relay: Relay) -> None:
    upstream = await Upstream(b"one").start()
    relay.attach(upstream.connection, (1, 1))
    for channel in CHANNELS:
        reader, writer = await dial(relay, channel)
        writer.write(b"hello")
        assert await read(reader, 8) == b"onehello"
        writer.close()
    await upstream.stop()


@with_relay
async def test_held_connections_are_joined_later(relay: Relay) -> None:
    """Accepted, not refused: a zmq socket waits in peace. What it said first arrives."""
    reader, writer = await dial(relay)
    writer.write(b"greeting..")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    assert len(relay.links) == 1
    upstream = await Upstream(b"one").start()
    relay.attach(upstream.connection, (1, 1))
    assert await read(reader, 13) == b"onegreeting.."
    writer.close()
    await upstream.stop()


@with_relay
async def test_a_move_keeps_the_ports_and_aborts_connections(relay: Relay) -> None:
    """Nothing said to the old kernel may reach the new one."""
    ports = dict(relay.ports)
    one, two = await Upstream(b"one").start(), await Upstream(b"two").start()
    relay.attach(one.connection, (1, 1))
    reader, writer = await dial(relay)
    assert await read(reader, 3) == b"one"
    relay.detach()
    assert not relay.attached
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), BOUND_S) == b""
    writer.close()
    reader, writer = await dial(relay)
    relay.attach(two.connection, (2, 1))
    assert await read(reader, 3) == b"two"
    assert relay.ports == ports
    # The same generation again is the same kernel: connections stay.
    relay.attach(two.connection, (2, 1))
    writer.write(b"still")
    assert await read(reader, 5) == b"still"
    writer.close()
    await one.stop()
    await two.stop()


@with_relay
async def test_a_kernel_may_bind_late(relay: Relay) -> None:
    """It reports its ports a moment before it listens there."""
    first = await Upstream(b"x").start()
    connection = dict(first.connection)
    await first.stop()
    relay.attach(connection, (1, 1))
    reader, writer = await dial(relay)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)
    late = await Upstream(b"late").start(connection)
    assert await read(reader, 4) == b"late"
    writer.close()
    await late.stop()


@with_relay
async def test_both_ends_learn_that_the_other_is_gone(relay: Relay) -> None:
    upstream = await Upstream(b"one").start()
    relay.attach(upstream.connection, (1, 1))
    reader, writer = await dial(relay)
    await read(reader, 3)
    writer.close()
    async with asyncio.timeout(BOUND_S):
        while relay.links:
            await asyncio.sleep(0.01)
    await upstream.stop()


@with_relay
async def test_a_held_client_that_leaves_is_forgotten(relay: Relay) -> None:
    """zmq gives up a handshake after 30 s and dials again: a long park must not use up descriptors."""
    for _ in range(3):
        _, writer = await dial(relay)
        writer.write(b"0123456789")
        await writer.drain()
        writer.close()
    async with asyncio.timeout(BOUND_S):
        await asyncio.sleep(0.05)
        while relay.links:
            await asyncio.sleep(0.01)


@with_relay
async def test_a_held_client_may_not_fill_memory(relay: Relay) -> None:
    reader, writer = await dial(relay)
    writer.write(b"x" * (module.GREETING_LIMIT + 1))
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), BOUND_S) == b""
    assert not relay.links
    writer.close()


@with_relay
async def test_connections_are_bounded(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINKS", 2)
    kept = [await dial(relay), await dial(relay)]
    reader, writer = await dial(relay)
    with suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), BOUND_S) == b""
    assert len(relay.links) == 2
    for _, other in [*kept, (reader, writer)]:
        other.close()


@pytest.mark.parametrize("slow", [False, True])
@with_relay
async def test_many_bytes_arrive_in_order(relay: Relay, slow: bool) -> None:
    """64 MB there and back, also through a reader that dawdles: the relay waits, it does not hoard."""
    upstream = await Upstream(b"").start()
    relay.attach(upstream.connection, (1, 1))
    reader, writer = await dial(relay)
    block = os.urandom(1 << 20)
    blocks = 64
    sent, got = hashlib.sha256(), hashlib.sha256()

    async def send() -> None:
        for number in range(blocks):
            piece = number.to_bytes(4) + block[4:]
            sent.update(piece)
            writer.write(piece)
            await writer.drain()

    async def receive() -> None:
        for number in range(blocks):
            got.update(await read(reader, len(block)))
            if slow and number < 20:
                await asyncio.sleep(0.02)

    await asyncio.gather(send(), receive())
    assert got.digest() == sent.digest()
    writer.close()
    await upstream.stop()


@with_relay
async def test_close_frees_the_ports(relay: Relay) -> None:
    relay.close()
    for port in relay.ports.values():
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
