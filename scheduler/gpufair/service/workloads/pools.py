"""Which pools there are, which of them a workload is for, and how each of them is.

A pool is a cluster, or a part of one: nodes that are scheduled together, with a ledger of their own. What is scarce in one
is not paid by another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpufair.core.errors import GpufairError
from gpufair.core.facts import Facts
from gpufair.core.model import DEFAULT_POOL, Shape
from gpufair.core.possible import could_hold
from gpufair.core.state import State
from gpufair.core.units import PoolName
from gpufair.service.settings.config import Config
from gpufair.service.settings.node_options import NodeConfig
from gpufair.service.settings.pool_options import AGENTS, KUBERNETES
from gpufair.service.settings.tables import hint


class UnknownPool(GpufairError):
    """There is no such pool."""

    def __init__(self, name: str, known: tuple[PoolName, ...]) -> None:
        super().__init__(name, known)
        self.name, self.known = name, known

    def __str__(self) -> str:
        return f"there is no pool {self.name!r}{hint(self.name, self.known)}; known are {', '.join(self.known)}"


class OneNodeOnly(GpufairError):
    """A kernel on several nodes, where each kernel is a pod and a pod is on one node."""

    def __init__(self, pool: str, nodes: int) -> None:
        super().__init__(pool, nodes)
        self.pool, self.nodes = pool, nodes

    def __str__(self) -> str:
        return (
            f"a kernel with GPUs of {self.nodes} nodes was asked for, but in pool {self.pool!r}, a Kubernetes cluster, a kernel is "
            "one pod on one node, and could not use those of the others; ask for GPUs of one node, run a program on each node "
            f"(`gpufair submit --nodes {self.nodes} --gpus N -- torchrun ...`), or name a pool of another kind"
        )


def known(config: Config, facts: Facts) -> tuple[PoolName, ...]:
    """All there are: those of the configuration, and those that nodes belong to which are there. The default one first."""
    there = {pool for pool, nodes in facts.by_pool.items() if not all(node.lost for node in nodes)}
    names = {*there, *(PoolName(one.name) for one in config.pools), *_of_nodes(config.nodes)}
    return tuple(sorted(names, key=lambda name: (name != DEFAULT_POOL, name))) or (DEFAULT_POOL,)


_last: list[tuple[tuple[NodeConfig, ...], frozenset[PoolName]]] = []  # at most one


def _of_nodes(nodes: tuple[NodeConfig, ...]) -> frozenset[PoolName]:
    # Every submission asks, a large cluster has a thousand nodes, and they change with the configuration only.
    for known_nodes, names in _last:
        if known_nodes is nodes:
            return names
    found = frozenset(PoolName(one.pool) for one in nodes)
    _last[:] = [(nodes, found)]
    return found


def named(names: Iterable[str], config: Config, facts: Facts) -> tuple[PoolName, ...]:
    """Those that somebody names, in this order.

    Raises:
        UnknownPool: There is none of this name.
    """
    there = known(config, facts)
    for name in names:
        if name not in there:
            raise UnknownPool(name, there)
    return tuple(PoolName(name) for name in names)


def on_one_node(launch: Mapping[str, Any], shape: Shape, accepted: Iterable[PoolName], config: Config) -> None:
    """Refuse a kernel on several nodes where it would leave all GPUs but those of its first node to nobody.

    Raises:
        OneNodeOnly: One of the accepted pools is a Kubernetes cluster.
    """
    if _spans_nodes(launch, shape):
        clusters = _clusters(config)
        for name in accepted:
            if name in clusters:
                raise OneNodeOnly(name, shape.nodes)


def _spans_nodes(launch: Mapping[str, Any], shape: Shape) -> bool:
    return shape.nodes > 1 and launch.get("type") == "kernel"


def _clusters(config: Config) -> frozenset[str]:
    return frozenset(one.name for one in config.pools if one.backend == KUBERNETES)


def usual(config: Config, facts: Facts, shape: Shape, launch: Mapping[str, Any]) -> tuple[PoolName, ...]:
    """For whom names none: all that could hold the shape, in the order in which it will most likely start.

    A kernel on several nodes is kept from pools that cannot have one, if there are others.

    First those with room for it now, then those where the least is wanted for what there is; of equals the default one,
    then by name. Where none could hold it, all there are: the refusal says what could be had, or a cluster is yet to come.
    """
    there = known(config, facts)
    if _spans_nodes(launch, shape):
        clusters = _clusters(config)
        there = tuple(name for name in there if name not in clusters) or there
    fitting = [name for name in there if could_hold(facts.by_pool.get(name, ()), shape)]
    if len(fitting) < 2:
        return tuple(fitting) or there

    def likely(name: PoolName) -> tuple[bool, float]:
        full = name not in facts.rooms or not facts.rooms[name].fits(shape)
        worth = facts.worth(name)
        wanted = sum(owed.demand for owed in facts.ledger(name).owed.values())
        return full, wanted / worth if full and worth else 0.0

    return tuple(sorted(fitting, key=likely))


def pools_view(config: Config, state: State) -> list[dict[str, Any]]:
    """How each pool is."""
    facts = state.facts
    backends = {one.name: one.backend for one in config.pools}
    wanted = {one.pool: one for one in state.budgets() if one.path == ""}
    found = []
    for name in known(config, facts):
        nodes = [node for node in facts.by_pool.get(name, ()) if not node.lost]
        figures = wanted.get(name)
        found.append(
            {
                "name": name,
                "backend": backends.get(name, AGENTS),
                "nodes": len(nodes),
                "cordoned": sum(node.cordoned for node in nodes),
                "lost": sum(node.lost for node in facts.by_pool.get(name, ())),
                "gpus": sum(node.node.gpus for node in nodes),
                "free_gpus": sum(node.free for node in nodes if not node.cordoned),
                "held_gpus": 0 if figures is None else figures.running_gpus,
                "queued_gpus": 0 if figures is None else figures.queued_gpus,
                "gpu_types": sorted({node.node.gpu_type for node in nodes if node.node.gpu_type}),
            }
        )
    return found
