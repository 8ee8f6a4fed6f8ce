"""The same question at many settings and seeds: what does a figure depend on?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from gpufair.core.model import Policy
from gpufair.sim.measures import Figures, measure
from gpufair.sim.runs import FAIR, simulate
from gpufair.sim.scenario import Scenario
from gpufair.sim.workers import given, workers

OPTIONS: Final = frozenset(one.name for one in fields(Policy))

MakeScenario = Callable[..., Scenario]
"""Called with ``seed`` and whatever is varied that is no option of the policy."""


@dataclass(frozen=True, slots=True)
class Run:
    """One point of a sweep with one seed."""

    values: Mapping[str, Any]
    seed: int
    figures: Figures


def sweep(
    make: MakeScenario,
    vary: Mapping[str, Sequence[Any]],
    *,
    seeds: Sequence[int] = (0,),
    policy: str = FAIR,
    options: Policy = Policy(),
    jobs: int = 1,
    progress: Callable[[float], None] | None = None,
) -> tuple[Run, ...]:
    """Play every combination of what is varied, with every seed.

    Args:
        make: Makes the scenario. With ``jobs`` above 1 it is sent to other processes: a function of a module, or an object.
        vary: Values by name: of options of ``Policy``, or of arguments of ``make``.
        seeds: Of the scenarios; the same ones at each point, so that points differ by what is varied alone.
        policy: Under which it is played.
        options: What is not varied.
        jobs: So many at once, in processes of their own; no result depends on it.
        progress: Told which part of all runs is done.

    Returns: The runs, in the order of the combinations (the first name changes slowest), then of the seeds.

    Raises:
        GpufairError: As of ``simulate``, and whatever ``make`` raises.

    Examples:
        >>> from gpufair.sim import Cluster, Setting, sweep, worlds
        >>> def make(seed, demand):
        ...     return worlds.world("steady").make(Setting(Cluster.parse("2x8"), days=0.3, demand=demand, seed=seed))
        >>> runs = sweep(make, {"demand": [0.5, 2.0], "banking": [0.0, 1.0]}, seeds=[1, 2])
        >>> len(runs), dict(runs[0].values), runs[0].seed
        (8, {'demand': 0.5, 'banking': 0.0}, 1)
    """
    points = [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]
    # Runs of one scenario one after the other: it is made once.
    tasks = sorted(
        ((point, seed) for point in points for seed in seeds), key=lambda task: (str(_of_scenario(task[0])), task[1])
    )
    done: list[Run] = []
    for run in _runs(_Sweep(make, policy, options), tasks, jobs):
        done.append(run)
        if progress is not None:
            progress(len(done) / len(tasks))
    places = {(tuple(point.items()), seed): at for at, (point, seed) in enumerate(itertools.product(points, seeds))}
    return tuple(sorted(done, key=lambda run: places[tuple(run.values.items()), run.seed]))


@dataclass
class _Sweep:
    """What all runs have in common, and the last scenario made."""

    make: MakeScenario
    policy: str
    options: Policy
    _made: tuple[object, Scenario] | None = None

    def run(self, point: Mapping[str, Any], seed: int) -> Run:
        """One of them."""
        wanted = (_of_scenario(point), seed)
        if self._made is None or self._made[0] != wanted:
            self._made = (wanted, self.make(seed=seed, **wanted[0]))
        own = {name: value for name, value in point.items() if name in OPTIONS}
        result = simulate(self._made[1], self.policy, replace(self.options, **own))
        return Run(point, seed, measure(result.story))


def _of_scenario(point: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in point.items() if name not in OPTIONS}


def _runs(what: _Sweep, tasks: Sequence[tuple[Mapping[str, Any], int]], jobs: int) -> Iterator[Run]:
    if jobs <= 1 or len(tasks) <= 1:
        for point, seed in tasks:
            yield what.run(point, seed)
        return
    with workers(what, min(jobs, len(tasks)), None) as spread:
        yield from spread(_in_worker, tasks)


def _in_worker(task: tuple[Mapping[str, Any], int]) -> Run:
    what: _Sweep = given()
    return what.run(*task)
