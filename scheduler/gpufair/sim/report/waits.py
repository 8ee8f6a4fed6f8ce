"""How long people waited, as distributions: the share of all that had started within a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpufair.core.units import Instant, Millis, after, since
from gpufair.sim.job import JobKind
from gpufair.sim.story import Life, Story

TOUCHED = "touched"  # a parked session whose user came back
POINTS = 200  # of a curve: more cannot be told apart in its picture


@dataclass(frozen=True, slots=True)
class Waits:
    """Sorted waits of one kind, and how many never started, in the story or before they were cancelled."""

    kind: str
    started: tuple[Millis, ...]
    waiting: int

    def points(self) -> list[tuple[int, Millis]]:
        """At most ``POINTS`` points of the curve: how many had started within a wait. The shortest and the longest wait
        are among them."""
        count = len(self.started)
        if count <= POINTS:
            return [(place + 1, wait) for place, wait in enumerate(self.started)]
        places = sorted({(count - 1) * point // (POINTS - 1) for point in range(POINTS)})
        return [(place + 1, self.started[place]) for place in places]


def waits(story: Story) -> list[Waits]:
    """From submission until the first start by kind of job, and from the touch of a parked session until it is granted
    GPUs again. Submissions and touches during the warm-up are left out."""
    counted_from = after(story.scenario.start, story.scenario.warm_up)
    found: dict[str, list[Millis]] = {kind: [] for kind in (*JobKind, TOUCHED)}
    waiting = dict.fromkeys(found, 0)
    for life in story.lives.values():
        if life.submitted is None or life.refused:
            continue
        if life.submitted >= counted_from:
            if life.stints:
                found[life.job.kind].append(since(life.stints[0].granted, life.submitted))
            else:
                waiting[life.job.kind] += 1
        found[TOUCHED].extend(_resumed(life, counted_from))
        if life.touched and life.waiting_since is not None and life.waiting_since >= counted_from:
            waiting[TOUCHED] += 1
    return [
        Waits(kind, tuple(sorted(started)), waiting[kind])
        for kind, started in found.items()
        if started or waiting[kind]
    ]


def _resumed(life: Life, counted_from: Instant) -> Iterable[Millis]:
    return (
        since(stint.granted, stint.waited_since)
        for stint in life.stints
        if stint.touched and stint.waited_since >= counted_from
    )
