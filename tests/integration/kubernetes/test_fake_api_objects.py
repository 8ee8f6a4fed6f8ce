"""The fake API server keeps what a real one does: objects, versions, selectors, pages, patches. Each test runs against both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.kube.client import MERGE_PATCH, path_of
from tests.kube.cluster import Cluster, pod, wait_until

CONFIG = {"apiVersion": "v1", "kind": "ConfigMap"}
SHORT_NAMES = "abcdefg"


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """(code, reason) of a Status, whose parts agree with each other."""
    status = answer.json()
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", answer.status_code), status
    assert status["message"]
    return answer.status_code, status["reason"]


def config(name: str, labels: Mapping[str, str] | None = None, **data: str) -> dict[str, Any]:
    return {**CONFIG, "metadata": {"name": name, "labels": dict(labels or {})}, "data": data}


def path(cluster: Cluster, plural: str, name: str = "", sub: str = "") -> str:
    return path_of(plural, cluster.namespace, name, sub)


def test_an_object_is_created_once(cluster: Cluster) -> None:
    made = cluster.client.create("configmaps", cluster.namespace, config("one", a="1"))
    metadata = made["metadata"]
    assert (metadata["name"], metadata["namespace"], made["data"]) == ("one", cluster.namespace, {"a": "1"})
    assert metadata["uid"]
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["creationTimestamp"].endswith("Z")
    assert refusal(cluster.client.call("POST", path(cluster, "configmaps"), config("one"))) == (409, "AlreadyExists")
    assert cluster.client.get("configmaps", cluster.namespace, "one") == made


def test_a_name_can_be_left_to_the_server(cluster: Cluster) -> None:
    names = [
        cluster.client.create("configmaps", cluster.namespace, {**CONFIG, "metadata": {"generateName": "some-"}})["metadata"]["name"]
        for _ in range(3)
    ]
    assert len(set(names)) == 3
    assert all(name.startswith("some-") and len(name) == 10 for name in names)


def test_what_is_not_there_is_not_found(cluster: Cluster) -> None:
    client = cluster.client
    assert refusal(client.call("GET", path(cluster, "pods", "none"))) == (404, "NotFound")
    assert refusal(client.call("DELETE", path(cluster, "pods", "none"))) == (404, "NotFound")
    assert refusal(client.call("PATCH", path(cluster, "pods", "none"), {}, content_type=MERGE_PATCH)) == (404, "NotFound")
    assert refusal(client.call("PUT", path(cluster, "configmaps", "none"), config("none"))) == (404, "NotFound")
    assert refusal(client.call("POST", path_of("pods", "no-such-namespace"), pod("p"))) == (404, "NotFound")
    assert client.list("pods", "no-such-namespace") == []
    assert client.call("GET", "/api/v1/namespaces/default/nonsense").status_code == 404


@pytest.mark.parametrize("name", ["Big", "under_score", "-dash", "a" * 254])
def test_a_bad_name_is_refused(cluster: Cluster, name: str) -> None:
    assert refusal(cluster.client.call("POST", path(cluster, "pods"), pod(name))) == (422, "Invalid")


def test_a_bad_label_is_refused(cluster: Cluster) -> None:
    for labels in ({"k": "two words"}, {"k": "x" * 64}, {"two words": "v"}, {"k": "-x"}):
        assert refusal(cluster.client.call("POST", path(cluster, "configmaps"), config("c", labels))) == (422, "Invalid"), labels


def test_a_write_from_an_older_version_is_refused(cluster: Cluster) -> None:
    client = cluster.client
    old = client.create("configmaps", cluster.namespace, config("c", a="1"))
    new = client.ok("PUT", path(cluster, "configmaps", "c"), {**old, "data": {"a": "2"}})
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    assert refusal(client.call("PUT", path(cluster, "configmaps", "c"), {**old, "data": {"a": "3"}})) == (409, "Conflict")
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"a": "4"}}
    assert refusal(client.call("PATCH", path(cluster, "configmaps", "c"), stale, content_type=MERGE_PATCH)) == (409, "Conflict")
    other = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert refusal(client.call("PATCH", path(cluster, "configmaps", "c"), other, content_type=MERGE_PATCH)) == (422, "Invalid")
    assert refusal(client.call("PUT", path(cluster, "configmaps", "c"), {**config("c"), "metadata": {"name": "c", **other["metadata"]}})) == (409, "Conflict")
    without = client.ok("PUT", path(cluster, "configmaps", "c"), config("c", a="5"))
    assert without["data"] == {"a": "5"}
    assert without["metadata"]["uid"] == old["metadata"]["uid"]


def test_a_write_that_changes_nothing_makes_no_version(cluster: Cluster) -> None:
    old = cluster.client.create("configmaps", cluster.namespace, config("c", a="1"))
    assert cluster.client.patch("configmaps", cluster.namespace, "c", {"data": {"a": "1"}}) == old


def test_a_lease_is_written_by_version_only(cluster: Cluster) -> None:
    """Leaders rest on it: who has not read the newest can't write."""
    client = cluster.client
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}
    made = client.ok("PUT", path(cluster, "leases", "l"), lease)
    assert refusal(client.call("PUT", path(cluster, "leases", "l"), lease)) == (422, "Invalid")
    taken = client.ok("PUT", path(cluster, "leases", "l"), {**made, "spec": {"holderIdentity": "b"}})
    assert taken["spec"]["holderIdentity"] == "b"
    assert refusal(client.call("PUT", path(cluster, "leases", "l"), {**made, "spec": {"holderIdentity": "c"}})) == (409, "Conflict")


def test_status_changes_by_its_own_path_only(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    made = client.create("pods", namespace, {**pod("p"), "status": {"phase": "Succeeded"}})
    assert made["status"]["phase"] == "Pending"
    assert client.patch("pods", namespace, "p", {"status": {"phase": "Running"}})["status"]["phase"] == "Pending"
    both = {"spec": {"nodeName": "elsewhere"}, "status": {"phase": "Running", "message": "up"}}
    changed = client.patch("pods", namespace, "p", both, "status")
    assert changed["status"]["phase"] == "Running"
    assert changed["status"]["message"] == "up"
    assert "nodeName" not in changed["spec"]
    assert client.patch("pods", namespace, "p", {"status": {"message": None}}, "status")["status"].get("message") is None


def test_label_selectors(cluster: Cluster) -> None:
    for name, labels in (("a", {"team": "x", "kind": "t"}), ("b", {"team": "y"}), ("c", {}), ("d", {"team": "x"})):
        cluster.client.create("secrets", cluster.namespace, {"metadata": {"name": name, "labels": {"mine": "1", **labels}}})

    def chosen(selector: str) -> str:
        return "".join(one["metadata"]["name"] for one in cluster.client.list("secrets", cluster.namespace, labelSelector=f"mine=1,{selector}"))

    assert chosen("team=x") == "ad"
    assert chosen("team==x,kind") == "a"
    assert chosen("team!=x") == "bc"
    assert chosen("team in (x,y)") == "abd"
    assert chosen("team notin (x)") == "bc"
    assert chosen("!team") == "c"
    assert chosen("team,!kind") == "bd"
    assert refusal(cluster.client.call("GET", path(cluster, "secrets"), query={"labelSelector": "a=b=c"}))[0] == 400


def test_field_selectors(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    client.create("pods", namespace, pod("ours"))
    client.create("pods", namespace, {**pod("theirs"), "spec": {**pod("theirs")["spec"], "schedulerName": "other"}})
    client.create("pods", namespace, pod("bound"))
    client.bind(namespace, "bound", "some-node")
    client.patch("pods", namespace, "bound", {"status": {"phase": "Running"}}, "status")

    def chosen(selector: str) -> list[str]:
        return [one["metadata"]["name"] for one in client.list("pods", namespace, fieldSelector=selector)]

    assert chosen("metadata.name=ours") == ["ours"]
    assert chosen("spec.nodeName=some-node") == ["bound"]
    assert chosen("spec.nodeName!=") == ["bound"]
    assert chosen("spec.nodeName=") == ["ours", "theirs"]
    assert chosen("status.phase=Running") == ["bound"]
    assert chosen("status.phase!=Running,spec.schedulerName=gpufair") == ["ours"]
    assert chosen(f"metadata.namespace={namespace},metadata.name!=bound") == ["ours", "theirs"]
    assert refusal(client.call("GET", path(cluster, "pods"), query={"fieldSelector": "spec.priority=0"}))[0] == 400
    assert refusal(client.call("GET", path(cluster, "configmaps"), query={"fieldSelector": "data.a=1"}))[0] == 400


def test_a_list_comes_in_pages_of_one_moment(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    for name in SHORT_NAMES:
        client.create("secrets", namespace, {"metadata": {"name": name, "labels": {"mine": "1"}}})
    query = {"labelSelector": "mine=1", "limit": 3}
    first = client.ok("GET", path(cluster, "secrets"), query=query)
    client.create("secrets", namespace, {"metadata": {"name": "aa", "labels": {"mine": "1"}}})
    client.delete("secrets", namespace, "g")
    second = client.ok("GET", path(cluster, "secrets"), query={**query, "continue": first["metadata"]["continue"]})
    third = client.ok("GET", path(cluster, "secrets"), query={**query, "continue": second["metadata"]["continue"]})
    assert "continue" not in third["metadata"] or not third["metadata"]["continue"]
    names = [one["metadata"]["name"] for page in (first, second, third) for one in page["items"]]
    assert names == [*SHORT_NAMES]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {first["metadata"]["resourceVersion"]}
    assert refusal(client.call("GET", path(cluster, "secrets"), query={"limit": 3, "continue": "nonsense"}))[0] in {400, 410}


def test_three_kinds_of_patches(cluster: Cluster) -> None:
    client = cluster.client
    client.create("configmaps", cluster.namespace, config("c", {"x": "1"}, a="1", b="2"))
    where = path(cluster, "configmaps", "c")
    merged = client.ok("PATCH", where, {"metadata": {"labels": {"y": "2"}}, "data": {"a": None}}, content_type=MERGE_PATCH)
    assert (merged["metadata"]["labels"], merged["data"]) == ({"x": "1", "y": "2"}, {"b": "2"})
    steps = [{"op": "test", "path": "/data/b", "value": "2"}, {"op": "replace", "path": "/data/b", "value": "3"}, {"op": "remove", "path": "/metadata/labels/x"}]
    stepped = client.ok("PATCH", where, steps, content_type="application/json-patch+json")
    assert (stepped["metadata"]["labels"], stepped["data"]) == ({"y": "2"}, {"b": "3"})
    failed = client.call("PATCH", where, [{"op": "test", "path": "/data/b", "value": "2"}], content_type="application/json-patch+json")
    assert failed.status_code == 422
    assert client.call("PATCH", where, {}, content_type="application/json").status_code == 415
    condition = {"type": "Ready", "status": "True"}
    client.create("pods", cluster.namespace, pod("p"))
    strategic = "application/strategic-merge-patch+json"
    for kind in ("One", "Two", "One"):
        patch = {"status": {"conditions": [{**condition, "type": kind, "reason": "Because"}]}}
        client.ok("PATCH", path(cluster, "pods", "p", "status"), patch, content_type=strategic)
    there = client.ok("GET", path(cluster, "pods", "p"))
    assert sorted(c["type"] for c in there["status"]["conditions"]) == ["One", "Two"]


def test_secrets_are_kept_as_they_should(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    made = client.create("secrets", namespace, {"metadata": {"name": "s"}, "stringData": {"a": "hello"}})
    assert (made["data"], made["type"], "stringData" in made) == ({"a": "aGVsbG8="}, "Opaque", False)
    assert refusal(client.call("POST", path(cluster, "secrets"), {"metadata": {"name": "t"}, "data": {"bad key": ""}})) == (422, "Invalid")
    changed = client.call("PATCH", path(cluster, "secrets", "s"), {"type": "other"}, content_type=MERGE_PATCH)
    assert refusal(changed) == (422, "Invalid")


def test_owners_take_what_is_theirs_along(cluster: Cluster) -> None:
    """A pod's secret goes with it; of two owners the last one counts; a forged owner is none."""
    client, namespace = cluster.client, cluster.namespace
    owners = []
    for name in ("first", "second"):
        uid = client.create("pods", namespace, pod(name))["metadata"]["uid"]
        owners.append({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid})
    client.create("secrets", namespace, {"metadata": {"name": "of-one", "ownerReferences": owners[:1]}})
    client.create("secrets", namespace, {"metadata": {"name": "of-both", "ownerReferences": owners}})
    forged = {**owners[0], "uid": "00000000-0000-0000-0000-000000000001"}
    client.create("secrets", namespace, {"metadata": {"name": "forged", "ownerReferences": [forged]}})
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": forged["uid"], "controller": True}
    client.create("pods", namespace, pod("of-no-daemons") | {"metadata": {"name": "of-no-daemons", "ownerReferences": [daemons]}})
    client.delete("pods", namespace, "first")
    wait_until(lambda: client.get("pods", namespace, "of-no-daemons") is None, what="the pod of no DaemonSet to go")
    wait_until(lambda: client.get("secrets", namespace, "of-one") is None, what="the secret of one to go")
    wait_until(lambda: client.get("secrets", namespace, "forged") is None, what="the secret of nobody to go")
    assert client.get("secrets", namespace, "of-both") is not None
    client.delete("pods", namespace, "second")
    wait_until(lambda: client.get("secrets", namespace, "of-both") is None, what="the secret of both to go")
    broken = {"metadata": {"name": "broken", "ownerReferences": [{"kind": "Pod", "name": "x"}]}}
    assert refusal(client.call("POST", path(cluster, "secrets"), broken)) == (422, "Invalid")


def test_a_selection_is_deleted_at_once(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        cluster.client.create("configmaps", cluster.namespace, config(name, {"go": "yes" if name != "b" else "no"}))
    cluster.client.ok("DELETE", path(cluster, "configmaps"), query={"labelSelector": "go=yes"})
    left = [one["metadata"]["name"] for one in cluster.client.list("configmaps", cluster.namespace, labelSelector="go")]
    assert left == ["b"]


def test_a_finaliser_holds_an_object_back(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    client.create("configmaps", namespace, {**CONFIG, "metadata": {"name": "held", "finalizers": ["example.org/hold"]}})
    assert client.delete("configmaps", namespace, "held").status_code == 200
    held = client.get("configmaps", namespace, "held")
    assert held is not None
    assert held["metadata"]["deletionTimestamp"]
    client.patch("configmaps", namespace, "held", {"metadata": {"finalizers": None}})
    assert client.get("configmaps", namespace, "held") is None


def test_a_namespace_that_ends_takes_nothing_new(cluster: Cluster) -> None:
    client, name = cluster.client, f"{cluster.namespace}-2"
    client.create("namespaces", "", {"metadata": {"name": name}})
    held = {**CONFIG, "metadata": {"name": "held", "finalizers": ["example.org/hold"]}}
    client.create("configmaps", name, held)
    client.create("configmaps", name, config("loose"))
    client.delete("namespaces", "", name)
    wait_until(lambda: client.get("configmaps", name, "loose") is None, 40, "what is in it to go")
    assert refusal(client.call("POST", path_of("configmaps", name), config("late"))) == (403, "Forbidden")
    client.patch("configmaps", name, "held", {"metadata": {"finalizers": None}})
    wait_until(lambda: client.get("namespaces", "", name) is None, 40, "it to go")
