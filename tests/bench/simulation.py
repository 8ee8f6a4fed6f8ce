"""What it costs to play a scenario under fair share: a month on 1,024 GPUs, a public peers' cut, and how it grows.

CPU time of one process, with the compiled core where there is a C compiler. The month asks for more than there is, so
that queues are long and preemption never rests.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from math import log
from pathlib import Path
from random import Random

from gpufair.core.units import DAY, Millis
from gpufair.sim import Cluster, Scenario, Setting, simulate, worlds
from gpufair.sim.shape import shape
from gpufair.sim.traces import Trace
from gpufair.sim.traces.row import Row
from tests.bench.compiled import environment, package
from tests.bench.core_world import cpu_scale
from tests.bench.result import Result

MONTH_JOBS, MONTH_S = 50_000, 10.0
CUT_JOBS, CUT_DAYS, CUT_PER_S = 23_203, 14, 10_000.0
MOST_MIB = 300.0
# Nodes of 8 GPUs, and days. The last two take hours: they are run with GPUFAIR_BENCH_FULL=1 only.
CURVE = ((32, 6.0), (64, 6.0), (128, 6.0))
CURVE_FULL = (*CURVE, (512, 6.0), (1_024, 30.0))


def month(demand: float = 2.1, nodes: int = 128, days: float = 30.0) -> Scenario:
    """A saturated month on 1,024 GPUs: about 50,000 jobs at this demand."""
    return worlds.world("steady").make(Setting(Cluster.parse(f"{nodes}x8"), days=days, demand=demand))


def sim_month() -> Result:
    """30 days, 1,024 GPUs, 50,000 jobs, with landings and preemption: seconds of CPU time."""
    before = cpu_scale()
    played, core = _in_a_process("month")
    scale = (before + cpu_scale()) / 2
    return Result(
        played["cpu_s"] * MONTH_JOBS / played["jobs"],
        "s CPU for 50,000 jobs of 30 days on 1,024 GPUs",
        MONTH_S * scale,
        notes={"limit_unscaled": MONTH_S, "cpu_scale": scale, "core": core, **played},
    )


def _in_a_process(world: str, policy: str = "fair-share") -> tuple[dict[str, float], str]:
    """What a play of a world of this module costs, with the compiled core where that can be built, and which it was."""
    folder = package()
    compiled = folder if isinstance(folder, Path) else None
    code = f"from tests.bench.simulation import played; played({world!r}, {policy!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment(compiled)
    )
    return json.loads(done.stdout), "compiled" if compiled is not None else f"plain: {folder}"


def played(world: str, policy: str) -> None:
    """Play a world, and print what that cost."""
    worlds_of: dict[str, Callable[[], Scenario]] = {"month": month, "cut": cut, "waiting": waiting}
    story = simulate(worlds_of[world](), policy).story
    figures = {
        "cpu_s": story.cpu_s,
        "jobs": len(story.lives),
        "events": story.events,
        "events_per_s": story.events / story.cpu_s,
        "preemptions": sum(one.beneficiary is not None for life in story.lives.values() for one in life.stints),
        "landings": len(story.landings),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


def cut(seed: int = 0) -> Scenario:
    """As many jobs as in the cut that public simulators were run on, of the same make: 93 % ask for one GPU, most are
    over within the hour, and few hold nearly all of the GPU time."""
    draw = Random(seed)
    rows = []
    for number in range(CUT_JOBS):
        gpus = draw.choices((1, 2, 4, 8, 16, 32), (93, 2.2, 2.2, 2.25, 0.25, 0.1))[0]
        rows.append(
            Row(
                line=number + 2,
                job_id=f"j{number}",
                submit=Millis(int(draw.random() * CUT_DAYS * DAY)),
                duration=Millis(1_000 + int(1_000 * min(10 * 86_400, draw.lognormvariate(6.5, 2.3)))),
                gpus=gpus,
                user=f"u{draw.randrange(200)}",
                project=f"vc{min(14, int(draw.expovariate(0.35)))}",
            )
        )
    rows.sort(key=lambda row: row.submit)
    trace = Trace("cut", "made up", tuple(rows))
    return shape(trace, Cluster.parse("48x8"), days=CUT_DAYS)


def sim_cut() -> Result:
    """14 days, 384 GPUs, 23,203 jobs: jobs per second of CPU time, under fair share; the others beside it."""
    before = cpu_scale()
    notes: dict[str, float | str] = {}
    rates = {}
    for policy in ("fair-share", "fifo", "fifo-backfill"):
        figures, notes["core"] = _in_a_process("cut", policy)
        rates[policy] = notes[f"{policy}_jobs_per_s"] = figures["jobs"] / figures["cpu_s"]
    scale = (before + cpu_scale()) / 2
    notes |= {"limit_unscaled": CUT_PER_S, "cpu_scale": scale, "demand": cut().notes[-1]}
    return Result(rates["fair-share"], "jobs per s CPU, fair share", CUT_PER_S / scale, at_least=True, notes=notes)


def waiting() -> Scenario:
    """As many jobs as in the month at once: a tenth of the time at ten times the demand."""
    return month(demand=21.0, days=3.0)


def sim_memory() -> Result:
    """The most memory that as many jobs take as are in the month, in a process of its own."""
    figures, _ = _in_a_process("waiting", "fifo-backfill")
    return Result(figures["peak_mib"], "MiB at most", MOST_MIB, notes={"jobs": figures["jobs"]})


def sim_curve() -> Result:
    """Cost per job of growing clusters, against n log n in the number of jobs: 1 is that, less is better."""
    curve: dict[str, float | str] = {}
    points = []
    for nodes, days in CURVE_FULL if os.environ.get("GPUFAIR_BENCH_FULL") else CURVE:
        scenario = month(demand=2.5, nodes=nodes, days=days)
        before = cpu_scale()
        story = simulate(scenario).story
        each = story.cpu_s * 1000 / len(story.lives) / ((before + cpu_scale()) / 2)
        points.append((len(story.lives), each))
        curve[f"ms_per_job_at_{nodes * 8}_gpus_{len(story.lives)}_jobs"] = each
    (few, cheap), (many, dear) = points[0], points[-1]
    return Result(dear / cheap / (log(many) / log(few)), "of n log n growth", 1.0, notes=curve)


CASES = {
    "sim_month": sim_month,
    "sim_cut": sim_cut,
    "sim_memory": sim_memory,
    "sim_curve": sim_curve,
}
