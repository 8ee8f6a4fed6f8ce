"""`gpufair.sim` as it is documented: what its examples say is so, and what it promises is there."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import gpufair.sim
from gpufair.core.errors import GpufairError
from gpufair.core.model import Policy
from gpufair.sim import CONTENDERS, Cluster, Setting, compare, simulate, sweep, worlds
from gpufair.sim.runs import sampling

PROMISED = "read_trace shape worlds simulate compare whatif sweep write_report"  # issue 4


def modules() -> list[str]:
    return sorted(one.name for one in pkgutil.walk_packages(gpufair.sim.__path__, "gpufair.sim."))


@pytest.mark.parametrize("name", modules())
def test_examples_are_true(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


def test_what_is_promised_is_there_and_explained() -> None:
    for name in PROMISED.split():
        assert name in gpufair.sim.__all__
    for name in gpufair.sim.__all__:
        found = getattr(gpufair.sim, name)
        assert found is CONTENDERS or found.__doc__, name


def small(seed: int = 0, demand: float = 1.5):
    return worlds.world("steady").make(Setting(Cluster.parse("2x8"), days=0.25, seed=seed, demand=demand))


def test_several_at_once_are_what_each_is_alone() -> None:
    """In this process or in others, with options of its own for each; progress comes to its end."""
    scenario, names = small(), ("fair-share", "fifo")
    options = {"fair-share": Policy(take_limit=None), "fifo": Policy()}
    told: dict[str, float] = {}
    alone = compare(scenario, names, options, sample_every=sampling(scenario))
    apart = compare(scenario, names, options, sample_every=sampling(scenario), jobs=2, progress=told.__setitem__)
    for name in names:
        assert apart[name].story.scenario is scenario
        assert apart[name].story.options == options[name]
        assert apart[name].story.samples == alone[name].story.samples
        assert apart[name].story.lives == alone[name].story.lives
        first = next(iter(apart[name].story.lives.values())).job
        assert first is next(job for job in scenario.jobs if job.id == first.id)
        figures = alone[name].as_json() | {"wall_s": 0}
        assert apart[name].as_json() | {"wall_s": 0} == figures
    assert set(told) == set(names)
    assert min(told.values()) > 0.8


def test_errors_of_other_processes_are_errors_here() -> None:
    """Options that make no sense are refused wherever they are looked at."""
    wrong = Policy(banking=2.0)
    for jobs in (1, 2):
        with pytest.raises(GpufairError, match="banking"):
            compare(small(), ("fair-share", "plain"), wrong, jobs=jobs)
    with pytest.raises(GpufairError, match="there is no policy 'none'"):
        compare(small(), ("none",))


def test_a_sweep_is_every_combination() -> None:
    """In order, whichever process did it; the same scenario for all points of one seed."""
    vary = {"banking": [0.0, 1.0], "demand": [0.5, 2.0]}
    here = sweep(small, vary, seeds=(3, 4))
    assert [(run.values["banking"], run.values["demand"], run.seed) for run in here] == [
        (banking, demand, seed) for banking in (0.0, 1.0) for demand in (0.5, 2.0) for seed in (3, 4)
    ]
    alone = simulate(small(4, 2.0), options=Policy(banking=1.0)).figures
    assert here[-1].figures.delivered == alone.delivered
    apart = sweep(small, vary, seeds=(3, 4), jobs=2)
    assert [run.figures.delivered for run in apart] == [run.figures.delivered for run in here]
