"""Where a workload can go: best fit on partly used nodes, gangs on distinct nodes of one block, all or nothing.

A *block* is the nodes with one value of a label: a rack, an NVLink domain. A gang prefers to lie in one block, of the
first label of ``Policy.blocks`` for which one holds it: the tightest such block, so that large ones stay whole. A
gang that demands one (``Shape.within``) goes nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from gpufair.core.amount import Amount, Freed, asked, left
from gpufair.core.horizon import FOREVER, room_with
from gpufair.core.model import Lease, Node, Shape
from gpufair.core.record import NodeRecord
from gpufair.core.units import Instant, NodeName

T = TypeVar("T")
Block = tuple[str, str]  # the value of the label that is demanded, and of the one that is preferred


def admits(node: NodeRecord, shape: Shape) -> bool:
    """Whether the node is open and one that the shape accepts; says nothing about room."""
    return node.open and accepts(shape, node.node)


def accepts(shape: Shape, node: Node) -> bool:
    """Whether the shape could use a node like this, whatever is free on it and whatever it has."""
    if shape.gpu_type and node.gpu_type != shape.gpu_type:
        return False
    return not shape.demanding or (
        node.name not in shape.exclude
        and (not shape.block or shape.block in node.labels)
        and all(node.labels.get(label) == value for label, value in shape.where)
    )


def place(
    nodes: Iterable[NodeRecord],
    shape: Shape,
    blocks: tuple[str, ...] = (),
    extra: Freed | None = None,
    until: Instant = FOREVER,
) -> tuple[Lease, ...] | None:
    """The tightest nodes that have room for the whole shape; None if there are not enough.

    Nodes without horizons come first: a guest must leave in time, whether somebody else needs its GPUs or not.

    Args:
        nodes: The nodes of one pool.
        shape: What is asked for.
        blocks: Labels of which a gang's nodes should have one value, the best first.
        extra: What counts as free beside what is free on the nodes.
        until: When the protection of whoever starts would end.
    """
    found = [
        (room_with(node, extra, until), node) for node in nodes if _has_room(node, shape, extra, until)
    ]
    if shape.gpus_per_node:
        found.sort(key=lambda one: (bool(one[1].bounds), one[0], one[1].node.name))
    else:
        # Nodes with the fewest GPUs first, so that CPU work keeps off GPU nodes where it can, then the least crowded.
        found.sort(key=lambda one: (bool(one[1].node.gpus), len(one[1].holders), one[1].node.name))
    return choose(found, shape, blocks)


def choose(found: list[tuple[int, NodeRecord]], shape: Shape, blocks: tuple[str, ...]) -> tuple[Lease, ...] | None:
    """The first of these nodes, each with its room, in one block if possible; None if there are not enough of them,
    or not in one block where that is demanded."""
    if len(found) < shape.nodes:
        return None
    for label in (*blocks, "") if shape.nodes > 1 else ("",):
        grouped = group(found, shape, label, lambda one: one[1].node)
        enough = {block: inside for block, inside in grouped.items() if len(inside) >= shape.nodes}
        if enough:
            best = min(enough, key=lambda block: (sum(room for room, _ in enough[block]), block))
            taken = enough[best][: shape.nodes]
            return tuple(sorted((Lease(node.node.name, shape.gpus_per_node) for _, node in taken), key=by_name))
    return None


def group(items: Iterable[T], shape: Shape, label: str, node: Callable[[T], Node]) -> dict[Block, list[T]]:
    """What lies in one block of the label that is demanded and of ``label``, in the order of the items."""
    blocks: dict[Block, list[T]] = {}
    for item in items:
        labels = node(item).labels
        if not label or label in labels:
            value = labels.get(shape.block, "") if shape.block else "", labels[label] if label else ""
            blocks.setdefault(value, []).append(item)
    return blocks


def holds(
    nodes: Iterable[NodeRecord],
    shape: Shape,
    extra: Freed | None = None,
    until: Instant = FOREVER,
) -> bool:
    """Whether ``place`` would find room for the whole shape."""
    return enough((node.node for node in nodes if _has_room(node, shape, extra, until)), shape)


def enough(nodes: Iterable[Node], shape: Shape) -> bool:
    """Whether these are enough nodes for a shape, in one block if it demands one."""
    if not shape.block:
        return sum(1 for _ in nodes) >= shape.nodes
    counts: dict[str, int] = {}
    for node in nodes:
        value = node.labels[shape.block]
        counts[value] = counts.get(value, 0) + 1
    return max(counts.values(), default=0) >= shape.nodes


def suits(nodes: Mapping[NodeName, NodeRecord], leases: Iterable[Lease], shape: Shape) -> bool:
    """Whether a shape could start on these leases, as far as their nodes are open and such as it asked for."""
    chosen = [nodes[lease.node] for lease in leases]
    return all(admits(node, shape) for node in chosen) and enough((node.node for node in chosen), shape)


def _has_room(
    node: NodeRecord, shape: Shape, extra: Freed | None, until: Instant = FOREVER
) -> bool:
    wanted = shape.gpus_per_node
    if not wanted and node.closes_at is not None and until > node.closes_at:
        return False
    if (wanted and room_with(node, extra, until) < wanted) or not admits(node, shape):
        return False
    return not shape.counted or _rest_fits(node, shape, extra)


def _rest_fits(node: NodeRecord, shape: Shape, extra: Freed | None) -> bool:
    has = left(node) + extra.of(node.node.name) if extra is not None else left(node)
    wanted: Amount = asked(shape)
    return has.cpus >= wanted.cpus and has.memory >= wanted.memory


def by_name(lease: Lease) -> NodeName:
    """The order of leases."""
    return lease.node
