"""Whether a node of a cluster takes new pods of ours, and if not, why: one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from gpufair.core.units import Instant, Millis

CLOSING: Final = frozenset({"NoSchedule", "NoExecute"})
# Kubernetes sets these by itself; the sentence about what they stand for comes from elsewhere.
_SAID_OTHERWISE: Final = frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
)
_LEAVING: Final = "ToBeDeletedByClusterAutoscaler"
_PRESSURE: Final = {
    "node.kubernetes.io/memory-pressure": "is short of memory",
    "node.kubernetes.io/disk-pressure": "is short of disk space",
    "node.kubernetes.io/pid-pressure": "has too many processes",
    "node.kubernetes.io/network-unavailable": "has no network yet",
    "node.kubernetes.io/out-of-service": "was taken out of service",
    "node.cloudprovider.kubernetes.io/uninitialized": "is still being set up by the cloud",
    "node.cloudprovider.kubernetes.io/shutdown": "is shut down",
}


class Condition(StrEnum):
    """Whether a node takes new work."""

    OPEN = "open"
    CLOSED = "closed"  # nothing new starts there; what runs goes on
    LOST = "lost"  # nobody has answered for it for too long


@dataclass(frozen=True, slots=True)
class Standing:
    """``reason``: a sentence; "" where it is open. ``silent_since``: since when its kubelet is not heard; None: it is."""

    condition: Condition = Condition.OPEN
    reason: str = ""
    silent_since: Instant | None = None


def standing(
    node: Mapping[str, Any], tolerated: Iterable[Mapping[str, Any]], silence: Millis, now: Instant
) -> Standing:
    """How a node stands.

    Args:
        tolerated: The tolerations that our pods have there.
        silence: For how long its kubelet may be unheard before it is lost.
    """
    name = node["metadata"]["name"]
    spec = node.get("spec") or {}
    ready = _ready(node)
    if ready.get("status") == "Unknown":
        since = instant(ready.get("lastTransitionTime")) or now
        asked = f"the kubelet of {name} has not been heard since {_clock(since)}; look at the machine and its network"
        return Standing(Condition.LOST if now - since >= silence else Condition.CLOSED, asked, since)
    if node["metadata"].get("deletionTimestamp"):
        return Standing(Condition.CLOSED, f"{name} is being deleted from the cluster")
    if not ready:
        return Standing(Condition.CLOSED, f"{name} has not said yet that it is ready")
    if ready.get("status") != "True":
        said = " ".join(str(ready.get("message") or ready.get("reason") or "it does not say why").split())
        return Standing(Condition.CLOSED, f"{name} is not ready: {said[:200]}")
    taints = _closing(spec)
    if any(one.get("key") == _LEAVING for one in taints):
        return Standing(Condition.CLOSED, f"{name} is about to be removed by the cluster's autoscaler")
    if spec.get("unschedulable"):
        return Standing(Condition.CLOSED, f"{name} is cordoned in Kubernetes; `kubectl uncordon {name}` opens it")
    tolerating = tuple(tolerated)
    for taint in hard_taints(node):
        if not any(tolerates(one, taint) for one in tolerating):
            return Standing(Condition.CLOSED, _tainted(name, taint))
    return Standing()


def hard_taints(node: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Taints that keep pods off which do not tolerate them, but for those that repeat what a node says otherwise."""
    return tuple(one for one in _closing(node.get("spec") or {}) if one.get("key") not in _SAID_OTHERWISE)


def written(taint: Mapping[str, Any]) -> str:
    """A taint as ``kubectl`` writes it."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect')}"


def _closing(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(one for one in spec.get("taints") or () if one.get("effect") in CLOSING)


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether a pod with this toleration may be on a node with this taint (for good: a limited time is none)."""
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    if toleration.get("tolerationSeconds") is not None and taint.get("effect") == "NoExecute":
        return False
    exists = toleration.get("operator") == "Exists"
    key = toleration.get("key") or ""
    if not key:
        return exists
    return key == taint.get("key") and (exists or (toleration.get("value") or "") == (taint.get("value") or ""))


def instant(text: object) -> Instant | None:
    """The moment that a time of Kubernetes names; None: it is none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return Instant(round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _ready(node: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Iterable[Mapping[str, Any]] = (node.get("status") or {}).get("conditions") or ()
    return next((one for one in found if one.get("type") == "Ready"), {})


def _tainted(name: str, taint: Mapping[str, Any]) -> str:
    key = str(taint.get("key", ""))
    if key in _PRESSURE:
        return f"{name} {_PRESSURE[key]}, says Kubernetes; it opens by itself when that is over"
    return (
        f"{name} has the taint {written(taint)}, which pods of this pool do not tolerate; "
        "take it off, or add it to tolerations of [pool.kubernetes]"
    )


def _clock(at: Instant) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
