"""The evidence for the policy's defaults: worlds and traces played under it, each figure beside its bar.

    python -m tests.evidence [CASE ...] [--seeds N] [--days N] [--trace FILE] [--policies a,b] [--json FILE]

Not a test of the suite: a full run takes hours. What it showed last is in ``docs/policy.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from gpufair.core.model import Policy
from gpufair.core.units import DAY, Millis
from gpufair.sim import Cluster, Scenario, Setting, read_trace, shape, simulate, worlds
from gpufair.sim.assumptions import Assumptions, usual

WINDOW: Final = Millis(7 * DAY)


@dataclass(frozen=True)
class Bar:
    """A figure and what it has to be."""

    name: str
    value: float | None
    limit: float
    at_least: bool

    @property
    def ok(self) -> bool:
        if self.value is None:
            return True  # there was nobody whom it could be asked of
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        shown = "-" if self.value is None else f"{self.value:.4g}"
        return f"{self.name} {shown}{'' if self.ok else f' (MISSED: {self.limit:g})'}"


def at_least(name: str, value: float | None, limit: float) -> Bar:
    return Bar(name, value, limit, True)


def at_most(name: str, value: float | None, limit: float) -> Bar:
    return Bar(name, value, limit, False)


Plain = dict[str, Any]


def contract(found: Plain) -> Iterator[Bar]:
    """What holds in every regime: protections, and gangs that start in time."""
    yield at_most("protected", found["protected_preemptions"], 0)
    yield at_most("late landings", found["landings"]["late"], 0)
    yield at_most("landing_s", found["landings"]["longest_s"], found["landings"]["bound_s"])


def saturated(found: Plain) -> Iterator[Bar]:
    """What is asked of 2.5 times as much demand as there is."""
    owed = found["delivered_over_owed"]
    yield at_least("capped", owed["capped"], 0.985)
    yield at_least("worst", owed["worst"], 0.95)
    yield at_least("occupancy", found["occupancy"], 0.985)
    yield at_most("debug_p90_s", found["wait_s"]["debug"]["p90"], 30)
    yield at_most("resume_p50_s", found["resume_wait_s"]["p50"], 60)
    yield at_most("resume_p90_s", found["resume_wait_s"]["p90"], 900)
    yield from contract(found)


def resumable(found: Plain) -> Iterator[Bar]:
    """The same where nothing is lost for good: what preemption costs."""
    yield from saturated(found)
    yield at_most("lost+switching", found["lost_share"] + found["switching_share"], 0.03)


def mostly_unallocated(found: Plain) -> Iterator[Bar]:
    """The reference lab's regime."""
    owed = found["delivered_over_owed"]
    ratios = [ratio for ratio in owed["by_allocation"].values() if ratio is not None]
    yield at_least("capped", owed["capped"], 0.98)
    yield at_least("of 15 at 0.95", sum(ratio >= 0.95 for ratio in ratios), 13)
    yield at_least("worst", owed["worst"], 0.92)
    yield at_most("debug_p90_s", found["wait_s"]["debug"]["p90"], 30)
    yield from contract(found)


@dataclass(frozen=True)
class Case:
    """A kind of world, and its bars."""

    make: Callable[[argparse.Namespace, int], Scenario]
    bars: Callable[[Plain], Iterator[Bar]]


def _all_resumable() -> Assumptions:
    return replace(usual(), batch=replace(usual().batch, non_resumable=0.0))


def _world(name: str, cluster: str, loses: bool, free: float | None, asked: argparse.Namespace, seed: int) -> Scenario:
    assumptions = usual() if loses else _all_resumable()
    setting = Setting(
        Cluster.parse(cluster),
        days=asked.days,
        seed=seed,
        window=WINDOW,
        assumptions=assumptions,
        unallocated_share=free,
    )
    return worlds.world(name).make(setting)


def _philly(asked: argparse.Namespace, seed: int) -> Scenario:
    if asked.trace is None:
        raise SystemExit("the case philly needs --trace FILE")
    return shape(
        read_trace(asked.trace),
        Cluster.parse(asked.cluster),
        demand=2.5,
        days=asked.days,
        window=WINDOW,
        seed=seed,
        session_share=0.1,
        users="drawn",
    )


CASES: Final = {
    "steady-256": Case(partial(_world, "steady", "32x8", True, None), saturated),
    "steady-256-resumable": Case(partial(_world, "steady", "32x8", False, None), resumable),
    "steady-1024": Case(partial(_world, "steady", "128x8", True, None), saturated),
    "steady-1024-resumable": Case(partial(_world, "steady", "128x8", False, None), resumable),
    "unallocated-66": Case(partial(_world, "unallocated-regime", "32x8", True, None), mostly_unallocated),
    **{
        f"unallocated-{percent}": Case(
            partial(_world, "unallocated-regime", "32x8", True, percent / 100), mostly_unallocated
        )
        for percent in (50, 33, 15, 0)
    },
    "philly": Case(_philly, saturated),
}


def run(asked: argparse.Namespace, name: str, policy: str, seed: int) -> Plain:
    """One run; its figures, and its bars as far as they are asked of this policy."""
    scenario = CASES[name].make(asked, seed)
    options = replace(Policy(window=WINDOW), **dict(asked.set))
    result = simulate(scenario, policy, options)
    found = result.as_json()
    found["case"], found["policy"], found["seed"] = name, policy, seed
    found["notes"] = list(scenario.notes)
    found["bars"] = [
        {"name": bar.name, "value": bar.value, "limit": bar.limit, "ok": bar.ok, "text": str(bar)}
        for bar in CASES[name].bars(found)
    ]
    return found


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, json.loads(value)


def main() -> int:
    """Play, print, and say whether all bars held for fair share."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=[name for name in CASES if name != "philly"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--days", type=float, default=21.0)
    parser.add_argument("--cluster", default="128x8", help="for traces")
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--policies", default="fair-share")
    parser.add_argument("--set", type=_option, action="append", default=[], metavar="OPTION=JSON")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    unknown = sorted(set(asked.cases) - CASES.keys())
    if unknown:
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    wanted = [
        (name, policy, seed)
        for name in asked.cases
        for seed in range(asked.first, asked.first + asked.seeds)
        for policy in asked.policies.split(",")
    ]
    missed, everything = 0, []
    with ProcessPoolExecutor(asked.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        for found in pool.map(partial(run, asked), *zip(*wanted, strict=True)):
            everything.append(found)
            if found["policy"] == "fair-share":
                missed += sum(not bar["ok"] for bar in found["bars"])
            bars = "; ".join(bar["text"] for bar in found["bars"])
            loss = f"lost {found['lost_share']:.4f} switching {found['switching_share']:.4f}"
            about = f"{found['case']} seed {found['seed']} {found['policy']} ({found['jobs']:,} jobs, {found['wall_s']:.0f} s)"
            print(f"{about}: {bars}; net {found['delivered_over_owed']['net']}; {loss}", flush=True)
            if asked.json is not None:
                asked.json.write_text(json.dumps(everything, indent=1))
    print(f"{len(wanted)} runs; {missed} bars missed by fair-share")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
