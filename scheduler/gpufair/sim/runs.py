"""One scenario under one policy, or under several side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from gpufair.core.model import Policy
from gpufair.core.units import HOUR, MINUTE, Instant, Millis
from gpufair.sim.engine import play
from gpufair.sim.measures import Figures, as_json, measure
from gpufair.sim.policies.registry import CONTENDERS, contender
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Story
from gpufair.sim.workers import run_in_workers

FAIR: Final = "fair-share"
_SAMPLES: Final = 500  # of the metric, over a run

Progress = Callable[[str, float], None]
"""Told the name of a policy, and which part of its run is done."""


@dataclass(frozen=True)
class Result:
    """What came of a run: ``story`` for pictures, ``figures`` for tables."""

    policy: str
    story: Story

    @cached_property
    def figures(self) -> Figures:
        """All figures, the warm-up left out. Raises ``NothingToMeasure``: nothing but the warm-up was played."""
        return measure(self.story)

    def as_json(self) -> dict[str, Any]:
        """The figures as ``gpufair simulate --json`` writes them."""
        return as_json(self.figures)


def simulate(
    scenario: Scenario,
    policy: str = FAIR,
    options: Policy = Policy(),
    *,
    sample_every: Millis | None = None,
    progress: Progress | None = None,
) -> Result:
    """Play a scenario under one policy.

    Args:
        scenario: Of ``shape`` (a trace) or ``worlds`` (a constructed one).
        policy: One of ``CONTENDERS``.
        options: Of the policy; it uses what it knows of them.
        sample_every: How often it is noted how the allocations stand, for charts. None: never.
        progress: Told how far it has come.

    Raises:
        UnknownPolicy: There is no such policy.
        GpufairError: Cluster, budgets or options make no sense.

    Examples:
        >>> from gpufair.sim import Cluster, Setting, simulate, worlds
        >>> scenario = worlds.world("steady").make(Setting(Cluster.parse("4x8"), days=0.5))
        >>> result = simulate(scenario)
        >>> result.figures.run.protected_preemptions, result.figures.run.gpus
        (0, 32)
    """
    told = None
    if progress is not None:
        span = max(1, scenario.until - scenario.start)

        def told(at: Instant) -> None:
            progress(policy, (at - scenario.start) / span)

    return Result(policy, play(scenario, contender(policy), options, sample_every=sample_every, progress=told))


def compare(
    scenario: Scenario,
    policies: Sequence[str] = tuple(CONTENDERS),
    options: Policy | Mapping[str, Policy] = Policy(),
    *,
    sample_every: Millis | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> dict[str, Result]:
    """Play a scenario under several policies.

    Args:
        scenario: As of ``simulate``.
        policies: Names of ``CONTENDERS``, each once; the results come in this order.
        options: For all, or by policy.
        sample_every: As of ``simulate``.
        jobs: So many run at once, in processes of their own; no result depends on it.
        progress: Told how far each has come.

    Raises:
        GpufairError: As of ``simulate``.

    Examples:
        >>> from gpufair.sim import Cluster, Setting, compare, worlds
        >>> scenario = worlds.world("steady").make(Setting(Cluster.parse("4x8"), days=0.5))
        >>> list(compare(scenario, ("fifo", "fair-share")))
        ['fifo', 'fair-share']
    """
    for name in policies:
        contender(name)
    chosen = {name: options if isinstance(options, Policy) else options[name] for name in policies}
    if jobs > 1 and len(chosen) > 1:
        stories = run_in_workers(scenario, chosen, sample_every, min(jobs, len(chosen)), progress)
        return {name: Result(name, story) for name, story in zip(chosen, stories, strict=True)}
    return {
        name: simulate(scenario, name, one, sample_every=sample_every, progress=progress)
        for name, one in chosen.items()
    }


def sampling(scenario: Scenario) -> Millis:
    """How often to sample for a chart of the whole run: some hundred times, on whole minutes, hourly at the most."""
    every = (scenario.until - scenario.start) // _SAMPLES // MINUTE * MINUTE
    return Millis(max(int(MINUTE), min(int(HOUR), int(every))))
