"""What a submission should be warned about. Nothing here refuses anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpufair.core import words
from gpufair.core.model import WorkloadSpec

if TYPE_CHECKING:
    from gpufair.core.facts import Facts

# Below half of what it needs a run that cannot resume is more likely than not to be stopped for nothing when GPUs are
# scarce.
FAR_BELOW: Final = 2


def advice(spec: WorkloadSpec, facts: Facts) -> tuple[str, ...]:
    """Warnings for whoever submits this, each a sentence with what to do instead.

    A workload that cannot be resumed loses everything when it is preempted after its ``min_runtime``.
    """
    expected, cap = spec.expected, facts.policy.max_min_runtime
    if spec.resumable or not spec.allocated or not spec.shape.gpus or expected is None:
        return ()
    if spec.min_runtime * FAR_BELOW >= expected or spec.min_runtime >= cap:
        return ()
    more = min(expected, cap)
    rest = "" if more == expected else f", the longest there is, of the {words.span(expected)} that it needs"
    warning = (
        f"it cannot be resumed and is expected to need {words.span(expected)}, but it is protected for only "
        f"{words.span(spec.min_runtime)}: whoever preempts it after that destroys all it has done. Declare a "
        f"min_runtime of {words.span(more)}{rest}, let it save checkpoints, or run it unallocated (min_runtime 0), "
        "which is free of charge"
    )
    return (warning,)
