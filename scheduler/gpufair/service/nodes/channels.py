"""The service's end of each agent: a numbered line of commands, who polls it, and when the agent was last heard.

Commands live in memory only. A restarted service (or agent) begins with a hello, and what is still due is then found
again from the state; so nothing here needs to survive.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from gpufair.core.units import Instant
from gpufair.service.problems import HelloFirst
from gpufair.wire import Command

# Repeating one of these within an incarnation is the same command; the others are asked for anew each time.
ONCE = frozenset({"start", "preempt", "stop"})


@dataclass(slots=True)
class Channel:
    """One agent. ``boot`` "" = not heard of since this service started."""

    node: str
    boot: str = ""
    hellos: int = 0  # counted: what was concluded from one says nothing any more after the next
    seq: int = 0  # of the last command
    line: deque[Command] = field(default_factory=deque)
    last_seen: Instant | None = None
    acked: int = 0  # last report of this boot that is durable
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    once: set[tuple[str, int, str]] = field(default_factory=set)
    strays: set[tuple[str, int]] = field(default_factory=set)  # run there, should not, and are being killed
    problems: tuple[str, ...] = ()  # of the machine, as the agent says
    skew_s: float | None = None  # of its clock, ahead of ours
    version: str = ""  # of the agent

    def send(self, kind: str, workload: str, incarnation: int, args: dict[str, Any] | None = None) -> None:
        """Add a command to the line. What was sent since the last hello and needs sending only once is left out."""
        key = (workload, incarnation, kind)
        if kind in ONCE:
            if key in self.once:
                return
            self.once.add(key)
        if kind == "stop":
            # What has not been fetched yet need not begin.
            self.line = deque(command for command in self.line if not _overtaken(command, workload, incarnation))
        self.seq += 1
        self.line.append(Command(self.seq, kind, workload, incarnation, args or {}))
        self.arrived.set()

    def hello(self, boot: str, strays: Iterable[tuple[str, int]] = ()) -> int:
        """A boot begins: forget what the former one was told. Returns the number to poll from."""
        self.boot = boot
        self.hellos += 1
        self.strays = set(strays)
        self.acked = 0
        self.line.clear()
        self.once.clear()
        self.arrived.set()  # a poll of a former boot ends now
        return self.seq

    def ended(self, workload: str, incarnation: int) -> None:
        """Something ended there."""
        if (workload, incarnation) in self.strays:
            self.strays.discard((workload, incarnation))
            self.arrived.set()

    def _ready(self, after: int) -> list[Command]:
        """What may be done now. While strays hold GPUs a start would find too few: it waits, and what follows it."""
        ready: list[Command] = []
        for command in self.line:
            if self.strays and command.kind == "start":
                break
            if command.seq > after:
                ready.append(command)
        return ready

    def require(self, boot: str) -> None:
        """Refuse a boot that did not say hello.

        Raises:
            HelloFirst: It did not, or another one did since.
        """
        if not boot or boot != self.boot:
            raise HelloFirst

    async def poll(self, after: int, boot: str, wait_s: float) -> list[Command]:
        """Commands after number ``after``, which acknowledges the earlier ones; waits up to ``wait_s`` for one.

        Raises:
            HelloFirst: The boot is not the current one (any more).
        """
        self.require(boot)
        while self.line and self.line[0].seq <= after:
            self.line.popleft()
        try:
            async with asyncio.timeout(wait_s):
                while not self._ready(after):
                    self.arrived.clear()
                    await self.arrived.wait()
                    self.require(boot)
        except TimeoutError:
            return []
        return self._ready(after)


def _overtaken(command: Command, workload: str, incarnation: int) -> bool:
    # A start that may be on its way stays: the agent must see it before the stop, or it would start afterwards.
    return command.workload == workload and command.incarnation == incarnation and command.kind != "start"
