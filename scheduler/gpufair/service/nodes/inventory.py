"""What a machine offers: as its agent says it, as the configuration has it, and as the core knows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from gpufair.core.model import Capacity, Node
from gpufair.core.units import NodeName, PoolName
from gpufair.service.problems import BadRequest
from gpufair.service.settings.node_options import MAX_GPUS
from gpufair.wire import NONE_LEFT, NodeInventory

LONGEST = 200  # characters of a type or an address


@dataclass(frozen=True, slots=True)
class SharedInventory(NodeInventory):
    """Of a machine that others use, too: beside what it offers now, all it could if they held nothing of it."""

    capacity: Capacity | None = None


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
        capacity=inventory.capacity if isinstance(inventory, SharedInventory) else None,
    )


def _counted(amount: int) -> int | None:
    """As the core has it: what is unknown is not counted."""
    return 0 if amount == NONE_LEFT else amount or None
