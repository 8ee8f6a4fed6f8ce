"""The end of a pod: how it is asked to go, when it has ended, and what is reported of that."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import Any

from gpufair.service.backends.kubernetes.made import Leaving, Made, sooner
from gpufair.service.backends.kubernetes.problems import Conflict, Missing
from gpufair.service.backends.kubernetes.site import Site
from gpufair.service.backends.kubernetes.verdict import Ending, Verdict
from gpufair.service.backends.kubernetes.watch import Object


def ended(pod: Object, patience_s: float) -> bool:
    """Whether a pod has ended, and so its GPUs are free: no container of it runs on.

    Args:
        patience_s: After so long of an end a container that is said to run is not waited for: whoever would say better
            is gone.
    """
    status = pod.get("status") or {}
    if status.get("phase") not in {"Succeeded", "Failed"}:
        return False
    states = [one.get("state") or {} for one in status.get("containerStatuses") or []]
    if not any("running" in state for state in states):
        return True
    since = max((_instant(one.get("lastTransitionTime")) for one in status.get("conditions") or []), default=0.0)
    return time.time() - since > patience_s


def _instant(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC).timestamp()
    except ValueError:
        return 0.0


async def remove(site: Site, name: str, made: Made, leaving: Leaving, path: str = "") -> bool:
    """Ask for the deletion of a pod, if it was not asked to go as early already. Returns whether it is gone.

    Args:
        path: Where it is, if it is none of ours.

    Raises:
        KubernetesProblem: It is to be asked for again.
    """
    if made.asked_to_go is not None and not sooner(leaving, made.asked_to_go):
        return False
    # Never 0 for one that may run: it would be gone for Kubernetes, and go on with its GPUs. Without a node or at its end
    # it is removed at once in any case.
    grace_s = None if leaving.until_s is None else max(1, math.ceil(leaving.until_s - time.time()))
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if made.uid:
        body["preconditions"] = {"uid": made.uid}
    if grace_s is not None:
        body["gracePeriodSeconds"] = grace_s
    try:
        await site.write("DELETE", path or site.path("pods", name), body)
    except Missing:
        return True
    except Conflict as conflict:
        if conflict.kind != "stale":
            raise
        return True  # another one has the name: ours is gone
    made.asked_to_go = leaving
    return False


def last_report(verdict: Verdict | None, *, begun: bool) -> tuple[str, dict[str, Any]] | None:
    """What is reported of an end that left no word; None: merely that it is gone.

    Args:
        begun: Whether its container ever ran.
    """
    if verdict is None:
        return None
    if verdict.ending in {Ending.ENDED, Ending.ELSEWHERE, Ending.NOT_TAKEN}:
        # What never began is no idle session, that would be parked: it is queued again.
        return None if begun else verdict.report(busy=True)
    return verdict.report()
