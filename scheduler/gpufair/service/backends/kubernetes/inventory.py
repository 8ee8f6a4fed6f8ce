"""Nodes of a cluster as nodes of the core: what each offers to us, and whether anything may start there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpufair.core.units import Instant
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.wire import NodeInventory


class Condition(StrEnum):
    """Whether a node takes new work."""

    OPEN = "open"
    CLOSED = "closed"  # nothing new starts there; what runs goes on
    LOST = "lost"  # nobody answers for it


@dataclass(frozen=True, slots=True)
class Offer:
    """One node of the core: a node of the cluster with one kind of its GPUs (``resource``; "": with none).

    Attributes:
        host: The node of the cluster.
        condition: What it is good for now; ``reason``: the sentence that says why, "" where it is open.
        silent_since: Since when its kubelet has not been heard; None: it is.
    """

    inventory: NodeInventory
    host: str
    resource: str
    condition: Condition = Condition.OPEN
    reason: str = ""
    silent_since: Instant | None = None


def offers(
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    pool: str,
    options: KubernetesOptions,
    now: Instant,
) -> tuple[Offer, ...]:
    """What the nodes of a cluster offer to a pool, in the order of their names.

    Args:
        nodes: Node objects, whatever their order.
        pods: Pods of all namespaces, ours among them: those of this pool are counted by the core, all others are
            subtracted here.
    """
    raise NotImplementedError


def core_name(host: str, resource: str, *, only: bool) -> str:
    """The core's name of a node with one kind of its GPUs; ``only``: it has no other kind."""
    raise NotImplementedError
