"""Planned maintenance: until its time only guests start on its nodes; at its time they are cordoned, and so drained.

The plans are facts, and their time comes with the clock: nobody decides anything. Work that started before and is
protected beyond that time is not cut; it leaves as its protection ends, as from any cordoned node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpufair.core.model import Maintenance
from gpufair.core.units import Instant, NodeName

if TYPE_CHECKING:
    from gpufair.core.facts import Facts


def plan_maintenance(facts: Facts, plan: Maintenance) -> None:
    """Nodes will be closed at a time; at once, if that is not after now."""
    facts.maintenance[plan.id] = plan
    facts.landings_in_doubt = True
    begin_due(facts)
    _count(facts, plan.nodes)


def cancel_maintenance(facts: Facts, plan: str) -> None:
    """Nodes will not be closed after all."""
    _count(facts, facts.maintenance.pop(plan).nodes)


def leave_plans(facts: Facts, node: NodeName) -> None:
    """A node will not be there: no plan is about it any longer, and one that was about it alone is off."""
    for plan in [one for one in facts.maintenance.values() if node in one.nodes]:
        if left := tuple(name for name in plan.nodes if name != node):
            facts.maintenance[plan.id] = replace(plan, nodes=left)
        else:
            del facts.maintenance[plan.id]
    _count(facts, (node,))


def begin_due(facts: Facts) -> None:
    """Close the nodes whose time has come. They are opened again by hand, when the work on them is done."""
    for plan in [one for one in facts.maintenance.values() if one.at <= facts.now]:
        del facts.maintenance[plan.id]
        for name in plan.nodes:
            facts.nodes[name].cordoned = True
        _count(facts, plan.nodes)


def moments(facts: Facts) -> Iterator[Instant]:
    """When the nodes of a plan are closed."""
    for plan in facts.maintenance.values():
        yield plan.at


def _count(facts: Facts, nodes: tuple[NodeName, ...]) -> None:
    for name in nodes:
        closing = [plan.at for plan in facts.maintenance.values() if name in plan.nodes]
        facts.nodes[name].closes_at = min(closing, default=None)
        facts.touch(name)
