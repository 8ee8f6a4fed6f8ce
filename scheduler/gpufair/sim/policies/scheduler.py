"""What all policies without a contract do alike: the life of a workload, in the events and actions of the core.

They admit what the core admits, so that all contenders play the same submissions; they stop, park and queue again as it
does. ``min_runtime`` protects nobody here and orders nobody: whoever runs goes on until it ends, unless a subclass tells
it to leave. Nothing starts on a node that is cordoned or drained, and what runs there goes on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from heapq import heappop

from gpufair.core import events as ev
from gpufair.core.actions import Action
from gpufair.core.admission import check_budgets, check_node, check_spec
from gpufair.core.errors import GpufairError, InvalidSpec, NodeNotLost, UnknownNode, UnknownWorkload, WrongPhase
from gpufair.core.events import Event
from gpufair.core.facts import STAYING
from gpufair.core.model import HOLDING, Kind, Outcome, Phase, PreemptReason
from gpufair.core.record import NodeRecord
from gpufair.core.tree import Tree
from gpufair.core.units import Instant, NodeName, PoolName, WorkloadId
from gpufair.sim.policies.item import Item
from gpufair.sim.policies.life import Life


class Scheduler(Life):
    """A decider whose subclasses say who starts, and who leaves for whom."""

    # -- what subclasses decide -----------------------------------------------------------------------------------

    @abstractmethod
    def fill(self) -> None:
        """Start whoever may start."""

    def rebudgeted(self) -> None:
        """The budget tree is another one."""

    def rebuilt(self) -> None:
        """A node came, went, closed or opened."""

    def wakeup(self) -> Instant | None:
        """When the subclass wants to look again."""
        return None

    @property
    def protected_preemptions(self) -> int:
        """How often somebody was told to leave whom the policy had promised that it would not be."""
        return 0

    # -- the decider ----------------------------------------------------------------------------------------------

    @property
    def by_pool(self) -> Mapping[PoolName, Sequence[NodeRecord]]:
        """All known nodes."""
        return self.ground.by_pool

    def handle(self, event: Event) -> Sequence[Action]:
        """Take an event in and decide.

        Raises:
            GpufairError: The event is refused; nothing has changed.
        """
        before, self.now = self.now, max(self.now, event.at)
        self.cause, self._actions = event.cause, []
        try:
            changed = self._take_in(event)
        except GpufairError:
            self.now = before
            raise
        if changed:
            if self._plain:
                self.start_plain()
            self.fill()
        return self._actions

    def next_wakeup(self) -> Instant | None:
        """When ``TimePassed`` is due if nothing happens before."""
        clock = self._clock
        while clock and not self._is_due_then(*clock[0]):
            heappop(clock)
        mine = self.wakeup()
        if not clock:
            return mine
        return clock[0][0] if mine is None else min(mine, clock[0][0])

    def forget(self, before: Instant) -> None:
        """Drop workloads that ended before an instant."""
        ended = self._ended
        while ended and ended[0].ended_at is not None and ended[0].ended_at < before:
            del self.items[ended.popleft().id]

    # -- events ---------------------------------------------------------------------------------------------------

    def _take_in(self, event: Event) -> bool:
        """Write an event down, with what follows for the workload itself; whether anybody else may start now."""
        match event:
            case ev.Submitted():
                return self._submitted(event)
            case ev.Started() | ev.CheckpointDone() | ev.ActivityReported():
                self._reported(event)
                return False
            case ev.Exited() | ev.Released() | ev.StartFailed():
                return self._freed(event)
            case ev.Cancelled() | ev.ParkRequested() | ev.ResumeRequested() | ev.ExtensionRequested():
                return self._asked(event)
            case ev.TimePassed():
                return self._time_passed()
            case ev.BudgetsApplied():
                self._budgets_applied(event)
                return True
            case ev.NodeJoined():
                node = event.node
                check_node(node, self.ground.nodes.get(node.name), self.ground.rest_held(node.name))
                self.ground.join(node)
                self.rebuilt()
                return True
            case ev.NodeLost():
                self._node_lost(event.node)
                return True
            case ev.NodeRemoved():
                if not self._node(event.node).lost:
                    raise NodeNotLost(event.node)
                self.ground.close(event.node, False)  # whoever has its name later is open
                return False
            case ev.NodeCordoned() | ev.NodeDrained() | ev.NodeUncordoned():
                self._node(event.node)
                self.ground.close(event.node, not isinstance(event, ev.NodeUncordoned))
                self.rebuilt()
                return True
            case _:
                return False

    def _submitted(self, event: ev.Submitted) -> bool:
        spec = event.spec
        if not event.workload:
            raise InvalidSpec("a workload needs an id")
        if event.workload in self.items:
            raise InvalidSpec(f"workload id {event.workload!r} is taken; choose another")
        key = (spec.allocation, spec.shape, spec.pools, spec.min_runtime, spec.grace, spec.movable, spec.resumable)
        if key not in self._fitting:
            check_spec(spec, self)
            self._fitting.add(key)
        item = self.items[event.workload] = Item(event.workload, spec, self.now)
        if event.withheld:
            item.phase, item.withheld = Phase.PARKED, True
        else:
            self.wait(item)
        return True

    def _reported(self, event: ev.Started | ev.CheckpointDone | ev.ActivityReported) -> None:
        item = self._item(event.workload)
        if event.incarnation != item.incarnation:
            return
        if isinstance(event, ev.CheckpointDone):
            newest = item.checkpoint.sequence if item.checkpoint is not None else -1
            if item.phase is not Phase.ENDED and event.checkpoint.sequence > newest:
                item.checkpoint, item.restores = event.checkpoint, True
            return
        if item.phase not in HOLDING:
            return
        if isinstance(event, ev.ActivityReported):
            item.busy = event.busy
        elif item.phase in {Phase.STARTING, Phase.RESTORING}:
            item.phase, item.failures = Phase.RUNNING, 0
        else:
            return
        item.active_at = self.now
        idle = item.idle_until() if item.spec.kind is Kind.SESSION else None
        if idle is not None:
            self.look_at(item, idle)

    def _freed(self, event: ev.Exited | ev.Released | ev.StartFailed) -> bool:
        item = self._item(event.workload)
        if event.incarnation != item.incarnation or item.phase not in HOLDING:
            return False
        match event:
            case ev.Exited():
                item.exit = event.outcome, event.reason
            case ev.StartFailed():
                item.failures += 1
                item.failure = event.reason or "no reason was given"
                self.note_who_waits(item, busy=False)
            case ev.Released():
                self.note_who_waits(item, busy=event.busy)
        self.let_go(item, item.held.leases if item.held is not None else ())
        self.settle(item)
        return True

    def _asked(self, event: ev.Cancelled | ev.ParkRequested | ev.ResumeRequested | ev.ExtensionRequested) -> bool:
        item = self._item(event.workload)
        over = item.phase is Phase.ENDED or (item.cancelled and not isinstance(event, ev.Cancelled))
        what = {ev.Cancelled: "cancel", ev.ParkRequested: "park", ev.ResumeRequested: "resume"}.get(
            type(event), "extend"
        )
        if isinstance(event, ev.ParkRequested) and item.spec.kind is not Kind.SESSION:
            raise WrongPhase(item.id, f"a {item.spec.kind} workload", what, "only sessions are parked; cancel it")
        if over:
            raise WrongPhase(item.id, Phase.ENDED, what, "there is nothing left to do")
        match event:
            case ev.Cancelled():
                self._cancelled(item)
            case ev.ParkRequested():
                self._park_requested(item, event.reason)
            case ev.ResumeRequested():
                self._resume_requested(item, event.from_checkpoint)
            case _:
                pass  # nothing is protected here, so nothing can be protected longer
        return True

    def _cancelled(self, item: Item) -> None:
        item.cancelled = True
        if item.phase in {Phase.QUEUED, Phase.PARKED}:
            self.end(item, Outcome.CANCELLED, "cancelled before it held any GPUs")
        elif item.phase is not Phase.STOPPING:
            self.stop(item, "cancelled by its owner")

    def _park_requested(self, item: Item, reason: PreemptReason) -> None:
        if item.phase is Phase.QUEUED:
            self.park(item, "parked while it was waiting")
        elif item.phase is Phase.RUNNING:
            item.parking = True
            self.notify(item, reason, None, "parked at its owner's wish")
        elif item.phase in STAYING:
            item.parking = True
            self.stop(item, "parked before it was up; the last checkpoint stands")
        elif item.phase is not Phase.PARKED:
            item.parking = True

    def _resume_requested(self, item: Item, from_checkpoint: bool) -> None:
        if item.phase is Phase.PARKED:
            item.restores = from_checkpoint
            if item.withheld:
                item.withheld, item.submitted_at = False, self.now
            self.requeue(item, "its owner wants it back")
        elif item.phase not in STAYING:
            # On its way out: it comes back instead of being parked. A queued one does so anyway.
            item.parking, item.interrupted = False, item.phase in HOLDING
            item.restores = item.restores and from_checkpoint

    def _time_passed(self) -> bool:
        clock, mine = self._clock, self.wakeup()
        while clock and clock[0][0] <= self.now:
            moment = heappop(clock)
            if not self._is_due_then(*moment):
                continue
            item = self.items[moment[1]]
            if item.phase is Phase.RUNNING:
                self.notify(
                    item, PreemptReason.IDLE, None, "it has run no cell for so long that its GPUs are given back"
                )
            else:
                self.stop(item, "its grace has passed")
        return mine is not None and mine <= self.now

    def _budgets_applied(self, event: ev.BudgetsApplied) -> None:
        tree = Tree(event.allocations)
        live = (item for item in self.items.values() if item.phase is not Phase.ENDED)
        check_budgets(tree, ((item.id, item.spec.allocation) for item in live))
        self.tree = tree
        self._fitting.clear()
        self.rebudgeted()

    def _node_lost(self, name: NodeName) -> None:
        holders = sorted(self._node(name).holders)
        hit = [self.items[holder] for holder in holders]
        for item in hit:
            assert item.held is not None
            self.note_who_waits(item, busy=False)
            self.let_go(item, tuple(lease for lease in item.held.leases if lease.node == name))
        self.ground.lose(name)
        self.rebuilt()
        for item in hit:
            if item.held is None:
                self.settle(item)
            elif item.phase is not Phase.STOPPING:
                self.stop(item, "one of its nodes was lost; a gang starts and stops whole")

    # -- looking up -----------------------------------------------------------------------------------------------

    def _item(self, workload: WorkloadId) -> Item:
        try:
            return self.items[workload]
        except KeyError:
            raise UnknownWorkload(workload) from None

    def _node(self, name: NodeName) -> NodeRecord:
        if name not in self.ground.nodes:
            raise UnknownNode(name, tuple(self.ground.nodes))
        return self.ground.nodes[name]
