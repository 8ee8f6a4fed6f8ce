"""When nodes could not be used, and what allocations were entitled to: what incidents change under everybody's feet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpufair.core.events import BudgetsApplied, NodeCordoned, NodeDrained, NodeJoined, NodeLost, NodeUncordoned
from gpufair.core.tree import Tree
from gpufair.core.units import Instant, NodeName
from gpufair.sim.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Closed:
    """A node that was lost, or (``cordoned``) on which nothing new started."""

    node: NodeName
    start: Instant
    end: Instant
    cordoned: bool


def closed(scenario: Scenario, end: Instant) -> list[Closed]:
    """The spans in which nodes were lost or cordoned, by node and time. Plans of maintenance show as what they cause."""
    lost = {incident.node.name: scenario.start for incident in scenario.incidents if isinstance(incident, NodeJoined)}
    for there in scenario.nodes:
        lost.pop(there.name, None)
    cordoned: dict[NodeName, Instant] = {}
    found: list[Closed] = []

    def over(open_since: dict[NodeName, Instant], node: NodeName, at: Instant) -> None:
        since = open_since.pop(node, None)
        if since is not None and since < at:
            found.append(Closed(node, since, at, open_since is cordoned))

    for incident in scenario.incidents:
        at = min(incident.at, end)
        match incident:
            case NodeLost(node=node):
                over(cordoned, node, at)
                lost.setdefault(node, at)
            case NodeJoined(node=joined):
                over(lost, joined.name, at)
            case NodeCordoned(node=node) | NodeDrained(node=node):
                cordoned.setdefault(node, at)
            case NodeUncordoned(node=node):
                over(cordoned, node, at)
            case _:
                pass
    for still in (lost, cordoned):
        for name in sorted(still):
            over(still, name, end)
    return sorted(found, key=lambda one: (one.node, one.start, one.cordoned))


@dataclass(frozen=True, slots=True)
class Era:
    """A span in which neither the capacity nor the budgets changed. ``gpus`` are those of all pools."""

    start: Instant
    end: Instant
    gpus: int
    tree: Tree


def eras(scenario: Scenario, end: Instant) -> Iterator[Era]:
    """The eras of a scenario, in order, without gaps."""
    gpus = {node.name: node.gpus for node in scenario.nodes}
    tree, since = Tree(scenario.allocations), scenario.start
    for incident in scenario.incidents:
        at = Instant(min(max(incident.at, scenario.start), end))
        if isinstance(incident, NodeLost | NodeJoined | BudgetsApplied) and since < at:
            yield Era(since, at, sum(gpus.values()), tree)
            since = at
        match incident:
            case NodeLost(node=node):
                gpus.pop(node, None)
            case NodeJoined(node=joined):
                gpus[joined.name] = joined.gpus
            case BudgetsApplied(allocations=allocations):
                tree = Tree(allocations)
            case _:
                pass
    if since < end:
        yield Era(since, end, sum(gpus.values()), tree)
