"""What is told at a pod of somebody else: as an Event, which ``kubectl describe pod`` shows."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from gpufair.service.backends.kubernetes.problems import Conflict, KubernetesProblem
from gpufair.service.backends.kubernetes.site import Site

LONGEST: Final = 1000  # bytes: Kubernetes takes 1024 of a message
_log = logging.getLogger(__name__)


class Told(StrEnum):
    """Reasons of events."""

    QUEUED = "GpufairQueued"
    WAITS = "GpufairWaits"
    REFUSED = "GpufairRefused"
    SCHEDULED = "Scheduled"  # as Kubernetes' own scheduler says it
    PREEMPTED = "Preempted"


@dataclass(frozen=True, slots=True)
class TheirPod:
    """One very pod of somebody else."""

    namespace: str
    name: str
    uid: str

    def path(self, sub: str = "") -> str:
        """Of the pod, or of what is below it."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}" + (f"/{sub}" if sub else "")


async def tell(site: Site, pod: TheirPod, reason: Told, text: str) -> None:
    """Say it at the pod, once. What cannot be said is logged: no pod waits for that."""
    try:
        await site.write("POST", f"/api/v1/namespaces/{pod.namespace}/events", event(site.options.scheduler_name, pod, reason, text))
    except Conflict:
        pass  # it was said before, by this service or by one before it
    except KubernetesProblem as problem:
        _log.info("pod %s/%s is not told %r: %s", pod.namespace, pod.name, text, problem)


def event(component: str, pod: TheirPod, reason: Told, text: str) -> dict[str, Any]:
    """The Event. Its name follows from what it says, so that the same is not said twice."""
    digest = hashlib.sha256(f"{pod.uid}\n{reason}\n{text}".encode()).hexdigest()[:16]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name[:200].rstrip('-.')}.{digest}", "namespace": pod.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "reason": reason.value,
        "message": _fitting(text),
        "type": "Warning" if reason is Told.REFUSED else "Normal",
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _fitting(text: str) -> str:
    given = text.encode()
    return text if len(given) <= LONGEST else f"{given[:LONGEST].decode(errors='ignore')}…"
