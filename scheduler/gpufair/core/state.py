"""The scheduler: events in, actions out.

``handle`` writes the facts of an event down, decides, and applies each decision; ``recover`` writes the facts down and
applies decisions that were recorded earlier. Both end in the same state, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpufair.core import draining, figures
from gpufair.core.actions import Action
from gpufair.core.admission import check, check_policy, is_stale
from gpufair.core.advice import advice
from gpufair.core.coach import Coaching, coach
from gpufair.core.commit import commit
from gpufair.core.engine import handle
from gpufair.core.errors import UnknownAllocation
from gpufair.core.events import Event
from gpufair.core.explain import AllocationExplanation, Explanation, explain, explain_allocation
from gpufair.core.facts import Facts
from gpufair.core.figures import AllocationFigures
from gpufair.core.invariants import validate
from gpufair.core.ledger import Conservation, sum_up
from gpufair.core.model import Phase, Policy, Shape, WorkloadSpec
from gpufair.core.over_time import OverTime, over_time
from gpufair.core.preview import TYPICAL, Assumed, Preview, preview
from gpufair.core.pyramid import Pyramid, pyramid
from gpufair.core.queue import Places, queue
from gpufair.core.reading import Reading
from gpufair.core.record import NodeView, Record, Workload, view
from gpufair.core.recording import record_event
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, GpuMillis, Instant, Millis, WorkloadId
from gpufair.core.wakeup import next_wakeup


class State:
    """The whole state of the scheduler. It changes through ``handle``, ``recover``, ``drop`` and ``recall`` only.

    Args:
        policy: Options.
        validate: Check all invariants after each event (slow; for tests and for finding bugs).

    Raises:
        InvalidSpec: The policy makes no sense or asks for something that is not implemented.
    """

    def __init__(self, policy: Policy = Policy(), validate: bool = False) -> None:
        check_policy(policy)
        self._facts = Facts(policy)
        self._validates = validate
        self._reading: Reading | None = None  # until the next event
        self._places: Places | None = None  # until the next event

    @classmethod
    def of(cls, facts: Facts, validate: bool = False) -> State:
        """A state over these facts, which it owns from now on."""
        state = cls(facts.policy, validate)
        state._facts = facts
        return state

    def handle(self, event: Event) -> list[Action]:
        """Take an event in and decide.

        The caller feeds ``TimePassed`` at exactly each ``next_wakeup`` before any later event, so that no decision
        depends on when somebody called.

        Returns:
            What to do, already applied; empty for a report about an earlier start.

        Raises:
            GpufairError: The event is refused; the state is unchanged.
        """
        self._reading = self._places = None
        actions = handle(self._facts, event)
        if self._validates:
            self.validate()
        return actions

    def recover(self, event: Event, actions: Iterable[Action]) -> None:
        """Take in an event with what was decided about it earlier; decide nothing.

        Raises:
            GpufairError: The event does not fit the state: the journal belongs to another one.
        """
        facts, self._reading, self._places = self._facts, None, None
        check(event, facts)
        if is_stale(event, facts):
            return
        facts.wakeup_known = False
        facts.advance(event.at)
        record_event(event, facts)
        for action in actions:
            commit(action, facts)
        if self._validates:
            self.validate()

    def next_wakeup(self) -> Instant | None:
        """When ``TimePassed`` is due if nothing happens before; None if nothing is scheduled."""
        return next_wakeup(self._facts)

    @property
    def now(self) -> Instant:
        """The instant of the last event."""
        return self._facts.now

    @property
    def policy(self) -> Policy:
        """The options in force."""
        return self._facts.policy

    @property
    def tree(self) -> Tree:
        """The budget tree."""
        return self._facts.tree

    @property
    def facts(self) -> Facts:
        """What the state is made of, for ``snapshot`` and tests; to be read only."""
        return self._facts

    @property
    def protected_preemptions(self) -> int:
        """Preemptions of protected workloads, counted apart from the rules that decide. Must be 0."""
        return self._facts.protected_preemptions

    @property
    def forced_moves(self) -> int:
        """Protected workloads that an operator forced off a node. They are outside ``protected_preemptions``."""
        return self._facts.forced_moves

    @property
    def allowed_moves(self) -> int:
        """Protected workloads that were moved as their owner allows."""
        return self._facts.allowed_moves

    @property
    def consolidation_moves(self) -> int:
        """Workloads that were moved to join free GPUs for somebody else."""
        return self._facts.consolidation_moves

    def workload(self, workload: WorkloadId) -> Workload:
        """One workload.

        Raises:
            UnknownWorkload: There is none.
        """
        return view(self._facts.record(workload), self._facts.now, self._facts.weights.unit)

    def workloads(self) -> tuple[Workload, ...]:
        """All workloads, by id, ended ones included."""
        facts = self._facts
        return tuple(view(facts.records[one], facts.now, facts.weights.unit) for one in sorted(facts.records))

    def queue(self) -> tuple[WorkloadId, ...]:
        """Who waits, in the order in which a pass tries them."""
        return queue(self._facts)

    def position(self, workload: WorkloadId) -> int | None:
        """The place in that order, counted from 1; None for what does not wait.

        Raises:
            UnknownWorkload: There is none.
        """
        record = self._facts.record(workload)
        if record.phase is not Phase.QUEUED:
            return None
        if self._places is None:
            self._places = Places(self._facts)
        return self._places.of(record)

    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes, by name."""
        return tuple(
            NodeView(
                node=node.node,
                cordoned=node.cordoned,
                lost=node.lost,
                free=max(0, node.room),
                holders=tuple(sorted(node.holders.items())),
                reserved=tuple(sorted(node.claims.items())),
                drain=node.drain,
                protected=draining.still_protected(self._facts, node),
                empty_by=draining.empty_by(self._facts, node),
                landings=tuple((one.owner, one.gpus, one.at) for one in node.bounds if one.owner is not None),
                closes_at=node.closes_at,
                guests=max(0, node.free) - max(0, node.room),
            )
            for node in self._facts.nodes.values()
        )

    def budgets(self) -> tuple[AllocationFigures, ...]:
        """Figures of every node of the tree in every pool."""
        return figures.budgets(self._facts)

    def pyramid(self, start: Instant, end: Instant) -> tuple[Pyramid, ...]:
        """Where GPU time went in each pool, with what was delivered of what was owed.

        A period is made of whole steps of the history: ``start`` is rounded down to one and ``end`` up, to the present
        at most. What is older than the history counts for nothing; the answer says from when to when it is.
        """
        return pyramid(self._facts, start, end)

    def over_time(
        self, start: Instant, end: Instant, most: int, only: AllocationPath | None = None
    ) -> tuple[OverTime, ...]:
        """What each allocation, or ``only`` one, was owed and charged over such a period, in at most ``most`` bins."""
        return over_time(self._facts, start, end, most, only)

    def explain(self, workload: WorkloadId) -> Explanation:
        """Why it is where it is, from the same state that decided.

        Raises:
            UnknownWorkload: There is none.
        """
        if self._reading is None:
            self._reading = Reading(self._facts)
        return explain(self._reading, self._facts.record(workload))

    def explain_allocation(self, path: AllocationPath) -> tuple[AllocationExplanation, ...]:
        """How an allocation stands among its siblings in each pool, from the root down to it.

        Raises:
            UnknownAllocation: There is none.
        """
        if path not in self._facts.tree:
            raise UnknownAllocation(path, self._facts.tree.leaves)
        return explain_allocation(self._facts, path)

    def preview(
        self, until: Instant, assume: Assumed = TYPICAL, most_steps: int = 2_000, most_events: int = 20_000
    ) -> Preview:
        """Who runs next and who is preempted when, if nothing new arrives and the future goes as assumed.

        Args:
            until: How far to look.
            assume: How long nodes and workloads take.
            most_steps: After so many steps it is cut, and says so.
            most_events: The same for events, those at which nothing happens included.
        """
        return preview(self._facts, until, assume, most_steps, most_events)

    def coach(
        self, spec: WorkloadSpec, min_runtimes: Iterable[Millis] | None = None, shapes: Iterable[Shape] | None = None
    ) -> Coaching:
        """What a submission would mean for the wait, as it is and with other min_runtimes and shapes.

        Args:
            spec: The wish; it need not be one that would be admitted.
            min_runtimes: Which to try; None: the usual ones up to the cap.
            shapes: Which to try; None: the asked one, half of it, all on one node, and one GPU.
        """
        return coach(self._facts, spec, min_runtimes, shapes)

    def conservation(self) -> Conservation:
        """Where all GPU time went, exactly."""
        facts = self._facts
        return sum_up(facts.ledgers[pool].conservation(pool) for pool in facts.ledgers)

    def advice(self, spec: WorkloadSpec) -> tuple[str, ...]:
        """What whoever submits this should be warned about; empty if nothing."""
        return advice(spec, self._facts)

    def forgettable(self, before: Instant) -> list[WorkloadId]:
        """Workloads that ended before an instant and that nothing which lives is about: no decision depends on them."""
        records = self._facts.records.values()
        named = {other for record in records if record.phase is not Phase.ENDED for other in _named(record)}
        return [
            record.id
            for record in records
            if record.ended_at is not None and record.ended_at < before and record.id not in named
        ]

    def forget(self, before: Instant) -> None:
        """Drop workloads that are ``forgettable``. What they were charged stays in the ledger."""
        self.drop(self.forgettable(before))

    def drop(self, workloads: Iterable[WorkloadId]) -> list[Record]:
        """Drop these ended workloads, as far as they are here; their records, for ``recall``."""
        records, self._reading = self._facts.records, None
        return [
            records.pop(workload)
            for workload in workloads
            if workload in records and records[workload].phase is Phase.ENDED
        ]

    def recall(self, record: Record, unit: int) -> None:
        """Take an ended workload back that was dropped. To be asked about it only: no event names what was dropped.

        Args:
            record: As it was then.
            unit: Parts of a GPU in which its charge was counted then.
        """
        facts, self._reading = self._facts, None
        if record.id not in facts.records:
            record.settled = GpuMillis(record.settled * (facts.weights.unit // unit))
            record.weight = facts.weights.of(record.spec.shape.gpu_type)
            facts.list_workload(record)

    def copy(self) -> State:
        """An independent copy, to try something on."""
        return State.of(self._facts.copy(), self._validates)

    def frozen(self) -> State:
        """An independent copy for ``snapshot`` only, made in less time: it cannot be asked anything, nor go on."""
        return State.of(self._facts.copy(listed=False))

    def validate(self) -> None:
        """Check every invariant that can be seen in one state.

        Raises:
            Inconsistent: One is broken: a bug.
        """
        validate(self._facts)


def _named(record: Record) -> Iterator[WorkloadId]:
    """Other workloads that decisions about this one may name or look at."""
    if record.beneficiary is not None:
        yield record.beneficiary
    if record.reservation is not None:
        yield from record.reservation.victims
    if record.landing is not None:
        yield from (other for other, _ in record.landing.staying)
