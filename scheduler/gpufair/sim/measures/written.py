"""Figures as JSON: the keys that scripts may rely on, in seconds and GPU-seconds, and everything else beside them.

What is unknown (nothing was owed, nobody waited) is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpufair.core.units import Instant
from gpufair.sim.measures.figures import Account, Counts, Deliveries, Figures, GpuTime, Landings, Quantiles, Waits

Plain = dict[str, Any]


def as_json(figures: Figures) -> Plain:
    """What ``gpufair simulate --json`` writes for one policy."""
    run, counts, time = figures.run, figures.counts, figures.time
    return {
        "jobs": run.jobs,
        "gpus": run.gpus,
        "span_s": _s(run.span),
        "wall_s": round(run.wall_s, 3),
        "events": run.events,
        "decisions": run.decisions,
        "starts": counts.starts,
        "completions": counts.completions,
        "preemptions": sum(counts.preemptions.values()),
        "protected_preemptions": run.protected_preemptions,
        "occupancy": _ratio(time.of_available(time.held)),
        "unallocated_share": _ratio(time.unallocated / time.held if time.held else None),
        "delivered_over_owed": _delivered(figures.delivered),
        "wait_s": _waits(figures.waits),
        "lost_gpu_s": _s(time.lost),
        "switching_gpu_s": _s(time.switching),
        "lost_share": _ratio(time.of_available(time.lost)),
        "switching_share": _ratio(time.of_available(time.switching)),
        "lost_for_good_gpu_s": _s(time.lost_for_good),
        "lost_for_good_share": _ratio(time.of_available(time.lost_for_good)),
        "fragmented_share": _ratio(time.of_available(time.fragmented)),
        "withheld_share": _ratio(time.of_available(time.withheld)),
        "availability": _ratio(time.available / time.installed if time.installed else None),
        "gpu_s": _time(time),
        "period_s": [_s(figures.period.start - figures.begun), _s(figures.period.end - figures.begun)],
        **_counts(counts),
        "resume_wait_s": _quantiles(figures.waits.resumed),
        "requeue_wait_s": _quantiles(figures.waits.requeued),
        "unfinished_wait": _quantiles(figures.waits.unfinished),
        "landings": _landings(figures.landings, figures.begun),
        "allocations": {one.path: _account(one) for one in figures.delivered.accounts},
    }


def _s(millis: int) -> float:
    return millis / 1000


def _opt(millis: int | None) -> float | None:
    return None if millis is None else millis / 1000


def _ratio(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _delivered(found: Deliveries) -> Plain:
    """Allocations that were owed nothing have no ratio and are left out of ``by_allocation``."""
    worst = found.worst
    ratios = {one.path: _ratio(one.delivered) for one in found.leaves if one.owed}
    return {
        "capped": _ratio(found.capped),
        "uncapped": _ratio(found.uncapped),
        "hourly": _ratio(found.hourly),
        "worst": _ratio(worst.delivered) if worst else None,
        "by_allocation": ratios,
        "net": _ratio(found.net),
        "worst_allocation": worst.path if worst else None,
        "worst_granularity": _ratio(worst.granularity) if worst else None,
        "granularity": {one.path: _ratio(one.granularity) for one in found.leaves if one.owed},
    }


def _account(one: Account) -> Plain:
    return {
        "leaf": one.leaf,
        "entitled_gpu_s": _s(one.entitled),
        "owed_gpu_s": _s(one.owed),
        "charged_gpu_s": _s(one.charged),
        "capped_gpu_s": _s(one.capped),
        "unallocated_gpu_s": _s(one.unallocated),
        "lost_gpu_s": _s(one.lost),
        "switching_gpu_s": _s(one.switching),
        "useful_gpu_s": _s(one.useful),
        "delivered_over_owed": _ratio(one.delivered),
        "net": _ratio(one.delivered_net),
        "granularity": _ratio(one.granularity),
    }


def _quantiles(one: Quantiles) -> Plain:
    return {
        "p50": _opt(one.p50),
        "p90": _opt(one.p90),
        "p99": _opt(one.p99),
        "max": _opt(one.longest),
        "count": one.count,
        "unfinished": one.unfinished,
        "at_least": list(one.at_least),
    }


def _waits(waits: Waits) -> Plain:
    plain: Plain = {name: _quantiles(one) for name, one in waits.by_class.items()}
    plain["largest_gang"]["gpus"] = waits.largest_gang
    plain["by_size"] = _all(waits.by_size)
    plain["by_allocation"] = _all(waits.by_allocation)
    return plain


def _all(found: Mapping[Any, Quantiles]) -> Plain:
    return {str(name): _quantiles(one) for name, one in found.items()}


def _counts(counts: Counts) -> Plain:
    return {
        "submitted": counts.submitted,
        "refused": counts.refused,
        "preemptions_by_reason": {reason.value: count for reason, count in counts.preemptions.items()},
        "notices_by_reason": {reason.value: count for reason, count in counts.notices.items()},
        "node_failures": counts.failures,
        "most_restarts": counts.most_restarts,
    }


def _time(time: GpuTime) -> Plain:
    return {
        "installed": _s(time.installed),
        "lost_nodes": _s(time.away),
        "cordoned": _s(time.cordoned),
        "available": _s(time.available),
        "allocated": _s(time.allocated),
        "unallocated": _s(time.unallocated),
        "useful": _s(time.useful),
        "fragmented": _s(time.fragmented),
        "withheld": _s(time.withheld),
    }


def _landings(one: Landings, begun: Instant) -> Plain:
    start_by = one.longest_start_by
    return {
        "granted": one.granted,
        "kept": one.kept,
        "late": one.late,
        "dropped": dict(one.dropped),
        "open": one.open,
        "worst_lateness_s": _s(one.worst_lateness),
        "longest_s": _opt(one.longest),
        "bound_s": _s(one.bound),
        "longest_wait_s": _opt(one.longest_wait),
        "longest_wait_of": one.longest_of,
        "longest_wait_start_by_s": None if start_by is None else _s(start_by - begun),
    }
