"""What Prometheus is told of the state as it is: the queue, the GPUs, the budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gpufair.core.model import Phase
from gpufair.core.pyramid import Pyramid
from gpufair.core.state import State
from gpufair.core.units import Instant
from gpufair.service.runtime.meter import Meter

CONTENT_TYPE = CONTENT_TYPE_LATEST
_MOST_ALLOCATIONS = 1_000  # a series for each: a monitoring system is not a ledger


def exposition(meter: Meter, families: Sequence[Metric], version: str) -> bytes:
    """Everything, in Prometheus' text format."""
    registry = CollectorRegistry()
    about = GaugeMetricFamily("gpufair_build_info", "Which version runs.", labels=["version"])
    about.add_metric([version], 1)
    registry.register(_Told([about, *families]))
    return generate_latest(meter.registry) + generate_latest(registry)


def families(state: State) -> list[Metric]:
    """Gauges of the state, and the GPU time so far by what became of it."""
    return [*_workloads(state), *_gpus(state), *_gpu_time(state), *_budgets(state)]


class _Told(Collector):
    """What was worked out already."""

    def __init__(self, told: Iterable[Metric]) -> None:
        self._told = list(told)

    def collect(self) -> Iterable[Metric]:
        return self._told


def _workloads(state: State) -> Iterator[Metric]:
    records = [record for record in state.facts.records.values() if record.phase is not Phase.ENDED]
    family = GaugeMetricFamily("gpufair_workloads", "Workloads that have not ended.", labels=["phase", "kind"])
    counts = Counter((record.phase.value, record.spec.kind.value) for record in records)
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    yield family
    queued = [record for record in records if record.phase is Phase.QUEUED]
    wanted = sum(record.spec.shape.gpus_per_node * record.spec.shape.nodes for record in queued)
    yield GaugeMetricFamily("gpufair_queue_gpus", "GPUs that queued workloads ask for.", value=wanted)
    oldest = min((record.queued_at for record in queued), default=state.now)
    yield GaugeMetricFamily(
        "gpufair_queue_oldest_seconds",
        "How long the first of the queued has waited.",
        value=(state.now - oldest) / 1000,
    )


def _gpus(state: State) -> Iterator[Metric]:
    family = GaugeMetricFamily("gpufair_gpus", "GPUs of nodes that are there, by pool.", labels=["pool", "use"])
    nodes = GaugeMetricFamily("gpufair_nodes", "Machines.", labels=["health"])
    use: Counter[tuple[str, str]] = Counter()
    health: Counter[str] = Counter()
    for view in state.nodes():
        health["lost" if view.lost else "cordoned" if view.cordoned else "ready"] += 1
        if not view.lost:
            pool = str(view.node.pool)
            held = sum(gpus for _, gpus in view.holders)
            use[pool, "held"] += held
            use[pool, "free"] += view.free
            use[pool, "kept"] += view.node.gpus - held - view.free  # for landings, moves and drains
    for labels, count in sorted(use.items()):
        family.add_metric(labels, count)
    for name, count in sorted(health.items()):
        nodes.add_metric([name], count)
    yield from (family, nodes)


def _gpu_time(state: State) -> Iterator[Metric]:
    told = state.conservation()
    family = CounterMetricFamily("gpufair_gpu_seconds", "GPU time so far, by what became of it.", labels=["class"])
    for name in ("charged", "unallocated", "idle", "unavailable"):
        family.add_metric([name], getattr(told, name) / 1000)
    yield family
    yield CounterMetricFamily(
        "gpufair_switching_gpu_seconds", "Of it: starting, restoring, saving and stopping.", value=told.switching / 1000
    )
    protected = state.protected_preemptions
    yield CounterMetricFamily(
        "gpufair_protected_preemptions", "Preemptions of protected workloads; 0.", value=protected
    )


def _budgets(state: State) -> Iterator[Metric]:
    told: Sequence[Pyramid] = state.pyramid(Instant(state.now - state.policy.window), state.now)
    labels = ["pool", "allocation"]
    owed = GaugeMetricFamily("gpufair_allocation_owed_gpu_seconds", "Owed over the budgets' window.", labels=labels)
    charged = GaugeMetricFamily("gpufair_allocation_charged_gpu_seconds", "Charged over the window.", labels=labels)
    ratio = GaugeMetricFamily("gpufair_delivered_over_owed", "Capped, over the budgets' window.", labels=["pool"])
    levels = GaugeMetricFamily(
        "gpufair_pyramid_ratio", "Levels of the pyramid over the window.", labels=["pool", "level"]
    )
    for it in told:
        pool = str(it.delivery.pool)
        if it.delivery.capped is not None:
            ratio.add_metric([pool], it.delivery.capped)
        for name in ("availability", "occupancy", "impact", "utilization"):
            if (kept := getattr(it, name).ratio) is not None:
                levels.add_metric([pool, name], kept)
        for one in [each for each in it.delivery.allocations if each.path][:_MOST_ALLOCATIONS]:
            owed.add_metric([pool, str(one.path)], one.owed / 1000)
            charged.add_metric([pool, str(one.path)], one.charged / 1000)
    yield from (owed, charged, ratio, levels)
