"""Nodes that fail and come back, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from gpufair.core.events import Event, NodeJoined, NodeLost
from gpufair.core.model import Node
from gpufair.core.units import DAY, HOUR, CauseId, Instant
from gpufair.sim.assumptions import NodeAssumptions

FAILURE: Final = CauseId("failure")


def failures(nodes: Sequence[Node], start: Instant, until: Instant, usual: NodeAssumptions, seed: int) -> list[Event]:
    """Losses and returns of nodes, each node by itself, sorted by time; none if ``mtbf_d`` is 0.

    Times between are exponential. What is lost at the end may stay so.
    """
    found: list[Event] = []
    if not usual.mtbf_d:
        return found
    draw = Random(f"failures:{seed}")
    for node in nodes:
        at = float(start)
        while True:
            at += draw.expovariate(1 / (usual.mtbf_d * DAY))
            if at >= until:
                break
            found.append(NodeLost(Instant(int(at)), FAILURE, node.name))
            at += max(1.0, draw.expovariate(1 / (usual.repair_h * HOUR)) if usual.repair_h else 0.0)
            if at < until:
                found.append(NodeJoined(Instant(int(at)), FAILURE, node))
    return sorted(found, key=lambda event: event.at)
