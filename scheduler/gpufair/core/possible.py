"""What a pool could ever hold. Cordoned and lost nodes count, and what others hold of a node: they may come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gpufair.core import words
from gpufair.core.amount import Amount, asked, whole
from gpufair.core.model import Node, Shape
from gpufair.core.placement import accepts, enough, group
from gpufair.core.record import NodeRecord


def could_hold(nodes: Iterable[NodeRecord], shape: Shape) -> bool:
    """Whether an empty pool could hold the shape, with every known node back and nothing of others on it."""
    return _could_hold(nodes, shape, entire)


def could_hold_now(nodes: Iterable[NodeRecord], shape: Shape) -> bool:
    """Whether a pool could hold the shape with what is present of its nodes, were they empty. Cordoned ones count."""
    return _could_hold((node for node in nodes if not node.lost), shape, whole)


def _could_hold(nodes: Iterable[NodeRecord], shape: Shape, all_of: Callable[[Node], Amount]) -> bool:
    if not shape.demanding:
        wanted, kind, missing = shape.gpus_per_node, shape.gpu_type, shape.nodes
        for node in nodes:
            has = node.node
            gpus = has.gpus if has.capacity is None else all_of(has).gpus
            if gpus >= wanted and (not kind or has.gpu_type == kind):
                missing -= 1
                if not missing:
                    return True
        return False
    each = asked(shape)
    return enough((n.node for n in nodes if accepts(shape, n.node) and all_of(n.node) >= each), shape)


def entire(node: Node) -> Amount:
    """All that a node could have for workloads: what others hold is theirs for now."""
    has, more = whole(node), node.capacity
    if more is None:
        return has
    return Amount(
        max(has.gpus, more.gpus),
        has.cpus if more.cpus is None else max(has.cpus, more.cpus),
        has.memory if more.memory is None else max(has.memory, more.memory),
    )


def of_others(nodes: Iterable[Node], shape: Shape) -> str:
    """What of these nodes a shape asks for is not offered now, as a part of a sentence; "" where there is nothing."""
    gpus = cpus = memory = 0
    for node in nodes:
        if node.capacity is not None:
            more = entire(node).beyond(whole(node))
            gpus, cpus, memory = gpus + more.gpus, cpus + more.cpus, memory + more.memory
    said = [f"{cpus} CPUs"] if cpus and shape.cpus_per_node else []
    said += [f"{memory / (1 << 30):.3g} GiB"] if memory and shape.memory_per_node else []
    beside = f"; others in the cluster hold {words.names(said)} of these nodes" if said else ""
    if not gpus or not shape.gpus_per_node:
        return beside
    return f"; {words.gpus(gpus)} more on these nodes {'is' if gpus == 1 else 'are'} held by others in the cluster, or not healthy{beside}"


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

    gpus = min(shape.gpus_per_node, most(entire(node).gpus for node in nodes))
    if not shape.counted:
        return replace(shape, nodes=wide, gpus_per_node=gpus)
    nodes = [node for node in nodes if entire(node).gpus >= gpus]
    cpus = min(shape.cpus_per_node, most(entire(node).cpus for node in nodes))
    nodes = [node for node in nodes if entire(node).cpus >= cpus]
    memory = min(shape.memory_per_node, most(entire(node).memory for node in nodes))
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
