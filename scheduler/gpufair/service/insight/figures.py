"""Figures over a period, as the API shows them: where GPU time went, and what was delivered of what was owed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpufair.core.delivery import Delivered, Delivery
from gpufair.core.over_time import OverTime
from gpufair.core.pyramid import Level, Pyramid
from gpufair.service.workloads.views import seconds


def pyramid_view(pools: Sequence[Pyramid]) -> dict[str, Any]:
    """The four levels of each pool. A ratio of null is unknown, or there was nothing."""
    return {"pools": [_pyramid(it) for it in pools]}


def delivered_view(pools: Sequence[Pyramid]) -> dict[str, Any]:
    """Delivered / owed of each allocation in each pool."""
    return {"pools": [_delivery(it.delivery) | {"allocations": _allocations(it.delivery)} for it in pools]}


def over_time_view(pools: Sequence[OverTime]) -> dict[str, Any]:
    """What each allocation was owed and charged, bin by bin, in each pool."""
    return {"pools": [_over_time(it) for it in pools]}


def _over_time(it: OverTime) -> dict[str, Any]:
    return {
        "pool": it.pool,
        "start_s": seconds(it.start),
        "end_s": seconds(it.end),
        "bin_s": it.bin / 1000,
        "allocations": [
            {
                "path": one.path,
                "leaf": one.leaf,
                "entitlement": float(one.entitlement),
                "owed_gpu_s": [amount / 1000 for amount in one.owed],
                "charged_gpu_s": [amount / 1000 for amount in one.charged],
            }
            for one in it.courses
        ],
    }


def _pyramid(it: Pyramid) -> dict[str, Any]:
    used = it.utilization
    return {
        **_delivery(it.delivery),
        "availability": _level(it.availability),
        "occupancy": _level(it.occupancy),
        "impact": _level(it.impact),
        "utilization": {
            "of_gpu_s": used.measured / 1000,
            "kept_gpu_s": used.busy / 1000,
            "ratio": used.ratio,
            "losses": [],
            "coverage": used.coverage,
        },
        "held_gpu_s": used.held / 1000,
        "charged_gpu_s": it.charged / 1000,
        "unallocated_gpu_s": it.unallocated / 1000,
        "switching_gpu_s": it.switching / 1000,
    }


def _level(it: Level) -> dict[str, Any]:
    return {
        "of_gpu_s": it.of / 1000,
        "kept_gpu_s": it.kept / 1000,
        "ratio": it.ratio,
        "losses": [{"cause": cause, "gpu_s": lost / 1000} for cause, lost in it.losses],
    }


def _delivery(it: Delivery) -> dict[str, Any]:
    return {
        "pool": it.pool,
        "start_s": seconds(it.start),
        "end_s": seconds(it.end),
        "capped": it.capped,
        "uncapped": it.uncapped,
        "capped_hourly": it.capped_hourly,
        "worst": it.worst and {"path": it.worst.path, "ratio": it.worst.ratio},
    }


def _allocations(it: Delivery) -> list[dict[str, Any]]:
    return [_allocation(one) for one in it.allocations if one.path]


def _allocation(it: Delivered) -> dict[str, Any]:
    return {
        "path": it.path,
        "leaf": it.leaf,
        "entitlement": float(it.entitlement),
        "owed_gpu_s": it.owed / 1000,
        "charged_gpu_s": it.charged / 1000,
        "capped_gpu_s": it.capped / 1000,
        "capped_hourly_gpu_s": it.capped_hourly / 1000,
        "ratio": it.ratio,
        "researchers": [{"user": user, "charged_gpu_s": charged / 1000} for user, charged in it.researchers],
    }
