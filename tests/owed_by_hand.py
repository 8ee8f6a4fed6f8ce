"""What each leaf was owed and what each pool had, worked out from the journal alone by going through all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Node, WorkloadSpec
from gpufair.core.possible import could_hold_now
from gpufair.core.record import NodeRecord
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, NodeName, PoolName, WorkloadId
from tests.world import Entry

MICRO = 1_000_000

Wanted = tuple[WorkloadId, PoolName, AllocationPath, int]


@dataclass(frozen=True)
class Span:
    """A time in which nothing changed: who wanted what, how many GPUs there were, and which budgets held."""

    start: int
    end: int
    wanted: tuple[Wanted, ...]
    capacities: dict[PoolName, int]
    tree: Tree


@dataclass
class Books:
    """Everything that bears on what is owed, entry by entry."""

    tree: Tree = field(default_factory=Tree)
    nodes: dict[NodeName, NodeRecord] = field(default_factory=dict)
    specs: dict[WorkloadId, WorkloadSpec] = field(default_factory=dict)
    queued: set[WorkloadId] = field(default_factory=set)
    held: dict[WorkloadId, tuple[PoolName, int, dict[NodeName, int]]] = field(default_factory=dict)
    started: set[WorkloadId] = field(default_factory=set)
    refused: set[WorkloadId] = field(default_factory=set)  # over without ever having started
    amended: set[WorkloadId] = field(default_factory=set)
    # When those of them first started, for which leaf and with how many GPUs, weighted (0: unallocated).
    began: dict[WorkloadId, tuple[int, AllocationPath, int]] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)
    now: int = 0
    weights: Mapping[str, int] = field(default_factory=dict)  # whole numbers for each GPU type, and for "" (any)

    @classmethod
    def of(cls, journal: Iterable[Entry], weights: Mapping[str, int] | None = None) -> Self:
        books = cls(weights=weights or {})
        for entry in journal:
            books.take(entry)
        return books

    def take(self, entry: Entry) -> None:
        """One more entry."""
        at = max(self.now, entry.event.at)
        self._until(at)
        self._event(entry.event)
        for action in entry.actions:
            self._action(action)

    def _until(self, at: int) -> None:
        if at > self.now:
            capacities = {
                pool: sum(
                    node.node.gpus * self._weight(node.node.gpu_type) for node in self._of(pool) if not node.lost
                )
                for pool in {node.node.pool for node in self.nodes.values()}
            }
            self.spans.append(Span(self.now, at, tuple(self._wanted()), capacities, self.tree))
            self.now = at

    def _of(self, pool: PoolName) -> list[NodeRecord]:
        return [node for node in self.nodes.values() if node.node.pool == pool]

    def _wanted(self) -> Iterable[Wanted]:
        for workload, (pool, _, leases) in self.held.items():
            spec = self.specs[workload]
            if spec.allocated:
                weighed = sum(gpus * self._weight(self.nodes[node].node.gpu_type) for node, gpus in leases.items())
                yield workload, pool, spec.allocation, weighed
        for workload in self.queued:
            spec = self.specs[workload]
            pools = [pool for pool in spec.pools if could_hold_now(self._of(pool), spec.shape)]
            if spec.allocated and pools:
                yield workload, pools[0], spec.allocation, spec.shape.gpus * self._weight(spec.shape.gpu_type)

    def _weight(self, gpu_type: str) -> int:
        return self.weights.get(gpu_type, self.weights.get("", 1))

    def _event(self, event: ev.Event) -> None:
        match event:
            case ev.BudgetsApplied():
                self.tree = Tree(event.allocations)
            case ev.NodeJoined():
                self._join(event.node)
            case ev.NodeLost():
                self.nodes[event.node].lost = True
                for _, _, leases in self.held.values():
                    leases.pop(event.node, None)
            case ev.NodeRemoved():
                del self.nodes[event.node]
            case ev.Submitted():
                self.specs[event.workload] = event.spec
                self.queued.add(event.workload)
            case ev.Amended():
                self.specs[event.workload] = event.of(self.specs[event.workload])
                self.amended.add(event.workload)
            case ev.Released() | ev.Exited() | ev.StartFailed():
                if event.workload in self.held and self.held[event.workload][1] == event.incarnation:
                    del self.held[event.workload]
            case _:
                pass

    def _join(self, node: Node) -> None:
        self.nodes[node.name] = NodeRecord(node)

    def _action(self, action: act.Action) -> None:
        workload = action.workload
        match action:
            case act.Start():
                self.queued.discard(workload)
                if workload in self.amended and workload not in self.started:
                    spec = self.specs[workload]
                    gpus = spec.shape.gpus * self._weight(spec.shape.gpu_type) if spec.allocated else 0
                    self.began[workload] = (self.now, spec.allocation, gpus)
                self.started.add(workload)
                leases = {lease.node: lease.gpus for lease in action.held.leases}
                self.held[workload] = (action.held.pool, action.held.incarnation, leases)
            case act.Requeue():
                self.queued.add(workload)
            case act.Park():
                self.queued.discard(workload)
            case act.End():
                self.queued.discard(workload)
                if workload not in self.started:
                    self.refused.add(workload)
            case _:
                pass

    def owed(self, pool: PoolName, leaf: AllocationPath, start: int, end: int) -> int:
        """Owed to a leaf between two instants, in millionths of a GPU x ms."""
        total = 0
        for span in self.spans:
            length = min(end, span.end) - max(start, span.start)
            if length <= 0 or leaf not in span.tree:
                continue
            wanted = sum(
                self.counted(workload, leaf, gpus, span)
                for workload, where, path, gpus in span.wanted
                if (where, path) == (pool, leaf) and workload not in self.refused
            )
            entitled = span.tree[leaf].entitlement * span.capacities.get(pool, 0) * MICRO
            total += length * min(wanted * MICRO, entitled.numerator // entitled.denominator)
        return total

    def counted(self, workload: WorkloadId, leaf: AllocationPath, gpus: int, span: Span) -> int:
        """What stays owed for a wait of one that was amended: no more than for what it started with."""
        at, mine, most = self.began.get(workload, (0, leaf, gpus))
        if span.end > at:
            return gpus
        return min(gpus, most) if mine == leaf else 0

    def capacity(self, pool: PoolName, start: int, end: int) -> int:
        """GPU-milliseconds that the nodes of a pool had between two instants, lost ones out."""
        return sum(
            span.capacities.get(pool, 0) * max(0, min(end, span.end) - max(start, span.start)) for span in self.spans
        )
