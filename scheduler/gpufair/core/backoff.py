"""Back-off: unallocated work that is preempted again and again starts later each time.

It has no protection, so nothing else bounds how often it is started in vain: single jobs of a prototype reached a
thousand restarts. Allocated work never waits for this: each start of it was paid for with a whole protection.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from gpufair.core.model import Phase, Policy
from gpufair.core.record import Record
from gpufair.core.units import Instant, Millis, WorkloadId, after

# 2 ** 40 minutes are longer than anybody waits; it keeps the numbers small.
_MOST_DOUBLINGS = 40


def pause(policy: Policy, preemptions: int) -> Millis:
    """How long a workload rests after its n-th preemption: twice as long each time, up to a limit."""
    return Millis(min(policy.backoff_most, policy.backoff * 2 ** min(preemptions - 1, _MOST_DOUBLINGS)))


def preempted(record: Record, policy: Policy, now: Instant) -> None:
    """An unallocated workload was preempted; it may not start again at once."""
    if not record.spec.allocated and record.gpus and policy.backoff:
        record.not_before = after(now, pause(policy, record.preemptions))


def rests(record: Record, now: Instant) -> bool:
    """Whether a queued workload may not start yet."""
    return record.not_before is not None and record.not_before > now


class RestClock:
    """When the next one that rests may start again."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, WorkloadId]] = []

    def watch(self, record: Record, now: Instant) -> None:
        """A workload was queued."""
        if record.not_before is not None and record.not_before > now:
            heappush(self._heap, (record.not_before, record.id))

    def next(self, now: Instant, records: Mapping[WorkloadId, Record]) -> Instant | None:
        """The moment; None if nobody rests."""
        while self._heap:
            until, workload = self._heap[0]
            record = records.get(workload)
            if until > now and record is not None and record.phase is Phase.QUEUED and record.not_before == until:
                return until
            heappop(self._heap)
        return None
