"""The life of a workload under a policy without a contract: it waits, starts, leaves, rests and ends as in the core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import replace
from heapq import heappush

from gpufair.core.actions import Action, BeginCheckpoint, End, Park, Requeue, Start, Stop
from gpufair.core.admission import check_policy
from gpufair.core.facts import STAYING
from gpufair.core.model import Held, Kind, Lease, Outcome, Phase, Policy, PreemptReason, WorkloadSpec
from gpufair.core.settle import MAX_START_FAILURES
from gpufair.core.tree import Tree
from gpufair.core.units import CauseId, Instant, Millis, PoolName, WorkloadId, after, since
from gpufair.sim.policies.ground import Ground
from gpufair.sim.policies.item import Item


class Life(ABC):
    """Who waits and who holds what. Each step that others see is an action, in the order in which they were taken.

    Args:
        policy: Of its options these are used: ``max_min_runtime`` (for the same admission), the graces, and ``blocks``.

    Raises:
        InvalidSpec: The options make no sense.
    """

    def __init__(self, policy: Policy) -> None:
        check_policy(policy)
        self.policy = policy
        self.tree = Tree()
        self.now = Instant(0)
        self.items: dict[WorkloadId, Item] = {}
        self.ground = Ground(policy.blocks)
        self._plain: dict[WorkloadId, Item] = {}  # waiting for a node, but for no GPU
        self._fitting: set[tuple[object, ...]] = set()  # wishes that were found possible
        self._clock: list[tuple[Instant, WorkloadId, int]] = []  # moments to look at somebody
        self._ended: deque[Item] = deque()
        self._actions: list[Action] = []
        self.cause = CauseId("")

    # -- what subclasses decide -----------------------------------------------------------------------------------

    @abstractmethod
    def enqueue(self, item: Item) -> None:
        """It waits for GPUs from now on."""

    @abstractmethod
    def dequeue(self, item: Item) -> None:
        """It waits no longer."""

    def granted(self, item: Item) -> None:  # noqa: B027  # most do not mind
        """It holds GPUs from now on."""

    def leaving(self, item: Item, held: Held) -> None:  # noqa: B027  # the same
        """It has been told to leave."""

    def released(self, item: Item, held: Held) -> None:  # noqa: B027  # the same
        """It holds nothing of this any longer."""

    def act(self, action: Action) -> None:
        """Somebody has to do something, or to know."""
        self._actions.append(action)

    # -- steps ----------------------------------------------------------------------------------------------------

    def start(self, item: Item, pool: PoolName, leases: tuple[Lease, ...], why: str) -> None:
        """Start it there. It has been taken out of the queue, or is now."""
        self.dequeue(item) if item.gpus else self._plain.pop(item.id)
        item.incarnation += 1
        held = item.held = Held(leases, pool, item.incarnation, self.now, self.now)
        item.busy = item.interrupted = item.parking = False
        item.deadline = item.notice = item.beneficiary = item.exit = None
        item.failure = ""
        checkpoint = item.checkpoint if item.spec.resumable and item.restores else None
        item.phase = Phase.STARTING if checkpoint is None else Phase.RESTORING
        self.ground.take(item.id, leases, item.spec.shape)
        self.act(Start(self.cause, item.id, held, None if checkpoint is None else checkpoint.id, why))
        self.granted(item)

    def notify(self, item: Item, reason: PreemptReason, beneficiary: WorkloadId | None, why: str) -> None:
        """Tell somebody to save and leave."""
        item.notice, item.beneficiary = reason, beneficiary
        self._leaves(item, Phase.CHECKPOINTING)
        deadline = item.deadline = after(self.now, self.grace(item.spec))
        self.act(BeginCheckpoint(self.cause, item.id, item.incarnation, deadline, reason, beneficiary, why))
        self.look_at(item, max(deadline, after(self.now, Millis(1))))

    def stop(self, item: Item, why: str) -> None:
        """Stop it without another checkpoint."""
        self._leaves(item, Phase.STOPPING)
        self.act(Stop(self.cause, item.id, item.incarnation, why))

    def grace(self, spec: WorkloadSpec) -> Millis:
        """How long it may take to leave."""
        if spec.grace is not None:
            return spec.grace
        return self.policy.grace_session if spec.kind is Kind.SESSION and spec.allocated else self.policy.grace_batch

    def _leaves(self, item: Item, phase: Phase) -> None:
        # Somebody waits for a session that runs a cell, and for one that has not come up yet.
        if item.phase in STAYING:
            item.interrupted = item.interrupted or item.busy or item.phase is not Phase.RUNNING
            if item.held is not None:
                self.leaving(item, item.held)
        item.phase = phase

    def note_who_waits(self, item: Item, busy: bool) -> None:
        """Its GPUs went; somebody waits for a session that ran a cell, or that was not up yet."""
        unannounced = item.phase in STAYING and (item.busy or item.phase is not Phase.RUNNING)
        item.interrupted = item.interrupted or busy or unannounced

    def let_go(self, item: Item, leases: tuple[Lease, ...]) -> None:
        """It holds these of its leases no longer."""
        held = item.held
        assert held is not None
        self.ground.give(item.id, leases, item.spec.shape)
        kept = tuple(lease for lease in held.leases if lease not in leases) if leases != held.leases else ()
        if kept:
            item.held = replace(held, leases=kept)
            return
        item.held = None
        if item.spec.resumable:
            item.used = Millis(item.used + since(self.now, held.granted_at))
        self.released(item, held)

    def settle(self, item: Item) -> None:
        """What becomes of it after it has let go of everything."""
        session = item.spec.kind is Kind.SESSION
        if item.cancelled:
            self.end(item, Outcome.CANCELLED, "cancelled by its owner")
        elif item.exit is not None:
            outcome, why = item.exit
            self.end(item, outcome, why or f"it ended by itself: {outcome}")
        elif session and item.parking:
            self.park(item, "checkpointed and parked")
        elif item.failure and item.phase in STAYING:
            if item.failures > MAX_START_FAILURES:
                why = f"it failed to start {item.failures} times in a row: {item.failure}"
                self.end(item, Outcome.FAILED, why)
            else:
                self.requeue(item, f"it failed to start ({item.failure}); queued again")
        elif session and not item.interrupted:
            self.park(item, "its GPUs went while it was idle: parked")
        else:
            self.requeue(item, "queued again with its first submission time")

    def end(self, item: Item, outcome: Outcome, why: str) -> None:
        """It is over."""
        self._unwait(item)
        item.phase, item.ended_at = Phase.ENDED, self.now
        self._ended.append(item)
        self.act(End(self.cause, item.id, outcome, why))

    def park(self, item: Item, why: str) -> None:
        """A session rests until its owner touches it."""
        self._unwait(item)
        item.phase, item.parking, item.interrupted = Phase.PARKED, False, False
        self.act(Park(self.cause, item.id, why))

    def requeue(self, item: Item, why: str) -> None:
        """It waits again, in the place of its first submission."""
        item.phase, item.interrupted = Phase.QUEUED, False
        self.act(Requeue(self.cause, item.id, why))
        self.wait(item)

    def wait(self, item: Item) -> None:
        """It is in the queue from now on."""
        if item.gpus:
            self.enqueue(item)
        else:
            self._plain[item.id] = item

    def _unwait(self, item: Item) -> None:
        if item.phase is not Phase.QUEUED:
            return
        if item.gpus:
            self.dequeue(item)
        else:
            del self._plain[item.id]

    def start_plain(self) -> None:
        """Work without GPUs waits for nobody."""
        for item in tuple(self._plain.values()):
            for pool in item.spec.pools:
                leases = self.ground.place(item.spec.shape, pool)
                if leases is not None:
                    self.start(item, pool, leases, "it needs no GPUs")
                    break

    def look_at(self, item: Item, moment: Instant) -> None:
        """``TimePassed`` is due then, if it still matters for this workload by then."""
        heappush(self._clock, (moment, item.id, item.incarnation))

    def _is_due_then(self, moment: Instant, workload: WorkloadId, incarnation: int) -> bool:
        """Whether it has to stop, or to give idle GPUs back, at that moment; else the entry means nothing any more."""
        item = self.items.get(workload)
        if item is None or item.incarnation != incarnation:
            return False
        if item.phase is Phase.CHECKPOINTING:
            return item.deadline is not None and item.deadline <= moment
        return item.spec.kind is Kind.SESSION and item.idle_until() == moment
