"""What an operator puts in front of two services: connections go to the one that is ready."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress

import httpx

_CHUNK = 1 << 16


class Front(threading.Thread):
    """Passes on what comes to ``port``, until ``over`` is called."""

    def __init__(self, port: int, services: Sequence[str]) -> None:
        super().__init__(name="front", daemon=True)
        self.address = f"http://127.0.0.1:{port}"
        self._port, self._services = port, services
        self._over: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._up = threading.Event()

    def run(self) -> None:
        """Serve."""
        asyncio.run(self._until_over())

    def over(self) -> None:
        """End it."""
        if self.is_alive() and self._up.wait(10) and self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self.join()

    async def _until_over(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._up.set()
        await self._over.wait()
        server.close()  # what it still passes on is cancelled with the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            if (service := await self._ready()) is not None:
                far, back = await asyncio.open_connection(service.host, service.port)
                ends.append(back)
                await asyncio.wait(
                    {asyncio.create_task(_pass_on(reader, back)), asyncio.create_task(_pass_on(far, writer))},
                    return_when=asyncio.FIRST_COMPLETED,
                )
        except OSError:
            pass  # it is gone again; who asked tries anew
        finally:
            for end in ends:
                end.close()

    async def _ready(self) -> httpx.URL | None:
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as client:
            for service in self._services:
                with suppress(httpx.TransportError):
                    if (await client.get(f"{service}/readyz")).status_code == 200:
                        return httpx.URL(service)
        return None


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
