"""What a pod takes of its node, as the cluster's own scheduler and kubelet count it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from gpufair.service.settings.quantities import known_quantity

FINISHED: Final = frozenset({"Succeeded", "Failed"})
NANO: Final = 10**9  # the finest part of anything that Kubernetes counts
_NOTHING: Final = Fraction(0)
_LASTING: Final = frozenset({"DaemonSet", "Node"})

ByNode = dict[str, dict[str, int]]  # by node and resource, in parts of NANO


def takes_room(pod: Mapping[str, Any]) -> bool:
    """Whether it holds anything: it has a node and has not finished (one that is being deleted still holds all)."""
    return bool((pod.get("spec") or {}).get("nodeName")) and (pod.get("status") or {}).get("phase") not in FINISHED


def requested(pod: Mapping[str, Any], resource: str) -> Fraction:
    """How much of a resource a pod holds for its whole life, in the resource's own unit.

    That is the most that it needs at any moment: init containers run one after the other, before its containers and
    beside those init containers that stay (``restartPolicy: Always``); the runtime's overhead comes on top.
    """
    spec = pod.get("spec") or {}
    beside = most = _NOTHING
    for container in spec.get("initContainers") or ():
        own = _of(container, resource)
        if container.get("restartPolicy") == "Always":
            beside += own
            most = max(most, beside)
        else:
            most = max(most, beside + own)
    together = beside + sum((_of(one, resource) for one in spec.get("containers") or ()), _NOTHING)
    whole = max(together, most)
    if (for_all := _named(spec.get("resources"), resource)) is not None:
        whole = for_all  # said of the pod as a whole, which then counts
    return whole + known_quantity((spec.get("overhead") or {}).get(resource, 0))


class Requests:
    """What pods hold, worked out once for each state of a pod: a cluster has thousands, and few of them change."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Mapping[str, Any], Mapping[str, int]]] = {}

    def by_node(self, pods: Iterable[Mapping[str, Any]]) -> tuple[ByNode, ByNode]:
        """What these hold together, and of that what never goes. A pod that changes becomes another object."""
        known: dict[int, tuple[Mapping[str, Any], Mapping[str, int]]] = {}
        found: ByNode = {}
        lasting: ByNode = {}
        for pod in pods:
            # The object is kept, so its number is no other's.
            entry = known[id(pod)] = self._known.get(id(pod)) or (pod, all_requested(pod))
            for sums in (found, lasting) if belongs_to_node(pod) else (found,):
                here = sums.setdefault(pod["spec"]["nodeName"], {})
                for resource, amount in entry[1].items():
                    here[resource] = here.get(resource, 0) + amount
        self._known = known
        return found, lasting


def belongs_to_node(pod: Mapping[str, Any]) -> bool:
    """Whether its node has it as long as it is there: it is of a DaemonSet, or the kubelet's own."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("kind") in _LASTING and owner.get("controller") for owner in owners)


def all_requested(pod: Mapping[str, Any]) -> dict[str, int]:
    """``requested``, of each resource that a pod names, in parts of ``NANO`` (rounded up, as Kubernetes does)."""
    spec = pod.get("spec") or {}
    of = [one.get("resources") or {} for one in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), spec)]
    named = {name for one in of for what in ("requests", "limits") for name in one.get(what) or ()}
    return {name: math.ceil(requested(pod, name) * NANO) for name in sorted({*named, *(spec.get("overhead") or ())})}


def whole(amount: Fraction) -> int:
    """So many whole ones, at least 0."""
    return max(0, math.floor(amount))


def _of(container: Mapping[str, Any], resource: str) -> Fraction:
    found = _named(container.get("resources"), resource)
    return _NOTHING if found is None else found


def _named(resources: Mapping[str, Any] | None, resource: str) -> Fraction | None:
    """A request, or the limit that counts as one where there is none."""
    for what in ("requests", "limits"):
        given = ((resources or {}).get(what) or {}).get(resource)
        if given is not None:
            return known_quantity(given)
    return None
