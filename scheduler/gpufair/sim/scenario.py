"""A world to play a policy in: a cluster, budgets, and who submits what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpufair.core.events import Event
from gpufair.core.model import Allocation, Node
from gpufair.core.units import Instant, Millis
from gpufair.sim.costs import USUAL, Costs
from gpufair.sim.job import Job


@dataclass(frozen=True)
class Scenario:
    """Everything that a run depends on, the policy aside. Nothing in it is drawn while it runs but from ``seed``.

    Args:
        name: What it is called in reports.
        nodes: The cluster, all there at ``start``.
        allocations: The budget tree.
        jobs: Sorted by submission, then id.
        until: When the run ends; what still runs or waits then is unfinished.
        start: When it begins.
        warm_up: How much of its beginning is left out of the figures.
        incidents: What happens beside submissions, sorted by time: nodes lost and back, drains, maintenance, edits of
            budgets and policy. Policies that know nothing of one ignore it; loss and return of nodes reach all.
        costs: How long nodes and workloads take.
        outstanding: Closed loop: so many jobs of one user are submitted and unfinished at most, and the next one is
            submitted ``think`` after one of them has ended, or at its own time if that is later. None: open loop, as
            recorded.
        think: See ``outstanding``.
        seed: Of what is drawn while it runs (launch times).
        epoch_s: Unix seconds of instant 0, for reports that show dates; None: there is none.
        notes: What readers of the report should know: rows that were skipped, scaling, drawn attributes.
    """

    name: str
    nodes: tuple[Node, ...]
    allocations: tuple[Allocation, ...]
    jobs: Sequence[Job]
    until: Instant
    start: Instant = Instant(0)
    warm_up: Millis = Millis(0)
    incidents: tuple[Event, ...] = ()
    costs: Costs = USUAL
    outstanding: int | None = None
    think: Millis = Millis(0)
    seed: int = 0
    epoch_s: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return sum(node.gpus for node in self.nodes)
