"""Why somebody who needs no GPUs is not the next to have CPUs and memory."""

from __future__ import annotations

from gpufair.core import words
from gpufair.core.cpu_use import SPAN, WHOLE
from gpufair.core.cpu_work import cpu_shares, in_order
from gpufair.core.facts import Facts
from gpufair.core.record import Record
from gpufair.core.share import Shares
from gpufair.core.units import AllocationPath


def turn_for_cpus(facts: Facts, record: Record, place: int) -> str:
    """Its place among those who need no GPUs, and what put the first of its pool before it; "" for the first.

    Args:
        facts: What is so.
        record: A queued workload of 0 GPUs.
        place: Its place in the queue, from 1.
    """
    pool = record.spec.pools[0]
    first = next(one for name in in_order(facts) if (one := facts.records[name]).spec.pools[0] == pool)
    if first is record:
        return ""
    begin = f" It is the {words.ordinal(place)} of {facts.waiting.plain.length} who wait without GPUs"
    shares = cpu_shares(facts)
    leaf, user, other = record.spec.allocation, record.spec.user, first.spec.user
    sides = facts.ranking.diverge(leaf, first.spec.allocation)
    if sides is not None:
        mine, theirs = (_standing(shares, side) for side in sides)
        return f"{begin}: {theirs}, and {mine}; whoever had less of its part comes first."
    if first.spec.priority != record.spec.priority:
        return f"{begin}: in {leaf} {first.label} has priority {first.spec.priority}, above {record.spec.priority}."
    less, more = shares.had(leaf, other), shares.had(leaf, user)
    if less != more:
        use, now = facts.cpu_use, facts.now
        parts = (_had(one, use.held(leaf, one), use.had(leaf, one, now)) for one in (other, user))
        return f"{begin}: in {leaf} {', and '.join(parts)}; whoever had less comes first."
    return f"{begin}: in {leaf} {first.label} was there before it."


def _standing(shares: Shares, side: AllocationPath) -> str:
    stands = shares.standing(side)
    said = _had(side, stands.commitment // SPAN, stands.occupancy)
    return f"{said} and is entitled to {words.percent(stands.entitlement)}"


def _had(whose: str, held: int, had: int) -> str:
    now, hour = words.percent(held / WHOLE), words.percent(had / SPAN / WHOLE)
    return f"{whose} holds {now} of CPUs and memory (over the last hour {hour})"
