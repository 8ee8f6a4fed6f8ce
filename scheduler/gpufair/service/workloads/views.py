"""What the API shows: JSON-able objects made of the core's views and the service's details. Instants are Unix seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpufair.core.brief import brief
from gpufair.core.estimate import estimate
from gpufair.core.figures import AllocationFigures
from gpufair.core.ledger import Conservation
from gpufair.core.model import Kind, Phase, Policy, Shape
from gpufair.core.record import NodeView
from gpufair.core.state import State
from gpufair.core.units import MINUTE, Instant, WorkloadId
from gpufair.service.settings.profile_options import Profile
from gpufair.service.workloads import dependencies, moving, retries, time_limit
from gpufair.service.workloads.details import Detail, checkpoint_dict
from gpufair.service.workloads.submission import usual_priority

ESTIMATED = 50  # places in the queue
FRESH = 3 * MINUTE  # nodes report once a minute, and one report may be lost


def seconds(instant: int | None) -> float | None:
    """Milliseconds as seconds."""
    return None if instant is None else instant / 1000


def workload_view(
    state: State, workload: WorkloadId, detail: Detail, position: int | None, now: Instant
) -> dict[str, Any]:
    """The Workload object of the API."""
    it = state.workload(workload)
    spec, held = it.spec, it.held
    record = state.facts.record(workload)
    # The core's figure is that of its last event; time went on.
    charged_ms = record.charged(max(now, state.now)) // state.facts.weights.unit
    launch: Mapping[str, Any] = spec.launch
    landing = record.landing
    at, waits_for = _waiting(state, workload, position) if position is not None else (None, "")
    awaited = dependencies.waits_for(state, detail)
    return {
        "id": it.id,
        "name": spec.name,
        "kind": spec.kind.value,
        "user": spec.user,
        "allocation": spec.allocation,
        "gpus": spec.shape.gpus_per_node,
        "nodes": spec.shape.nodes,
        "gpu_type": spec.shape.gpu_type,
        "pools": list(spec.pools),
        "pool": held.pool if held is not None else None,
        **demands_view(spec.shape),
        "min_runtime_s": spec.min_runtime / 1000,
        "resumable": spec.resumable,
        "movable": spec.movable,
        "priority": spec.priority,
        "expected_s": seconds(spec.expected),
        "idle_release_s": seconds(spec.idle_release),
        "state": it.phase.value,
        "submitted_s": seconds(it.submitted_at),
        "incarnation": it.incarnation,
        "generation": detail.generation,
        "starts": it.starts,
        "preemptions": it.preemptions,
        "leases": [{"node": lease.node, "gpus": lease.gpus} for lease in held.leases] if held else [],
        "devices": [list(pair) for pair in it.devices] if held else [],
        "granted_s": seconds(held.granted_at) if held else None,
        "protected_until_s": seconds(held.protected_until) if held else None,
        "deadline_s": seconds(it.deadline) if it.phase in (Phase.CHECKPOINTING, Phase.STOPPING) else None,
        "leaving": record.notice.value if record.notice is not None else None,
        "position": position,
        "estimate_s": seconds(at),
        "start_by_s": seconds(landing.start_by) if position is not None and landing is not None else None,
        "waits_for": awaited or retries.waits_for(spec, detail) or waits_for,
        "attempt": detail.retries + (1 if not detail.retry_at_ms else 0),
        "retries": retries.allowed(spec),
        "retry_at_s": seconds(detail.retry_at_ms or None),
        "timeout_s": seconds(time_limit.limit_of(spec)),
        "after": list(detail.after),
        "after_any": list(detail.after_any),
        "reason": f"it waits for {awaited}" if awaited else detail.remark or it.reason,
        "remark": detail.remark,
        "busy": it.busy,
        "beneficiary": it.beneficiary,
        "checkpoint": checkpoint_dict(it.checkpoint) if it.checkpoint else None,
        "lost": [list(pair) for pair in it.lost],
        "not_saved": detail.not_saved,
        "move": moving.view(detail.move),
        "restore_offered": detail.restore_offered,
        "serving": detail.serving,
        # A serving kernel was reported in this phase, and then its death; a service's restart changes neither.
        "kernel_died": detail.kernel_died,
        "outcome": it.outcome.value if it.outcome else None,
        "ended_s": seconds(it.ended_at),
        "charged_gpu_s": charged_ms / 1000,
        "notebook": str(launch.get("notebook") or ""),
        "kernel_name": str(launch.get("kernel_name") or ""),
        "progress": detail.progress,
        "utilization": _utilization(detail, now) if held else None,
        # Without the variables: they are asked for one by one, and each change of a workload is sent to everybody.
        "preflight": None if detail.preflight is None else {**detail.preflight, "variables": None},
    }


def _utilization(detail: Detail, now: Instant) -> dict[str, Any] | None:
    """How busy its GPUs were in the last minute that was measured; None where that is not known, or long ago."""
    known = [one for one in detail.busy if now - one.at_ms <= FRESH]
    if not known:
        return None
    return {
        "at_s": max(one.at_ms for one in known) / 1000,
        "fraction": round(sum(one.fraction for one in known) / len(known), 3),
        "gpus": [[one.node, one.device, round(one.fraction, 3)] for one in known],
    }


def _waiting(state: State, workload: WorkloadId, position: int) -> tuple[Instant | None, str]:
    """When it may start and why not now: for the first in the queue only, since each guess looks at all nodes."""
    record = state.facts.record(workload)
    if position > ESTIMATED:
        return None, ""
    guess = estimate(state.facts, record, position - 1)
    return guess.at, brief(state.facts, record, guess)


def demands_view(shape: Shape) -> dict[str, Any]:
    """What a shape asks for beside GPUs."""
    return {
        "cpus": shape.cpus_per_node,
        "memory_bytes": shape.memory_per_node,
        "within": shape.within,
        "exclude": list(shape.exclude),
        "where": dict(shape.where),
    }


def masked(view: dict[str, Any]) -> dict[str, Any]:
    """A Workload object for other users: what a queue has to show, without what they work on."""
    checkpoint = view["checkpoint"]
    return view | {
        "name": "",
        "notebook": "",
        "lost": [],
        "preflight": None,
        "move": view["move"] and view["move"] | {"failed": None},
        "suggestion": None,
        "utilization": None,
        "checkpoint": checkpoint and checkpoint | {"lost": []},
    }


def nodes_view(
    state: State, last_seen: Callable[[str], int | None], health: Callable[[str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """All nodes, by name; ``last_seen`` knows when an agent was last heard, ``health`` what it said of its machine."""
    return [_node_view(state, node, last_seen(node.node.name)) | health(node.node.name) for node in state.nodes()]


def _landings(state: State, node: NodeView) -> list[dict[str, Any]]:
    found = []
    for owner, gpus in sorted(state.facts.nodes[node.node.name].landings.items()):
        if (landing := state.facts.record(owner).landing) is not None:
            at, start_by = seconds(landing.at), seconds(landing.start_by)
            found.append({"workload": owner, "gpus": gpus, "at_s": at, "start_by_s": start_by})
    return sorted(found, key=lambda one: (one["at_s"], one["workload"]))


def _node_view(state: State, node: NodeView, last_seen: int | None) -> dict[str, Any]:
    return {
        "name": node.node.name,
        "pool": node.node.pool,
        "gpus": node.node.gpus,
        "gpu_type": node.node.gpu_type,
        "free_gpus": node.free,
        "state": "lost" if node.lost else "cordoned" if node.cordoned else "ready",
        "cordoned": node.cordoned,
        "workloads": [workload for workload, _ in node.holders],
        "last_seen_s": seconds(last_seen),
        "labels": dict(node.node.labels),
        "cpus": node.node.cpus,
        "memory_bytes": node.node.memory,
        "landings": _landings(state, node),
        "drain": node.drain and {"deadline_s": seconds(node.drain.deadline), "force": node.drain.force},
        "protected": [{"workload": workload, "until_s": seconds(until)} for workload, until in node.protected],
        "empty_by_s": seconds(node.empty_by),
        "closes_at_s": seconds(node.closes_at),
        "guest_gpus": node.guests,
    }


def maintenance_view(state: State) -> list[dict[str, Any]]:
    """What is planned, the first first."""
    plans = sorted(state.facts.maintenance.values(), key=lambda plan: (plan.at, plan.id))
    return [{"id": plan.id, "nodes": list(plan.nodes), "at_s": seconds(plan.at)} for plan in plans]


def budgets_view(state: State) -> dict[str, Any]:
    """The budget tree with its figures, summed over the pools and in each of them."""
    window = state.policy.window
    merged: dict[str, dict[str, Any]] = {}
    capacity = 0
    for figures in state.budgets():
        node = state.tree[figures.path]
        if figures.path == "":
            capacity += int(figures.budget)
            continue
        entry = merged.setdefault(
            figures.path,
            {
                "path": figures.path,
                "share": _exact(state, figures.path),
                "members": list(node.members),
                "leaf": not node.children,
                "entitlement": float(node.entitlement),
                "budget_gpu_s": 0.0,
                "occupancy_gpu_s": 0.0,
                "commitment_gpu_s": 0.0,
                "owed_gpu_s": 0.0,
                "due_gpu_s": 0.0,
                "metric": None,
                "gpus_held": 0,
                "gpus_queued": 0,
                "gpus_wanted": 0,
                "pools": [],
            },
        )
        part = _figures(figures)
        entry["pools"].append({"pool": figures.pool, "metric": figures.metric if figures.due > 0 else None} | part)
        for name, value in part.items():
            entry[name] += value
    for entry in merged.values():
        # The scheduler compares pool by pool; in one pool this is its very figure.
        if entry["due_gpu_s"] > 0:
            committed = entry["commitment_gpu_s"] if state.policy.commitment else 0.0
            entry["metric"] = (entry["occupancy_gpu_s"] + committed) / entry["due_gpu_s"]
    return {
        "window_s": window / 1000,
        "banking": state.policy.banking,
        "capacity_gpu_s": capacity / 1000,
        "allocations": list(merged.values()),
    }


def _figures(it: AllocationFigures) -> dict[str, Any]:
    """What is summed over the pools."""
    return {
        "budget_gpu_s": it.budget / 1000,
        "occupancy_gpu_s": it.occupancy / 1000,
        "commitment_gpu_s": it.commitment / 1000,
        "owed_gpu_s": it.owed / 1000,
        "due_gpu_s": it.due / 1000,
        "gpus_held": it.running_gpus,
        "gpus_queued": it.queued_gpus,
        "gpus_wanted": it.wanted_gpus,
    }


def _exact(state: State, path: str) -> str:
    """The share as its owner wrote it; implied parents have 1."""
    for allocation in state.tree.allocations:
        if allocation.path == path:
            return allocation.share
    return "1"


def conservation_view(conservation: Conservation) -> dict[str, int]:
    """Where every GPU-millisecond went; ``error_gpu_ms`` must be 0."""
    return {
        "capacity_gpu_ms": conservation.capacity_time,
        "charged_gpu_ms": conservation.charged,
        "unallocated_gpu_ms": conservation.unallocated,
        "held_gpu_ms": conservation.held,
        "idle_gpu_ms": conservation.idle,
        "unavailable_gpu_ms": conservation.unavailable,
        "error_gpu_ms": conservation.error,
    }


def profile_view(profile: Profile, policy: Policy) -> dict[str, Any]:
    """A profile."""
    shape = Shape(profile.gpus, profile.nodes, profile.gpu_type)
    priority = profile.priority
    return {
        "name": profile.name,
        "display_name": profile.display_name,
        "gpus": profile.gpus,
        "nodes": profile.nodes,
        "gpu_type": profile.gpu_type,
        "allocation": profile.allocation,
        "min_runtime_s": profile.min_runtime / 1000,
        "kind": profile.kind.value,
        "priority": usual_priority(policy, shape, profile.min_runtime) if priority is None else priority,
        "expected_s": seconds(profile.expected),
        "idle_release_s": seconds(profile.idle_release) if profile.kind is Kind.SESSION and profile.gpus else None,
        "movable": profile.movable,
        "cpus": profile.cpus,
        "memory_bytes": profile.memory,
        "within": profile.within,
        "exclude": list(profile.exclude),
        "where": dict(profile.where),
        "pools": list(profile.pools),
    }
