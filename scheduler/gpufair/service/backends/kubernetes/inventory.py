"""Nodes of a cluster as nodes of the core: what each offers to us, what it has, and whether anything may start there.

A node of the core has one kind of GPU. A node of the cluster with several (MIG devices of different sizes) is several
of them, between which its CPUs and memory are divided by their numbers of devices. Which devices a pod gets is decided
by the device plugin when it starts, so the ids here are mere numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from gpufair.core.model import Capacity
from gpufair.core.units import Instant
from gpufair.service.backends.kubernetes.conditions import Condition, Standing, hard_taints, standing
from gpufair.service.backends.kubernetes.names import RESOURCE
from gpufair.service.backends.kubernetes.requests import NANO, Requests, takes_room, whole
from gpufair.service.nodes.inventory import SharedInventory
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.node_options import MAX_GPUS
from gpufair.service.settings.quantities import known_quantity
from gpufair.wire import NONE_LEFT

LONGEST_NAME: Final = 64
Amounts = Mapping[str, int]  # by resource, in parts of ``NANO``
# No node is called so by itself: what Kubernetes takes for a name has no underscore.
_KIND_MARK: Final = "_"


@dataclass(frozen=True, slots=True)
class Offer:
    """One node of the core: a node of the cluster with one kind of its GPUs (``resource``; "": with none).

    Attributes:
        host: The node of the cluster.
        standing: Whether it takes new work, and why not.
        taints: Those of its node that keep pods off which do not tolerate them.
    """

    inventory: SharedInventory
    host: str
    resource: str
    standing: Standing = field(default_factory=Standing)
    taints: tuple[Mapping[str, Any], ...] = ()

    @property
    def condition(self) -> Condition:
        """What it is good for now."""
        return self.standing.condition

    def closed(self) -> Offer:
        """The same, open to nothing new."""
        if self.condition is not Condition.OPEN:
            return self
        return replace(self, standing=replace(self.standing, condition=Condition.CLOSED))


class Remembered:
    """What pods held and nodes offered at the last look: a cluster has thousands, and few of them change until the next."""

    def __init__(self) -> None:
        self.requests: Final = Requests()
        self._nodes: dict[str, tuple[Mapping[str, Any], Amounts, Amounts, list[Offer]]] = {}

    def of_node(self, node: Mapping[str, Any], taken: Amounts, lasting: Amounts) -> list[Offer] | None:
        """What it offered, where nothing has changed; None: that is to be found out. One that changes becomes another object."""
        before = self._nodes.get(str(node["metadata"]["name"]))
        same = before is not None and before[0] is node and before[1:3] == (taken, lasting)
        return before[3] if before is not None and same else None

    def keep(self, node: Mapping[str, Any], taken: Amounts, lasting: Amounts, found: list[Offer]) -> None:
        """It offers this, unless time alone may change that."""
        if all(one.standing.silent_since is None for one in found):
            self._nodes[str(node["metadata"]["name"])] = node, taken, lasting, found

    def forget(self, hosts: Container[str]) -> None:
        """Only these nodes are there yet."""
        self._nodes = {host: one for host, one in self._nodes.items() if host in hosts}


def offers(
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    pool: str,
    options: KubernetesOptions,
    now: Instant,
    counted: Container[str] = (),
    remembered: Remembered | None = None,
) -> tuple[Offer, ...]:
    """What the nodes of a cluster offer to a pool, in the order of their names.

    Args:
        nodes: Node objects, whatever their order.
        pods: Pods of all namespaces. What they hold is subtracted, whoever's they are.
        counted: Uids of the pods that are in the core's books, whose GPUs it counts itself. What they say of themselves
            is no reason: anybody could hide from both books what he takes.
        remembered: From the last look at the same cluster, for the same pool and options.
    """
    remembered = remembered or Remembered()
    others, lasting = remembered.requests.by_node(
        (pod for pod in pods if takes_room(pod) and pod["metadata"].get("uid") not in counted), now
    )
    found: list[Offer] = []
    there: set[str] = set()
    for node in sorted(nodes, key=lambda one: str(one["metadata"]["name"])):
        labels = node["metadata"].get("labels") or {}
        if all(labels.get(key) == value for key, value in options.node_selector.items()):
            host = str(node["metadata"]["name"])
            there.add(host)
            taken, stays = others.get(host, {}), lasting.get(host, {})
            if (here := remembered.of_node(node, taken, stays)) is None:
                here = _of_node(node, taken, stays, pool, options, now)
                remembered.keep(node, taken, stays, here)
            found += here
    remembered.forget(there)
    return tuple(found)


def core_name(host: str, resource: str, *, only: bool) -> str:
    """The core's name of a node with one kind of its GPUs; ``only``: it has no other kind.

    Examples:
        >>> core_name("gpu-01", "nvidia.com/gpu", only=True), core_name("gpu-01", "nvidia.com/mig-1g.5gb", only=False)
        ('gpu-01', 'gpu-01_mig-1g.5gb')
    """
    name = host if only else f"{host}{_KIND_MARK}{_short(resource)}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - 9].rstrip('.-_')}_{digest}"


def hosts_by_name(hosts: Iterable[str], resources: Iterable[str]) -> dict[str, str]:
    """All that nodes of the core may be called which are these nodes of the cluster, with such kinds of GPUs; and whose."""
    kinds = sorted(resources)
    return {core_name(host, kind, only=only): host for host in sorted(hosts) for kind in kinds for only in (False, True)}


def tolerations_of(resource: str, options: KubernetesOptions) -> tuple[Mapping[str, Any], ...]:
    """Those of a pod of this pool. Who asks for a GPU tolerates the taint that keeps others off nodes with GPUs."""
    own = ({"key": resource, "operator": "Exists"},) if resource else ()
    return (*options.tolerations, *own)


def _of_node(
    node: Mapping[str, Any],
    taken: Amounts,
    lasting: Amounts,
    pool: str,
    options: KubernetesOptions,
    now: Instant,
) -> list[Offer]:
    status, host = node.get("status") or {}, str(node["metadata"]["name"])
    capacity = status.get("capacity") or {}
    allocatable = status.get("allocatable") or capacity
    kinds = sorted(
        name
        for name in {*capacity, *allocatable}
        if options.type_of(name) is not None
        and max(whole(known_quantity(given.get(name, 0))) for given in (capacity, allocatable)) > 0
    )
    if not kinds and not options.cpu_nodes:
        return []
    counts = {kind: whole(known_quantity(allocatable.get(kind, 0))) for kind in kinds}
    # Devices that are not healthy now may be so again.
    most = {kind: max(counts[kind], whole(known_quantity(capacity.get(kind, 0)))) for kind in kinds}
    ever = {**allocatable, **most}
    free = {what: _free(what, allocatable, taken) for what in ("cpu", "memory")}
    labels = {str(key): str(value) for key, value in (node["metadata"].get("labels") or {}).items()}
    found = []
    for kind in kinds or [""]:
        part = _part(counts, kind)
        gpus = min(whole(_free(kind, allocatable, taken)), MAX_GPUS) if kind else 0
        stands = standing(node, tolerations_of(kind, options), options.node_silence, now)
        if kind and not counts[kind] and stands.condition is Condition.OPEN:
            stands = Standing(
                Condition.CLOSED,
                f"none of the {capacity.get(kind)} GPUs of {host} is healthy; look at its device plugin",
            )
        inventory = SharedInventory(
            name=core_name(host, kind, only=len(kinds) < 2),
            gpu_ids=_ids(gpus),
            gpu_type=_type(kind, labels, options) if kind else "",
            pool=pool,
            cpus=whole(free["cpu"] * part) or NONE_LEFT,
            memory_bytes=whole(free["memory"] * part) or NONE_LEFT,
            labels=labels | ({RESOURCE: kind} if kind else {}),
            host=host,
            capacity=_capacity(kind, ever, lasting, _part(most, kind)),
        )
        found.append(Offer(inventory, host, kind, stands, hard_taints(node)))
    return found


def _free(resource: str, allocatable: Mapping[str, Any], taken: Amounts) -> Fraction:
    return max(Fraction(0), known_quantity(allocatable.get(resource, 0)) - Fraction(taken.get(resource, 0), NANO))


def _capacity(kind: str, ever: Mapping[str, Any], lasting: Amounts, part: Fraction) -> Capacity:
    """What it would offer if of others only those pods were there that belong to it."""
    cpus, memory = (whole(_free(what, ever, lasting) * part) for what in ("cpu", "memory"))
    return Capacity(min(whole(_free(kind, ever, lasting)), MAX_GPUS) if kind else 0, cpus, memory)


def _part(counts: Mapping[str, int], kind: str) -> Fraction:
    """Of a node's CPUs and memory, that go with one kind of its GPUs."""
    devices = sum(counts.values())
    return Fraction(counts[kind], devices) if len(counts) > 1 and devices else Fraction(1)


def _type(resource: str, labels: Mapping[str, str], options: KubernetesOptions) -> str:
    configured = options.type_of(resource)
    if configured:
        return configured
    return _short(resource) if _short(resource).startswith("mig-") else labels.get(options.gpu_label, "")


def _short(resource: str) -> str:
    return resource.rpartition("/")[2]


def _ids(count: int) -> tuple[str, ...]:
    return tuple(str(at) for at in range(count))
