"""Whatever happens to a pod, its owner reads what it was and what to do; and what was no fault of his is tried again."""

from __future__ import annotations

from typing import Any

import pytest

from gpufair.core.units import MINUTE, Instant, Millis
from gpufair.node.pod_exits import PodExit
from gpufair.service.backends.kubernetes.asked import Asked
from gpufair.service.backends.kubernetes.explain import gone, refused, verdict
from gpufair.service.backends.kubernetes.pending import lacks_our_secret, waiting
from gpufair.service.backends.kubernetes.problems import problem_of
from gpufair.service.backends.kubernetes.verdict import Ending, Verdict
from gpufair.wire import Report

NOW = Instant(1_800_000_000_000)  # 2027-01-15 08:00:00 UTC
WITHIN = Millis(10 * MINUTE)


def pod(*, phase: str = "Pending", bound: str = "2027-01-15T07:59:00Z", deleted: bool = False, **status: Any) -> dict[str, Any]:
    """One of ours on gpu-01. ``state``: of its container."""
    state = status.pop("state", None)
    return {
        "metadata": {"name": "gpufair-w-1-0"} | ({"deletionTimestamp": "2027-01-15T08:00:00Z"} if deleted else {}),
        "spec": {
            "nodeName": "gpu-01",
            "containers": [{"name": "workload", "image": "lab/kernel:1", "resources": {"limits": {"memory": "8Gi"}}}],
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}, *status.pop("conditions", [])],
            **({"containerStatuses": [{"state": state}]} if state else {}),
            **status,
        },
    }


def ended(code: int, reason: str = "Error", message: str = "", **more: Any) -> dict[str, Any]:
    """A pod whose container has ended."""
    phase = "Succeeded" if code == 0 else "Failed"
    return pod(phase=phase, state={"terminated": {"exitCode": code, "reason": reason, "message": message}}, **more)


def waits(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    """A pod whose container waits."""
    return pod(state={"waiting": {"reason": reason, "message": message}}, **more)


def event(reason: str, message: str = "", at: str = "2027-01-15T07:50:00Z") -> dict[str, Any]:
    """Of that pod."""
    return {"reason": reason, "message": message, "lastTimestamp": at}


def said(one: dict[str, Any], *events: dict[str, Any], node_lost: bool = False) -> Verdict | None:
    """What is made of it now."""
    return verdict(one, events, now=NOW, start_within=WITHIN, node_lost=node_lost)


LATE: dict[str, Any] = {"bound": "2027-01-15T07:50:00Z"}


@pytest.mark.parametrize(
    ("found", "ending", "says"),
    [
        (ended(0), Ending.ENDED, "it has ended"),
        (ended(PodExit.FAILED), Ending.ENDED, "its agent said why"),
        (ended(PodExit.NOT_STARTED), Ending.ENDED, "its agent said why"),
        (ended(PodExit.BAD_CONFIG, message="pod.json is\nno config"), Ending.FAILED, "(pod.json is no config); is jupyter-gpufair in lab/kernel:1 the version"),
        (ended(PodExit.NEVER_REACHED), Ending.NOT_STARTED, "its pod on gpu-01 did not reach the service"),
        (ended(PodExit.REFUSED), Ending.NOT_STARTED, "did not know its pod"),
        (ended(PodExit.SERVICE_LOST), Ending.ELSEWHERE, "saved and ended"),
        (ended(PodExit.OUT_OF_TIME), Ending.ELSEWHERE, "when its grace was over"),
        (ended(137, "OOMKilled"), Ending.FAILED, "killed for using all of the 8Gi that it may have; ask for more, like --memory"),
        (ended(137), Ending.ELSEWHERE, "killed from outside (code 137)"),
        (ended(137, deleted=True), Ending.ELSEWHERE, "had not ended when its grace was over"),
        (ended(1, message="/usr/bin/python: No module named gpufair"), Ending.FAILED, "it needs python with jupyter-gpufair on its PATH"),
        (ended(1, message="Traceback …"), Ending.FAILED, "ended with code 1: Traceback …; see `kubectl logs` of gpufair-w-1-0"),
        (ended(139), Ending.FAILED, "ended with code 139; see"),
        (ended(128, "StartError", 'exec: "python": executable file not found in $PATH'), Ending.FAILED, "cannot run the agent"),
        (ended(128, "StartError", "nvidia-container-cli: initialization error"), Ending.NOT_STARTED, "could not be run on gpu-01 (nvidia-container-cli"),
    ],
)  # fmt: skip
def test_how_a_container_ended(found: dict[str, Any], ending: Ending, says: str) -> None:
    """By exit status and reason, in words."""
    it = said(found)
    assert it is not None
    assert it.ending is ending
    assert says in it.text
    assert it.code == found["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]


@pytest.mark.parametrize(
    ("status", "ending", "says"),
    [
        ({"reason": "Evicted", "message": "The node was low on resource: memory."}, Ending.ELSEWHERE, "gpu-01 evicted it, being short of something itself (The node was low on resource: memory.)"),
        ({"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."}, Ending.FAILED, "wrote more to the disk of its node"),
        ({"reason": "Evicted", "message": 'Usage of EmptyDir volume "x" exceeds the limit "1Gi".'}, Ending.FAILED, "wrote more to the disk"),
        ({"reason": "DeadlineExceeded"}, Ending.FAILED, "activeDeadlineSeconds"),
        ({"reason": "OutOfnvidia.com/gpu", "message": "Node didn't have enough resource"}, Ending.NOT_TAKEN, "did not take its pod after all: nvidia.com/gpu"),
        ({"reason": "OutOfcpu"}, Ending.NOT_TAKEN, "did not take its pod after all: cpu"),
        ({"reason": "UnexpectedAdmissionError", "message": "Allocate failed"}, Ending.NOT_TAKEN, "the device plugin could not give it its GPUs (Allocate failed)"),
        ({"reason": "NodeAffinity"}, Ending.NOT_TAKEN, "its labels are not those"),
        ({"reason": "NodeLost"}, Ending.ELSEWHERE, "its node gpu-01 is lost"),
        ({"reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."}, Ending.ELSEWHERE, "is being shut down"),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]}, Ending.ELSEWHERE, "higher priority class"),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}, Ending.ELSEWHERE, "as by kubectl drain"),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "New"}]}, Ending.ELSEWHERE, "the cluster ended it (New)"),
        ({"reason": "SomethingNew", "message": "who knows"}, Ending.ELSEWHERE, "without its container saying why (who knows)"),
    ],
)  # fmt: skip
def test_how_the_cluster_ended_it(status: dict[str, Any], ending: Ending, says: str) -> None:
    """What a node or the cluster did is no fault of the workload; what it wrote or asked for is."""
    it = said(pod(phase="Failed", **status))
    assert it is not None
    assert it.ending is ending
    assert says in it.text


@pytest.mark.parametrize(
    ("found", "ending", "says"),
    [
        (waits("InvalidImageName"), Ending.FAILED, "lab/kernel:1 is no name of an image"),
        (waits("ImagePullBackOff", "manifest unknown"), Ending.FAILED, "its image lab/kernel:1 cannot be pulled (manifest unknown)"),
        (waits("ImagePullBackOff", "pull access denied"), Ending.FAILED, "imagePullSecrets"),
        (waits("ErrImageNeverPull"), Ending.NOT_STARTED, 'imagePullPolicy = "Never" forbids'),
        (waits("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"), Ending.FAILED, "runAsNonRoot"),
        (waits("RunContainerError", "exec format error"), Ending.FAILED, "cannot run the agent"),
        (waits("RunContainerError", 'exec: "/usr/bin/python": stat /usr/bin/python: no such file or directory'), Ending.FAILED, "cannot run the agent"),
        (waits("ImagePullBackOff", 'failed to resolve reference "docker.io/lab/kernel:1": docker.io/lab/kernel:1: not found'), Ending.FAILED, "correct its name"),
        (waits("ImagePullBackOff", "manifest for lab/kernel:1 not found: manifest unknown"), Ending.FAILED, "correct its name"),
        (waits("ImagePullBackOff", "unexpected status from HEAD request: 403 Forbidden"), Ending.FAILED, "imagePullSecrets"),
    ],
)  # fmt: skip
def test_what_waiting_will_not_mend(found: dict[str, Any], ending: Ending, says: str) -> None:
    """It is told at once, not after ten minutes."""
    it = said(found)
    assert it is not None
    assert it.ending is ending
    assert says in it.text


@pytest.mark.parametrize(
    "found",
    [
        pod(),
        pod(phase="Running", state={"running": {}}, **LATE),
        pod(phase="Running", **LATE),
        waits("ContainerCreating"),
        waits("ErrImagePull", "manifest unknown"),
        waits("ImagePullBackOff", "dial tcp: i/o timeout"),
        waits("ImagePullBackOff", "dial tcp: lookup reg.lab on 10.0.0.10:53: server not found"),
        waits("ImagePullBackOff", "lookup reg.lab: not found"),
        waits("ImagePullBackOff", "unexpected status code 503 Service Unavailable: backend not found"),
        waits("ImagePullBackOff", "failed to authorize: failed to fetch anonymous token: Get https://auth: dial tcp: connection refused"),
        waits("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition"),
        waits("CreateContainerConfigError", 'secret "s3" not found'),
        waits("CreateContainerConfigError", 'secret "gpufair-w-1-0" not found'),
        waits("CreateContainerError", "device busy"),
        waits("CreateContainerError", "context deadline exceeded"),
        waits("RunContainerError", "failed to create shim: /run/containerd/io.containerd.runtime.v2.task/k8s.io/1/log.json: no such file or directory"),
        pod(phase="Unknown"),
        {"metadata": {"name": "x", "creationTimestamp": "2027-01-15T07:00:00Z"}, "spec": {}, "status": {"phase": "Pending"}},
        {"metadata": {}},
    ],
)
def test_what_may_still_begin_or_runs(found: dict[str, Any]) -> None:
    """Patience: registries hiccup, volumes take their time, and a pod without a node waits for us, not for a kubelet."""
    assert said(found) is None


@pytest.mark.parametrize(
    ("found", "events", "ending", "says"),
    [
        (waits("ImagePullBackOff", "i/o timeout", **LATE), (), Ending.NOT_STARTED, "its image lab/kernel:1 cannot be pulled (i/o timeout); is the registry there?"),
        (pod(**LATE), (event("FailedAttachVolume", "Multi-Attach error for volume"),), Ending.NOT_STARTED, "a volume cannot be attached to its node (Multi-Attach"),
        (pod(**LATE), (event("FailedMount", 'persistentvolumeclaim "data" not found'),), Ending.FAILED, "an operator can make what is missing"),
        (pod(**LATE), (event("FailedMount", 'secret "gpufair-w-1-0" not found'),), Ending.NOT_STARTED, "a volume cannot be mounted"),
        (waits("CreateContainerConfigError", 'secret "s3" not found', **LATE), (), Ending.FAILED, 'cannot be configured (secret "s3" not found)'),
        (waits("CreateContainerConfigError", "couldn't find key k in Secret n/s3", **LATE), (), Ending.FAILED, "make what is missing"),
        (waits("CreateContainerConfigError", "failed to sync secret cache", **LATE), (), Ending.NOT_STARTED, "failed to sync secret cache"),
        (waits("CreateContainerError", "device busy", **LATE), (), Ending.NOT_STARTED, "could not be run (device busy)"),
        (pod(**LATE), (event("FailedCreatePodSandBox", "cni"),), Ending.NOT_STARTED, "cannot give it a network (cni)"),
        (pod(**LATE), (event("Pulling"),), Ending.NOT_STARTED, "its image lab/kernel:1 is being pulled"),
        (pod(**LATE), (), Ending.NOT_STARTED, "the kubelet says nothing of it; `kubectl describe pod gpufair-w-1-0` may say more"),
    ],
)  # fmt: skip
def test_what_has_not_begun_in_time(found: dict[str, Any], events: tuple[Any, ...], ending: Ending, says: str) -> None:
    """GPUs that wait for a volume are lost to everybody: after so long it is over, with what was in the way."""
    it = said(found, *events)
    assert it is not None
    assert it.ending is ending
    assert it.text.startswith("its pod did not begin on gpu-01 within 10m: ")
    assert says in it.text


def test_the_newest_event_counts_whatever_the_order() -> None:
    """Lists of events come in no order."""
    old, new = event("FailedMount", "old"), event("FailedAttachVolume", "new", "2027-01-15T07:58:00Z")
    assert waiting(pod(), [new, old]) == waiting(pod(), [old, new]) == "a volume cannot be attached to its node: new"
    series = {"reason": "FailedMount", "message": "newest", "series": {"lastObservedTime": "2027-01-15T07:59:59.5Z"}}
    assert waiting(pod(), [series, new]) == "a volume cannot be mounted: newest"


def test_what_it_waits_for() -> None:
    """Shown with the workload while it starts."""
    assert waiting(waits("ErrImagePull", "timeout")) == "its image lab/kernel:1 is being pulled again: timeout"
    assert waiting(pod(), [event("Pulling")]) == "its image lab/kernel:1 is being pulled"
    assert waiting(pod(), [event("Pulling"), event("Pulled")]) == ""
    assert waiting(pod()) == ""


def test_on_a_lost_node_a_pod_speaks_no_more() -> None:
    """Its last word was that it runs; what had ended before is still told."""
    it = said(pod(phase="Running", state={"running": {}}), node_lost=True)
    assert it is not None
    assert (it.ending, it.text) == (Ending.ELSEWHERE, "its node gpu-01 is lost; it is queued again")
    oom = said(ended(137, "OOMKilled"), node_lost=True)
    assert oom is not None
    assert oom.ending is Ending.FAILED


def test_a_pod_that_is_not_there_any_more() -> None:
    """Somebody deleted it by force, or its node took it along."""
    assert gone(None) == Verdict(Ending.ELSEWHERE, "its pod was deleted by somebody, or by the cluster; it is queued again")
    assert "its pod on gpu-01 was deleted" in gone(pod()).text
    evicted = pod(conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}])
    assert "given a taint that it does not tolerate" in gone(evicted).text


@pytest.mark.parametrize(
    ("status", "message", "ending", "says"),
    [
        (403, 'pods "x" is forbidden: exceeded quota: q, requested: pods=1', Ending.NOT_STARTED, "a quota of the namespace leaves no room"),
        (403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest"', Ending.FAILED, "a policy of the cluster does not let its pod in"),
        (403, 'pods is forbidden: User "s" cannot create resource "pods"', Ending.NOT_STARTED, "grant the service's role 'create' on 'pods'"),
        (400, 'admission webhook "images.lab" denied the request: unsigned', Ending.FAILED, "the cluster's policy images.lab does not let its pod in"),
        (422, 'Pod "x" is invalid: spec.containers[0].image: Required', Ending.FAILED, 'Kubernetes does not take its pod (Pod "x" is invalid'),
        (500, "etcdserver: request timed out", Ending.NOT_STARTED, "etcdserver"),
    ],
)  # fmt: skip
def test_a_pod_that_the_cluster_does_not_take(status: int, message: str, ending: Ending, says: str) -> None:
    """Who can mend it, and where."""
    it = refused(problem_of(Asked("create", "pods", namespace="gpufair"), status, {"message": message}))
    assert it.ending is ending
    assert says in it.text


def test_verdicts_as_reports() -> None:
    """In the words that agents use, so that all else is as with agents."""
    assert Verdict(Ending.FAILED, "t", 137).report() == ("exited", {"outcome": "failed", "code": 137, "reason": "t"})
    assert Verdict(Ending.FAILED, "t").report()[1]["code"] == -1
    assert Verdict(Ending.NOT_STARTED, "t").report() == ("start_failed", {"reason": "t"})
    assert Verdict(Ending.ELSEWHERE, "t").report(busy=True) == ("released", {"busy": True})
    assert Verdict(Ending.ENDED, "t").report() == ("released", {"busy": False})
    for ending in Ending:
        kind, body = Verdict(ending, "t").report()
        assert kind in (Report.__doc__ or "")
        assert isinstance(body, dict)


def test_whose_secret_is_missing() -> None:
    """Only that of its own name is made again."""
    assert lacks_our_secret(pod(), [event("FailedMount", 'MountVolume.SetUp failed: secret "gpufair-w-1-0" not found')])
    assert lacks_our_secret(waits("CreateContainerConfigError", 'secret "gpufair-w-1-0" not found'), [])
    assert not lacks_our_secret(pod(), [event("FailedMount", 'secret "s3" not found')])
    assert not lacks_our_secret(pod(), [event("Pulling", 'secret "gpufair-w-1-0" not found')])
