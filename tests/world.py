"""A small cluster around the core: it feeds due moments in time, and answers actions as obedient nodes would.

Everything that happened is kept as a journal, from which ``Audit`` works out by brute force what the core claims.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.commit import PREEMPTIONS
from gpufair.core.errors import GpufairError
from gpufair.core.model import (
    HOLDING,
    Allocation,
    CheckpointRef,
    Kind,
    Node,
    Outcome,
    Phase,
    Policy,
    Shape,
    WorkloadSpec,
)
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, CauseId, Instant, Millis, NodeName, PoolName, WorkloadId

CAUSE = CauseId("test")
DEFAULT = PoolName("default")

# Minutes become seconds, so that a window slides several times within a short script.
SMALL = Policy(
    window=Millis(60_000),
    max_min_runtime=Millis(20_000),
    grid=Millis(5_000),
    grid_checkpoint=Millis(500),
    grace_session=Millis(3_000),
    grace_batch=Millis(1_000),
    banking=1.0,
    debug_min_runtime=Millis(0),
    take_limit=None,
    backoff=Millis(0),
    landings=False,
    consolidation=False,
)

# Every rule switched on, with numbers that matter in a cluster of a few GPUs.
FULL = replace(
    SMALL,
    banking=0.25,
    newcomer=Millis(2_000),
    debug_min_runtime=Millis(2_000),
    debug_gpus=2,
    debug_share=0.25,
    debug_most=0.5,
    take_limit=1.25,
    backoff=Millis(500),
    backoff_most=Millis(4_000),
    take_least=2,
)
# The same with landings.
LANDINGS = replace(FULL, landings=True)
# With moves to join free GPUs, which the plain pass of ``tests/reference_pass.py`` knows nothing of.
MOVING = replace(LANDINGS, consolidation=True, consolidate_batch=True, consolidation_rest=Millis(1_000))
POLICIES = (SMALL, FULL, LANDINGS, MOVING)


@dataclass(frozen=True)
class Delays:
    """How long nodes take, in ms. ``release`` above the grace makes them late; a negative one never releases."""

    start: int = 300
    save: int = 200
    release: int = 400


PROMPT = Delays()


@dataclass(frozen=True)
class Entry:
    """One step of the journal."""

    event: ev.Event
    actions: tuple[act.Action, ...]


Answer = ev.CheckpointDone | ev.Exited | ev.Released | ev.Started


@dataclass
class World:
    """The state, its nodes and their answers."""

    policy: Policy = SMALL
    delays: Delays = PROMPT
    validate: bool = True
    durations: tuple[int | None, ...] = (None,)  # what workloads expect to need, one after the other
    journal: list[Entry] = field(default_factory=list)
    state: State = field(init=False)
    _replies: list[tuple[int, WorkloadId, int, Answer]] = field(default_factory=list)
    _count: int = 0

    def __post_init__(self) -> None:
        self.state = State(self.policy, validate=self.validate)

    @property
    def now(self) -> Instant:
        return self.state.now

    def set_up(self, allocations: Iterable[Allocation], nodes: Iterable[Node]) -> World:
        self.feed(ev.BudgetsApplied(self.now, CAUSE, tuple(allocations)))
        for node in nodes:
            self.feed(ev.NodeJoined(self.now, CAUSE, node))
        return self

    def feed(self, event: ev.Event) -> list[act.Action]:
        """Hand an event in at its time, and let the nodes answer later."""
        actions = self.state.handle(event)
        self.journal.append(Entry(event, tuple(actions)))
        for action in actions:
            for delay, reply in self._answers(action):
                self._reply(delay, reply)
        return actions

    def try_feed(self, event: ev.Event) -> bool:
        """Hand in an event that may be refused."""
        try:
            self.feed(event)
        except GpufairError:
            return False
        return True

    def _reply(self, delay: int, event: Answer) -> None:
        # Those of one instant come in the order of the workloads, so that they can be told beforehand.
        self._count += 1
        heapq.heappush(self._replies, (self.now + delay, event.workload, self._count, event))

    def _answers(self, action: act.Action) -> Iterator[tuple[int, Answer]]:
        never = Instant(0)
        match action:
            case act.Start():
                incarnation = action.held.incarnation
                yield self.delays.start, ev.Started(never, CAUSE, action.workload, incarnation)
                left = self._left(action.workload)
                if left > 0:
                    yield left, ev.Exited(never, CAUSE, action.workload, incarnation, Outcome.COMPLETED)
            case act.BeginCheckpoint():
                record = self.state.workload(action.workload)
                sequence = record.checkpoint.sequence + 1 if record.checkpoint is not None else 1
                at = Instant(self.now + self.delays.save)
                name = f"{action.workload}-{sequence}"
                done = CheckpointRef(name, sequence, at, 1_000, Millis(self.delays.save))
                yield self.delays.save, ev.CheckpointDone(never, CAUSE, action.workload, action.incarnation, done)
                if self.delays.release >= 0:
                    delay = self.delays.release
                    yield delay, ev.Released(never, CAUSE, action.workload, action.incarnation)
            case act.Stop():
                yield abs(self.delays.release), ev.Released(never, CAUSE, action.workload, action.incarnation)
            case _:
                pass

    def _left(self, name: WorkloadId) -> int:
        """How much longer a workload that was just started runs until it ends by itself; 0 if it does not."""
        workload = self.state.workload(name)
        if workload.spec.expected is None:
            return 0
        gpus = workload.spec.shape.gpus
        return workload.spec.expected - (workload.charged // gpus if workload.spec.resumable and gpus else 0)

    def twin(self) -> World:
        """A world in the same state, in which the same answers are on their way; its journal begins anew."""
        twin = replace(self, journal=[])
        twin.state, twin._replies = self.state.copy(), list(self._replies)
        return twin

    def advance(self, span: int) -> None:
        """Let time pass, feeding every due moment and every answer on its way."""
        end = self.now + span
        while True:
            due = self.state.next_wakeup()
            reply = self._replies[0][0] if self._replies else None
            if due is not None and due <= end and (reply is None or due <= reply):
                self.feed(ev.TimePassed(due, CAUSE))
            elif reply is not None and reply <= end:
                at, _, _, event = heapq.heappop(self._replies)
                self.feed(_at(event, at))
            else:
                break
        if self.now < end:
            self.feed(ev.TimePassed(Instant(end), CAUSE))

    def submit(
        self,
        name: str,
        leaf: str,
        gpus: int = 1,
        min_runtime: int = 5_000,
        *,
        nodes: int = 1,
        kind: Kind = Kind.BATCH,
        priority: int = 0,
        resumable: bool = True,
        gpu_type: str = "",
        pools: tuple[PoolName, ...] = (DEFAULT,),
        user: str = "u",
        grace: int | None = None,
        expected: int | None = None,
        idle_release: int | None = None,
        movable: bool = False,
        demands: Mapping[str, object] = MappingProxyType({}),
        withheld: bool = False,
    ) -> list[act.Action]:
        if expected is None:
            expected = self.durations[len(self.journal) % len(self.durations)]
        spec = WorkloadSpec(
            allocation=AllocationPath(leaf),
            user=user,
            kind=kind,
            shape=Shape(gpus, nodes, gpu_type, **demands),  # type: ignore[arg-type]  # by the caller's word
            min_runtime=Millis(min_runtime),
            resumable=resumable,
            priority=priority,
            pools=pools,
            grace=None if grace is None else Millis(grace),
            movable=movable,
            expected=None if expected is None else Millis(expected),
            idle_release=None if idle_release is None else Millis(idle_release),
        )
        return self.feed(ev.Submitted(self.now, CAUSE, WorkloadId(name), spec, withheld))

    def phase(self, name: str) -> Phase:
        return self.state.workload(WorkloadId(name)).phase

    def where(self, name: str) -> tuple[str, ...]:
        held = self.state.workload(WorkloadId(name)).held
        return tuple(lease.node for lease in held.leases) if held is not None else ()

    def exit(self, name: str, outcome: Outcome = Outcome.COMPLETED) -> list[act.Action]:
        workload = self.state.workload(WorkloadId(name))
        return self.feed(ev.Exited(self.now, CAUSE, workload.id, workload.incarnation, outcome))

    def actions(self) -> list[tuple[Entry, act.Action]]:
        return [(entry, action) for entry in self.journal for action in entry.actions]


def _at(event: ev.Event, at: int) -> ev.Event:
    # dataclasses.replace is slow here, and this runs for every answer of every example.
    values = {name: getattr(event, name) for name in type(event).__dataclass_fields__}
    return type(event)(**{**values, "at": Instant(at)})


@dataclass(frozen=True)
class Stay:
    """GPUs held on one node from ``start`` to ``end``."""

    workload: WorkloadId
    spec: WorkloadSpec
    incarnation: int
    node: NodeName
    pool: PoolName
    gpus: int
    start: int
    end: int
    protected_until: int

    def within(self, start: int, end: int) -> int:
        """GPU-milliseconds of the stay between two instants."""
        return self.gpus * max(0, min(self.end, end) - max(self.start, start))


@dataclass(frozen=True)
class Audit:
    """Who held what, worked out from the journal alone."""

    stays: tuple[Stay, ...]
    specs: dict[WorkloadId, WorkloadSpec]
    end: int

    @classmethod
    def of(cls, journal: Iterable[Entry]) -> Audit:
        specs: dict[WorkloadId, WorkloadSpec] = {}
        open_stays: dict[tuple[WorkloadId, NodeName], Stay] = {}
        stays: list[Stay] = []
        now = 0

        def close(workload: WorkloadId | None, node: NodeName | None, incarnation: int | None) -> None:
            for key in sorted(open_stays):
                stay = open_stays[key]
                if workload in {None, key[0]} and node in {None, key[1]} and incarnation in {None, stay.incarnation}:
                    stays.append(_ending(open_stays.pop(key), now))

        for entry in journal:
            event = entry.event
            now = max(now, event.at)
            match event:
                case ev.Submitted():
                    specs[event.workload] = event.spec
                case ev.Amended():
                    specs[event.workload] = event.of(specs[event.workload])
                case ev.Released() | ev.Exited() | ev.StartFailed():
                    close(event.workload, None, event.incarnation)
                case ev.NodeLost():
                    close(None, event.node, None)
                case _:
                    pass
            for action in entry.actions:
                if isinstance(action, act.Start):
                    for lease in action.held.leases:
                        open_stays[action.workload, lease.node] = Stay(
                            action.workload,
                            specs[action.workload],
                            action.held.incarnation,
                            lease.node,
                            action.held.pool,
                            lease.gpus,
                            now,
                            now,
                            action.held.protected_until,
                        )
        close(None, None, None)
        return cls(tuple(stays), specs, now)

    def charged(self, start: int, end: int, leaf: str | None = None, user: str | None = None) -> int:
        """GPU-milliseconds charged to a leaf and everything below it between two instants, to a researcher there."""
        return sum(
            stay.within(start, end)
            for stay in self.stays
            if stay.spec.allocated
            and user in {None, stay.spec.user}
            and (leaf is None or f"{stay.spec.allocation}/".startswith(f"{leaf}/" if leaf else ""))
        )


def _ending(stay: Stay, end: int) -> Stay:
    return Stay(
        stay.workload,
        stay.spec,
        stay.incarnation,
        stay.node,
        stay.pool,
        stay.gpus,
        stay.start,
        end,
        stay.protected_until,
    )


EVICTIONS = PREEMPTIONS


def evictions(world: World) -> list[tuple[Entry, act.BeginCheckpoint]]:
    """Every notice that one workload was given for another."""
    return [
        (entry, action)
        for entry, action in world.actions()
        if isinstance(action, act.BeginCheckpoint) and action.reason in EVICTIONS
    ]


def holding(world: World) -> list[WorkloadId]:
    """Who holds GPUs."""
    return [workload.id for workload in world.state.workloads() if workload.phase in HOLDING]
