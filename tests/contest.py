"""A small cluster around any contender: it feeds due moments in time, answers actions as obedient nodes would, and keeps
its own books of who holds what, from the actions alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import GpufairError
from gpufair.core.model import Allocation, CheckpointRef, Held, Kind, Node, Outcome, Phase, Policy, Shape, WorkloadSpec
from gpufair.core.units import AllocationPath, CauseId, Instant, Millis, NodeName, PoolName, WorkloadId
from gpufair.sim.policies.contender import Contender
from gpufair.sim.policies.registry import contender
from tests.world import DEFAULT, SMALL, Delays

CAUSE = CauseId("contest")


@dataclass
class Player:
    """A workload as its nodes and its owner know it."""

    spec: WorkloadSpec
    submitted: int
    phase: Phase = Phase.QUEUED
    held: Held | None = None
    incarnation: int = 0
    saves: int = 0
    saved: str = ""  # the last durable checkpoint
    starts: int = 0
    requeues: int = 0


@dataclass
class Contest:
    """One contender, its nodes and their answers. A broken rule is an assertion that fails where it is broken."""

    contender: Contender
    policy: Policy = SMALL
    delays: Delays = field(default_factory=Delays)
    now: int = 0
    log: list[tuple[ev.Event, tuple[act.Action, ...]]] = field(default_factory=list)
    players: dict[WorkloadId, Player] = field(default_factory=dict)
    nodes: dict[NodeName, Node] = field(default_factory=dict)
    closed: set[NodeName] = field(default_factory=set)
    lost: set[NodeName] = field(default_factory=set)
    _replies: list[tuple[int, WorkloadId, int, ev.Event]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self.decider = self.contender.make(self.policy)

    def set_up(self, allocations: Iterable[Allocation], nodes: Iterable[Node]) -> Contest:
        self.feed(ev.BudgetsApplied(Instant(self.now), CAUSE, tuple(allocations)))
        for node in nodes:
            self.feed(ev.NodeJoined(Instant(self.now), CAUSE, node))
        return self

    # -- what happens -----------------------------------------------------------------------------------------------

    def feed(self, event: ev.Event) -> list[act.Action]:
        """Hand an event in. Raises what the contender raises, with the books unchanged."""
        actions = list(self.decider.handle(event))
        self.log.append((event, tuple(actions)))
        self._note(event)
        for action in actions:
            self._apply(action)
        self._check()
        return actions

    def try_feed(self, event: ev.Event) -> bool:
        """Hand in an event that may be refused."""
        try:
            self.feed(event)
        except GpufairError:
            return False
        return True

    def advance(self, span: int) -> None:
        """Let time pass, feeding every due moment and every answer on its way."""
        end = self.now + span
        while True:
            due = self.decider.next_wakeup()
            reply = self._replies[0][0] if self._replies else None
            if due is not None and due <= end and (reply is None or due <= reply):
                assert due >= self.now, "a wakeup in the past"
                self.now = due
                self.feed(ev.TimePassed(Instant(self.now), CAUSE))
                again = self.decider.next_wakeup()
                assert again is None or again > due, "it wants to look again at the same moment, for ever"
            elif reply is not None and reply <= end:
                self.now, _, _, event = heapq.heappop(self._replies)
                self.feed(replace(event, at=Instant(self.now)))
            else:
                break
        self.now = end

    def submit(
        self,
        name: str,
        leaf: str = "a",
        gpus: int = 1,
        *,
        nodes: int = 1,
        kind: Kind = Kind.BATCH,
        min_runtime: int = 5_000,
        priority: int = 0,
        resumable: bool = True,
        expected: int | None = None,
        runs: int | None = None,
        user: str = "u",
        gpu_type: str = "",
        pools: tuple[PoolName, ...] = (DEFAULT,),
        idle_release: int | None = None,
    ) -> list[act.Action]:
        """``runs``: how long it is up before it exits by itself; None: it does not."""
        spec = WorkloadSpec(
            allocation=AllocationPath(leaf),
            user=user,
            kind=kind,
            shape=Shape(gpus, nodes, gpu_type),
            min_runtime=Millis(min_runtime),
            resumable=resumable,
            priority=priority,
            pools=pools,
            expected=None if expected is None else Millis(expected),
            idle_release=None if idle_release is None else Millis(idle_release),
            launch={} if runs is None else {"runs": runs},
        )
        return self.feed(ev.Submitted(Instant(self.now), CAUSE, WorkloadId(name), spec))

    def exit(self, name: str, outcome: Outcome = Outcome.COMPLETED) -> list[act.Action]:
        player = self.players[WorkloadId(name)]
        return self.feed(ev.Exited(Instant(self.now), CAUSE, WorkloadId(name), player.incarnation, outcome))

    # -- the books ----------------------------------------------------------------------------------------------------

    def phase(self, name: str) -> Phase:
        return self.players[WorkloadId(name)].phase

    def where(self, name: str) -> tuple[str, ...]:
        held = self.players[WorkloadId(name)].held
        return tuple(lease.node for lease in held.leases) if held is not None else ()

    def holding(self) -> tuple[str, ...]:
        """Who holds GPUs, by id."""
        return tuple(sorted(name for name, player in self.players.items() if player.held is not None))

    def free(self, node: NodeName) -> int:
        """GPUs of a node that nobody holds, were it open."""
        leases = (lease for one in self.players.values() if one.held is not None for lease in one.held.leases)
        return self.nodes[node].gpus - sum(lease.gpus for lease in leases if lease.node == node)

    def is_open(self, node: NodeName) -> bool:
        return node not in self.closed and node not in self.lost

    def _note(self, event: ev.Event) -> None:
        match event:
            case ev.Submitted():
                self.players[event.workload] = Player(event.spec, self.now)
            case ev.NodeJoined():
                self.nodes[event.node.name] = event.node
                self.lost.discard(event.node.name)
            case ev.NodeCordoned() | ev.NodeDrained():
                self.closed.add(event.node)
            case ev.NodeUncordoned() | ev.NodeRemoved():
                self.closed.discard(event.node)
            case ev.NodeLost():
                self.lost.add(event.node)
                for player in self.players.values():
                    if player.held is not None:
                        kept = tuple(lease for lease in player.held.leases if lease.node != event.node)
                        player.held = replace(player.held, leases=kept) if kept else None
            case ev.CheckpointDone():
                player = self.players[event.workload]
                if event.incarnation == player.incarnation:
                    player.saved = event.checkpoint.id
            case ev.Started():
                player = self.players[event.workload]
                if event.incarnation == player.incarnation and player.phase in {Phase.STARTING, Phase.RESTORING}:
                    player.phase = Phase.RUNNING
            case ev.Exited() | ev.Released() | ev.StartFailed():
                player = self.players[event.workload]
                if event.incarnation == player.incarnation:
                    player.held = None

    def _apply(self, action: act.Action) -> None:
        player = self.players[action.workload]
        match action:
            case act.Start():
                self._start(player, action)
            case act.BeginCheckpoint():
                assert player.phase in {Phase.STARTING, Phase.RESTORING, Phase.RUNNING}
                assert action.incarnation == player.incarnation
                assert action.deadline >= self.now
                player.phase = Phase.CHECKPOINTING
                player.saves += 1
                at = Instant(self.now + self.delays.save)
                made = CheckpointRef(f"{action.workload}-{player.saves}", player.saves, at, 1, Millis(self.delays.save))
                done = ev.CheckpointDone(at, CAUSE, action.workload, action.incarnation, made)
                self._reply(self.delays.save, action.workload, done)
                if self.delays.release >= 0:
                    gone = ev.Released(at, CAUSE, action.workload, action.incarnation)
                    self._reply(self.delays.release, action.workload, gone)
            case act.Stop():
                assert player.held is not None
                assert action.incarnation == player.incarnation
                player.phase = Phase.STOPPING
                gone = ev.Released(Instant(0), CAUSE, action.workload, action.incarnation)
                self._reply(abs(self.delays.release), action.workload, gone)
            case act.Requeue():
                assert player.held is None, "queued again while it holds GPUs"
                assert player.phase not in {Phase.QUEUED, Phase.ENDED}, "queued twice"
                player.phase = Phase.QUEUED
                player.requeues += 1
            case act.Park():
                assert player.held is None
                assert player.spec.kind is Kind.SESSION
                assert player.phase not in {Phase.PARKED, Phase.ENDED}
                player.phase = Phase.PARKED
            case act.End():
                assert player.held is None
                assert player.phase is not Phase.ENDED
                player.phase = Phase.ENDED

    def _start(self, player: Player, action: act.Start) -> None:
        held, shape = action.held, player.spec.shape
        assert player.phase is Phase.QUEUED, "started though it was not waiting"
        assert held.incarnation == player.incarnation + 1
        assert held.granted_at == self.now
        assert held.pool in player.spec.pools
        assert len(held.leases) == shape.nodes == len({lease.node for lease in held.leases}), "a gang in parts"
        for lease in held.leases:
            node = self.nodes[lease.node]
            assert self.is_open(lease.node), "started on a closed node"
            assert lease.gpus == shape.gpus_per_node
            assert node.pool == held.pool
            assert shape.gpu_type in {"", node.gpu_type}
        player.held, player.incarnation, player.starts = held, held.incarnation, player.starts + 1
        player.phase = Phase.STARTING if action.checkpoint is None else Phase.RESTORING
        assert action.checkpoint in {None, player.saved}, "restored from an old checkpoint"
        up = ev.Started(Instant(0), CAUSE, action.workload, held.incarnation)
        self._reply(self.delays.start, action.workload, up)
        runs = player.spec.launch.get("runs")
        if isinstance(runs, int):
            over = ev.Exited(Instant(0), CAUSE, action.workload, held.incarnation, Outcome.COMPLETED)
            self._reply(self.delays.start + runs, action.workload, over)

    def _reply(self, delay: int, workload: WorkloadId, event: ev.Event) -> None:
        self._count += 1
        heapq.heappush(self._replies, (self.now + delay, workload, self._count, event))

    def _check(self) -> None:
        """P2: no GPU is held twice."""
        used = dict.fromkeys(self.nodes, 0)
        for player in self.players.values():
            for lease in player.held.leases if player.held is not None else ():
                used[lease.node] += lease.gpus
        for name, gpus in used.items():
            assert gpus <= self.nodes[name].gpus, f"{gpus} GPUs are held on {name}"

    def waiting(self) -> tuple[WorkloadId, ...]:
        """Who waits, by submission."""
        waits = (name for name, player in self.players.items() if player.phase is Phase.QUEUED)
        return tuple(sorted(waits, key=lambda name: (self.players[name].submitted, name)))


def contest(
    name: str,
    nodes: Iterable[int] = (4,),
    leaves: Iterable[tuple[str, str]] = (("a", "1"), ("b", "1")),
    policy: Policy = SMALL,
    delays: Delays | None = None,
) -> Contest:
    """A contender with nodes of so many GPUs, and leaves with shares."""
    return Contest(contender(name), policy, delays or Delays()).set_up(
        (Allocation(AllocationPath(path), share) for path, share in leaves),
        (Node(NodeName(f"n{index}"), gpus) for index, gpus in enumerate(nodes)),
    )


def told(actions: Iterable[act.Action]) -> list[tuple[str, str]]:
    """What was decided, about whom."""
    return [(type(action).__name__, action.workload) for action in actions]
