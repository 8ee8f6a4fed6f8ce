"""What a pod takes of its node, as the cluster's own scheduler and kubelet count it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from gpufair.service.settings.quantities import known_quantity

FINISHED: Final = frozenset({"Succeeded", "Failed"})
_NOTHING: Final = Fraction(0)


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
