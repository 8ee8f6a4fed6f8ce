"""Where a workload can go: best fit on partly used nodes, gangs on distinct nodes, all or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gpufair.core.model import Lease, Shape
from gpufair.core.record import NodeRecord
from gpufair.core.units import NodeName


def admits(node: NodeRecord, shape: Shape) -> bool:
    """Whether the node is open and of the right type; says nothing about room."""
    return node.open and _of_type(node, shape)


def place(
    nodes: Iterable[NodeRecord], shape: Shape, extra: Mapping[NodeName, int] | None = None
) -> tuple[Lease, ...] | None:
    """The tightest nodes that have room for the whole shape; None if there are not enough.

    Args:
        nodes: The nodes of one pool.
        shape: What is asked for.
        extra: GPUs that count as room beside the node's own, by node.
    """
    if not shape.gpus_per_node:
        return _place_without_gpus(nodes, shape)
    fits: list[tuple[int, NodeName]] = []
    for node in nodes:
        room = node.room + extra.get(node.node.name, 0) if extra else node.room
        if room >= shape.gpus_per_node and admits(node, shape):
            fits.append((room, node.node.name))
    if len(fits) < shape.nodes:
        return None
    if shape.nodes == 1:
        return (Lease(min(fits)[1], shape.gpus_per_node),)
    fits.sort()
    return tuple(sorted((Lease(name, shape.gpus_per_node) for _, name in fits[: shape.nodes]), key=by_name))


def _place_without_gpus(nodes: Iterable[NodeRecord], shape: Shape) -> tuple[Lease, ...] | None:
    # Nodes with the fewest GPUs first, so that CPU work keeps off GPU nodes where it can, then the least crowded.
    fits = sorted((bool(node.node.gpus), len(node.holders), node.node.name) for node in nodes if admits(node, shape))
    if len(fits) < shape.nodes:
        return None
    return tuple(sorted((Lease(name, 0) for _, _, name in fits[: shape.nodes]), key=by_name))


def largest(nodes: Iterable[NodeRecord], shape: Shape) -> Shape | None:
    """The shape nearest to the asked one that could ever be had; None if no node is of the right type.

    Cordoned and lost nodes count: they may come back.
    """
    sizes = sorted((node.node.gpus for node in nodes if _of_type(node, shape)), reverse=True)
    if not sizes:
        return None
    wide = min(shape.nodes, len(sizes))
    return replace(shape, nodes=wide, gpus_per_node=min(shape.gpus_per_node, sizes[wide - 1]))


def could_hold(nodes: Iterable[NodeRecord], shape: Shape) -> bool:
    """Whether an empty pool could hold the shape, with every known node back."""
    fitting = sum(1 for node in nodes if node.node.gpus >= shape.gpus_per_node and _of_type(node, shape))
    return fitting >= shape.nodes


def _of_type(node: NodeRecord, shape: Shape) -> bool:
    return not shape.gpu_type or node.node.gpu_type == shape.gpu_type


def by_name(lease: Lease) -> NodeName:
    """The order of leases."""
    return lease.node
