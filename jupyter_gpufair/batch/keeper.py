"""Checkpoints of the kernel of a batch notebook: one after each cell, named by the cell, the newest of which counts."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

from jupyter_client.asynchronous.client import AsyncKernelClient

from gpufair.client.notebooks import KEY
from gpufair.core.errors import GpufairError
from gpufair.node import checkpoint

_NAME = re.compile(r"cell-(\d+)-\d+")
_LIMIT_S = 1800.0
_PROBE_S = 5.0


class NotKept(GpufairError):
    """A checkpoint could not be taken, or not be restored."""


class Keeper:
    """Of one job.

    Args:
        folder: The folder of the job.
    """

    def __init__(self, folder: Path) -> None:
        self._directory = folder / "checkpoints"
        self._key_file = folder / KEY
        self._key = bytes.fromhex(self._key_file.read_text().strip())
        self._sequence = 0
        self._taken: list[str] = []

    def newest(self) -> tuple[str, int] | None:
        """The last good checkpoint, and how many cells are finished with it."""
        if not self._directory.is_dir():
            return None
        found = checkpoint.latest(str(self._directory), self._key)
        if found is None:
            return None
        self._sequence = found.sequence
        named = _NAME.fullmatch(found.id)
        return (found.id, int(named[1])) if named else None

    async def knows(self, client: AsyncKernelClient) -> bool:
        """Whether the kernel can be checkpointed: it answers to our messages, or passes over them."""
        try:
            await _ask(client, "gpufair_notice_request", {"text": "", "deadline_s": None}, _PROBE_S)
        except TimeoutError:
            return False
        return True

    async def save(self, client: AsyncKernelClient, finished: int) -> dict[str, Any]:
        """Make ``finished`` cells durable. What the checkpoint does not hold is in the reply.

        Raises:
            NotKept: With the kernel's reason. Earlier checkpoints are whole.
        """
        self._sequence += 1
        name = f"cell-{finished:05d}-{self._sequence}"
        reply = await self._do(client, "checkpoint", name, sequence=self._sequence)
        self._taken.append(name)
        # The one before stays until this one has a successor: the last good one survives whatever happens to this.
        if len(self._taken) > 2:
            await asyncio.to_thread(checkpoint.prune, str(self._directory), self._key, keep=2)
            del self._taken[:-2]
        return reply

    async def restore(self, client: AsyncKernelClient, name: str) -> dict[str, Any]:
        """Load a checkpoint into the kernel.

        Raises:
            NotKept: With the kernel's reason.
        """
        return await self._do(client, "restore", name)

    async def _do(self, client: AsyncKernelClient, what: str, name: str, **more: int) -> dict[str, Any]:
        asked = {"directory": str(self._directory), "id": name, "key_file": str(self._key_file), "wait_s": 60.0, **more}
        try:
            reply = await _ask(client, f"gpufair_{what}_request", asked, _LIMIT_S)
        except TimeoutError:
            raise NotKept(f"the kernel did not finish its {what} in half an hour") from None
        if reply.get("status") != "ok":
            raise NotKept(str(reply.get("reason", "the kernel gave no reason")))
        return reply


async def _ask(client: AsyncKernelClient, kind: str, content: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Ask over the control channel. Raises: TimeoutError: No answer in time."""
    message = client.session.msg(kind, content)
    client.control_channel.send(message)
    end = time.monotonic() + limit_s
    while (left := end - time.monotonic()) > 0:
        try:
            reply = await client.control_channel.get_msg(timeout=left)
        except Exception as err:  # queue.Empty, of which module depends on the version
            if type(err).__name__ != "Empty":
                raise
            continue
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            found: dict[str, Any] = reply["content"]
            return found
    raise TimeoutError
