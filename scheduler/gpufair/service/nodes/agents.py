"""Agents as the service sees them: hello, commands, reports, silence. This is where decisions meet what really runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any

from gpufair.core import events as ev
from gpufair.core.actions import Action
from gpufair.core.errors import GpufairError, InvalidSpec
from gpufair.core.model import HOLDING, Phase
from gpufair.core.record import Workload
from gpufair.core.state import State
from gpufair.core.units import Millis, NodeName, WorkloadId
from gpufair.service.nodes.channels import Channel
from gpufair.service.nodes.dispatch import Dispatcher, hosts
from gpufair.service.nodes.inventory import LONGEST, node_of, offered
from gpufair.service.nodes.kept import KeptNodes
from gpufair.service.nodes.reports import TERMINAL, ReportReader, parts_of
from gpufair.service.problems import BadRequest
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.workloads import standin
from gpufair.service.workloads.asked import Closed, Step
from gpufair.service.workloads.turn import Turn
from gpufair.wire import API_VERSION, COMMAND_WAIT_S, MAX_BOOT, AgentHello, Command, NodeInventory, Report, WireError

# After a hello an agent sends what it could not deliver before. What it neither runs nor reports by then is gone.
SETTLE_S = 5.0
COMING = frozenset({Phase.STARTING, Phase.RESTORING})

Key = tuple[WorkloadId, int]  # workload, incarnation

_log = logging.getLogger(__name__)


class AgentHub:
    """Speaks with all agents, and is the runtime's backend wherever agents run the workloads."""

    def __init__(
        self,
        runtime: Runtime,
        dispatcher: Dispatcher,
        expected: Mapping[str, NodeInventory],
        silence: Millis,
        settle_s: float = SETTLE_S,
        remote: Mapping[str, NodeInventory] | None = None,
        epoch: int = 0,
        kept: Collection[str] = (),
    ) -> None:
        """``expected``: what each node of this machine offers. ``remote``: name, pool and labels of those whose agents
        say themselves what they have. ``epoch``: of this service's leadership; agents obey none of an older one.
        ``kept``: pools of whose nodes a backend knows whether they are there (``present``, ``absent``)."""
        self.epoch = epoch
        self._runtime, self._dispatcher = runtime, dispatcher
        self._expected = dict(expected)  # what each node offers, as far as that is known
        self._remote = dict(remote or {})
        self.kept = KeptNodes(kept)
        self._silence = silence
        # A poll in progress is no sign of life, so it must end well before the agent counts as silent.
        self._wait_s = min(COMMAND_WAIT_S, silence / 3000)
        self._settle_s = settle_s
        self._reader = ReportReader(dispatcher)
        dispatcher.detail_of = runtime.detail
        self._tasks: set[asyncio.Task[None]] = set()

    # -- towards the runtime --------------------------------------------------------------------------------------

    def perform(self, actions: Sequence[Action], state: State) -> None:
        """Tell the agents (``Backend.perform``)."""
        for action in actions:
            self._dispatcher.perform(action, state)

    async def start(self) -> None:
        """Tell the core which nodes there are, and begin to watch for silence.

        A new node counts as there at once, so that nobody who asks in the first second finds nothing; if its agent
        stays silent, it is lost like any other.
        """
        await self._runtime.do(self._join_configured)
        now = self._runtime.now()
        for node in (*self._expected, *self._remote):
            self._dispatcher.channel(node).last_seen = now
        self._spawn(self._watch())

    async def close(self) -> None:
        """Stop watching, and end all polls."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for channel in self._dispatcher.channels.values():
            channel.boot = ""
            channel.arrived.set()

    def last_seen(self, node: str) -> int | None:
        """When an agent was last heard; None: not yet."""
        channel = self._dispatcher.channels.get(node)
        return channel.last_seen if channel else None

    def health(self, node: str) -> dict[str, Any]:
        """What an agent says of its machine, as fields of a node's view."""
        channel = self._dispatcher.channels.get(node) or Channel(node)
        return {"problems": channel.problems, "clock_skew_s": channel.skew_s, "agent_version": channel.version}

    def knows(self, node: str) -> bool:
        """Whether an agent of this node may come from another machine."""
        return node in self._remote

    def told(self, node: str, problems: Sequence[str] | None, now_s: float | None) -> None:
        """An agent has said how its machine is, and what time it is there."""
        channel = self._dispatcher.channel(node)
        if problems is not None and tuple(problems) != channel.problems:
            for text in set(problems) - set(channel.problems):
                _log.warning("node %s: %s", node, text)
            channel.problems = tuple(problems)
        if now_s is not None:
            channel.skew_s = round(now_s - self._runtime.now() / 1000, 3)

    def gpu_ids(self, node: str) -> tuple[str, ...]:
        """The GPUs of a node, by configuration, in its own order; none of a node that is in none."""
        inventory = self._expected.get(node)
        return inventory.gpu_ids if inventory else ()

    def heard(self, node: str) -> bool:
        """Whether an agent of this node has said hello to this service."""
        channel = self._dispatcher.channels.get(node)
        return bool(channel and channel.boot)

    # -- towards backends that keep nodes -------------------------------------------------------------------------

    async def present(self, inventory: NodeInventory, *, closed: bool = False) -> None:
        """A node is there, with this to offer; once its agent has said hello it takes work. As often as that changes.

        What is held on it is never taken off: if others have it by now, the node has that much less when it is free.

        Args:
            closed: Nothing new may start there, by the word of its cluster.

        Raises:
            StoreUnavailable: It could not be journalled: say it again.
        """
        self.kept.told(inventory.name, closed=closed)
        self._expected[inventory.name] = inventory
        if self.heard(inventory.name):
            await self._runtime.do(lambda turn: self._rejoin(turn, inventory.name))

    async def absent(self, node: str) -> None:
        """A node is gone, and all that ran there with it. Its agent says hello when it is back.

        Raises:
            StoreUnavailable: It could not be journalled: say it again.
        """
        self._expected.pop(node, None)
        channel = self._dispatcher.channel(node)
        channel.boot, channel.last_seen = "", None
        channel.arrived.set()
        await self._runtime.do(_lose(NodeName(node)))

    async def away(self, inventory: NodeInventory) -> None:
        """A node cannot be reached; if it has never been there, it is known and lost from now on.

        Raises:
            StoreUnavailable: It could not be journalled: say it again.
        """
        await self._runtime.do(lambda turn: self.kept.away(turn, inventory))

    def forget(self, node: str) -> None:
        """A node that was lost is not kept any more. If it is present again, it is as new."""
        self._expected.pop(node, None)
        self._dispatcher.channels.pop(node, None)
        self.kept.forget(node)

    async def removed(self, node: str) -> None:
        """A lost node will not come back: nobody knows of it any longer. Whoever says hello with its name is a new one.

        Raises:
            NodeNotLost: It is there.
            StoreUnavailable: It could not be journalled: say it again.
        """
        await self._runtime.do(_remove(NodeName(node)))
        channel = self._dispatcher.channel(node)
        channel.boot, channel.last_seen = "", None
        channel.arrived.set()

    async def final_word(self, node: str, boot: str, report: Report) -> None:
        """What the processes of a workload had to say at their end is kept, durably, until their GPUs are free as well:
        then whatever is reported of that end counts as this.

        Raises:
            HelloFirst: The boot is not known.
            WireError: It is no report of an end.
            StoreUnavailable: It could not be journalled: say it again.
        """
        self._dispatcher.channel(node).require(boot)
        await self._runtime.do(lambda turn: self._reader.final_word(turn, node, report))

    async def gone(self, node: str, boot: str, workload: str, incarnation: int, why: str = "") -> None:
        """A workload runs on a node no more, and left no word of its own. ``why``: for its owner.

        Raises:
            HelloFirst: The boot is not known.
            StoreUnavailable: It could not be journalled: say it again.
        """
        channel = self._dispatcher.channel(node)
        channel.require(boot)

        def step(turn: Turn) -> None:
            shut = self.kept.shut(turn, node, self._expected.get(node))
            held = turn.state.facts.holding.get(WorkloadId(workload))
            if held is not None and held.incarnation == incarnation:
                one = turn.state.workload(held.id)
                if node in hosts(one):
                    self._reader.gone(turn, node, one, why)
            channel.ended(workload, incarnation)
            self._rejoin(turn, node)
            if shut:
                turn.handle(ev.NodeUncordoned(turn.now, turn.cause(), NodeName(node)))

        await self._runtime.do(step)

    async def coming(self, node: str) -> set[tuple[str, int]]:
        """Which workloads (with their incarnations) are to come up on a node, and not up yet."""
        return await self._runtime.read(
            lambda state: {(str(one.id), one.incarnation) for one in _held_on(state, node) if one.phase in COMING}
        )

    # -- towards the agents ---------------------------------------------------------------------------------------

    async def hello(self, node: str, hello: AgentHello, *, again: bool = False) -> dict[str, object]:
        """An agent came up, or found a restarted service: agree on what is to run.

        Args:
            again: It cannot know whether what it runs has been told to start: have that repeated until it is up.

        Raises:
            BadRequest: It speaks another version, or for another node.
        """
        if hello.api_version != API_VERSION:
            raise BadRequest(
                f"the agent speaks version {hello.api_version}, this service {API_VERSION}; update the older"
            )
        if hello.node.name != node or not (0 < len(hello.boot) <= MAX_BOOT and hello.boot.isprintable()):
            raise BadRequest(
                f"a hello to {node!r} has to be of that node, with a boot id of 1 to {MAX_BOOT} printable characters; "
                f"it names {hello.node.name[:LONGEST]!r}"
            )
        if node in self._remote:
            self._expected[node] = offered(hello.node, self._remote[node])
            self._dispatcher.addresses[node] = hello.node.host
        running = {(WorkloadId(workload), incarnation) for workload, incarnation in hello.running}
        after, number, wanted = await self._runtime.do(lambda turn: self._greet(turn, node, hello.boot, running, again))
        self._dispatcher.channel(node).last_seen = self._runtime.now()
        self._dispatcher.channel(node).version = hello.version[:LONGEST]
        known = sorted(key for key in wanted if key in running)
        _log.info("agent of node %s said hello: runs %d, %d of them expected", node, len(running), len(known))
        if missing := wanted - running:
            self._spawn(self._settle(node, number, missing))
        return {"after": after, "expected": [list(key) for key in known], "epoch": self.epoch}

    async def commands(self, node: str, after: int, boot: str, wait_s: float = COMMAND_WAIT_S) -> list[Command]:
        """What the agent is to do next; waits for it for up to ``wait_s``.

        Raises:
            HelloFirst: Its boot is not known.
        """
        channel = self._dispatcher.channel(node)
        channel.last_seen = self._runtime.now()
        try:
            return await channel.poll(after, boot, min(wait_s, self._wait_s))
        finally:
            channel.last_seen = self._runtime.now()

    async def reports(self, node: str, boot: str, reports: Sequence[Report]) -> int:
        """Take reports in; they are durable when this returns.

        Returns: The number of the last one.

        Raises:
            HelloFirst: The boot is not known.
            StoreUnavailable: They could not be journalled: send them again.
        """
        channel = self._dispatcher.channel(node)
        channel.require(boot)
        channel.last_seen = self._runtime.now()
        news = [report for report in reports if report.seq > channel.acked]
        if news:
            await self._runtime.do(lambda turn: self._take(turn, node, news))
            if channel.boot == boot:
                channel.acked = max(channel.acked, *(report.seq for report in news))
        return channel.acked

    def send(self, workload: Workload, kind: str, args: dict[str, Any] | None = None) -> None:
        """Send a user's command to every host of a workload."""
        self._dispatcher.tell(workload, kind, workload.incarnation, args)

    # -- steps ----------------------------------------------------------------------------------------------------

    def _join_configured(self, turn: Turn) -> None:
        known = {view.node.name: view for view in turn.state.nodes()}
        for name, inventory in self._expected.items():
            view = known.get(NodeName(name))
            # One that is lost is there again when its agent has said what still runs on it.
            if view is None or (not view.lost and view.node != node_of(inventory)):
                self._join(turn, inventory)
        for node, view in known.items():
            # A remote one that was there is taken to be there until it has been silent for too long, and a kept one
            # until its backend has looked.
            there = node in self._expected or node in self._remote or view.node.pool in self.kept.pools
            if not there and not view.lost:
                turn.handle(ev.NodeLost(turn.now, turn.cause(), node))

    def _join(self, turn: Turn, inventory: NodeInventory) -> None:
        node, closed = self.kept.node_of(inventory, turn.state), self.kept.begins_closed(inventory.name, turn.state)
        try:
            turn.handle(ev.NodeJoined(turn.now, turn.cause(), node, closed))
        except InvalidSpec as err:
            # Its configuration shrank while workloads run on it: they lose it, and its agent ends them.
            _log.warning("node %s: %s", node.name, err)
            turn.handle(ev.NodeLost(turn.now, turn.cause(), node.name))

    def _rejoin(self, turn: Turn, node: str) -> None:
        """A node that is new, was lost, or has become another one is there (again), once nothing runs on it that should
        not."""
        inventory = self._expected.get(node)
        if inventory is None or self._dispatcher.channel(node).strays:
            return
        known = turn.state.facts.nodes.get(NodeName(node))
        changes = node in self._remote or node in self.kept.names
        if known is None or known.lost or (changes and known.node != self.kept.node_of(inventory, turn.state)):
            self._join(turn, inventory)
        self.kept.align(turn, node)

    def _greet(self, turn: Turn, node: str, boot: str, running: set[Key], again: bool) -> tuple[int, int, set[Key]]:
        """Begin a boot: where to poll from, which hello of the node this is, and which workloads hold GPUs on it.

        A lost node is there again.
        """
        inventory = self._expected.get(node)
        held = _held_on(turn.state, node) if inventory is not None else []
        # A part that has ended while others of its gang go on is neither awaited nor started again.
        held = [one for one in held if (one.id, one.incarnation) in running or node not in parts_of(turn, one).gone]
        for ended in [one for one in held if (one.id, one.incarnation) not in running and node in parts_of(turn, one).said]:
            held.remove(ended)
            self._reader.gone(turn, node, ended)
        # The line is begun anew in the very turn that looks at the state: what is decided before is repeated here,
        # what is decided later is added after it, and what is decided in this turn is left out the second time.
        wanted = {(workload.id, workload.incarnation) for workload in held}
        channel = self._dispatcher.channel(node)
        after = channel.hello(boot, running - wanted)
        number = channel.hellos
        for workload in held:
            self._repeat(turn, workload, node, (workload.id, workload.incarnation) in running, again)
        self._rejoin(turn, node)
        return after, number, wanted

    def _repeat(self, turn: Turn, workload: Workload, node: str, runs: bool, again: bool) -> None:
        self._dispatcher.due(workload, node, runs and not (again and workload.phase in COMING), turn.state)
        if runs and node in hosts(workload):
            if parts_of(turn, workload).failed:
                self._dispatcher.channel(node).send("stop", workload.id, workload.incarnation)
            for pending in turn.detail(workload.id).pending:
                if pending.incarnation == workload.incarnation:
                    self._dispatcher.channel(node).send(pending.kind, workload.id, workload.incarnation, pending.args)

    def _take(self, turn: Turn, node: str, reports: Sequence[Report]) -> None:
        freed = any(report.kind in TERMINAL for report in reports)
        shut = freed and self.kept.shut(turn, node, self._expected.get(node))
        for report in reports:
            try:
                self._reader.take(turn, node, report)
            except WireError as err:
                # Refusing it would make the agent send it for ever.
                _log.warning("a report of node %s about %s is left out: %s", node, report.workload[:80], err)
            except GpufairError as err:
                _log.warning("a report of node %s about %s was refused: %s", node, report.workload[:80], err)
            if report.kind in TERMINAL:
                self._dispatcher.channel(node).ended(report.workload, report.incarnation)
        self._reader.measured(turn, node, reports)
        self._rejoin(turn, node)
        if shut:
            turn.handle(ev.NodeUncordoned(turn.now, turn.cause(), NodeName(node)))

    # -- watching -------------------------------------------------------------------------------------------------

    async def _settle(self, node: str, number: int, missing: set[Key]) -> None:
        """What a node should run but doesn't, and about which it has nothing to report, is gone.

        Only the latest hello counts: what was missing at an earlier one may have been started since.
        """
        await asyncio.sleep(self._settle_s)
        channel = self._dispatcher.channel(node)

        def step(turn: Turn) -> None:
            if channel.hellos != number or not channel.boot:
                return
            lost = [one for one in _held_on(turn.state, node) if self._is_gone(turn, one, node, missing)]
            if not lost:
                return
            shut = self.kept.shut(turn, node, self._expected.get(node))
            for workload in lost:
                _log.warning("node %s has lost workload %s", node, workload.id)
                self._reader.gone(turn, node, workload)
            self._rejoin(turn, node)
            if shut:
                turn.handle(ev.NodeUncordoned(turn.now, turn.cause(), NodeName(node)))

        await self._try(step, f"declaring what node {node} has lost")

    def _is_gone(self, turn: Turn, workload: Workload, node: str, missing: set[Key]) -> bool:
        started = (str(workload.id), workload.incarnation, "start") in self._dispatcher.channel(node).once
        awaited = standin.waits_for(turn.state, workload.id)
        gone = (workload.id, workload.incarnation) in missing and not started and not awaited
        return gone and node in hosts(workload)

    async def _watch(self) -> None:
        """Lose the nodes whose agents have been silent for too long."""
        interval_s = max(0.05, min(1.0, self._silence / 4000))
        last = self._runtime.now()
        while True:
            await asyncio.sleep(interval_s)
            now = self._runtime.now()
            # If this task itself did not run (a laptop slept), nobody could be heard meanwhile.
            overslept = now - last > self._silence / 2
            last = now
            for node in {**self._expected, **self._remote}:
                if node in self.kept.names:
                    continue
                channel = self._dispatcher.channel(node)
                if overslept and channel.last_seen is not None:
                    channel.last_seen = now
                if channel.last_seen is not None and now - channel.last_seen > self._silence:
                    channel.last_seen = None
                    channel.boot = ""  # it has to say hello, so that what it runs is compared
                    channel.arrived.set()
                    _log.warning("node %s has been silent for %.0f s: lost", node, self._silence / 1000)
                    await self._try(_lose(NodeName(node)), f"losing node {node}")

    async def _try(self, step: Step[None], what: str) -> None:
        while True:
            try:
                await self._runtime.do(step)
            except Closed:
                return
            except GpufairError as err:
                _log.warning("%s: %s; trying again", what, err)
                await asyncio.sleep(1.0)
            else:
                return

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _lose(node: NodeName) -> Step[None]:
    def step(turn: Turn) -> None:
        if any(view.node.name == node and not view.lost for view in turn.state.nodes()):
            turn.handle(ev.NodeLost(turn.now, turn.cause(), node))

    return step


def _remove(node: NodeName) -> Step[None]:
    def step(turn: Turn) -> None:
        if node in turn.state.facts.nodes:
            turn.handle(ev.NodeRemoved(turn.now, turn.cause(), node))

    return step


def _held_on(state: State, node: str) -> list[Workload]:
    return [
        workload
        for workload in (state.workload(one) for one in sorted(state.facts.holding))
        if workload.phase in HOLDING and workload.held and any(lease.node == node for lease in workload.held.leases)
    ]
