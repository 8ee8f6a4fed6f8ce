"""A change of what somebody waits for: what is left out stays as it is, or follows from the rest as at a submission."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpufair.core import events as ev
from gpufair.core import words
from gpufair.core.change import Change
from gpufair.core.model import WorkloadSpec
from gpufair.core.state import State
from gpufair.core.units import WorkloadId
from gpufair.service.workloads import pools
from gpufair.service.workloads.submission import Wanted, allocation_of, nodes_of, span_of, usual_priority
from gpufair.service.workloads.views import demands_view

if TYPE_CHECKING:
    from gpufair.core.facts import Facts
    from gpufair.service.settings.config import Config
    from gpufair.service.workloads.turn import Turn


def amend(turn: Turn, workload: WorkloadId, wanted: Wanted, config: Config) -> None:
    """Have a workload ask for ``wanted``. One that does so already, wherever it is in its life, is left alone.

    Raises:
        UnknownAllocation, NotAMember: The allocation is no leaf, or not open to the workload's owner.
        UnknownPool: It names a pool that there is not.
        OneNodeOnly: A kernel on several nodes in a Kubernetes cluster.
        WrongPhase: It holds GPUs, is about to, or is over.
        GpufairError: The core refuses the wish.
    """
    known = turn.state.workload(workload).spec
    spec = _amended(known, wanted, config, turn.state.facts)
    if spec != known:
        event = ev.Amended(
            turn.now, turn.cause(), workload, spec.allocation, spec.shape, spec.min_runtime, spec.pools, spec.priority
        )
        turn.handle(event)


def _amended(spec: WorkloadSpec, wanted: Wanted, config: Config, facts: Facts) -> WorkloadSpec:
    old = spec.shape
    shape = replace(
        old,
        gpus_per_node=old.gpus_per_node if wanted.gpus is None else wanted.gpus,
        nodes=old.nodes if wanted.nodes is None else wanted.nodes,
        gpu_type=old.gpu_type if wanted.gpu_type is None else wanted.gpu_type,
        cpus_per_node=old.cpus_per_node if wanted.cpus is None else wanted.cpus,
        memory_per_node=old.memory_per_node if wanted.memory_bytes is None else wanted.memory_bytes,
        within=old.within if wanted.within is None else wanted.within,
        exclude=old.exclude if wanted.exclude is None else nodes_of(wanted.exclude),
        where=old.where if wanted.where is None else tuple(sorted(wanted.where.items())),
    )
    min_runtime = spec.min_runtime if wanted.min_runtime_s is None else span_of(wanted.min_runtime_s, "min_runtime_s")
    accepted = spec.pools
    if wanted.pools:
        accepted = pools.named(wanted.pools, config, facts)
    elif shape != old and set(accepted) == set(pools.usual(config, facts, old, spec.launch)):
        accepted = pools.usual(config, facts, shape, spec.launch)
    if (shape, accepted) != (old, spec.pools):
        pools.on_one_node(spec.launch, shape, accepted, config)
    priority = spec.priority if wanted.priority is None else wanted.priority
    if wanted.priority is None and priority == usual_priority(config.policy, old, spec.min_runtime):
        priority = usual_priority(config.policy, shape, min_runtime)
    return replace(
        spec,
        allocation=allocation_of(wanted.allocation, spec.user, facts.tree) if wanted.allocation else spec.allocation,
        shape=shape,
        min_runtime=min_runtime,
        pools=accepted,
        priority=priority,
    )


def change_view(state: State, workload: WorkloadId, change: Change | None) -> dict[str, Any] | None:
    """The smallest change: as a sentence, the fields of the whole wish, and ``amend``: the body of the ``PATCH`` that
    makes it, with what its owner gives up by that (``costs``)."""
    if change is None:
        return None
    record = state.facts.record(workload)
    asked, shape = record.spec.shape, change.shape
    fields = {
        "gpus": shape.gpus_per_node,
        "nodes": shape.nodes,
        "gpu_type": shape.gpu_type,
        "min_runtime_s": change.min_runtime / 1000,
    }
    before = {
        "gpus": asked.gpus_per_node,
        "nodes": asked.nodes,
        "gpu_type": asked.gpu_type,
        # A slice that stays as it is need not become the whole.
        "min_runtime_s": record.min_runtime / 1000,
    }
    demands, demanded = demands_view(shape), demands_view(asked)
    others = {name: value for name, value in demands.items() if value != demanded[name]}
    # The priority is named as it is: it is with this one that the change was found to start it.
    amend = {name: value for name, value in fields.items() if value != before[name]} | others
    return {
        "text": change.sentence,
        "fields": fields | others,
        "amend": amend | {"priority": record.spec.priority},
        "at_s": change.at / 1000,
        "costs": _costs(state, workload, change),
    }


def _costs(state: State, workload: WorkloadId, change: Change) -> list[str]:
    record = state.facts.record(workload)
    costs = []
    if record.spec.allocated and not change.min_runtime and record.gpus:
        costs.append("unallocated it is free of charge, and whoever is allocated may have its GPUs at any time")
    if record.landing is not None:
        costs.append(f"it gives up its landing, which starts it by {words.moment(record.landing.start_by)} at the latest")
    return costs
