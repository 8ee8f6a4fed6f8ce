"""The core's explanation as the API shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpufair.core.explain import AllocationExplanation, Explanation
from gpufair.core.share import Standing
from gpufair.core.state import State
from gpufair.core.tree import parent_of
from gpufair.service.workloads.amending import change_view
from gpufair.service.workloads.views import seconds


def explanation_view(state: State, it: Explanation, queued: int) -> dict[str, Any]:
    """An explanation, with who holds the GPUs, when it may start, and what would start it now."""
    holders = []
    for holder in it.holders:
        other = state.workload(holder.workload)
        holders.append(
            {
                "workload": holder.workload,
                "user": holder.user,
                "allocation": holder.allocation,
                "gpus": holder.gpus,
                "leases": [{"node": holder.node, "gpus": holder.gpus}],
                "until_s": seconds(holder.protected_until),
                "protected": other.spec.allocated and holder.protected_until > state.now,
                "preemptible_now": holder.preemptible_now,
            }
        )
    start = None
    if it.estimate is not None or it.estimate_basis:
        start = {
            "kind": "start_by" if it.binding else "estimate",
            "at_s": seconds(it.estimate),
            "because": it.estimate_basis,
        }
    return {
        "workload": it.workload,
        "state": it.phase.value,
        "pool": _pool(state, it),
        "sentence": it.sentence,
        "position": it.position,
        "queued": queued if it.position is not None else None,
        "level": parent_of(it.level[0]) if it.level else None,
        "mine": _side(it.mine),
        "other": _side(it.theirs),
        "holders": holders,
        "start": start,
        "threat": it.threat
        and {
            "by": it.threat.by,
            "right": it.threat.right.value,
            "earliest_s": seconds(it.threat.earliest),
            "loses_gpu_s": it.threat.loses / 1000,
        },
        "preempted": it.preempted
        and {"by": it.preempted.by, "right": it.preempted.right.value, "why": it.preempted.why},
        "change": change_view(state, it.workload, it.smallest_change),
    }


def _pool(state: State, it: Explanation) -> str:
    """Where it has its place, or is tried first; "" where there is only one."""
    if len(state.facts.pools()) < 2:
        return ""
    record = state.facts.record(it.workload)
    return str(record.held.pool if record.held is not None else record.spec.pools[0])


def allocation_view(pools: Sequence[AllocationExplanation], path: str) -> dict[str, Any]:
    """How an allocation stands among its siblings, level by level."""
    return {
        "allocation": path,
        "pools": [
            {
                "pool": it.pool,
                "sentence": it.sentence,
                "levels": [
                    {
                        "parent": level.parent,
                        "path": level.path,
                        "place": level.place,
                        "siblings": [_side(standing) for standing in level.siblings],
                    }
                    for level in it.levels
                ],
            }
            for it in pools
        ],
    }


def _side(standing: Standing | None) -> dict[str, Any] | None:
    if standing is None:
        return None
    return {
        "allocation": standing.path,
        "occupancy_gpu_s": standing.occupancy / 1000,
        "commitment_gpu_s": standing.commitment / 1000,
        "budget_gpu_s": standing.budget / 1000,
        "owed_gpu_s": standing.owed / 1000,
        "due_gpu_s": standing.due / 1000,
        # A leaf without a share compares as infinitely over-served; JSON has no such number.
        "metric": standing.metric if math.isfinite(standing.metric) else None,
    }
