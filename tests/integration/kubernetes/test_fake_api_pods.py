"""The fake API server keeps what a real one does with pods: what is refused, binding, deletion, eviction, quotas, nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.kubernetes.test_fake_api_objects import path, refusal
from tests.kube.client import MERGE_PATCH, path_of
from tests.kube.cluster import Cluster, pod, wait_until

GPU = "nvidia.com/gpu"


def nowhere(namespace: str) -> str:
    """A node that is not there: the API server binds there all the same, and no kubelet comes in between.

    One for each test: a real cluster removes pods from a node that it has missed for 40 s.
    """
    return f"not-there-{namespace}"


def with_resources(**resources: Any) -> dict[str, Any]:
    obj = pod("p")
    obj["spec"]["containers"][0]["resources"] = resources
    return obj


def bound(cluster: Cluster, name: str, **spec: Any) -> None:
    cluster.client.create("pods", cluster.namespace, pod(name, **spec))
    assert cluster.client.bind(cluster.namespace, name, nowhere(cluster.namespace)).status_code == 201


def metadata(cluster: Cluster, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.client.ok("GET", path(cluster, "pods", name))["metadata"]
    return found


@pytest.mark.parametrize(
    "resources",
    [
        {"requests": {GPU: "1"}},
        {"requests": {GPU: "1"}, "limits": {GPU: "2"}},
        {"limits": {GPU: "500m"}},
        {"limits": {GPU: "-1"}},
        {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
    ],
)
def test_requests_that_are_no_such_thing_are_refused(cluster: Cluster, resources: dict[str, Any]) -> None:
    assert refusal(cluster.client.call("POST", path(cluster, "pods"), with_resources(**resources))) == (422, "Invalid")


def test_gpus_requested_are_the_limit(cluster: Cluster) -> None:
    made = cluster.client.create("pods", cluster.namespace, with_resources(limits={GPU: 2, "cpu": "1"}, requests={"cpu": "500m"}))
    assert made["spec"]["containers"][0]["resources"] == {"limits": {GPU: "2", "cpu": "1"}, "requests": {GPU: "2", "cpu": "500m"}}


def test_a_quantity_that_is_none_is_a_bad_request(cluster: Cluster) -> None:
    assert refusal(cluster.client.call("POST", path(cluster, "pods"), with_resources(limits={GPU: "half"}))) == (400, "BadRequest")


def test_pods_that_can_not_be_are_refused(cluster: Cluster) -> None:
    def refused(**changes: Any) -> bool:
        obj = pod("p")
        obj["spec"] |= changes
        return refusal(cluster.client.call("POST", path(cluster, "pods"), obj)) == (422, "Invalid")

    one = pod("p")["spec"]["containers"][0]
    assert refused(containers=[])
    assert refused(containers=[{**one, "name": "Not A Name"}])
    assert refused(containers=[one, one])
    assert refused(containers=[{"name": "no-image"}])
    assert refused(containers=[{**one, "volumeMounts": [{"name": "none", "mountPath": "/x"}]}])
    assert refused(restartPolicy="Sometimes")
    volume = {"name": "v", "emptyDir": {}}
    assert refused(volumes=[volume, volume])
    assert refused(volumes=[volume], containers=[{**one, "volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "../up"}]}])


def test_what_runs_can_not_be_changed(cluster: Cluster) -> None:
    client = cluster.client
    client.create("pods", cluster.namespace, pod("p"))
    for spec in ({"schedulerName": "other"}, {"nodeName": "n"}, {"hostname": "x"}, {"terminationGracePeriodSeconds": 7, "priority": 3}):
        answer = client.call("PATCH", path(cluster, "pods", "p"), {"spec": spec}, content_type=MERGE_PATCH)
        assert refusal(answer) == (422, "Invalid"), spec
    labelled = client.patch("pods", cluster.namespace, "p", {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "some text"}}})
    assert labelled["metadata"]["labels"]["a"] == "b"


def test_a_new_pod_is_filled_in(cluster: Cluster) -> None:
    made = cluster.client.create("pods", cluster.namespace, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
    spec, status = made["spec"], made["status"]
    assert (status["phase"], status["qosClass"]) == ("Pending", "BestEffort")
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert (spec["schedulerName"], spec["serviceAccountName"], spec["priority"]) == ("default-scheduler", "default", 0)
    lost = {t["key"]: t["tolerationSeconds"] for t in spec["tolerations"]}
    assert lost == {"node.kubernetes.io/not-ready": 300, "node.kubernetes.io/unreachable": 300}


def test_a_pod_is_bound_once(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    client.create("pods", namespace, pod("p"))
    assert client.bind(namespace, "p", nowhere(namespace)).json()["status"] == "Success"
    there = client.ok("GET", path(cluster, "pods", "p"))
    assert there["spec"]["nodeName"] == nowhere(namespace)
    assert [(c["type"], c["status"]) for c in there["status"]["conditions"]] == [("PodScheduled", "True")]
    assert refusal(client.bind(namespace, "p", nowhere(namespace))) == (409, "Conflict")
    assert refusal(client.bind(namespace, "p", "elsewhere")) == (409, "Conflict")
    assert refusal(client.bind(namespace, "none", nowhere(namespace))) == (404, "NotFound")
    assert client.bind(namespace, "p", "").status_code == 500
    old_way = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "q"}, "target": {"kind": "Node", "name": nowhere(namespace)}}
    client.create("pods", namespace, pod("q"))
    assert client.call("POST", f"/api/v1/namespaces/{namespace}/bindings", old_way).status_code == 201


def test_an_unbound_pod_goes_at_once(cluster: Cluster) -> None:
    cluster.client.create("pods", cluster.namespace, pod("p"))
    answer = cluster.client.delete("pods", cluster.namespace, "p")
    assert (answer.status_code, answer.json()["kind"]) == (200, "Pod")
    assert cluster.client.get("pods", cluster.namespace, "p") is None


def test_a_bound_pod_has_its_grace(cluster: Cluster) -> None:
    """Nobody but a kubelet ends it; a second deletion can only bring the end nearer."""
    client, namespace = cluster.client, cluster.namespace
    bound(cluster, "p", terminationGracePeriodSeconds=600)
    first = client.delete("pods", namespace, "p").json()["metadata"]
    assert first["deletionGracePeriodSeconds"] == 600
    client.delete("pods", namespace, "p")
    client.delete("pods", namespace, "p", grace_s=900)
    assert metadata(cluster, "p")["deletionTimestamp"] == first["deletionTimestamp"]
    client.delete("pods", namespace, "p", grace_s=60)
    second = metadata(cluster, "p")
    assert second["deletionGracePeriodSeconds"] == 60
    assert second["deletionTimestamp"] < first["deletionTimestamp"]
    client.create("secrets", namespace, {"metadata": {"name": "s"}})
    assert refusal(client.bind(namespace, "p", nowhere(namespace)))[0] == 409
    assert refusal(client.call("POST", path(cluster, "pods"), pod("p"))) == (409, "AlreadyExists")
    client.delete("pods", namespace, "p", grace_s=0)
    assert client.get("pods", namespace, "p") is None


def test_a_pod_that_is_going_is_not_bound(cluster: Cluster) -> None:
    held = pod("p")
    held["metadata"]["finalizers"] = ["example.org/hold"]
    cluster.client.create("pods", cluster.namespace, held)
    cluster.client.delete("pods", cluster.namespace, "p")
    assert metadata(cluster, "p")["deletionTimestamp"]
    assert refusal(cluster.client.bind(cluster.namespace, "p", nowhere(cluster.namespace))) == (409, "Conflict")
    cluster.client.patch("pods", cluster.namespace, "p", {"metadata": {"finalizers": None}})
    wait_until(lambda: cluster.phase("p") is None, what="it to go")


def test_a_pod_that_has_ended_goes_at_once(cluster: Cluster) -> None:
    bound(cluster, "p", terminationGracePeriodSeconds=600)
    cluster.client.patch("pods", cluster.namespace, "p", {"status": {"phase": "Failed"}}, "status")
    cluster.client.delete("pods", cluster.namespace, "p")
    assert cluster.client.get("pods", cluster.namespace, "p") is None


def test_a_deletion_can_name_the_very_object(cluster: Cluster) -> None:
    """A name that has been given to another pod meanwhile is not hit."""
    client, namespace = cluster.client, cluster.namespace
    old = client.create("pods", namespace, pod("p"))["metadata"]["uid"]
    client.delete("pods", namespace, "p")
    client.create("pods", namespace, pod("p"))
    answer = client.call("DELETE", path(cluster, "pods", "p"), {"preconditions": {"uid": old}})
    assert refusal(answer) == (409, "Conflict")
    new = metadata(cluster, "p")["uid"]
    assert client.call("DELETE", path(cluster, "pods", "p"), {"preconditions": {"uid": new}}).status_code == 200


def test_with_a_body_the_query_of_a_deletion_is_not_looked_at(cluster: Cluster) -> None:
    bound(cluster, "p", terminationGracePeriodSeconds=600)
    cluster.client.call("DELETE", path(cluster, "pods", "p"), {"kind": "DeleteOptions", "apiVersion": "v1"}, query={"gracePeriodSeconds": 0})
    assert metadata(cluster, "p")["deletionGracePeriodSeconds"] == 600
    cluster.client.call("DELETE", path(cluster, "pods", "p"), query={"gracePeriodSeconds": 0})
    assert cluster.client.get("pods", cluster.namespace, "p") is None


def evict(cluster: Cluster, name: str) -> Any:
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name, "namespace": cluster.namespace}}
    return cluster.client.call("POST", path(cluster, "pods", name, "eviction"), body)


def test_an_eviction_is_a_deletion_that_budgets_can_refuse(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    nodes = cluster.nodes(runs=False)
    for name in ("a", "b"):
        client.create("pods", namespace, pod(name, labels={"app": "one"}, gpus=1))
        client.bind(namespace, name, nodes.names[0])
        wait_until(lambda name=name: cluster.phase(name) == "Running", what="it to run")  # type: ignore[misc]
    budget = {"metadata": {"name": "budget"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "one"}}}}
    client.create("poddisruptionbudgets", namespace, budget)
    wait_until(lambda: evict(cluster, "a").status_code == 429, what="the budget to be heeded")
    assert refusal(evict(cluster, "a")) == (429, "TooManyRequests")
    client.delete("poddisruptionbudgets", namespace, "budget")
    assert evict(cluster, "a").status_code == 201
    wait_until(lambda: cluster.phase("a") is None, what="it to go")
    assert cluster.phase("b") == "Running"


def test_a_quota_refuses_what_is_too_much(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    client.create("resourcequotas", namespace, {"metadata": {"name": "q"}, "spec": {"hard": {f"requests.{GPU}": "2"}}})

    def refused() -> Any:
        answer = client.call("POST", path(cluster, "pods"), pod("big", gpus=3), query={"dryRun": "All"})
        return answer if answer.status_code == 403 and "exceeded quota: q" in answer.text else None

    answer = wait_until(refused, what="the quota to be heeded")
    assert refusal(answer) == (403, "Forbidden")
    client.create("pods", namespace, pod("fits", gpus=2))
    # The controller counts what is there a moment later; admission knows at once.
    assert refusal(client.call("POST", path(cluster, "pods"), pod("next", gpus=1))) == (403, "Forbidden")
    bound(cluster, "none", gpus=0)


def test_taints_follow_what_a_node_says(cluster: Cluster) -> None:
    """And what can't be scheduled onto says so by a taint, too."""
    client, name = cluster.client, f"bare-{cluster.namespace}"
    made = client.create("nodes", "", {"metadata": {"name": name}})
    try:
        assert [taint["key"] for taint in made["spec"]["taints"]] == ["node.kubernetes.io/not-ready"]
        ready = {"type": "Ready", "status": "False", "lastHeartbeatTime": None, "lastTransitionTime": None, "reason": "r", "message": "m"}
        client.patch("nodes", "", name, {"status": {"conditions": [ready]}}, "status")
        # (NoExecute comes as well, but not where no node at all is ready: then the controller drives nobody out.)
        wait_until(lambda: "NoSchedule" in ill(cluster, name), what="the taint of a node that is not ready")
        ready["status"] = "True"
        client.patch("nodes", "", name, {"status": {"conditions": [ready], "capacity": {GPU: "4"}, "allocatable": {GPU: "4"}}}, "status")
        wait_until(lambda: taints(cluster, name) == [], what="the taint to go")
        client.patch("nodes", "", name, {"spec": {"unschedulable": True}})
        wait_until(lambda: taints(cluster, name) == ["node.kubernetes.io/unschedulable"], what="the taint of a cordon")
        client.patch("nodes", "", name, {"spec": {"unschedulable": None}})
        wait_until(lambda: taints(cluster, name) == [], what="the taint to go again")
        assert client.get("nodes", "", name)["status"]["allocatable"] == {GPU: "4"}  # type: ignore[index]
    finally:
        client.delete("nodes", "", name)


def ill(cluster: Cluster, name: str) -> set[str]:
    node = cluster.client.ok("GET", path_of("nodes", "", name))
    return {taint["effect"] for taint in node["spec"].get("taints") or [] if taint["key"] == "node.kubernetes.io/not-ready"}


def taints(cluster: Cluster, name: str) -> list[str]:
    node = cluster.client.ok("GET", path_of("nodes", "", name))
    return [taint["key"] for taint in node["spec"].get("taints") or []]


def test_a_no_execute_taint_drives_pods_out(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    nodes = cluster.nodes(runs=False)
    stays = [{"key": "drill", "operator": "Exists"}]
    client.create("pods", namespace, pod("goes", gpus=1))
    client.create("pods", namespace, pod("stays", gpus=1, tolerations=stays))
    for name in ("goes", "stays"):
        client.bind(namespace, name, nodes.names[0])
    wait_until(lambda: {cluster.phase("goes"), cluster.phase("stays")} == {"Running"}, what="both to run")
    client.patch("nodes", "", nodes.names[0], {"spec": {"taints": [{"key": "drill", "effect": "NoExecute"}]}})
    wait_until(lambda: cluster.phase("goes") is None, what="the one that does not tolerate it to go")
    assert cluster.phase("stays") == "Running"
