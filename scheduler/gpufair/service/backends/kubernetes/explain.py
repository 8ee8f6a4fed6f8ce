"""Why a pod does not begin, or has ended: a plain sentence with the next step, and what it means for its workload."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gpufair.core.model import Outcome
from gpufair.core.units import Instant, Millis
from gpufair.node.pod_exits import PodExit
from gpufair.service.backends.kubernetes.pod_status import (
    Object,
    bound_at,
    container_state,
    event_at,
    exit_code,
    image_of,
    limit_of,
    name_of,
    node_of,
    on_one_line,
    waits_for,
)
from gpufair.service.backends.kubernetes.problems import Forbidden, Invalid, KubernetesProblem
from gpufair.service.settings.durations import format_duration

_SIGKILL: Final = 128 + 9


class Ending(StrEnum):
    """What a pod's end, or its failure to begin, means for its workload."""

    ENDED = "ended"  # in order: its agent has said the rest
    ELSEWHERE = "elsewhere"  # through no fault of the workload: it is queued again
    NOT_TAKEN = "not taken"  # by its node: likewise, but not at once, for it would be the same
    NOT_STARTED = "not started"  # perhaps by chance: it is tried again, a few times
    FAILED = "failed"  # the same would happen again: somebody has to change something first


@dataclass(frozen=True, slots=True)
class Verdict:
    """``text``: for the workload's owner, with what to do. ``code``: the exit status of its container, if there was one."""

    ending: Ending
    text: str
    code: int | None = None

    def report(self, *, busy: bool = False) -> tuple[str, dict[str, Any]]:
        """Kind and body of the report (``gpufair.wire.Report``) that says so. ``busy``: whether a cell was running."""
        match self.ending:
            case Ending.FAILED:
                code = -1 if self.code is None else self.code
                return "exited", {"outcome": Outcome.FAILED.value, "code": code, "reason": self.text}
            case Ending.NOT_STARTED:
                return "start_failed", {"reason": self.text}
            case _:
                return "released", {"busy": busy}


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
    if (hopeless := _hopeless(pod)) is not None:
        return hopeless
    bound = bound_at(pod)
    if bound is None or now - bound < start_within:
        return None
    return _too_late(pod, tuple(events), start_within)


def waiting(pod: Object, events: Iterable[Object] = ()) -> str:
    """What a pod that has not begun waits for, as a sentence; "": nothing is known."""
    reason, said = waits_for(pod)
    if reason in {"ErrImagePull", "ImagePullBackOff"}:
        return f"its image {image_of(pod)} is being pulled again: {said or 'the last try failed'}"
    trouble = _trouble(events)
    if trouble is not None:
        return f"{_TROUBLES[trouble[0]]}: {trouble[1]}"
    if any(one.get("reason") == "Pulling" for one in events) and not any(
        one.get("reason") == "Pulled" for one in events
    ):
        return f"its image {image_of(pod)} is being pulled"
    return f"its container is being made ({said})" if said else ""


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
        return _not_run(pod, said, code)
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
        return _not_run(pod, said, code)
    return Verdict(
        Ending.FAILED,
        f"the agent in its pod ended with code {code}{f': {said}' if said else ''}; see `kubectl logs` of {name_of(pod)}",
        code,
    )


# Of what was to be run in the container; a runtime misses files of its own as well, for a while.
_NO_AGENT: Final = re.compile(
    r"executable file not found|No module named|exec format error|exec:? \"?[^\"\s:]+\"?: (?:stat \S+: )?(?:no such file or directory|permission denied)"
)


def _not_run(pod: Object, said: str, code: int) -> Verdict:
    if _NO_AGENT.search(said):
        return Verdict(
            Ending.FAILED,
            f"its image {image_of(pod)} cannot run the agent ({said}); it needs python with jupyter-gpufair on its PATH, built for this machine",
            code,
        )
    return Verdict(
        Ending.NOT_STARTED, f"the container could not be run on {node_of(pod)} ({said or 'no reason given'})", code
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

# -- it has not begun -----------------------------------------------------------------------------------------------

# What a registry says of the image itself or of who asks for it, as runtimes quote it.
_FOR_GOOD: Final = re.compile(
    r"manifest unknown|manifest \S+ not found|manifest for \S+ not found|name unknown|: not found\s*$|repository does not exist"
    r"|unauthorized|authentication required|access denied|insufficient_scope|requested access to the resource is denied"
    r"|no match for platform|\b403 Forbidden",
    re.IGNORECASE,
)
# A registry that was not reached has said nothing.
_PASSING: Final = re.compile(
    r"\blookup |dial tcp|no such host|server misbehaving|timed? ?out|deadline exceeded|connection (?:refused|reset)|\bEOF\b|TLS handshake"
    r"|too ?many ?requests|(?:status(?: code)?|:) (?:429|5\d\d)\b",
    re.IGNORECASE,
)
# Of events, what keeps a pod from beginning.
_TROUBLES: Final[Mapping[str, str]] = {
    "FailedMount": "a volume cannot be mounted",
    "FailedAttachVolume": "a volume cannot be attached to its node",
    "FailedMapVolume": "a volume cannot be mapped",
    "FailedCreatePodSandBox": "its node cannot give it a network",
    "NetworkNotReady": "the network of its node is not ready",
    "FailedCreatePodContainer": "its node cannot make a container",
}
_MISSING: Final = re.compile(
    r"(persistentvolumeclaim|secret|configmap)s? \"?([\w./-]+)\"? (?:not found|is being deleted)", re.IGNORECASE
)
_NO_KEY: Final = re.compile(r"couldn't find key|references non-existent (?:secret|config) key", re.IGNORECASE)
# What a kubelet says of the pod as it was written: no second look changes that.
_AS_IT_IS: Final = re.compile(r"runAsNonRoot|runAsUser|non-numeric user|invalid (?:variable|environment)", re.IGNORECASE)


def _hopeless(pod: Object) -> Verdict | None:
    """What waiting will not mend."""
    reason, said = waits_for(pod)
    image = image_of(pod)
    if reason == "InvalidImageName":
        return Verdict(
            Ending.FAILED, f"{image} is no name of an image; an operator can correct it in the profile's pod"
        )
    if reason == "ImagePullBackOff" and _FOR_GOOD.search(said) and not _PASSING.search(said):
        return Verdict(
            Ending.FAILED,
            f"its image {image} cannot be pulled ({said}); an operator can correct its name or its imagePullSecrets in the profile's pod",
        )
    if reason == "ErrImageNeverPull":
        return Verdict(
            Ending.NOT_STARTED,
            f'{node_of(pod)} does not have the image {image}, and imagePullPolicy = "Never" forbids to pull it',
        )
    if reason == "CreateContainerConfigError" and _AS_IT_IS.search(said):
        return Verdict(Ending.FAILED, _unconfigured(said))
    if reason in {"CreateContainerError", "RunContainerError"} and _NO_AGENT.search(said):
        return _not_run(pod, said, 128)
    return None


def _unconfigured(said: str) -> str:
    return f"its container cannot be configured ({said or 'no reason given'}); an operator can make what is missing, or mend the profile's pod"


def lacks_our_secret(pod: Object, events: Iterable[Object]) -> bool:
    """Whether it cannot begin since the Secret that we made for it is not there (any more)."""
    trouble = _trouble(events)
    said = (waits_for(pod)[1], "" if trouble is None else trouble[1])
    return any((found := _MISSING.search(one)) is not None and found[2] == name_of(pod) for one in said)


def _too_late(pod: Object, events: tuple[Object, ...], start_within: Millis) -> Verdict:
    begun = f"its pod did not begin on {node_of(pod)} within {format_duration(start_within)}"
    reason, said = waits_for(pod)
    if reason in {"ErrImagePull", "ImagePullBackOff"}:
        return Verdict(
            Ending.NOT_STARTED,
            f"{begun}: its image {image_of(pod)} cannot be pulled ({said or 'no reason given'}); is the registry there?",
        )
    if reason == "CreateContainerConfigError":
        lacks = _MISSING.search(said) or _NO_KEY.search(said)
        return Verdict(Ending.FAILED if lacks else Ending.NOT_STARTED, f"{begun}: {_unconfigured(said)}")
    if reason in {"CreateContainerError", "RunContainerError"}:
        return Verdict(Ending.NOT_STARTED, f"{begun}: its container could not be run ({said or 'no reason given'})")
    trouble = _trouble(events)
    if trouble is None:
        what = waiting(pod, events) or "the kubelet says nothing of it"
        return Verdict(Ending.NOT_STARTED, f"{begun}: {what}; `kubectl describe pod {name_of(pod)}` may say more")
    kind, why = trouble
    if (missing := _MISSING.search(why)) and missing[2] != name_of(pod):  # of its own name it is ours to make
        return Verdict(
            Ending.FAILED,
            f"{begun}: {_TROUBLES[kind]} ({why}); an operator can make what is missing, or mend the profile's pod",
        )
    return Verdict(Ending.NOT_STARTED, f"{begun}: {_TROUBLES[kind]} ({why})")


def _trouble(events: Iterable[Object]) -> tuple[str, str] | None:
    """The newest event that says what is in the way: its reason, and its words."""
    found = [one for one in events if one.get("reason") in _TROUBLES]
    if not found:
        return None
    last = max(found, key=lambda one: (event_at(one), str(one.get("message"))))
    return str(last["reason"]), on_one_line(last.get("message")) or "no reason given"
