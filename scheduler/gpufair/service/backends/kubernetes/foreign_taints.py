"""Which nodes somebody's pods are kept off: those with a taint that the pool tolerates, and the pods themselves do not.

The core knows nothing of taints. A node with one that the pool does not tolerate is closed there for everybody; any other
is left out of what such pods ask for, as long as the taint is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpufair.core.units import NodeName
from gpufair.service.backends.kubernetes.conditions import tolerates, written

Object = Mapping[str, Any]
Taint = Mapping[str, Any]


class Taints:
    """Of the nodes of a pool, by the core's name of each; only those that keep pods off."""

    def __init__(self, by_node: Mapping[str, tuple[Taint, ...]]) -> None:
        self._by_node = {node: taints for node, taints in by_node.items() if taints}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._by_node)

    def kept_off(self, pods: Iterable[Object]) -> tuple[NodeName, ...]:
        """The nodes that one of these pods does not tolerate, by name."""
        there = tuple(pods)
        return tuple(NodeName(node) for node in sorted(self._by_node) if any(self.obstacle(pod, node) for pod in there))

    def obstacle(self, pod: Object, node: str) -> str:
        """A taint of this node that a pod does not tolerate, as ``kubectl`` writes it; "": there is none."""
        given = (pod.get("spec") or {}).get("tolerations") or ()
        missing = (one for one in self._by_node.get(node, ()) if not any(tolerates(own, one) for own in given))
        return next((written(one) for one in missing), "")
