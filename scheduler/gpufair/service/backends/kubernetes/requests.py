"""What a pod takes of its node, as the cluster's own scheduler and kubelet count it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from gpufair.core.units import MINUTE, Instant, Millis, after
from gpufair.service.backends.kubernetes.conditions import instant
from gpufair.service.settings.quantities import known_quantity

FINISHED: Final = frozenset({"Succeeded", "Failed"})
NANO: Final = 10**9  # the finest part of anything that Kubernetes counts
_NOTHING: Final = Fraction(0)
# Anybody may write any owner on his pod. If it is none, the pod is removed from the cluster, or the owner taken off it, within seconds:
# by the garbage collector, by the controller of DaemonSets, or by the kubelet, which knows the pods of its own.
PROVEN: Final = Millis(2 * MINUTE)
_MIRROR: Final = "kubernetes.io/config.mirror"

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


@dataclass(frozen=True, slots=True)
class _Taken:
    """Of one state of a pod. ``lasts_from``: when it counts as one that never goes; None: it goes."""

    pod: Mapping[str, Any]
    amounts: Mapping[str, int]
    lasts_from: Instant | None


class Requests:
    """What pods hold, worked out once for each state of a pod: a cluster has thousands, and few of them change."""

    def __init__(self) -> None:
        self._known: dict[int, _Taken] = {}

    def by_node(self, pods: Iterable[Mapping[str, Any]], now: Instant) -> tuple[ByNode, ByNode]:
        """What these hold together, and of that what never goes. A pod that changes becomes another object."""
        known: dict[int, _Taken] = {}
        found: ByNode = {}
        lasting: ByNode = {}
        for pod in pods:
            # The object is kept, so its number is no other's.
            taken = known[id(pod)] = self._known.get(id(pod)) or _Taken(pod, all_requested(pod), lasts_from(pod))
            lasts = taken.lasts_from is not None and taken.lasts_from <= now
            for sums in (found, lasting) if lasts else (found,):
                here = sums.setdefault(pod["spec"]["nodeName"], {})
                for resource, amount in taken.amounts.items():
                    here[resource] = here.get(resource, 0) + amount
        self._known = known
        return found, lasting


def lasts_from(pod: Mapping[str, Any]) -> Instant | None:
    """From when it counts as one that its node has as long as it is there: it is of a DaemonSet, or the kubelet's own.

    What it says of that has to have stood for a while, since anybody could say so. None: it is not, or it is leaving.
    """
    meta, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    made = instant(meta.get("creationTimestamp"))
    if made is None or meta.get("deletionTimestamp"):
        return None
    owner: Mapping[str, Any] = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), {})
    of = owner.get("apiVersion"), owner.get("kind")
    mirrored = _MIRROR in (meta.get("annotations") or {}) and owner.get("name") == spec.get("nodeName")
    return after(made, PROVEN) if of == ("apps/v1", "DaemonSet") or (of == ("v1", "Node") and mirrored) else None


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
