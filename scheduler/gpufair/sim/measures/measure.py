"""All figures of a run, from its story alone: whatever the policy kept books of, it is not asked."""

from __future__ import annotations

from collections import Counter, defaultdict

from gpufair.core.commit import PREEMPTIONS
from gpufair.core.model import PreemptReason
from gpufair.core.units import GpuMillis, Instant, Millis, NodeName
from gpufair.sim.measures.cluster import Cluster
from gpufair.sim.measures.delivered import Totals, deliver
from gpufair.sim.measures.figures import Counts, Figures, GpuTime, Run
from gpufair.sim.measures.landed import landings_of
from gpufair.sim.measures.period import Period, last_instant, period_of
from gpufair.sim.measures.room import Free, Sweep
from gpufair.sim.measures.waits import waits_of
from gpufair.sim.story import Story


def measure(story: Story, period: tuple[Instant, Instant] | None = None) -> Figures:
    """What happened in a period.

    Args:
        story: Of a run; it is not changed.
        period: From the first instant until, but not including, the second. None: all after the warm-up.

    Raises:
        NothingToMeasure: Nothing of the period was played.
    """
    scenario, end, inside = story.scenario, last_instant(story), period_of(story, period)
    cluster = Cluster(scenario, end, story.options.gpu_weights)
    delivered, totals = deliver(story.lives.values(), cluster, inside, end)
    sweep = Sweep(cluster, inside, end)
    for life in story.lives.values():
        sweep.take(life)
    return Figures(
        scenario=scenario.name,
        policy=story.policy,
        period=inside,
        begun=scenario.start,
        run=_run(story, end),
        counts=_counts(story, inside),
        time=_time(story, cluster, inside, end, totals, sweep.free()),
        delivered=delivered,
        waits=waits_of(story.lives.values(), inside, end),
        landings=landings_of(story, inside, end),
    )


def _run(story: Story, end: Instant) -> Run:
    return Run(
        jobs=sum(1 for life in story.lives.values() if life.submitted is not None),
        gpus=story.scenario.gpus,
        span=Millis(end - story.scenario.start),
        wall_s=story.wall_s,
        cpu_s=story.cpu_s,
        events=story.events,
        decisions=story.decisions,
        protected_preemptions=max(story.protected_preemptions, _told_while_protected(story)),
    )


def _told_while_protected(story: Story) -> int:
    """Counted from what happened, beside the policy's own count: the larger of the two is the truth that matters."""
    return sum(
        1
        for life in story.lives.values()
        if life.job.spec.allocated
        for stint in life.stints
        if stint.notice is not None and stint.reason in PREEMPTIONS and stint.notice < stint.protected_until
    )


def _counts(story: Story, period: Period) -> Counts:
    start, end = period.start, period.end
    submitted = refused = starts = completions = failures = restarts = 0
    notices: Counter[PreemptReason] = Counter()
    for life in story.lives.values():
        if life.submitted is not None and start <= life.submitted < end:
            submitted += 1
            refused += bool(life.refused)
        completions += bool(life.stints) and life.ended is not None and start <= life.ended < end
        again = 0
        for index, stint in enumerate(life.stints):
            if start <= stint.granted < end:
                starts += 1
                again += index > 0 and not stint.touched
            if stint.reason is not None and stint.notice is not None and start <= stint.notice < end:
                notices[stint.reason] += 1
            failures += stint.failed and stint.freed is not None and start <= stint.freed < end
        restarts = max(restarts, again)
    named = [(reason, notices[reason]) for reason in PreemptReason if notices[reason]]
    return Counts(
        submitted=submitted,
        refused=refused,
        starts=starts,
        completions=completions,
        preemptions={reason: count for reason, count in named if reason in PREEMPTIONS},
        notices={reason: count for reason, count in named if reason not in PREEMPTIONS},
        failures=failures,
        most_restarts=restarts,
    )


def _time(story: Story, cluster: Cluster, period: Period, end: Instant, totals: Totals, free: Free) -> GpuTime:
    installed, present = cluster.installed(period), cluster.present(period)
    return GpuTime(
        installed=GpuMillis(installed),
        away=GpuMillis(installed - present),
        cordoned=GpuMillis(_cordoned(story, cluster, period, end)),
        allocated=GpuMillis(totals.allocated),
        unallocated=GpuMillis(totals.unallocated),
        switching=GpuMillis(totals.switching),
        lost=GpuMillis(totals.lost),
        lost_for_good=GpuMillis(totals.lost_for_good),
        useful=GpuMillis(totals.useful),
        fragmented=GpuMillis(free.fragmented),
        withheld=GpuMillis(free.withheld),
    )


def _cordoned(story: Story, cluster: Cluster, period: Period, end: Instant) -> int:
    """GPU time of nodes while they took nobody new, less what was still held there."""
    closed: dict[NodeName, list[tuple[int, int]]] = defaultdict(list)
    total = 0
    for name, cordons in cluster.cordons.items():
        for one in cluster.presences.get(name, ()):
            for start, until in cordons:
                since, to = max(start, one.start, period.start), min(until, one.end, period.end)
                if since < to:
                    closed[name].append((since, to))
                    total += one.node.gpus * (to - since)
    if not closed:
        return 0
    for life in story.lives.values():
        for stint in life.stints:
            freed = end if stint.freed is None else stint.freed
            for lease in stint.leases:
                for begun, over in closed.get(lease.node, ()):
                    left = min(freed, over, cluster.lost_at(lease.node, stint.granted))
                    total -= lease.gpus * max(0, left - max(begun, stint.granted))
    return total
