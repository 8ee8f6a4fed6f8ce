"""Until when an agent works: a node's for ever, a pod's until its one workload has ended."""

from __future__ import annotations

import asyncio
from typing import Any

from gpufair.wire import Command


class Life:
    """What an agent tells of its course, and asks. This one is a node's: it ends with the agent's linger time only."""

    def answered(self) -> None:
        """A service has answered a hello, and is the right one."""

    def unanswered(self, error: Exception) -> None:
        """The conversation with the service has failed."""

    def refuses(self, command: Command) -> str:
        """Why this ``start`` is not for this agent; "": it is."""
        return ""

    def ended(self, key: tuple[str, int], kind: str, body: dict[str, Any]) -> None:
        """The last report about a workload (``kind`` is a terminal one) is acknowledged."""

    async def over(self) -> None:
        """Return when there is nothing to do any more."""
        await asyncio.get_running_loop().create_future()
