"""What a pool could ever hold. Cordoned and lost nodes count: they may come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gpufair.core.amount import asked, whole
from gpufair.core.model import Node, Shape
from gpufair.core.placement import accepts, enough, group
from gpufair.core.record import NodeRecord


def could_hold(nodes: Iterable[NodeRecord], shape: Shape) -> bool:
    """Whether an empty pool could hold the shape, with every known node back."""
    if not shape.demanding:
        wanted, kind, missing = shape.gpus_per_node, shape.gpu_type, shape.nodes
        for node in nodes:
            if node.node.gpus >= wanted and (not kind or node.node.gpu_type == kind):
                missing -= 1
                if not missing:
                    return True
        return False
    each = asked(shape)
    return enough((n.node for n in nodes if accepts(shape, n.node) and whole(n.node) >= each), shape)


def could_hold_now(nodes: Iterable[NodeRecord], shape: Shape) -> bool:
    """Whether a pool could hold the shape with the nodes that are present, were they empty. Cordoned ones count."""
    return could_hold((node for node in nodes if not node.lost), shape)


def largest(nodes: Iterable[NodeRecord], shape: Shape) -> Shape | None:
    """The shape nearest to the asked one that could ever be had; None if there is no node of the kind asked for.

    It keeps every demand but those for CPUs and memory, of which it names as much as there is.
    """
    usable = group((node.node for node in nodes if accepts(shape, node.node)), shape, "", lambda node: node)
    found = [_largest(inside, shape) for inside in usable.values()]
    return max(found, key=lambda one: (one.gpus, one.gpus_per_node, one.nodes, _rest(one)), default=None)


def _rest(shape: Shape) -> tuple[int, int]:
    return shape.nodes * shape.cpus_per_node, shape.nodes * shape.memory_per_node


def _largest(nodes: list[Node], shape: Shape) -> Shape:
    wide = min(shape.nodes, len(nodes))

    def most(sizes: Iterable[int]) -> int:
        """So much of something is there on enough nodes."""
        return sorted(sizes, reverse=True)[wide - 1]

    gpus = min(shape.gpus_per_node, most(node.gpus for node in nodes))
    if not shape.counted:
        return replace(shape, nodes=wide, gpus_per_node=gpus)
    nodes = [node for node in nodes if node.gpus >= gpus]
    cpus = min(shape.cpus_per_node, most(whole(node).cpus for node in nodes))
    nodes = [node for node in nodes if whole(node).cpus >= cpus]
    memory = min(shape.memory_per_node, most(whole(node).memory for node in nodes))
    return replace(shape, nodes=wide, gpus_per_node=gpus, cpus_per_node=cpus, memory_per_node=memory)


def without(shape: Shape) -> Iterator[tuple[str, Shape]]:
    """The shape without each single demand that it makes beside GPUs and their number, with the demand in words."""
    if shape.gpu_type:
        yield f"the GPU type {shape.gpu_type}", replace(shape, gpu_type="")
    for name in shape.exclude:
        left = tuple(other for other in shape.exclude if other != name)
        yield f"the exclusion of {name}", replace(shape, exclude=left)
    if len(shape.exclude) > 1:
        yield "the exclusions", replace(shape, exclude=())
    for label, value in shape.where:
        left_over = tuple(pair for pair in shape.where if pair != (label, value))
        yield f"the demand for {label} {value}", replace(shape, where=left_over)
    if shape.block:
        yield f"the demand for one {shape.block}", replace(shape, within="")
    if shape.cpus_per_node:
        yield "the demand for CPUs", replace(shape, cpus_per_node=0)
    if shape.memory_per_node:
        yield "the demand for memory", replace(shape, memory_per_node=0)


def ruled_out_by(nodes: Sequence[NodeRecord], shape: Shape) -> str:
    """The single demand without which the pool could hold the shape; "" if there is none, or more than one at work."""
    return next((name for name, less in without(shape) if could_hold(nodes, less)), "")
