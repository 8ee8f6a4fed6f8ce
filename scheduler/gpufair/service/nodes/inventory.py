"""What a machine offers: as its agent says it, as the configuration has it, and as the core knows it."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from gpufair.core.amount import held
from gpufair.core.model import Node
from gpufair.core.record import NodeRecord
from gpufair.core.state import State
from gpufair.core.units import NodeName, PoolName
from gpufair.service.problems import BadRequest
from gpufair.service.settings.node_options import MAX_GPUS
from gpufair.wire import NONE_LEFT, NodeInventory

LONGEST = 200  # characters of a type or an address


def offered(said: NodeInventory, configured: NodeInventory) -> NodeInventory:
    """What a remote node offers: it knows its GPUs, the configuration where it belongs.

    Raises:
        BadRequest: No machine is like that.
    """
    if len(said.gpu_ids) > MAX_GPUS or len(set(said.gpu_ids)) != len(said.gpu_ids):
        raise BadRequest(
            f"node {said.name!r} names {len(said.gpu_ids)} GPUs; they have to differ, and be {MAX_GPUS} at most"
        )
    if max(len(said.gpu_type), len(said.host)) > LONGEST:
        raise BadRequest(f"node {said.name!r}: its type of GPU or its address is longer than {LONGEST} characters")
    return replace(
        said,
        pool=configured.pool,
        labels=configured.labels,
        gpu_type=configured.gpu_type or said.gpu_type,
        cpus=max(NONE_LEFT, said.cpus),
        memory_bytes=max(NONE_LEFT, said.memory_bytes),
    )


def node_of(inventory: NodeInventory) -> Node:
    """The node of the core."""
    return Node(
        name=NodeName(inventory.name),
        gpus=len(inventory.gpu_ids),
        gpu_type=inventory.gpu_type,
        pool=PoolName(inventory.pool),
        labels=MappingProxyType(dict(inventory.labels)),
        cpus=_counted(inventory.cpus),
        memory=_counted(inventory.memory_bytes),
    )


def with_held(node: Node, known: NodeRecord, state: State) -> Node:
    """A node whose parts others take as well: of what is held on it nothing is theirs, until it is free.

    Its type is what it was as long as somebody holds GPUs of it.
    """
    if not known.holders or known.lost:
        return node
    cpus, memory = held(known, state.facts.records)
    return replace(
        node,
        gpus=max(node.gpus, sum(known.holders.values())),
        gpu_type=known.node.gpu_type,
        cpus=None if node.cpus is None else max(node.cpus, cpus),
        memory=None if node.memory is None else max(node.memory, memory),
    )


def _counted(amount: int) -> int | None:
    """As the core has it: what is unknown is not counted."""
    return 0 if amount == NONE_LEFT else amount or None
