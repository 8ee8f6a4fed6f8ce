"""What it costs to make a scenario: a month on 1,024 GPUs, constructed and of a trace."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable

from gpufair.core.units import DAY, Millis
from gpufair.sim.cluster import Cluster
from gpufair.sim.scenario import Scenario
from gpufair.sim.shape import shape
from gpufair.sim.traces.row import Row, Trace
from gpufair.sim.worlds import Setting, world
from tests.bench.core import result
from tests.bench.result import Result

CLUSTER = Cluster.parse("128x8")
JOBS = 50_000


def _steady(days: float = 30) -> Scenario:
    return world("steady").make(Setting(CLUSTER, days=days))


def _trace(count: int) -> Trace:
    draw = random.Random(5)
    times = sorted(draw.randrange(30 * DAY) for _ in range(count))
    rows = (
        Row(
            line=number,
            job_id=f"job{number}",
            submit=Millis(at),
            duration=Millis(round(1_000 * min(60 + draw.lognormvariate(8, 2), 10 * 86_400))),
            gpus=draw.choices((1, 2, 4, 8, 32), (70, 10, 8, 8, 4))[0],
            user=f"u{draw.randrange(200)}",
            project=f"p{draw.randrange(15)}",
        )
        for number, at in enumerate(times, 2)
    )
    return Trace("made.csv", "csv", tuple(rows))


def _per_50_000(make: Callable[[], Scenario]) -> Result:
    begun = time.process_time()
    made = make()
    taken = time.process_time() - begun
    return result(taken * JOBS / len(made.jobs), "s CPU to make 50,000 jobs", 2.0, jobs=len(made.jobs), cpu_s=taken)


def constructed() -> Result:
    """A steady world."""
    return _per_50_000(_steady)


def of_a_trace() -> Result:
    """20,000 recorded jobs, repeated until they ask for 2.5 times the cluster, with all that is drawn for each."""
    trace = _trace(20_000)
    return _per_50_000(lambda: shape(trace, CLUSTER, demand=2.5, session_share=0.1, users="drawn"))


def memory() -> Result:
    """What a steady world of six days keeps."""
    tracemalloc.start()
    made = _steady(6)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Result(
        kept / 2**20 * JOBS / len(made.jobs), "MiB kept for 50,000 jobs", 50.0, notes={"jobs": len(made.jobs)}
    )


CASES = {"sim_scenario_world": constructed, "sim_scenario_trace": of_a_trace, "sim_scenario_memory": memory}
