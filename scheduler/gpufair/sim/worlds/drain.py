"""Nodes that are drained, closed for maintenance, lost, and back."""

from __future__ import annotations

from typing import Final

from gpufair.core.events import Event, MaintenancePlanned, NodeDrained, NodeUncordoned
from gpufair.core.model import Maintenance
from gpufair.core.units import DAY, CauseId, Instant
from gpufair.sim.assumptions import NodeAssumptions
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds.builder import Builder
from gpufair.sim.worlds.setting import Setting
from gpufair.sim.worlds.steady import DEMAND, LAB

OPERATOR: Final = CauseId("operator")
# Where no failures are assumed: one node of a hundred each day.
FAILING: Final = NodeAssumptions(mtbf_d=100.0, repair_h=8.0)


def drain(setting: Setting) -> Scenario:
    """A steady cluster whose operators are busy: in each week (or half of the run, if that is shorter)

    - a tenth of the nodes is drained within half a day, and opened a day after;
    - the next tenth is closed for a maintenance that was planned two days before, and opened half a day after;
    - one node of the tenth after that is emptied by force, and opened a day after;
    - nodes are lost and come back.
    """
    world = Builder(setting, LAB)
    for leaf in world.tree.leaves:
        world.stream(leaf, world.demand(DEMAND), unallocated=world.free())
    names = [node.name for node in setting.cluster.nodes()]
    tenth = max(1, len(names) // 10)
    week = min(7 * DAY, max(7, world.until // 2))
    day = week // 7
    incidents: list[Event] = []
    for number, begin in enumerate(range(0, world.until, week)):
        first, second, third = (
            [names[(at + index) % len(names)] for index in range(tenth)]
            for at in range(3 * number * tenth, 3 * (number + 1) * tenth, tenth)
        )
        at = Instant(begin + day)
        incidents += [NodeDrained(at, OPERATOR, node, Instant(at + day // 2)) for node in first]
        incidents += [NodeUncordoned(Instant(at + day * 3 // 2), OPERATOR, node) for node in first]
        closes = Instant(begin + 4 * day)
        plan = Maintenance(f"maintenance-{number + 1}", tuple(dict.fromkeys(second)), closes)
        incidents.append(MaintenancePlanned(Instant(closes - 2 * day), OPERATOR, plan))
        incidents += [NodeUncordoned(Instant(closes + day // 2), OPERATOR, node) for node in second]
        forced = Instant(begin + 5 * day)
        incidents.append(NodeDrained(forced, OPERATOR, third[0], forced, force=True))
        incidents.append(NodeUncordoned(Instant(forced + day), OPERATOR, third[0]))
    incidents = sorted((event for event in incidents if event.at < world.until), key=lambda event: event.at)
    nodes = setting.assumptions.nodes
    return world.scenario(
        "drain",
        ("nodes are drained, closed for maintenance, emptied by force, lost, and back",),
        incidents,
        failing=nodes if nodes.mtbf_d else FAILING,
    )
