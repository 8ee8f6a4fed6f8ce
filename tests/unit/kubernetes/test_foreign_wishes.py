"""Anybody's pods are scheduled under the same budgets: by what their namespace may use, and never half a gang."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufair.core.model import Kind, Shape
from gpufair.core.units import HOUR, SECOND, Millis, WorkloadId
from gpufair.service.backends.kubernetes import foreign_wishes, names
from gpufair.service.backends.kubernetes.foreign_events import TheirPod, Told, event
from gpufair.service.backends.kubernetes.foreign_wishes import Remark, Wish, grace_of, namespace_of, pods_of, wishes
from gpufair.service.backends.kubernetes.names import PodKey
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from tests.unit.kubernetes.cluster_objects import container
from tests.unit.kubernetes.cluster_objects import pod as any_pod

GPU = "nvidia.com/gpu"
OPTIONS = KubernetesOptions(
    "image", "https://service", namespaces={"speech": ("language/speech", "debug"), "two": ("a/b.c", "a.b/c")}
)


def pod(name: str = "train-0", gpus: int = 2, *, namespace: str = "speech", **more: Any) -> dict[str, Any]:
    """One that asks for our scheduler. ``labels`` beside the allocation's; ``annotations``; fields of the spec."""
    labels = {names.ALLOCATION: "language.speech"} | more.pop("labels", {})
    annotations, created = more.pop("annotations", {}), more.pop("created", "2027-01-15T08:00:00Z")
    asked = more.pop("containers", [container(gpu=gpus, cpu="1500m", memory="4Gi")])
    found = any_pod(name, "", *asked, namespace=namespace, labels=labels, phase="Pending", schedulerName="gpufair", **more)
    del found["spec"]["nodeName"]
    found["metadata"] |= {"annotations": annotations, "creationTimestamp": created}
    return found


def gang(size: int, count: int, name: str = "g", **more: Any) -> list[dict[str, Any]]:
    """Pods of one gang."""
    labels = {names.GANG: name, names.GANG_SIZE: str(size)} | more.pop("labels", {})
    return [pod(f"{name}-{at}", created=f"2027-01-15T08:00:{at:02}Z", labels=labels, **more) for at in range(count)]


def seen(*pods: dict[str, Any], **more: Any) -> tuple[tuple[Wish, ...], tuple[Remark, ...]]:
    """What the pool ``cluster`` makes of them."""
    return wishes(pods, "cluster", OPTIONS, **more)


def refused(*pods: dict[str, Any]) -> str:
    """What is said of pods that stay pending, all of them."""
    found, remarks = seen(*pods)
    assert found == ()
    assert len(remarks) == len(pods)
    assert {one.wrong for one in remarks} == {True}
    (text,) = {one.text for one in remarks}
    return text


def test_a_pod_is_a_workload() -> None:
    """What it asks for, under what its namespace may use; its id follows from its uid, so it is submitted once."""
    owner = [{"name": "train", "controller": True}]
    one = pod(labels={names.MIN_RUNTIME: "4h", names.RESUMABLE: "true"}, nodeSelector={"disk": "fast"}, terminationGracePeriodSeconds=90)
    one["metadata"]["ownerReferences"] = owner
    ((wish,), remarks) = seen(one)
    assert remarks == ()
    assert wish.id == "pod-uid-train-0"
    spec = wish.spec
    assert (spec.allocation, spec.user, spec.name, spec.kind) == ("language/speech", "namespace:speech", "train", Kind.BATCH)
    assert spec.shape == Shape(2, 1, "", 2, 4 << 30, where=(("disk", "fast"), (names.RESOURCE, GPU)))
    assert (spec.min_runtime, spec.resumable, spec.grace, spec.pools) == (Millis(4 * HOUR), True, Millis(90 * SECOND), ("cluster",))
    assert pods_of(spec) == (("train-0", "uid-train-0"),)
    assert namespace_of(spec) == "speech"
    assert pods_of(replace(spec, launch={"type": "kernel"})) == ()


def test_without_a_min_runtime_it_is_unallocated() -> None:
    """Free of charge, and the first to leave."""
    ((wish,), _) = seen(pod())
    assert wish.spec.min_runtime == 0
    assert wish.spec.resumable is False
    assert wish.spec.grace == 30 * SECOND


@pytest.mark.parametrize(
    "change",
    [
        {"schedulerName": "default-scheduler"},
        {"nodeName": "gpu-01"},
        {"schedulingGates": [{"name": "wait"}]},
        {"labels": {names.POOL: "other"}},
    ],
)
def test_whom_it_does_not_concern(change: dict[str, Any]) -> None:
    """Others' pods are left alone, without a word."""
    one = pod()
    one["metadata"]["labels"] |= change.pop("labels", {})
    one["spec"] |= change
    assert seen(one) == ((), ())


def test_those_that_leave_or_are_known_or_ours() -> None:
    """A pod is submitted once, and not when it is on its way out; our own are none of these."""
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    done = pod()
    done["status"]["phase"] = "Failed"
    ours = pod(namespace="gpufair", labels=names.labels(PodKey(WorkloadId("w"), 1), "cluster", "a", "u"))
    assert seen(leaving, done, ours) == ((), ())
    assert seen(pod(), known={"uid-train-0"}) == ((), ())
    assert len(seen(pod(labels={names.POOL: "cluster"}))[0]) == 1


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (pod(namespace="vision"), "namespace 'vision' may use no allocation of gpufair; an operator can give it some"),
        (pod(labels={names.ALLOCATION: ""}), "the label gpufair.io/allocation is missing; 'speech' may use language/speech, debug"),
        (pod(labels={names.ALLOCATION: "vision"}), "'speech' may not use 'vision'; it may use language/speech, debug"),
        (pod(labels={names.ALLOCATION: "debgu"}), "did you mean 'debug'?"),
        (pod(labels={names.MIN_RUNTIME: "4"}), "gpufair.io/min-runtime: 4 has no unit; did you mean"),
        (pod(labels={names.RESUMABLE: "yes"}), "'yes' is neither true nor false"),
        (pod(labels={names.GANG: "g"}), "gpufair.io/gang-size: '' is no number of pods"),
        (pod(labels={names.GANG: "g", names.GANG_SIZE: "0"}), "'0' is no number of pods"),
        (pod(labels={names.GANG: "g", names.GANG_SIZE: "９"}), "is no number of pods"),
        (pod(annotations={names.GANG: "g", names.GANG_SIZE: "1" * 5000}), "is no number of pods"),
        (pod(namespace="vision", annotations={names.GANG: "g", names.GANG_SIZE: "1" * 5000}), "may use no allocation of gpufair"),
        (pod(namespace="two", labels={names.ALLOCATION: "a.b.c"}), "may be a/b.c or a.b/c; say which by an annotation"),
        (pod(containers=[container(gpu=1, **{"nvidia.com/mig-1g.5gb": 1})]), "it asks for nvidia.com/gpu and nvidia.com/mig-1g.5gb"),
        (pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"a": 1}}}), "say by nodeSelector"),
        (pod(topologySpreadConstraints=[{"whenUnsatisfiable": "DoNotSchedule"}]), "does not look at topologySpreadConstraints"),
    ],
)
def test_what_is_wrong_is_told(one: dict[str, Any], says: str) -> None:
    """Its owner reads it at the pod, with what would be right; and it is not scheduled by chance."""
    assert says in refused(one)


def test_an_annotation_says_it_exactly() -> None:
    """A label has no slashes."""
    ((wish,), _) = seen(pod(namespace="two", annotations={names.ALLOCATION: "a.b/c"}))
    assert wish.spec.allocation == "a.b/c"


def test_soft_wishes_hinder_nothing() -> None:
    """What Kubernetes would only prefer is not looked at."""
    soft = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}, "podAffinity": None}
    assert len(seen(pod(affinity=soft, topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway"}]))[0]) == 1


def test_a_gang_is_complete_before_it_is_queued() -> None:
    """Half of it would hold GPUs and wait for the rest; the others are told what they wait for."""
    found, remarks = seen(*gang(3, 2))
    assert found == ()
    assert {(one.text, one.wrong) for one in remarks} == {("gang 'g' has 2 of 3 pods; it is queued when all are there", False)}
    ((wish,), remarks) = seen(*gang(3, 3))
    assert remarks == ()
    assert wish.spec.shape.nodes == 3
    assert [name for name, _ in pods_of(wish.spec)] == ["g-0", "g-1", "g-2"]


def test_more_than_one_set_of_a_gang() -> None:
    """A controller that makes pods anew makes the gang's next set; what is left over waits."""
    found, remarks = seen(*gang(2, 5))
    assert [[one["metadata"]["name"] for one in wish.pods] for wish in found] == [["g-0", "g-1"], ["g-2", "g-3"]]
    assert [one.pod["metadata"]["name"] for one in remarks] == ["g-4"]
    running = {"uid-g-0", "uid-g-1"}
    found, remarks = seen(*gang(2, 4), known=running)
    assert [[one["metadata"]["name"] for one in wish.pods] for wish in found] == [["g-2", "g-3"]]


def test_a_set_of_a_gang_has_a_name_of_its_own() -> None:
    """One whose pod was deleted while it waited is over; with a new one in its place it is another workload."""
    first, second, third = gang(2, 3)
    ((one,), _), ((other,), _) = seen(first, second), seen(first, third)
    assert one.id != other.id
    assert one.id == seen(second, first)[0][0].id
    assert one.id.startswith("gang-")


def test_gangs_of_two_namespaces_are_two() -> None:
    """The same name in another namespace is another gang."""
    other = gang(2, 1, labels={names.ALLOCATION: "a.b/c"}, namespace="two", annotations={names.ALLOCATION: "a.b/c"})
    found, remarks = seen(*gang(2, 1), *other)
    assert found == ()
    assert len(remarks) == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"labels": {names.GANG_SIZE: "3"}}, "name different gpufair.io/gang-size: '2', '3'"),
        ({"labels": {names.ALLOCATION: "debug"}}, "differ in gpufair.io/allocation"),
        ({"labels": {names.MIN_RUNTIME: "1h"}}, "differ in gpufair.io/min-runtime"),
        ({"gpus": 4}, "differ in what they ask for"),
    ],
)
def test_all_of_a_gang_are_alike(change: dict[str, Any], says: str) -> None:
    """A gang is n times the same."""
    first = gang(2, 1)
    labels = {names.GANG: "g", names.GANG_SIZE: "2"} | change.pop("labels", {})
    assert says in refused(*first, pod("g-x", labels=labels, **change))


@given(st.permutations(range(9)), st.integers(0, 9))
def test_order_and_time_of_reading_change_nothing(order: list[int], known: int) -> None:
    """Whatever the order of a list, the same workloads; and a pod is in at most one."""
    pods = [*gang(2, 5), *(pod(f"s-{at}") for at in range(4))]
    taken = {one["metadata"]["uid"] for one in pods[:known]}
    shuffled = [pods[at] for at in order]
    random.Random(known).shuffle(shuffled)
    found, remarks = seen(*shuffled, known=taken)
    assert (found, remarks) == seen(*pods, known=taken)
    uids = [one["metadata"]["uid"] for wish in found for one in wish.pods] + [one.pod["metadata"]["uid"] for one in remarks]
    assert sorted(uids) == sorted({one["metadata"]["uid"] for one in pods} - taken)


SAID = st.sampled_from(
    [names.ALLOCATION, names.MIN_RUNTIME, names.GANG, names.GANG_SIZE, names.RESUMABLE, names.POOL, names.WORKLOAD, names.INCARNATION]
)
LONG = st.builds(lambda text, times: text * times, st.sampled_from(["1", "9" * 10, "a", "é", "\n", "1h", "４"]), st.integers(1, 5000))
TEXTS = st.dictionaries(SAID, st.text(max_size=40) | LONG, max_size=5)


@settings(suppress_health_check=[HealthCheck.too_slow])  # long texts, on a busy machine
@given(st.lists(st.tuples(TEXTS, TEXTS, st.sampled_from(["speech", "two", "vision"])), max_size=4))
def test_whatever_a_pod_says_of_itself_the_others_are_read(odd: list[tuple[dict[str, str], dict[str, str], str]]) -> None:
    """Anybody may write anything on his own pods: he is told, briefly, and everybody else is submitted as ever."""
    theirs = [
        pod(f"odd-{at}", namespace=namespace, labels=labels, annotations=annotations) for at, (labels, annotations, namespace) in enumerate(odd)
    ]
    right = [pod("right", namespace="other"), *gang(2, 2, name="right-gang", namespace="other")]
    options = replace(OPTIONS, namespaces={**OPTIONS.namespaces, "other": ("language/speech",)})
    found, remarks = wishes([*theirs, *right], "cluster", options)
    assert [wish for wish in found if wish.pods[0]["metadata"]["namespace"] == "other"] == list(wishes(right, "cluster", options)[0])
    for remark in remarks:
        assert remark.pod in theirs
        told = event("gpufair", TheirPod("speech", "odd", "uid"), Told.REFUSED, remark.text)
        assert len(told["message"].encode()) <= 1024


def test_one_that_breaks_the_reader_is_told_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Also if there is a way that nobody has thought of."""

    def broken(one: Any, pool: str, options: KubernetesOptions, nodes: int) -> Any:
        if one["metadata"]["name"] == "odd":
            raise ValueError("nobody has thought of it")
        return real(one, pool, options, nodes)

    real = foreign_wishes._spec
    monkeypatch.setattr(foreign_wishes, "_spec", broken)
    found, (remark,) = seen(pod("odd"), pod("right"))
    assert [wish.pods[0]["metadata"]["name"] for wish in found] == ["right"]
    assert remark.wrong
    assert "an operator finds the reason in the service's log" in remark.text
    assert "pod speech/odd cannot be read" in caplog.text


@pytest.mark.parametrize(("asked", "grace_s"), [(None, 30), (0, 1), (90, 90), (100_000, 3600), (10**30, 3600)])
def test_the_grace_of_a_pod_has_an_end(asked: int | None, grace_s: int) -> None:
    """Somebody waits for its GPUs."""
    one = pod() if asked is None else pod(terminationGracePeriodSeconds=asked)
    assert grace_of(one) == grace_s * SECOND
    assert seen(one)[0][0].spec.grace == grace_s * SECOND
