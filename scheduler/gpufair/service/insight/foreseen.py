"""What the core foresees, as the API shows it."""

from __future__ import annotations

from typing import Any

from gpufair.core.coach import Choice, Coaching
from gpufair.core.preview import Preview, Step
from gpufair.service.workloads.views import seconds


def preview_view(it: Preview) -> dict[str, Any]:
    """Who runs next and who is preempted when, if nothing new arrives."""
    return {
        "now_s": seconds(it.now),
        "until_s": seconds(it.until),
        "cut": it.cut,
        "steps": [_step(step) for step in it.steps],
        "starts": [{"workload": workload, "at_s": seconds(at)} for workload, at in it.first_start.items()],
    }


def _step(it: Step) -> dict[str, Any]:
    return {
        "at_s": seconds(it.at),
        "what": it.what.value,
        "workload": it.workload,
        "user": it.user,
        "allocation": it.allocation,
        "gpus": it.gpus,
        "nodes": list(it.nodes),
        "why": it.why,
        "reason": it.reason.value if it.reason is not None else None,
        "beneficiary": it.beneficiary,
        "until_s": seconds(it.until),
    }


def coaching_view(it: Coaching) -> dict[str, Any]:
    """A wish and other ways to ask."""
    return {
        "asked": _choice(it.asked),
        "choices": [_choice(choice) for choice in it.choices],
        "advice": it.advice,
    }


def _choice(it: Choice) -> dict[str, Any]:
    return {
        "gpus": it.shape.gpus_per_node,
        "nodes": it.shape.nodes,
        "gpu_type": it.shape.gpu_type,
        "min_runtime_s": it.min_runtime / 1000,
        "outlook": it.outlook.value,
        "at_s": seconds(it.at),
        "right": it.right.value if it.right is not None else None,
        "committed_gpu_s": it.committed / 1000,
        "of_budget": it.of_budget,
        "sentence": it.sentence,
    }
