"""What a session's owner may want to do about it, as far as that can be seen: GPUs that it holds and does not touch."""

from __future__ import annotations

from typing import Any

from gpufair.core import words
from gpufair.core.model import Kind, Phase
from gpufair.core.state import State
from gpufair.core.units import HOUR, Instant, Millis, WorkloadId
from gpufair.service.workloads.details import Detail

MOVE_TO_CPU = "move_to_cpu"


def suggestion(
    state: State, workload: WorkloadId, detail: Detail, now: Instant, limit: Millis
) -> dict[str, Any] | None:
    """That it be moved to a CPU node, once nobody has touched its GPUs for ``limit`` (0: never); None otherwise.

    What is not known is taken for use. Nor is anything said of what could not be moved, or moves already, or whose owner
    has said that it is to stay.
    """
    since = detail.unused_since_ms
    if not limit or not since or now - since < limit or detail.stays or detail.moves:
        return None
    it = state.workload(workload)
    spec = it.spec
    if spec.kind is not Kind.SESSION or spec.launch.get("type") != "kernel" or it.phase is not Phase.RUNNING:
        return None
    if not spec.resumable or not spec.shape.gpus:
        return None
    # In whole hours: the sentence must not be news each minute.
    span = words.span(Millis(max(limit, (now - since) // HOUR * HOUR)))
    its = "its GPU" if spec.shape.gpus == 1 else f"its {spec.shape.gpus} GPUs"
    text = f"This notebook has not used {its} for {span}: move it to a CPU node, and keep all variables?"
    return {"kind": MOVE_TO_CPU, "since_s": since / 1000, "text": text}
