"""How long a command may run, as its owner said: over all of its starts together, and only while it is up.

The supervisor beside it holds the clock of one start, so that nothing depends on the service being there at that moment;
what earlier starts have used is in the workload's detail.
"""

from __future__ import annotations

from gpufair.core import words
from gpufair.core.model import WorkloadSpec
from gpufair.core.units import Millis

KEY = "timeout_s"  # in a launch


def limit_of(spec: WorkloadSpec) -> Millis | None:
    """How long it may run in all; None: as long as it likes."""
    found = spec.launch.get(KEY)
    return Millis(round(found * 1000)) if isinstance(found, int | float) else None


def left_of(spec: WorkloadSpec, ran_ms: int) -> Millis | None:
    """How much of that is left after ``ran_ms``."""
    limit = limit_of(spec)
    return None if limit is None else Millis(max(0, limit - ran_ms))


def why(spec: WorkloadSpec) -> str:
    """The reason of one whose time is over."""
    return f"it ran for the {words.span(limit_of(spec) or Millis(0))} that its owner gave it"
