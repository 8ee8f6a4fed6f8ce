"""Asking for something else while waiting: the workload keeps its id and its place.

It stands where it would if it had been submitted like this at its first submission. What its leaf was owed on its
account until then stays owed until it starts: from then on no more than on account of what it starts with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpufair.core import demand
from gpufair.core.model import Phase, WorkloadSpec
from gpufair.core.record import Record
from gpufair.core.units import PoolName
from gpufair.core.waiting import Ticket

if TYPE_CHECKING:
    from gpufair.core.facts import Facts


def amend(facts: Facts, record: Record, spec: WorkloadSpec) -> None:
    """From now on a workload that waits or rests asks for this. A landing that it owned was for what it asked before."""
    queued, same = record.phase is Phase.QUEUED, _counts_alike(record.spec, spec)
    ticket = Ticket(record.submitted_at, record.id)
    if queued:
        facts.waiting.remove(record.spec, ticket, record.min_runtime)
        facts.drop_landing(record)
        if not same:
            demand.cease_to_wait(facts, record)
    if not same:
        demand.set_aside(record)
    _put(facts, record, spec)
    if queued:
        facts.waiting.add(spec, ticket, record.min_runtime)
        if not same:
            demand.begin_to_wait(facts, record)


def _put(facts: Facts, record: Record, spec: WorkloadSpec) -> None:
    if spec.min_runtime != record.spec.min_runtime:
        record.slice = None  # it was a part of what it asked for before
    record.spec, record.weight = spec, facts.weights.of(spec.shape.gpu_type)


def _counts_alike(one: WorkloadSpec, other: WorkloadSpec) -> bool:
    """Whether two wishes are the same demand."""
    return _demand(one) == _demand(other)


def _demand(spec: WorkloadSpec) -> tuple[object, ...]:
    return (spec.allocation, spec.shape, spec.pools) if spec.allocated and spec.shape.gpus else ()


@dataclass(slots=True)
class Attempt:
    """How demand would change with an amendment: GPUs by pool, weighted, that the leaf wants more there (or fewer)."""

    more: dict[PoolName, int] = field(default_factory=dict)

    def count(self, facts: Facts, record: Record, sign: int) -> None:
        """Count what a workload wants."""
        pool = demand.first_pool(facts, demand.wish_of(record)) if demand.wants(record) else None
        if pool is not None:
            self.more[pool] = self.more.get(pool, 0) + sign * record.gpus * record.weight


@contextmanager
def amended(facts: Facts, record: Record, spec: WorkloadSpec) -> Iterator[Attempt]:
    """A queued workload as it would wait if it were amended, for as long as the context lasts. Its leaf stays the same."""
    before, part, weight, landing = record.spec, record.slice, record.weight, record.landing
    landed, in_doubt = dict(facts.landed), facts.landings_in_doubt
    promised = {lease.node: dict(facts.nodes[lease.node].landings) for lease in landing.leases} if landing else {}
    ticket, attempt = Ticket(record.submitted_at, record.id), Attempt()
    attempt.count(facts, record, -1)
    facts.waiting.remove(before, ticket, record.min_runtime)
    facts.drop_landing(record)
    _put(facts, record, spec)
    facts.waiting.add(spec, ticket, record.min_runtime)
    attempt.count(facts, record, +1)
    try:
        yield attempt
    finally:
        facts.waiting.remove(spec, ticket, record.min_runtime)
        record.spec, record.slice, record.weight, record.landing = before, part, weight, landing
        facts.waiting.add(before, ticket, record.min_runtime)
        facts.landed = landed
        for name, there in promised.items():
            facts.nodes[name].landings = there
            facts.touch(name)
        facts.landings_in_doubt = in_doubt
