"""What must be true, worked out from events and actions alone, apart from everything the core keeps.

A ``Watch`` is fed each event with its actions, as a journal is written, and keeps its own count of who holds what.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import PreemptReason, WorkloadSpec
from gpufair.core.units import NodeName, WorkloadId

# Whoever is told to leave for any other reason makes room for somebody else, and must have had his protection.
NO_PREEMPTIONS = frozenset({"park", "drain", "shutdown", "idle", "forced", "moved"})


class BrokenLawError(AssertionError):
    """A law of docs/policy.md does not hold."""


@dataclass
class Run:
    """One start of a workload and what it still holds."""

    incarnation: int
    since: int
    granted: int  # protection, from the start on
    gpus: dict[NodeName, int]


@dataclass
class Watch:
    """Sums over a stream of events and actions; raises ``BrokenLawError`` at the first breach."""

    now: int = 0
    events: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    preemptions: Counter[str] = field(default_factory=Counter)
    charged: int = 0  # GPU-milliseconds of allocated work, until now
    unallocated: int = 0
    specs: dict[WorkloadId, WorkloadSpec] = field(default_factory=dict)
    runs: dict[WorkloadId, Run] = field(default_factory=dict)
    had: Counter[WorkloadId] = field(default_factory=Counter)  # GPU-milliseconds held by each workload, runs that ended
    owing: Counter[WorkloadId] = field(default_factory=Counter)  # what they must have had for all their preemptions
    sliced: set[WorkloadId] = field(default_factory=set)  # somebody asked for less protection than the spec does
    evicted: set[tuple[WorkloadId, int]] = field(default_factory=set)
    free: dict[NodeName, int] = field(default_factory=dict)
    _rate: list[int] = field(default_factory=lambda: [0, 0])  # GPUs held unallocated, allocated

    def take(self, event: ev.Event, actions: list[act.Action]) -> None:
        """One event and what was decided."""
        self.events += 1
        if event.at > self.now:
            self.unallocated += self._rate[0] * (event.at - self.now)
            self.charged += self._rate[1] * (event.at - self.now)
            self.now = event.at
        self._happened(event)
        for action in actions:
            self.actions[type(action).__name__] += 1
            if isinstance(action, act.Start):
                self._start(action)
            elif isinstance(action, act.BeginCheckpoint):
                self._notice(action)
            elif isinstance(action, act.Extend):
                run = self.runs[action.workload]
                self._require(
                    action.protected_until >= run.since + run.granted, f"P1: {action.workload} lost protection"
                )
                run.granted = action.protected_until - run.since

    def _happened(self, event: ev.Event) -> None:
        match event:
            case ev.Submitted():
                self.specs[event.workload] = event.spec
            case ev.Amended():
                self.specs[event.workload] = event.of(self.specs[event.workload])
            case ev.ResumeRequested():
                if event.slice is not None:
                    self.sliced.add(event.workload)
            case ev.NodeJoined():
                held = sum(run.gpus.get(event.node.name, 0) for run in self.runs.values())
                self.free[event.node.name] = event.node.gpus - held
                self._require(self.free[event.node.name] >= 0, f"P2: {event.node.name} came back too small")
            case ev.NodeLost():
                for workload in list(self.runs):
                    self._release(workload, event.node)
            case ev.Released() | ev.Exited() | ev.StartFailed():
                run = self.runs.get(event.workload)
                if run is not None and run.incarnation == event.incarnation:
                    for node in tuple(run.gpus):
                        self._release(event.workload, node)
            case _:
                pass

    def _start(self, action: act.Start) -> None:
        held, spec = action.held, self.specs[action.workload]
        self._require(action.workload not in self.runs, f"P3: {action.workload} started while it still holds GPUs")
        gpus = {lease.node: lease.gpus for lease in held.leases}
        whole = len(gpus) == len(held.leases) == spec.shape.nodes and set(gpus.values()) == {spec.shape.gpus_per_node}
        self._require(whole, f"P3: {action.workload} of {spec.shape} started on {held.leases}")
        for node, count in gpus.items():
            self.free[node] -= count
            self._require(self.free[node] >= 0, f"P2: {node} is over-allocated by {-self.free[node]}")
        granted, asked = held.protected_until - held.granted_at, spec.min_runtime
        right = 0 < granted <= asked if action.workload in self.sliced and asked else granted == asked
        self._require(
            right and held.granted_at == self.now, f"P1: {action.workload} was granted {granted} ms of {asked}"
        )
        self.runs[action.workload] = Run(held.incarnation, self.now, granted, gpus)
        self._rate[spec.allocated] += spec.shape.gpus

    def _notice(self, action: act.BeginCheckpoint) -> None:
        if action.reason in NO_PREEMPTIONS:
            return
        self.preemptions[action.reason] += 1
        workload, spec = action.workload, self.specs[action.workload]
        run = self.runs[workload]
        self._require(
            self.now >= run.since + run.granted,
            f"P1: {workload} was preempted {run.since + run.granted - self.now} ms before its protection ended",
        )
        self._require((workload, run.incarnation) not in self.evicted, f"P16: {workload} was told to leave twice")
        self.evicted.add((workload, run.incarnation))
        beneficiary = self.specs.get(action.beneficiary) if action.beneficiary is not None else None
        self._require(beneficiary is not None, f"P6: {workload} was preempted for nobody")
        self._require(
            beneficiary is None or beneficiary.allocated, f"P5: {workload} was preempted for unallocated work"
        )
        self._require(
            not spec.allocated or action.reason is not PreemptReason.UNALLOCATED,
            f"P5: {workload}, allocated {spec.allocated}, went as {action.reason}",
        )
        self.owing[workload] += spec.shape.gpus * run.granted
        had = self.had[workload] + sum(run.gpus.values()) * (self.now - run.since)
        self._require(
            self.owing[workload] <= had,
            f"P15: {workload} has had {had} GPU-ms, less than the {self.owing[workload]} of its preempted starts",
        )

    def _release(self, workload: WorkloadId, node: NodeName) -> None:
        run = self.runs[workload]
        gpus = run.gpus.pop(node, None)
        if gpus is None:
            return
        self.free[node] += gpus
        self.had[workload] += gpus * (self.now - run.since)
        self._rate[self.specs[workload].allocated] -= gpus
        if not run.gpus:
            del self.runs[workload]

    def _require(self, holds: bool, sentence: str) -> None:
        if not holds:
            raise BrokenLawError(sentence)
