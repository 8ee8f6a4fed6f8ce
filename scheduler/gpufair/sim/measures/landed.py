"""Whether landings came true: who started when, and by when he was to."""

from __future__ import annotations

from collections import Counter

from gpufair.core.units import Instant, Millis
from gpufair.sim.measures.figures import Landings
from gpufair.sim.measures.period import Period
from gpufair.sim.story import Landed, Stint, Story


def landings_of(story: Story, period: Period, end: Instant) -> Landings:
    """What became of the landings that were granted in the period. A landing that was lost binds nobody any more."""
    kept: list[tuple[Landed, Stint]] = []
    dropped: Counter[str] = Counter()
    granted = late = still = 0
    worst = 0
    for landing in story.landings:
        if landing.granted not in period:
            continue
        granted += 1
        if landing.dropped:
            dropped[landing.dropped] += 1
            continue
        stint = _start(story, landing)
        if stint is not None:
            kept.append((landing, stint))
            lateness = stint.granted - landing.start_by
        else:
            still += 1
            lateness = (end if landing.over is None else landing.over) - landing.start_by
        late += lateness > 0
        worst = max(worst, lateness)
    longest = max(kept, key=lambda one: one[1].granted - one[1].waited_since, default=None)
    return Landings(
        granted=granted,
        kept=len(kept),
        late=late,
        dropped=dict(sorted(dropped.items())),
        open=still,
        worst_lateness=Millis(worst),
        longest=max((Millis(stint.granted - landing.granted) for landing, stint in kept), default=None),
        longest_wait=Millis(longest[1].granted - longest[1].waited_since) if longest else None,
        longest_of=longest[0].workload if longest else None,
        longest_start_by=longest[0].start_by if longest else None,
        bound=_bound(story),
    )


def _start(story: Story, landing: Landed) -> Stint | None:
    """The start for which the landing was, if it came."""
    life = story.lives.get(landing.workload)
    stints = life.stints if life is not None else []
    return next((stint for stint in stints if stint.granted >= landing.granted), None)


def _bound(story: Story) -> Millis:
    """From the grant of a landing to the start: the longest protection and two of the longest grace."""
    options = story.options
    asked = (life.job.spec.grace or 0 for life in story.lives.values())
    grace = max(options.grace_session, options.grace_batch, max(asked, default=0))
    return Millis(options.max_min_runtime + 2 * grace)
