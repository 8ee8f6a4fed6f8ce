"""What a holding of GPUs was spent on, laid out in time so that a part of it can be measured.

Until it is up it launches and restores, from a notice on it saves and stops. Work, what is lost of it included, is
spread evenly over what lies between.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpufair.core.units import Instant
from gpufair.sim.measures.cluster import Cluster
from gpufair.sim.measures.period import Period
from gpufair.sim.story import Life, Stint


class Spent(NamedTuple):
    """The part of a stint that lies in a period, in milliseconds of each of its GPUs."""

    held: int
    switching: int
    worked: int
    lost: int


def spent(stint: Stint, period: Period, over: int) -> Spent:
    """What GPUs that a stint held until ``over`` were spent on in a period."""
    granted = stint.granted
    up = over if stint.up is None else min(stint.up, over)
    left = over if stint.notice is None else max(up, min(stint.notice, over))
    whole = left - up
    worked = min(stint.worked, whole)
    lost = min(stint.lost, worked)
    if period.start <= granted and over <= period.end:
        return Spent(over - granted, up - granted + over - left, worked, lost)
    switching = period.overlap(granted, up) + period.overlap(left, over)
    inside = period.overlap(up, left)
    if inside < whole:
        worked, lost = worked * inside // whole, lost * inside // whole
    return Spent(period.overlap(granted, over), switching, worked, lost)


def held(stint: Stint, cluster: Cluster, end: Instant) -> Iterator[tuple[int, int, Instant]]:
    """What a stint held until when: GPUs, units that they are charged as, and the end. GPUs of a node that was lost are
    held until then."""
    freed = end if stint.freed is None else min(stint.freed, end)
    if cluster.steady:
        gpus = sum(lease.gpus for lease in stint.leases)
        yield gpus, gpus, freed
        return
    for lease in stint.leases:
        until = min(freed, cluster.lost_at(lease.node, stint.granted))
        yield lease.gpus, cluster.worth((lease,)), until


def queued(life: Life, end: Instant) -> Iterator[tuple[int, int]]:
    """When it was in the queue. Who is waited for while his GPUs are still being released is not in it yet."""
    released: int = 0
    for stint in life.stints:
        start = max(stint.waited_since, released)
        if start < stint.granted:
            yield start, stint.granted
        released = end if stint.freed is None else stint.freed
    waiting = open_wait(life)
    if waiting is not None:
        until = end if life.ended is None else min(life.ended, end)
        if max(waiting, released) < until:
            yield max(waiting, released), until


def open_wait(life: Life) -> Instant | None:
    """Since when somebody waits who did not get GPUs any more; None if he did not wait in the end."""
    return None if life.refused else life.waiting_since


def never_started(life: Life) -> bool:
    """Whether it is over and never had GPUs: then it was owed nothing."""
    return not life.stints and (life.submitted is None or bool(life.refused) or life.ended is not None)
