"""Nodes that a backend keeps: it knows whether they are there, others take parts of them, and their cluster closes them.

What a cluster has closed is cordoned here too, with a label of the core's node that says for whom. So it is known, also
after a restart, which cordon ends with the cluster's own and which is an operator's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from gpufair.core import events as ev
from gpufair.core.amount import held
from gpufair.core.model import Node
from gpufair.core.record import NodeRecord
from gpufair.core.state import State
from gpufair.core.units import NodeName
from gpufair.service.nodes.inventory import node_of
from gpufair.service.workloads.turn import Turn
from gpufair.wire import NodeInventory

CLOSED_BY: Final = "gpufair.io/closed-by"  # label of a node of the core
CLUSTER: Final = "cluster"


class KeptNodes:
    """The nodes of these pools, by name, and which of them their cluster has closed."""

    def __init__(self, pools: Collection[str] = ()) -> None:
        self.pools: Final = frozenset(pools)
        self.names: Final[set[str]] = set()
        self._closed: set[str] = set()
        self._seen: dict[str, frozenset[str]] = {}  # by pool: nodes that its cluster has, in whatever state

    def told(self, node: str, *, closed: bool) -> None:
        """Its backend has spoken of this node."""
        self.names.add(node)
        (self._closed.add if closed else self._closed.discard)(node)

    def saw(self, pool: str, nodes: Iterable[str]) -> None:
        """The cluster of a pool was looked at: it has these nodes, and no others."""
        self._seen[pool] = frozenset(nodes)

    def has(self, node: str) -> bool:
        """Whether its cluster has this node, were it silent."""
        return any(node in nodes for nodes in self._seen.values())

    def forget(self, node: str) -> None:
        """Its backend does not speak of it any more."""
        self.names.discard(node)
        self._closed.discard(node)

    def node_of(self, inventory: NodeInventory, state: State) -> Node:
        """The node of the core that an inventory stands for now."""
        node, known = node_of(inventory), state.facts.nodes.get(NodeName(inventory.name))
        if inventory.name not in self.names:
            return node
        if self.begins_closed(inventory.name, state) or (known is not None and CLOSED_BY in known.node.labels):
            node = replace(node, labels=MappingProxyType({**node.labels, CLOSED_BY: CLUSTER}))
        return node if known is None else _with_held(node, known, state)

    def begins_closed(self, node: str, state: State) -> bool:
        """Whether it is closed by its cluster from the moment at which it is there (again): nothing may start meanwhile."""
        known = state.facts.nodes.get(NodeName(node))
        return node in self._closed and (known is None or (known.lost and not known.cordoned))

    def away(self, turn: Turn, inventory: NodeInventory) -> None:
        """A node that nobody here knows cannot be reached: it is a lost one, for which work may wait, not an unknown one."""
        if NodeName(inventory.name) not in turn.state.facts.nodes:
            self.told(inventory.name, closed=True)
            node = self.node_of(inventory, turn.state)
            turn.handle(ev.NodeJoined(turn.now, turn.cause(), node, closed=True))
            turn.handle(ev.NodeLost(turn.now, turn.cause(), node.name))

    def shut(self, turn: Turn, node: str, inventory: NodeInventory | None) -> bool:
        """Before something is freed on a node that has less by now than is held on it: nobody is to be given what it had.

        Returns: Whether it was closed for that; it is to be opened when it has been told anew.
        """
        known = turn.state.facts.nodes.get(NodeName(node))
        if known is None or inventory is None or node not in self.names or known.lost or known.cordoned:
            return False
        has, offers = known.node, node_of(inventory)
        if offers.gpus >= has.gpus and (offers.cpus or 0) >= (has.cpus or 0) and (offers.memory or 0) >= (has.memory or 0):
            return False
        # Who is there unprotected would be told to leave a closed node.
        holders = [turn.state.workload(one).held for one in known.holders]
        if sum(held is not None and held.protected_until <= turn.now for held in holders) > 1:
            return False
        turn.handle(ev.NodeCordoned(turn.now, turn.cause(), known.node.name))
        return True

    def align(self, turn: Turn, node: str) -> None:
        """Cordon a node that its cluster has closed; open one that is closed for that alone, and it is no more."""
        known = turn.state.facts.nodes.get(NodeName(node))
        if known is None or node not in self.names or known.lost:
            return
        marked = CLOSED_BY in known.node.labels
        if node in self._closed and not known.cordoned:
            turn.handle(ev.NodeCordoned(turn.now, turn.cause(), known.node.name))
            if not marked:
                labels = MappingProxyType({**known.node.labels, CLOSED_BY: CLUSTER})
                turn.handle(ev.NodeJoined(turn.now, turn.cause(), replace(known.node, labels=labels)))
        elif node not in self._closed and marked:
            if known.cordoned:
                turn.handle(ev.NodeUncordoned(turn.now, turn.cause(), known.node.name))
            turn.handle(ev.NodeJoined(turn.now, turn.cause(), _unmarked(known.node)))


def taken_over(turn: Turn, node: NodeName) -> None:
    """An operator closes a node himself: whatever its cluster does, it stays closed until he opens it."""
    known = turn.state.facts.nodes.get(node)
    if known is not None and CLOSED_BY in known.node.labels and not known.lost:
        turn.handle(ev.NodeJoined(turn.now, turn.cause(), _unmarked(known.node)))


def _unmarked(node: Node) -> Node:
    return replace(node, labels=MappingProxyType({key: value for key, value in node.labels.items() if key != CLOSED_BY}))


def _with_held(node: Node, known: NodeRecord, state: State) -> Node:
    """Of what is held on it nothing is others', until it is free. Its type is what it was as long as somebody is there."""
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
