"""What a cluster offers is what it has, less what others hold: never a GPU twice, whatever the order of what is read."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.core.model import Capacity
from gpufair.core.units import MINUTE, SECOND, Instant, Millis, WorkloadId
from gpufair.service.backends.kubernetes import names
from gpufair.service.backends.kubernetes.conditions import Condition, instant, tolerates
from gpufair.service.backends.kubernetes.inventory import Offer, Remembered, core_name, offers
from gpufair.service.backends.kubernetes.names import PodKey
from gpufair.service.backends.kubernetes.requests import requested, takes_room
from gpufair.service.nodes.inventory import node_of
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.quantities import known_quantity, parse_quantity
from gpufair.wire import NONE_LEFT
from tests.unit.kubernetes.cluster_objects import container, node, pod

OPTIONS = KubernetesOptions("image", "https://service")
NOW = Instant(1_800_000_000_000)
GPU = "nvidia.com/gpu"
LONG_AGO = "2027-01-15T07:00:00Z"
DAEMONS = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
MACHINE = {"apiVersion": "v1", "kind": "Node", "name": "gpu-01", "uid": "2", "controller": True}


def seen(nodes: list[Any], pods: list[Any] = [], options: KubernetesOptions = OPTIONS, **more: Any) -> list[Offer]:  # noqa: B006
    """What the pool ``cluster`` is offered."""
    return list(offers(nodes, pods, "cluster", options, NOW, **more))


def only(nodes: list[Any], pods: list[Any] = [], options: KubernetesOptions = OPTIONS, **more: Any) -> Offer:  # noqa: B006
    """The one offer."""
    (offer,) = seen(nodes, pods, options, **more)
    return offer


# -- amounts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("500m", Fraction(1, 2)), ("0", 0), ("2", 2), (2, 2), (0.5, Fraction(1, 2)), ("1.5Gi", 3 << 29), (".5", Fraction(1, 2)),
        ("1Ki", 1024), ("1k", 1000), ("1e3", 1000), ("1E3", 1000), ("12E", 12 * 10**18), ("1e-3", Fraction(1, 1000)), ("5.", 5),
        ("100u", Fraction(1, 10**4)), ("1n", Fraction(1, 10**9)), ("+1Pi", 1 << 50), ("-1", -1), ("1Ei", 1 << 60), (1e21, 10**21),
    ],
)  # fmt: skip
def test_amounts_as_kubernetes_writes_them(text: object, amount: object) -> None:
    """Exactly: half a core is half a core."""
    assert parse_quantity(text) == amount


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1K", "1gi", "1e", "e3", "1.2.3", "0x10", "1_000", None, True, float("nan"), float("inf"), [], "１"])
def test_what_is_no_amount(text: object) -> None:
    """It is told as such, and counts nothing where it stands on somebody else's pod."""
    with pytest.raises(ValueError, match="is no amount"):
        parse_quantity(text)
    assert known_quantity(text) == 0


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "Ki", "M", "Mi", "G", "Gi"]))
def test_a_suffix_multiplies(number: int, suffix: str) -> None:
    """Nothing is rounded."""
    assert parse_quantity(f"{number}{suffix}") == number * parse_quantity(f"1{suffix}")


# -- what a pod holds -----------------------------------------------------------------------------------------------


def test_a_pod_holds_the_most_that_it_needs_at_any_moment() -> None:
    """Containers together; init containers one by one, beside those that stay; overhead on top."""
    stays = {**container("sidecar", cpu="1"), "restartPolicy": "Always"}
    assert requested(pod("p", "n", container(cpu="2"), container(cpu="500m")), "cpu") == Fraction(5, 2)
    assert requested(pod("p", "n", container(cpu="2"), initContainers=[container(cpu="5")]), "cpu") == 5
    assert requested(pod("p", "n", container(cpu="2"), initContainers=[stays, container(cpu="5")]), "cpu") == 6
    assert requested(pod("p", "n", container(cpu="2"), initContainers=[container(cpu="5"), stays]), "cpu") == 5
    assert requested(pod("p", "n", container(cpu="2"), initContainers=[stays]), "cpu") == 3
    assert requested(pod("p", "n", container(cpu="2"), overhead={"cpu": "250m"}), "cpu") == Fraction(9, 4)
    limited = {"name": "c", "resources": {"limits": {GPU: 2}}}
    assert requested(pod("p", "n", limited), GPU) == 2
    assert requested(pod("p", "n", container(cpu="2"), resources={"requests": {"cpu": "8"}}), "cpu") == 8
    assert requested({"metadata": {}}, "cpu") == 0


def test_who_holds_nothing() -> None:
    """Those without a node and those that have finished; one that is being deleted holds all that it had."""
    assert not takes_room({"spec": {}, "status": {"phase": "Pending"}})
    assert not takes_room(pod(phase="Succeeded"))
    assert not takes_room(pod(phase="Failed"))
    assert takes_room(pod(phase="Pending"))
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    assert takes_room(leaving)


# -- what is offered ------------------------------------------------------------------------------------------------


def test_a_node_with_gpus() -> None:
    """Its allocatable GPUs, their type by its label; ids are numbers, since the device plugin chooses."""
    offer = only([node()])
    it = offer.inventory
    assert (it.name, it.gpu_type, it.pool, it.host) == ("gpu-01", "H100", "cluster", "gpu-01")
    assert it.gpu_ids == tuple("01234567")
    assert (it.cpus, it.memory_bytes) == (64, 512 << 30)
    assert it.labels["nvidia.com/gpu.product"] == "H100"
    assert (offer.host, offer.resource, offer.condition) == ("gpu-01", GPU, Condition.OPEN)


def test_what_others_hold_is_not_offered() -> None:
    """Whoever scheduled them; those that are in the core's books are in nobody else's."""
    mine = pod("mine", "gpu-01", container(gpu=4, cpu="8"), namespace="gpufair")
    theirs = pod("theirs", "gpu-01", container(gpu=2, cpu="1500m", memory="1Gi"))
    it = only([node()], [mine, theirs], counted={"uid-mine"}).inventory
    assert (len(it.gpu_ids), it.cpus, it.memory_bytes) == (6, 62, 511 << 30)
    assert len(only([node()], [pod("done", "gpu-01", container(gpu=8), phase="Succeeded")]).inventory.gpu_ids) == 8


def test_what_others_hold_is_there_when_they_have_gone() -> None:
    """But what belongs to the node goes with it only; and devices that are not healthy may be so again."""
    daemon = pod("daemon", "gpu-01", container(cpu="500m", memory="2Gi"))
    daemon["metadata"] |= {"ownerReferences": [DAEMONS], "creationTimestamp": LONG_AGO}
    theirs = pod("theirs", "gpu-01", container(gpu=2, cpu="8", memory="1Gi"))
    found = node_of(only([node(allocatable={GPU: "7"})], [daemon, theirs]).inventory)
    assert (found.gpus, found.cpus, found.memory) == (5, 55, 509 << 30)
    assert found.capacity == Capacity(8, 63, 510 << 30)


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({"ownerReferences": [DAEMONS]}, 5),
        ({"ownerReferences": [MACHINE], "annotations": {"kubernetes.io/config.mirror": "x"}}, 5),
        # A cluster removes what names an owner that is none, if that is of a kind that it knows, but not in no time.
        ({"ownerReferences": [DAEMONS], "creationTimestamp": "2027-01-15T07:59:00Z"}, 8),
        ({"ownerReferences": [DAEMONS], "creationTimestamp": None}, 8),
        ({"ownerReferences": [DAEMONS], "deletionTimestamp": "2027-01-15T07:59:00Z"}, 8),
        ({"ownerReferences": [DAEMONS | {"apiVersion": "example.org/v1"}]}, 8),
        ({"ownerReferences": [DAEMONS | {"controller": False}]}, 8),
        ({"ownerReferences": [MACHINE]}, 8),
        ({"ownerReferences": [MACHINE | {"name": "gpu-02"}], "annotations": {"kubernetes.io/config.mirror": "x"}}, 8),
        ({"ownerReferences": [DAEMONS | {"apiVersion": "apps/v1", "kind": "ReplicaSet"}]}, 8),
    ],
)
def test_an_owner_is_believed_only_where_a_cluster_would_not_let_a_lie_stand(said: dict[str, Any], left: int) -> None:
    """Anybody may write one on his pod: work that needs the whole node would be refused instead of waiting for him."""
    theirs = pod("theirs", "gpu-01", container(gpu=3))
    theirs["metadata"] |= {"creationTimestamp": LONG_AGO} | said
    found = node_of(only([node()], [theirs]).inventory)
    assert (found.gpus, found.capacity and found.capacity.gpus) == (5, left)


@pytest.mark.parametrize("namespace", ["other", "gpufair"])
def test_labels_hide_nothing(namespace: str) -> None:
    """Anybody may write labels on a pod; only those that the core itself counts (by uid) are left out."""
    ours = names.labels(PodKey(WorkloadId("w"), 1), "cluster", "a", "u")
    liar = pod("liar", "gpu-01", container(gpu=3), namespace=namespace, labels=ours)
    assert len(only([node()], [liar]).inventory.gpu_ids) == 5
    assert len(only([node()], [liar], counted={"uid-liar"}).inventory.gpu_ids) == 8


def test_no_cpu_left_is_not_the_same_as_unknown() -> None:
    """The core does not count what is unknown, and would start work there that a kubelet then refuses."""
    it = only([node(cpu="8", memory="1Gi")], [pod("p", "gpu-01", container(cpu="7500m", memory="1Gi"))]).inventory
    assert (it.cpus, it.memory_bytes) == (NONE_LEFT, NONE_LEFT)
    assert (node_of(it).cpus, node_of(it).memory) == (0, 0)


def test_allocatable_counts_not_capacity() -> None:
    """A GPU that its plugin found ill is there and cannot be had."""
    offer = only([node(allocatable={GPU: "7"})])
    assert len(offer.inventory.gpu_ids) == 7
    ill = only([node(allocatable={GPU: "0"})])
    assert (len(ill.inventory.gpu_ids), ill.condition) == (0, Condition.CLOSED)
    assert ill.standing.reason == "none of the 8 GPUs of gpu-01 is healthy; look at its device plugin"


def test_mig_devices_are_types() -> None:
    """Each size is a node of its own; CPUs and memory are divided by the number of devices, and nothing is offered twice."""
    mig = {"nvidia.com/mig-1g.10gb": "6", "nvidia.com/mig-3g.40gb": "2"}
    small, large = seen([node(gpus=0, capacity=mig, allocatable=mig)])
    assert (small.inventory.name, small.inventory.gpu_type) == ("gpu-01_mig-1g.10gb", "mig-1g.10gb")
    assert (large.inventory.name, large.inventory.gpu_type) == ("gpu-01_mig-3g.40gb", "mig-3g.40gb")
    assert (len(small.inventory.gpu_ids), len(large.inventory.gpu_ids)) == (6, 2)
    assert (small.inventory.cpus, large.inventory.cpus) == (48, 16)
    assert small.host == large.host == "gpu-01"
    assert large.resource == "nvidia.com/mig-3g.40gb"


def test_types_and_resources_by_configuration() -> None:
    """A table says which resources are GPUs, and of which type; a label of another maker may say it, too."""
    amd = node(gpus=0, capacity={"amd.com/gpu": "4"}, allocatable={"amd.com/gpu": "4"})
    named = only([amd], options=replace(OPTIONS, gpus={"amd.com/gpu": "MI300X"}))
    assert (named.inventory.gpu_type, len(named.inventory.gpu_ids)) == ("MI300X", 4)
    labelled = node(labels={"maker/product": "L4"})
    assert only([labelled], options=replace(OPTIONS, gpu_label="maker/product")).inventory.gpu_type == "L4"
    assert only([amd]).inventory.gpu_ids == ()


def test_which_nodes_belong_to_the_pool() -> None:
    """By their labels; those without GPUs are for work without any, unless nobody wants them."""
    plain = node("cpu-01", gpus=0)
    offer = only([plain])
    assert (offer.inventory.gpu_ids, offer.inventory.gpu_type, offer.resource) == ((), "", "")
    assert seen([plain], options=replace(OPTIONS, cpu_nodes=False)) == []
    selecting = replace(OPTIONS, node_selector={"part": "ml"})
    assert [one.host for one in seen([node("a"), node("b", labels={"part": "ml"})], options=selecting)] == ["b"]


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789.-", min_size=1, max_size=253), st.booleans())
def test_names_fit_and_differ(host: str, only_kind: bool) -> None:
    """Names of nodes stand in paths and in the configuration, at most 64 characters of them."""
    one, other = (core_name(host, f"nvidia.com/mig-{size}", only=only_kind) for size in ("1g.5gb", "2g.10gb"))
    assert max(len(one), len(other)) <= 64
    assert (one == other) is only_kind
    assert core_name(host + "a", GPU, only=True) != core_name(host + "b", GPU, only=True)


AMOUNTS = st.sampled_from(["0", "1", "2", "3", "1500m", "8", "16"])
PODS = st.lists(
    st.builds(
        lambda on, own, first, phase, at: pod(
            f"p{at}", on, container(gpu=own, cpu=own), initContainers=[container(gpu=first)], phase=phase
        ),
        st.sampled_from(["gpu-01", "gpu-02", "elsewhere"]),
        AMOUNTS,
        AMOUNTS,
        st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
        st.integers(0, 10**6),
    ),
    max_size=8,
)


@given(PODS, st.integers(0, 16), st.integers(0, 16), st.randoms())
def test_never_more_than_is_left_and_in_any_order(pods: list[Any], capacity: int, allocatable: int, rng: random.Random) -> None:
    """The law of the inventory: GPUs offered ≤ allocatable − those of others; and what is read last changes nothing."""
    nodes = [
        node("gpu-01", capacity={GPU: str(capacity)}, allocatable={GPU: str(allocatable)}),
        node("gpu-02", labels={"x": "y"}),
    ]
    found = seen(nodes, pods)
    for offer in found:
        has = next(one for one in nodes if one["metadata"]["name"] == offer.host)["status"]["allocatable"]
        for resource, offered in ((GPU, len(offer.inventory.gpu_ids)), ("cpu", max(0, offer.inventory.cpus))):
            others = sum(requested(one, resource) for one in pods if one["spec"]["nodeName"] == offer.host and takes_room(one))
            assert offered <= max(Fraction(0), parse_quantity(has[resource]) - others)
            assert offered >= 0
    shuffled, again = list(pods), list(nodes)
    rng.shuffle(shuffled)
    rng.shuffle(again)
    assert seen(again, shuffled) == found
    # And what is remembered counts only as long as pods and nodes are as they were.
    remembered = Remembered()
    for some in (pods, pods, pods[1:], [pod("new", "gpu-01", container(gpu=1)), *pods]):
        for these in (nodes, nodes[1:], [node("gpu-01", gpus=1), *nodes[1:]]):
            assert seen(these, some, remembered=remembered) == seen(these, some)


# -- whether it takes work ------------------------------------------------------------------------------------------


def ready(status: str, since: str = "2027-01-15T07:59:30Z", **more: Any) -> list[dict[str, Any]]:
    """Conditions of a node; NOW is 08:00:00 of that day."""
    return [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": status, "lastTransitionTime": since, **more}]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"unschedulable": True}, "gpu-01 is cordoned in Kubernetes; `kubectl uncordon gpu-01` opens it"),
        ({"conditions": []}, "gpu-01 has not said yet that it is ready"),
        ({"conditions": ready("False", message="cni plugin\n not initialized")}, "gpu-01 is not ready: cni plugin not initialized"),
        (
            {"taints": [{"key": "dedicated", "value": "vip", "effect": "NoSchedule"}]},
            "gpu-01 has the taint dedicated=vip:NoSchedule, which pods of this pool do not tolerate; "
            "take it off, or add it to tolerations of [pool.kubernetes]",
        ),
        (
            {"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]},
            "gpu-01 is short of disk space, says Kubernetes; it opens by itself when that is over",
        ),
        (
            {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]},
            "gpu-01 is about to be removed by the cluster's autoscaler",
        ),
    ],
)
def test_why_a_node_is_closed(more: dict[str, Any], says: str) -> None:
    """A sentence for the operator, with what opens it."""
    stands = only([node(**more)]).standing
    assert (stands.condition, stands.reason, stands.silent_since) == (Condition.CLOSED, says, None)


def test_a_node_that_is_being_deleted_takes_nothing_new() -> None:
    """What runs there goes on until it is gone."""
    leaving = node()
    leaving["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert only([leaving]).standing.reason == "gpu-01 is being deleted from the cluster"


def test_silence_closes_a_node_and_later_loses_it() -> None:
    """Its kubelet's silence is Kubernetes' word; how long is too long is ours."""
    quiet = node(conditions=ready("Unknown"))
    at = instant("2027-01-15T07:59:30Z")
    stands = only([quiet]).standing
    assert (stands.condition, stands.silent_since) == (Condition.CLOSED, at)
    assert stands.reason.startswith("the kubelet of gpu-01 has not been heard since 2027-01-15 07:59:30 UTC")
    assert only([quiet], options=replace(OPTIONS, node_silence=Millis(30 * SECOND))).condition is Condition.LOST
    assert only([node(conditions=ready("Unknown", "2027-01-15T07:00:00Z"))]).condition is Condition.LOST
    remembered, later = Remembered(), Instant(NOW + 10 * MINUTE)
    assert only([quiet], remembered=remembered).condition is Condition.CLOSED
    (offer,) = offers([quiet], [], "cluster", OPTIONS, later, remembered=remembered)
    assert offer.condition is Condition.LOST  # by time alone
    assert only([quiet], options=replace(OPTIONS, node_silence=MINUTE)).condition is Condition.CLOSED


def test_taints_that_our_pods_tolerate_close_nothing() -> None:
    """Those of the pool; and the one that keeps others off GPUs. Soft ones never close."""
    dedicated = {"key": "dedicated", "value": "ml", "effect": "NoSchedule"}
    for_gpus = {"key": GPU, "value": "present", "effect": "NoSchedule"}
    soft = {"key": "slow", "effect": "PreferNoSchedule"}
    assert only([node(taints=[for_gpus, soft])]).condition is Condition.OPEN
    tolerating = replace(OPTIONS, tolerations=({"key": "dedicated", "value": "ml"},))
    assert only([node(taints=[dedicated, for_gpus])], options=tolerating).condition is Condition.OPEN
    assert only([node(gpus=0, taints=[for_gpus])]).condition is Condition.CLOSED


@pytest.mark.parametrize(
    ("toleration", "good"),
    [
        ({"key": "a", "value": "b"}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "a", "value": "b", "effect": "NoExecute"}, True),
        ({"key": "a", "value": "c"}, False),
        ({"key": "a", "value": "b", "effect": "NoSchedule"}, False),
        ({"key": "b", "operator": "Exists"}, False),
        ({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, False),
        ({}, False),
    ],
)
def test_what_tolerates(toleration: dict[str, Any], good: bool) -> None:
    """As Kubernetes matches them; for five minutes is not for good."""
    assert tolerates(toleration, {"key": "a", "value": "b", "effect": "NoExecute"}) is good
