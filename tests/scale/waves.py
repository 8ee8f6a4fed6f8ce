"""How much is saved at once: checkpoints of preemptions in a simulated month, staggered within their grace or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpufair.core.model import Kind, Policy
from gpufair.core.units import HOUR, SECOND
from gpufair.sim import Cluster, Setting, simulate, worlds


@dataclass(frozen=True)
class Save:
    """One checkpoint: from the notice on, until the deadline at the latest."""

    at_ms: int
    grace_ms: int
    gib: float


def saves(cluster: str, days: float, seed: int) -> tuple[list[Save], float, int]:
    """Every preemption of a resumable job in the world ``steady`` (2.5 times the demand); its hours and GPUs beside them."""
    setting = Setting(Cluster.parse(cluster), days=days, seed=seed)
    scenario = worlds.world("steady").make(setting)
    story, policy = simulate(scenario).story, Policy()
    found = []
    for life in story.lives.values():
        spec = life.job.spec
        grace = spec.grace or (policy.grace_session if spec.kind is Kind.SESSION else policy.grace_batch)
        found += [
            Save(stint.notice, grace, life.job.state_gib)
            for stint in life.stints
            if stint.notice is not None and stint.reason is not None and spec.resumable
        ]
    return sorted(found, key=lambda one: one.at_ms), days * 24, scenario.gpus


def peak(all_saves: list[Save], length_ms: dict[Save, float] | None = None) -> float:
    """The most GiB/s that are written at one moment, if each is spread evenly over its grace (or over ``length_ms``)."""
    steps: list[tuple[float, float]] = []
    for one in all_saves:
        length = one.grace_ms if length_ms is None else length_ms[one]
        rate = one.gib / (length / SECOND)
        steps += [(one.at_ms, rate), (one.at_ms + length, -rate)]
    now = most = 0.0
    for _, change in sorted(steps):
        now += change
        most = max(most, now)
    return most


def measure(cluster: str, days: float, seed: int, writer_gib_s: float) -> dict[str, Any]:
    """Figures of the waves. ``writer_gib_s``: what one pod writes when it need not wait for others."""
    all_saves, hours, gpus = saves(cluster, days, seed)
    at_once = {one: max(1.0, one.gib / writer_gib_s * SECOND) for one in all_saves}
    by_second: dict[int, int] = {}
    for one in all_saves:
        by_second[one.at_ms // SECOND] = by_second.get(one.at_ms // SECOND, 0) + 1
    total = sum(one.gib for one in all_saves)
    return {
        "cluster": cluster,
        "gpus": gpus,
        "days": days,
        "saves": len(all_saves),
        "saves_per_hour": round(len(all_saves) / hours, 1),
        "most_in_a_second": max(by_second.values(), default=0),
        "mean_gib": round(total / max(1, len(all_saves)), 2),
        "mean_gib_s": round(total / (hours * HOUR / SECOND), 4),
        "peak_gib_s_staggered": round(peak(all_saves), 2),
        "peak_gib_s_at_once": round(peak(all_saves, at_once), 2),
    }
