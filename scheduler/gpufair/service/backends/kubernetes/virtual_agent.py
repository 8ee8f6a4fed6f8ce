"""The agent of a node of the cluster, which has none: it says hello, takes commands and reports, in the service itself.

What it "runs" are pods. The protocol is that of all agents, so restarts, losses, gangs and strays are as with them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from gpufair.core.errors import GpufairError
from gpufair.service.backends.kubernetes.life import Life
from gpufair.service.nodes.agents import AgentHub
from gpufair.service.nodes.reports import TERMINAL
from gpufair.service.problems import HelloFirst, UnknownPod
from gpufair.service.workloads.asked import Closed
from gpufair.wire import API_VERSION, AgentHello, Command, NodeInventory, Report

AGAIN_S: Final = 0.5
PATIENCE_S: Final = 10.0  # of a pod that reports while its node is being agreed upon
_log = logging.getLogger(__name__)


class VirtualAgent:
    """Of one node of the core.

    Args:
        node: Its name.
        begin: Makes a life for a start that is new.
        heed: Has what pods have left behind, of which none of these lives knows, given to ``last_words``.
    """

    def __init__(
        self,
        node: str,
        hub: AgentHub,
        begin: Callable[[VirtualAgent, Command], Life],
        heed: Callable[[VirtualAgent], Awaitable[None]],
    ) -> None:
        self.node: Final = node
        self.lives: Final[dict[tuple[str, int], Life]] = {}
        self._hub, self._begin, self._heed = hub, begin, heed
        self._over: set[tuple[str, int]] = set()  # have said their last words
        self._boot, self._seq = "", 0
        self._aside: set[asyncio.Task[None]] = set()
        self._there, self._greeted = asyncio.Event(), asyncio.Event()

    @property
    def there(self) -> bool:
        """Whether its node is."""
        return self._there.is_set()

    @property
    def greeted(self) -> bool:
        """Whether it has been agreed with the core how the node is, and what runs there."""
        return self._greeted.is_set()

    def join(self, life: Life) -> None:
        """A pod of its node was found. If nothing was said of it at the last hello, nobody expects it."""
        self.lives[life.workload] = life
        if self._greeted.is_set():
            life.abandon()

    def back(self) -> None:
        """Its node is there (again)."""
        self._there.set()

    def lost(self) -> None:
        """Its node is lost, and the core knows: whatever runs there yet is to go."""
        self._there.clear()
        self._greeted.clear()
        for life in list(self.lives.values()):
            life.abandon()

    async def run(self) -> None:
        """Speak with the hub until cancelled."""
        while True:
            await self._there.wait()
            try:
                await self._converse()
            except HelloFirst:
                _log.info("node %s has to say what it runs once more", self.node)
            except Closed:
                return
            except GpufairError as err:
                _log.warning("node %s: %s", self.node, err)
            self._greeted.clear()
            await asyncio.sleep(AGAIN_S)

    async def _converse(self) -> None:
        self._boot, self._seq = secrets.token_hex(8), 0
        boot, said = self._boot, tuple(sorted(self.lives))
        hello = AgentHello(API_VERSION, boot, NodeInventory(self.node), said)
        answer: dict[str, Any] = await self._hub.hello(self.node, hello, again=True)
        after = int(answer["after"])
        expected = {(str(workload), int(incarnation)) for workload, incarnation in answer["expected"]}
        for key in said:
            life = self.lives.get(key)
            if life is None:  # it was over before this hello, and nobody took its word
                await self._hub.gone(self.node, boot, *key)
            elif key not in expected:
                life.abandon()
        await self._heed(self)
        # Those that are up need no start, and are to hear what is repeated; the others get theirs, and only then come in.
        coming = await self._hub.coming(self.node)
        for key, life in self.lives.items():
            if key not in coming:
                life.welcome()
        self._greeted.set()
        while True:
            after = self._carry_out(await self._hub.commands(self.node, after, boot), after)

    def _carry_out(self, commands: Sequence[Command], after: int) -> int:
        for command in commands:
            after = max(after, command.seq)
            key = (command.workload, command.incarnation)
            life = self.lives.get(key)
            if command.kind == "start":
                if life is None and key in self._over:
                    continue  # it has run, and is over: the hub has heard that since it said so
                if life is None:
                    life = self.lives[key] = self._begin(self, command)
                life.begin(command)
            elif life is not None:
                life.obey(command)
            elif command.kind in {"stop", "preempt"}:
                self._aside = {one for one in self._aside if not one.done()}
                self._aside.add(asyncio.create_task(self._nothing_here(command)))
        return after

    async def _nothing_here(self, command: Command) -> None:
        try:
            await self._hub.gone(self.node, self._boot, command.workload, command.incarnation)
        except GpufairError as err:  # the next hello settles it
            _log.info("node %s: %s", self.node, err)

    # -- what is reported -----------------------------------------------------------------------------------------

    async def pass_on(self, pod: str, reports: Sequence[Report]) -> None:
        """Reports of a pod are those of its node; what it says at its end is kept until it has ended.

        Raises:
            UnknownPod: Its node is not agreed upon; it has to say it again.
            GpufairError: They could not be journalled; likewise.
        """
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._greeted.wait()
        except TimeoutError:
            raise UnknownPod(pod) from None
        news: list[Report] = []
        for report in reports:
            if report.kind not in TERMINAL:
                news.append(report)
                continue
            await self._send(news)
            news = []
            await self._hub.final_word(self.node, self._boot, report)
        await self._send(news)

    async def last_words(self, reports: Sequence[Report]) -> None:
        """Of a pod that is gone. Raises ``GpufairError`` where they could not be kept."""
        await self._send(reports)
        self._over |= {(one.workload, one.incarnation) for one in reports if one.kind in TERMINAL}

    async def report(self, key: tuple[str, int], kind: str, body: dict[str, Any]) -> bool:
        """Report of its own. False: its node is lost, and nobody wants to hear it. Tried until it is durable."""

        async def say() -> None:
            await self._send([Report(0, time.time(), kind, *key, body)])

        return await self._insist(say)

    async def gone(self, key: tuple[str, int], why: str = "") -> bool:
        """Report that a workload runs here no more, and left no word. As with ``report``."""
        return await self._insist(lambda: self._hub.gone(self.node, self._boot, *key, why))

    async def _insist(self, say: Callable[[], Any]) -> bool:
        while self.there:
            if not self._greeted.is_set():
                await asyncio.sleep(AGAIN_S / 10)
                continue
            try:
                await say()
            except Closed:
                # The service ends, and the next one has to find what is not told yet: nothing may go on from here.
                await asyncio.get_running_loop().create_future()
            except GpufairError as err:
                _log.info("node %s: %s", self.node, err)
                await asyncio.sleep(AGAIN_S)
            else:
                return True
        return False

    async def _send(self, reports: Sequence[Report]) -> None:
        if not reports:
            return
        numbered = []
        for report in reports:
            self._seq += 1
            numbered.append(Report(self._seq, report.at_s, report.kind, report.workload, report.incarnation, report.body))
        await self._hub.reports(self.node, self._boot, numbered)
