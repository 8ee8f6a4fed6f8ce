"""What the core foresees, as the API shows it."""

from __future__ import annotations

from typing import Any

from gpufair.core.preview import Preview, Step
from gpufair.service.views import seconds


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
