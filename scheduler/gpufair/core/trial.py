"""What a pass would do for a wish if it were submitted now, or amended. The very pass is run, up to what it decides first.

The wish stands in the queue for as long as that takes, and nothing else is touched: a pass changes the facts through
its decisions only, and none is applied. If its first decision is about the wish, then exactly that would come of the
submission. If it is about somebody else, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gpufair.core.actions import Action, BeginCheckpoint, GrantLanding, Reserve, Start
from gpufair.core.amending import amended
from gpufair.core.chances import Chances
from gpufair.core.decide import Commit, Pass
from gpufair.core.demand import first_pool, wants, wish_of
from gpufair.core.facts import Facts
from gpufair.core.metrics import shares_of
from gpufair.core.model import PreemptReason, WorkloadSpec
from gpufair.core.placement import holds
from gpufair.core.reading import Reading
from gpufair.core.record import Record
from gpufair.core.rights import may_leave
from gpufair.core.running import sum_up
from gpufair.core.touchdown import LARGER_THAN
from gpufair.core.units import AllocationPath, CauseId, GpuMillis, Instant, PoolName, WorkloadId
from gpufair.core.waiting import Ticket

TRIAL: Final = CauseId("trial")


@dataclass(frozen=True, slots=True)
class Trial:
    """What would come of a wish at once: a start, GPUs that are made free for it, or a landing. Else it would wait."""

    start: Start | None = None
    reserve: Reserve | None = None
    notices: tuple[BeginCheckpoint, ...] = ()
    landing: GrantLanding | None = None

    def at(self, now: Instant) -> Instant | None:
        """When it would start at the latest; None if it would wait."""
        if self.start is not None:
            return now
        return max((notice.deadline for notice in self.notices), default=None)

    @property
    def right(self) -> PreemptReason | None:
        """By which right others would leave for it: the strongest that it needs; None if nobody has to."""
        return max((notice.reason for notice in self.notices), key=_strength, default=None)


_STRENGTH: Final = (
    PreemptReason.UNALLOCATED,
    PreemptReason.PRIORITY,
    PreemptReason.RANK,
    PreemptReason.TAKE_LIMIT,
    PreemptReason.DEBUG,
    PreemptReason.LANDING,
)


def _strength(reason: PreemptReason) -> int:
    return _STRENGTH.index(reason) if reason in _STRENGTH else len(_STRENGTH)


@contextmanager
def asking(facts: Facts, spec: WorkloadSpec) -> Iterator[Record]:
    """A workload that was submitted just now, for as long as the context lasts."""
    wish = WorkloadId("~wish")  # of equals it comes last
    while wish in facts.records:
        wish = WorkloadId(f"{wish}~")
    weight = facts.weights.of(spec.shape.gpu_type)
    record = Record(id=wish, spec=spec, submitted_at=facts.now, weight=weight)
    ticket = Ticket(record.submitted_at, record.id)
    facts.records[wish] = record
    facts.waiting.add(spec, ticket, record.min_runtime)
    try:
        yield record
    finally:
        facts.waiting.remove(spec, ticket, record.min_runtime)
        del facts.records[wish]


def trial(facts: Facts, record: Record) -> Trial:
    """What a pass would do first, if that is about ``record``, which was submitted just now."""
    wanted = first_pool(facts, wish_of(record)) if wants(record) else None
    return _tried(facts, record, {wanted: record.gpus * record.weight} if wanted is not None else {})


def trial_amended(facts: Facts, record: Record, spec: WorkloadSpec) -> Trial:
    """What a pass would do first, if that is about ``record``, were it amended now. It is queued, and keeps its leaf."""
    with amended(facts, record, spec) as attempt:
        return _tried(facts, record, attempt.more)


def _tried(facts: Facts, record: Record, more: Mapping[PoolName, int]) -> Trial:
    answer = _Answer(record.id)
    try:
        _WithDemand(facts, answer.decided, record.spec.allocation, more).run(())
    except _KnownError:
        return answer.trial()
    return Trial()


def has_room(reading: Reading, spec: WorkloadSpec) -> bool:
    """Whether there is room for a wish in one of its pools now, whoever else may come first."""
    nodes, until = reading.facts.by_pool, reading.until(spec.min_runtime)
    return any(holds(nodes.get(pool, ()), spec.shape, until=until) for pool in spec.pools)


def could_land(reading: Reading, spec: WorkloadSpec) -> bool:
    """Whether a wish could be granted a landing now: where its leaf has none yet."""
    facts = reading.facts
    large = facts.policy.landings and spec.allocated and spec.shape.gpus > LARGER_THAN
    return large and not all((pool, spec.allocation) in facts.landed for pool in spec.pools)


def could(reading: Reading, spec: WorkloadSpec) -> bool:
    """Whether there would be room for a wish if all left whom it may tell to. If not, no trial would do anything."""
    facts = reading.facts
    if has_room(reading, spec):
        return True
    if not spec.min_runtime or not spec.shape.gpus:
        return False
    wish = Record(WorkloadId("~wish"), spec, facts.now, weight=reading.facts.weights.of(spec.shape.gpu_type))
    for pool in spec.pools:
        here = reading.chances(pool)
        if here.running.freed():
            group = {one: facts.records[one] for one in sorted(may_leave(facts, here, wish))}
            if group and here.rooms.fits(spec.shape, sum_up(group), here.ends(wish)):
                return True
    return False


class _WithDemand(Pass):
    """A pass over the metrics as they are when the wish is counted as demand: its leaf may have had none before."""

    def __init__(self, facts: Facts, commit: Commit, leaf: AllocationPath, more: Mapping[PoolName, int]) -> None:
        super().__init__(facts, TRIAL, commit)
        for pool, gpus in more.items():
            self._pools[pool] = Chances(facts, pool, shares_of(facts, pool, leaf, gpus))


def at_rest(facts: Facts) -> bool:
    """Whether a pass at this moment would decide nothing. It is run, up to its first decision."""
    return not _decides(facts)


def _decides(facts: Facts) -> bool:
    try:
        Pass(facts, TRIAL, _stop).run(())
    except _KnownError:
        return True
    return False


class _KnownError(Exception):
    """A trial pass has decided what was asked."""


def _stop(action: Action) -> None:
    raise _KnownError


class _Answer:
    """Takes the decisions about one workload down, and ends the pass after them."""

    def __init__(self, about: WorkloadId) -> None:
        self._about = about
        self._start: Start | None = None
        self._reserve: Reserve | None = None
        self._landing: GrantLanding | None = None
        self._notices: list[BeginCheckpoint] = []

    def decided(self, action: Action) -> None:
        """Instead of applying it. The victims' notices follow their beneficiary's reservation."""
        if self._reserve is not None and isinstance(action, BeginCheckpoint):
            self._notices.append(action)
            if len(self._notices) == len(self._reserve.victims):
                raise _KnownError
            return
        if action.workload == self._about and isinstance(action, Reserve):
            self._reserve = action
            return
        if action.workload == self._about and isinstance(action, Start):
            self._start = action
        elif action.workload == self._about and isinstance(action, GrantLanding):
            self._landing = action
        raise _KnownError

    def trial(self) -> Trial:
        """What was found out."""
        complete = self._reserve is not None and len(self._notices) == len(self._reserve.victims)
        notices = tuple(self._notices) if complete else ()
        return Trial(self._start, self._reserve if complete else None, notices, self._landing)


def promised(spec: WorkloadSpec) -> GpuMillis:
    """GPU time that a start commits."""
    return GpuMillis(spec.shape.gpus * spec.min_runtime)
