"""What the scheduler core costs: 128 nodes of 8 GPUs, 100 leaves on three levels, 10,000 who wait."""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from functools import cache

from gpufair.core import events as ev
from gpufair.core.errors import NeverFits
from gpufair.core.landing import Approach, to_leave
from gpufair.core.model import Kind, Outcome, Shape, WorkloadSpec
from gpufair.core.plan import plan
from gpufair.core.preemption import cost_of
from gpufair.core.record import Record
from gpufair.core.snapshot import restore, snapshot
from gpufair.core.units import HOUR, MINUTE, Instant, Millis, WorkloadId
from tests.bench.core_world import CAUSE, NODES, Bench, cpu_scale
from tests.bench.result import Result

WARM_UP, EVENTS, CURVE_EVENTS = 3_000, 3_000, 1_000


@cache
def steady() -> Bench:
    """A full cluster with its queue after some hours; what has been taken since then is in ``taken``."""
    bench = Bench()
    bench.fill()
    for _ in range(WARM_UP):
        bench.step()
    bench.taken.clear()
    for _ in range(EVENTS):
        bench.step()
    return bench


def result(value: float, unit: str, limit: float, **notes: float | str) -> Result:
    """A figure beside its limit on this machine, as fast as it is now."""
    scale = cpu_scale()
    return Result(value, unit, limit * scale, notes={"limit_unscaled": limit, "cpu_scale": scale, **notes})


def _percentile(times: list[float], share: float) -> float:
    return sorted(times)[int(len(times) * share)] * 1000


def event_p50() -> Result:
    """One event handled, and asked when the next is due: the half of them."""
    return result(_percentile(steady().taken, 0.5), "ms CPU per event, p50", 1.0, events=len(steady().taken))


def event_p99() -> Result:
    """One event handled, and asked when the next is due: the slowest hundredth."""
    taken = steady().taken
    return result(
        _percentile(taken, 0.99),
        "ms CPU per event, p99",
        20.0,
        worst_ms=max(taken) * 1000,
        events=len(taken),
    )


def pass_cold() -> Result:
    """The first pass of a state that was just read from its snapshot."""
    written = json.loads(json.dumps(snapshot(steady().state)))
    times = []
    for _ in range(5):
        state = restore(written)
        begun = time.process_time()
        state.handle(ev.TimePassed(Instant(state.now + 60_000), CAUSE))
        times.append(time.process_time() - begun)
    return result(statistics.median(times) * 1000, "ms CPU for a pass from cold", 60.0, worst_ms=max(times) * 1000)


def cpu_per_workload() -> Result:
    """Submit, start, finish: an hour's worth of single GPUs on a cluster that has room, nobody waiting."""
    bench = Bench()
    leaves, count = bench.state.tree.leaves, 2_000
    begun = time.process_time()
    for number in range(count):
        now = Instant(bench.state.now + 1_000)
        workload = WorkloadId(f"{number:08x}-w")
        spec = WorkloadSpec(leaves[number % len(leaves)], f"u{number % 8}", Kind.BATCH, Shape(1), HOUR)
        bench.state.handle(ev.Submitted(now, CAUSE, workload, spec))
        bench.state.handle(ev.Started(now, CAUSE, workload, 1))
        if number >= 500:
            ended = WorkloadId(f"{number - 500:08x}-w")
            bench.state.handle(ev.Exited(now, CAUSE, ended, 1, Outcome.COMPLETED))
        bench.state.next_wakeup()
    taken = (time.process_time() - begun) * 1000 / count
    return result(taken, "ms CPU per workload", 0.3, workloads=count)


def never_fits() -> Result:
    """The refusal of what this cluster can never run."""
    bench = steady()
    impossible = WorkloadSpec(bench.state.tree.leaves[0], "u", Kind.BATCH, Shape(8, NODES + 1), HOUR)
    times = []
    for number in range(200):
        begun = time.process_time()
        with suppress(NeverFits):
            bench.state.handle(ev.Submitted(bench.state.now, CAUSE, WorkloadId(f"never{number}"), impossible))
            raise AssertionError("it was admitted")
        times.append(time.process_time() - begun)
    return result(_percentile(times, 0.5), "ms CPU per refusal", 1.0)


def why() -> Result:
    """An explanation of one of those who wait, with its smallest change, and of one of those who run."""
    state, draw = steady().state, random.Random(11)
    times: dict[str, list[float]] = {"waiting": [], "running": []}
    running = sorted(workload for workload, one in state.facts.holding.items() if one.gpus)
    for kind, known in (("waiting", state.queue()), ("running", running)):
        for workload in draw.sample(known, 200):
            begun = time.process_time()
            state.explain(workload)
            times[kind].append(time.process_time() - begun)
    return result(
        _percentile(times["waiting"], 0.5),
        "ms CPU per explanation, p50 of those who wait",
        5.0,
        p99_ms=_percentile(times["waiting"], 0.99),
        running_ms=_percentile(times["running"], 0.5),
    )


def coach() -> Result:
    """The usual other ways to ask for a session: six protections in each shape."""
    bench, times = steady(), []
    for _ in range(100):
        spec = replace(bench.spec(), min_runtime=Millis(8 * HOUR))
        begun = time.process_time()
        bench.state.coach(spec)
        times.append(time.process_time() - begun)
    return result(_percentile(times, 0.5), "ms CPU per coaching, p50", 50.0, p99_ms=_percentile(times, 0.99))


def memory_per_queued() -> Result:
    """What another 2,000 who wait take, their wishes included."""
    bench = steady()
    gc.collect()
    tracemalloc.start()
    before, count = tracemalloc.get_traced_memory()[0], 2_000
    for _ in range(count):
        bench.submit()
    bench.taken.clear()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return Result(grown / count, "bytes per queued workload", 2_000)


CURVE = ((128, 10_000), (256, 20_000), (512, 50_000))  # nodes and queued


def growth() -> Result:
    """An event of growing clusters, against cost that grows with the cluster: 1 is linear, less is better.

    Means are compared: the larger the cluster, the more of its events are plain ends and starts, which a median shows.
    """
    curve: dict[str, float | str] = {}
    for nodes, queued in CURVE:
        bench, count = Bench(nodes, queued), CURVE_EVENTS * nodes // NODES  # as many hours for each
        bench.fill()
        for _ in range(count):
            bench.step()
        bench.taken.clear()
        for _ in range(count):
            bench.step()
        # Scaled each for itself: the curve takes a while, and the machine is not equally fast all the time.
        scale, at = cpu_scale(), f"at_{nodes}x8_with_{queued}"
        curve[f"mean_ms_{at}"] = statistics.fmean(bench.taken) * 1000 / scale
        curve[f"p50_ms_{at}"] = _percentile(bench.taken, 0.5) / scale
    means = [float(value) for name, value in curve.items() if name.startswith("mean")]
    times = CURVE[-1][0] / CURVE[0][0]
    return Result(means[-1] / means[0] / times, f"of linear growth at {times:g} times the nodes", 1.0, notes=curve)


def gang_plan() -> Result:
    """Where and when a gang of 1,024 GPUs lands, on a cluster full of small work; and who would leave for it now."""
    bench = Bench()
    leaves, count = bench.state.tree.leaves, 8 * NODES
    for number in range(count):
        spec = WorkloadSpec(
            leaves[1 + number % 99], f"u{number % 8}", Kind.BATCH, Shape(1), Millis(MINUTE * (15 + number % 400))
        )
        bench.feed(ev.Submitted(bench.state.now, CAUSE, WorkloadId(f"{number:08x}-w"), spec))
    facts = bench.state.facts
    gang = WorkloadSpec(leaves[0], "u", Kind.BATCH, Shape(8, NODES), HOUR)
    record = Record(id=WorkloadId("gang"), spec=gang, submitted_at=facts.now)
    pool = gang.pools[0]
    shares, times = facts.shares(pool), []
    for _ in range(5):
        begun = time.process_time()
        landing = Approach(facts, shares, record, pool).landing(CAUSE)
        assert landing is not None
        assert len(landing.leases) == NODES
        times.append(time.process_time() - begun)
    victims = sorted((to_leave(facts, one) for one in facts.holding.values()), key=cost_of)
    begun = time.process_time()
    found = plan(facts, victims, record, pool)
    assert found is not None
    assert len(found.victims) == count
    evicting = (time.process_time() - begun) * 1000
    return result(
        max(statistics.median(times) * 1000, evicting), "ms CPU to plan a gang of 1,024 GPUs", 50.0, victims_ms=evicting
    )


CASES = {
    "core_gang_plan": gang_plan,
    "core_curve": growth,
    "core_event_p50": event_p50,
    "core_event_p99": event_p99,
    "core_pass_cold": pass_cold,
    "core_cpu_per_workload": cpu_per_workload,
    "core_never_fits": never_fits,
    "core_why": why,
    "core_coach": coach,
    "core_memory_per_queued": memory_per_queued,
}
