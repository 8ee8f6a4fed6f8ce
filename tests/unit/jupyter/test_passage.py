"""Between machines: bytes arrive whole and in order, and nothing is said to the wrong machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from gpufair.node.certificates import certificate
from gpufair.node.tunnel import CHANNELS, Tunnel, TunnelFailed, TunnelOptions
from jupyter_gpufair.passage import Passage

KEY = "ab" * 32


def options(folder: Path, **changes: Any) -> TunnelOptions:
    made = certificate(folder, "node")
    return TunnelOptions(
        **{"listen": "127.0.0.1", "host": "127.0.0.1", "certificate": str(made.certificate), "key": str(made.key)} | changes
    )


@asynccontextmanager
async def kernel() -> AsyncIterator[tuple[dict[str, Any], list[bytes]]]:
    """Something on loopback that sends back what it gets; and what it got."""
    heard: list[bytes] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            heard.append(data)
            writer.write(data)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield {f"{channel}_port": port for channel in CHANNELS}, heard


async def test_what_is_sent_on_either_side_arrives(tmp_path: Path) -> None:
    """More than any buffer holds, on several connections at once."""
    async with kernel() as (ports, _):
        tunnel = Tunnel(options(tmp_path), KEY, lambda: ports)
        passage = Passage("w", KEY, await tunnel.start())
        near = await passage.open()

        async def talk(channel: str, text: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", near[f"{channel}_port"])
            sending = asyncio.create_task(send(writer, text))
            answer = await asyncio.wait_for(reader.readexactly(len(text)), 60)
            await sending
            writer.close()
            return answer

        texts = [(channel, channel.encode() * 400_000) for channel in sorted(CHANNELS)]
        assert await asyncio.gather(*(talk(*one) for one in texts)) == [text for _, text in texts]
        passage.close()
        await tunnel.close()


async def send(writer: asyncio.StreamWriter, text: bytes) -> None:
    writer.write(text)
    await writer.drain()


@pytest.mark.parametrize("wrong", ["machine", "key"])
async def test_nothing_passes_where_something_is_wrong(tmp_path: Path, wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    async with kernel() as (ports, heard):
        tunnel = Tunnel(options(tmp_path), KEY, lambda: ports)
        via = await tunnel.start()
        passage = (
            Passage("w", KEY, via | {"fingerprint": "0" * 64}) if wrong == "machine" else Passage("w", "cd" * 32, via)
        )
        near = await passage.open()
        reader, writer = await asyncio.open_connection("127.0.0.1", near["shell_port"])
        writer.write(b"print('secret')")
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(1), 30) == b""
        writer.transport.abort()
        assert heard == []
        assert ("shows another certificate" in caplog.text) == (wrong == "machine")
        passage.close()
        await tunnel.close()


async def test_a_kernel_that_is_gone_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Sockets of ZMQ try again many times a second."""
    caplog.set_level("INFO")
    async with kernel() as (ports, _):
        tunnel = Tunnel(options(tmp_path), KEY, lambda: ports)
        via = await tunnel.start()
        await tunnel.close()
    passage = Passage("w", KEY, via)
    near = await passage.open()
    for _ in range(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", near["shell_port"])
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(1), 30) == b""
        writer.transport.abort()
    assert caplog.text.count("the way to its kernel broke") == 1
    passage.close()


async def test_ports_are_taken_from_where_they_may_be(tmp_path: Path) -> None:
    async with kernel() as (ports, _):
        taken = ports["shell_port"]
        tunnel = Tunnel(options(tmp_path, ports=(taken, taken + 50)), KEY, lambda: ports)
        assert taken < (await tunnel.start())["port"] <= taken + 50
        await tunnel.close()
        with pytest.raises(TunnelFailed, match="no port for other machines"):
            await Tunnel(options(tmp_path, ports=(taken, taken)), KEY, lambda: ports).start()
        with pytest.raises(TunnelFailed):
            await Tunnel(options(tmp_path, certificate=str(tmp_path / "none")), KEY, lambda: ports).start()
