"""What is to be said of a pod: whether it has ended, will never begin, or was not even taken, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from gpufair.core.units import Instant, Millis
from gpufair.node.pod_exits import PodExit
from gpufair.service.backends.kubernetes.pending import hopeless, too_late
from gpufair.service.backends.kubernetes.pod_status import (
    Object,
    bound_at,
    container_state,
    exit_code,
    image_of,
    limit_of,
    name_of,
    node_of,
    on_one_line,
)
from gpufair.service.backends.kubernetes.problems import Forbidden, Invalid, KubernetesProblem
from gpufair.service.backends.kubernetes.verdict import Ending, Verdict, not_run

_SIGKILL: Final = 128 + 9


def verdict(
    pod: Object,
    events: Iterable[Object] = (),
    *,
    now: Instant,
    start_within: Millis,
    node_lost: bool = False,
) -> Verdict | None:
    """What is to be said of a pod; None: it runs, or may still begin.

    Args:
        events: Of this pod, whatever their order.
        start_within: After so long without a beginning it is given up.
        node_lost: Whether its node is lost, so that what the pod says of itself is old.
    """
    status = pod.get("status") or {}
    phase = status.get("phase")
    if phase == "Succeeded":
        return _ended(pod) or Verdict(Ending.ENDED, "it has ended", 0)
    if phase == "Failed":
        return _failed(pod)
    if node_lost:
        return Verdict(Ending.ELSEWHERE, f"its node {node_of(pod)} is lost; it is queued again")
    if (over := _ended(pod)) is not None:
        return over  # its container has, and the phase follows
    if container_state(pod).get("running") or phase == "Running":
        return None
    if (never := hopeless(pod)) is not None:
        return never
    bound = bound_at(pod)
    if bound is None or now - bound < start_within:
        return None
    return too_late(pod, tuple(events), start_within)


def refused(problem: KubernetesProblem) -> Verdict:
    """What it means for a workload that the API server did not take its pod, which repeating will not change."""
    said = on_one_line(problem.said)
    if isinstance(problem, Forbidden) and problem.kind == "quota":
        return Verdict(
            Ending.NOT_STARTED,
            f"a quota of the namespace leaves no room for its pod ({said}); an operator can raise the ResourceQuota, or ask for less",
        )
    if webhook := re.search(r'admission webhook "([^"]+)"', problem.said):
        return Verdict(
            Ending.FAILED,
            f"the cluster's policy {webhook[1]} does not let its pod in ({said}); show this to an operator, who can mend the profile's pod",
        )
    if isinstance(problem, Forbidden) and problem.kind == "policy":
        return Verdict(
            Ending.FAILED,
            f"a policy of the cluster does not let its pod in ({said}); an operator can mend the profile's pod",
        )
    if isinstance(problem, Invalid):
        return Verdict(
            Ending.FAILED, f"Kubernetes does not take its pod ({said}); an operator can mend the profile's pod"
        )
    return Verdict(Ending.NOT_STARTED, str(problem))


def gone(pod: Object | None) -> Verdict:
    """What it means that a pod is not there any more and has said nothing at its end (``pod``: as it was last seen)."""
    if pod is not None and (why := _disrupted(pod)):
        return Verdict(Ending.ELSEWHERE, f"{why}; it is queued again")
    where = f" on {node_of(pod)}" if pod is not None else ""
    return Verdict(Ending.ELSEWHERE, f"its pod{where} was deleted by somebody, or by the cluster; it is queued again")


# -- it has failed --------------------------------------------------------------------------------------------------


def _failed(pod: Object) -> Verdict:
    status = pod.get("status") or {}
    reason, said = str(status.get("reason") or ""), on_one_line(status.get("message"))
    if reason == "Evicted":
        return _evicted(pod, said)
    if reason == "DeadlineExceeded":
        return Verdict(
            Ending.FAILED,
            "its pod ran for longer than activeDeadlineSeconds allows, which was set by somebody in the cluster",
        )
    if reason.startswith("OutOf") or reason in _ADMISSION:
        what = reason.removeprefix("OutOf") if reason.startswith("OutOf") else _ADMISSION[reason]
        return Verdict(
            Ending.NOT_TAKEN,
            f"its node {node_of(pod)} did not take its pod after all: {what or 'no room'} ({said or reason}); it is queued again",
        )
    if why := _disrupted(pod):
        return Verdict(Ending.ELSEWHERE, f"{why}; it is queued again", exit_code(pod))
    if reason in _NODE_ENDS:
        return Verdict(Ending.ELSEWHERE, f"its node {node_of(pod)} {_NODE_ENDS[reason]}; it is queued again")
    over = _ended(pod)
    if over is not None:
        return over
    return Verdict(
        Ending.ELSEWHERE,
        f"its pod failed on {node_of(pod)} without its container saying why ({said or reason or 'no reason given'}); it is queued again",
    )


_ADMISSION: Final[Mapping[str, str]] = {
    "UnexpectedAdmissionError": "the device plugin could not give it its GPUs",
    "NodeAffinity": "its labels are not those that were asked for",
    "NodePorts": "a port is taken",
    "AppArmor": "AppArmor is not as was asked for",
    "PodOSNotSupported": "it has another operating system",
    "PodLevelResourcesNotAdmittedReason": "no room",
    "Rejected": "no room",
}
_NODE_ENDS: Final[Mapping[str, str]] = {
    "NodeLost": "is lost",
    "Shutdown": "is being shut down",
    "NodeShutdown": "is being shut down",
    "Terminated": "is being shut down",
    "NodeUnreachable": "cannot be reached",
}
_DISRUPTIONS: Final[Mapping[str, str]] = {
    "PreemptionByScheduler": "pods of a higher priority class took its place",
    "PreemptionByKubeScheduler": "pods of a higher priority class took its place",
    "DeletionByTaintManager": "its node was given a taint that it does not tolerate",
    "EvictionByEvictionAPI": "it was evicted, as by kubectl drain",
    "DeletionByPodGC": "its node is not part of the cluster any more",
    "TerminationByKubelet": "its node could not keep it",
}


def _disrupted(pod: Object) -> str:
    """Why the cluster itself ended a pod, by its condition ``DisruptionTarget`` (from Kubernetes 1.26 on); "": it did not."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            return _DISRUPTIONS.get(str(one.get("reason")), f"the cluster ended it ({one.get('reason')})")
    if (pod.get("status") or {}).get("reason") in {"Preempting", "Preempted"}:
        return _DISRUPTIONS["PreemptionByScheduler"]
    return ""


def _evicted(pod: Object, said: str) -> Verdict:
    if re.search(r"(?:ephemeral local storage|EmptyDir).* exceeds", said):
        return Verdict(
            Ending.FAILED,
            f"it wrote more to the disk of its node than a pod may ({said}); write to the shared volume, or have the profile's limit raised",
        )
    return Verdict(
        Ending.ELSEWHERE,
        f"its node {node_of(pod)} evicted it, being short of something itself ({said or 'it does not say of what'}); it is queued again",
    )


# -- its container has ended ----------------------------------------------------------------------------------------


def _ended(pod: Object) -> Verdict | None:
    ended = container_state(pod).get("terminated")
    if not ended:
        return None
    code, reason, said = (
        int(ended.get("exitCode", 0)),
        str(ended.get("reason") or ""),
        on_one_line(ended.get("message")),
    )
    if reason == "OOMKilled":
        limit = limit_of(pod, "memory")
        asked = f"all of the {limit} that it may have" if limit else "more memory than its node had"
        return Verdict(
            Ending.FAILED, f"it was killed for using {asked}; ask for more, like --memory, or free some", code
        )
    if reason in {"StartError", "ContainerCannotRun"}:
        return not_run(pod, said, code)
    if code == _SIGKILL and (pod.get("metadata") or {}).get("deletionTimestamp"):
        return Verdict(
            Ending.ELSEWHERE,
            "its pod was deleted, and it had not ended when its grace was over; it is queued again",
            code,
        )
    if code == _SIGKILL:
        return Verdict(
            Ending.ELSEWHERE,
            f"its container on {node_of(pod)} was killed from outside (code {code}); it is queued again",
            code,
        )
    ours = next((one for one in PodExit if one == code), None)
    if ours is not None:
        ending, text = _EXITS[ours]
        return Verdict(
            ending, text.format(said=said or "it wrote nothing", node=node_of(pod), image=image_of(pod)), code
        )
    if "No module named" in said:
        return not_run(pod, said, code)
    return Verdict(
        Ending.FAILED,
        f"the agent in its pod ended with code {code}{f': {said}' if said else ''}; see `kubectl logs` of {name_of(pod)}",
        code,
    )


# {said} is what the agent last wrote.
_EXITS: Final[Mapping[PodExit, tuple[Ending, str]]] = {
    PodExit.IN_ORDER: (Ending.ENDED, "it has ended"),
    PodExit.FAILED: (Ending.ENDED, "it has failed, and its agent said why"),
    PodExit.NOT_STARTED: (Ending.ENDED, "it could not be started, and its agent said why"),
    PodExit.BAD_CONFIG: (
        Ending.FAILED,
        "the agent in its pod cannot use its configuration ({said}); is jupyter-gpufair in {image} the version of the service?",
    ),
    PodExit.NEVER_REACHED: (
        Ending.NOT_STARTED,
        "its pod on {node} did not reach the service ({said}); an operator can look at service_url of the pool and the NetworkPolicy",
    ),
    PodExit.REFUSED: (
        Ending.NOT_STARTED,
        "who answers at service_url of [pool.kubernetes] did not know its pod ({said}); an operator can correct that address",
    ),
    PodExit.SERVICE_LOST: (
        Ending.ELSEWHERE,
        "its pod had lost the service; it was saved and ended, and is queued again",
    ),
    PodExit.OUT_OF_TIME: (
        Ending.ELSEWHERE,
        "its pod was told to end and had not done so when its grace was over; it is queued again",
    ),
}
