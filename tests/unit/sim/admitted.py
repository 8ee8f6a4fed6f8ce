"""Whether the core takes every job of a scenario."""

from __future__ import annotations

from gpufair.core.admission import check
from gpufair.core.errors import GpufairError
from gpufair.core.events import BudgetsApplied, NodeJoined, Submitted
from gpufair.core.model import Policy
from gpufair.core.state import State
from gpufair.core.units import CauseId
from gpufair.sim.scenario import Scenario

CAUSE = CauseId("test")


def refused(scenario: Scenario, policy: Policy = Policy()) -> list[str]:
    """What the core says against jobs of the scenario; empty if it admits all."""
    state = State(policy)
    state.handle(BudgetsApplied(scenario.start, CAUSE, scenario.allocations))
    for node in scenario.nodes:
        state.handle(NodeJoined(scenario.start, CAUSE, node))
    found = []
    for job in scenario.jobs:
        try:
            check(Submitted(job.submit, CAUSE, job.id, job.spec), state.facts)
        except GpufairError as err:
            found.append(f"{job.id}: {err}")
    return found
