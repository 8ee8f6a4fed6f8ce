"""When nodes could not be used, and what allocations were entitled to: what incidents change under everybody's feet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from gpufair.core.tree import Tree
from gpufair.core.units import Instant, NodeName
from gpufair.sim.measures.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Closed:
    """A node that was not there, or (``cordoned``) on which nothing new started."""

    node: NodeName
    start: Instant
    end: Instant
    cordoned: bool


def closed(cluster: Cluster, start: Instant, end: Instant) -> list[Closed]:
    """The spans in which nodes were lost, not there yet, or cordoned, by node and time."""
    found = [
        Closed(node, since, until, cordoned=True) for node, spans in cluster.cordons.items() for since, until in spans
    ]
    for node, presences in cluster.presences.items():
        since = start
        for presence in presences:
            found.append(Closed(node, since, presence.start, cordoned=False))
            since = presence.end
        found.append(Closed(node, since, end, cordoned=False))
    spans = [one for one in found if one.start < one.end]
    return sorted(spans, key=lambda one: (one.node, one.start, one.cordoned))


@dataclass(frozen=True, slots=True)
class Era:
    """A span in which neither the capacity nor the budgets changed. ``gpus`` are those of all pools."""

    start: Instant
    end: Instant
    gpus: int
    tree: Tree


def eras(cluster: Cluster, start: Instant, end: Instant) -> Iterator[Era]:
    """The eras of a run, in order, without gaps."""
    there = [presence for presences in cluster.presences.values() for presence in presences]
    changes = {at for one in there for at in (one.start, one.end)} | {at for at, _ in cluster.trees} | {start, end}
    instants = sorted(at for at in changes if start <= at <= end)
    for since, until in itertools.pairwise(instants):
        gpus = sum(one.node.gpus for one in there if one.start <= since < one.end)
        tree = next(tree for at, tree in reversed(cluster.trees) if at <= since)
        yield Era(since, until, gpus, tree)
