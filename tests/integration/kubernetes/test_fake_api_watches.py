"""The fake API server keeps what a real one does with watches and with rights."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.kubernetes.test_fake_api_objects import config, path, refusal
from tests.kube.client import KubeClient
from tests.kube.cluster import Cluster, pod, wait_until


def take(events: Iterator[dict[str, Any]], count: int) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"]["name"]) for event in itertools.islice(events, count)]


def test_a_watch_tells_every_change_from_a_version_on(cluster: Cluster) -> None:
    """Nothing is missed between the list and the watch."""
    client, namespace = cluster.client, cluster.namespace
    client.create("secrets", namespace, {"metadata": {"name": "before"}})
    version = client.ok("GET", path(cluster, "secrets"))["metadata"]["resourceVersion"]
    client.create("secrets", namespace, {"metadata": {"name": "between"}})
    with client.watch("secrets", namespace, resourceVersion=version, timeoutSeconds=20) as events:
        assert take(events, 1) == [("ADDED", "between")]
        client.patch("secrets", namespace, "between", {"metadata": {"labels": {"a": "b"}}})
        client.delete("secrets", namespace, "between")
        client.create("secrets", namespace, {"metadata": {"name": "after"}})
        assert take(events, 3) == [("MODIFIED", "between"), ("DELETED", "between"), ("ADDED", "after")]


def test_a_watch_without_a_version_begins_with_what_is_there(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    for name in ("a", "b"):
        client.create("configmaps", namespace, config(name, {"mine": "1"}))
    with client.watch("configmaps", namespace, labelSelector="mine=1", timeoutSeconds=20) as events:
        assert sorted(take(events, 2)) == [("ADDED", "a"), ("ADDED", "b")]
        client.create("configmaps", namespace, config("c", {"mine": "1"}))
        assert take(events, 1) == [("ADDED", "c")]


def test_versions_only_grow(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    with client.watch("pods", namespace, timeoutSeconds=20) as events:
        client.create("pods", namespace, pod("p"))
        client.bind(namespace, "p", "some-node")
        client.delete("pods", namespace, "p")
        client.delete("pods", namespace, "p", grace_s=0)
        seen = [(event["type"], event["object"]) for event in itertools.islice(events, 5)]
    # Created, bound, told to go, told to go at once, gone.
    assert [kind for kind, _ in seen] == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
    assert [obj["metadata"].get("deletionGracePeriodSeconds") for _, obj in seen] == [None, None, 30, 0, 0]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in seen]
    assert versions == sorted(set(versions))
    assert "nodeName" not in seen[0][1]["spec"]
    assert seen[4][1]["spec"]["nodeName"] == "some-node"


def test_what_leaves_a_selection_is_deleted_for_its_watch(cluster: Cluster) -> None:
    client, namespace = cluster.client, cluster.namespace
    with client.watch("pods", namespace, fieldSelector="spec.nodeName=", timeoutSeconds=20) as events:
        client.create("pods", namespace, pod("p"))
        client.create("pods", namespace, pod("q"))
        client.bind(namespace, "p", "some-node")
        client.patch("pods", namespace, "p", {"metadata": {"labels": {"a": "b"}}})
        client.delete("pods", namespace, "q")
        # A pod that goes at once is marked as going before.
        assert take(events, 5) == [("ADDED", "p"), ("ADDED", "q"), ("DELETED", "p"), ("MODIFIED", "q"), ("DELETED", "q")]
    with client.watch("pods", namespace, labelSelector="in=yes", timeoutSeconds=20) as events:
        client.patch("pods", namespace, "p", {"metadata": {"labels": {"in": "yes"}}})
        client.patch("pods", namespace, "p", {"metadata": {"labels": {"in": "no"}}})
        assert take(events, 2) == [("ADDED", "p"), ("DELETED", "p")]


def test_a_watch_ends_in_time_with_a_bookmark_before(cluster: Cluster) -> None:
    """By which the next one begins where nothing is missed, however quiet it was."""
    client, namespace = cluster.client, cluster.namespace
    # A real server promises no bookmark: it has none where nothing happened meanwhile, and one that comes too late is dropped.
    for attempt in range(1 if cluster.fake else 5):
        client.delete("pods", namespace, "p")
        version = client.ok("GET", path(cluster, "pods"))["metadata"]["resourceVersion"]
        with client.watch("pods", namespace, resourceVersion=version, timeoutSeconds=4 + attempt, allowWatchBookmarks="true") as events:
            client.create("pods", namespace, pod("p"))
            seen = [*events]
        if len(seen) > 1:
            break
    assert [event["type"] for event in seen] in (["ADDED", "BOOKMARK"], ["ADDED", "BOOKMARK", "BOOKMARK"])
    marked = seen[1]["object"]
    assert (marked["kind"], set(marked["metadata"]) - {"creationTimestamp"}) == ("Pod", {"resourceVersion"})
    assert int(marked["metadata"]["resourceVersion"]) >= int(seen[0]["object"]["metadata"]["resourceVersion"])
    with client.watch("pods", namespace, resourceVersion=version, timeoutSeconds=3) as events:
        assert [event["type"] for event in events] == ["ADDED"], "no bookmarks unasked"


def test_a_version_that_is_forgotten_is_an_error_in_the_stream(cluster: Cluster) -> None:
    """As after a restart of the API server, which forgets what was before."""
    if not cluster.restartable:
        pytest.skip("this API server is not ours to restart")
    client, namespace = cluster.client, cluster.namespace
    version = client.ok("GET", path(cluster, "pods"))["metadata"]["resourceVersion"]
    with client.watch("pods", namespace, resourceVersion=version, timeoutSeconds=60) as events:
        client.create("pods", namespace, pod("p"))
        assert take(events, 1) == [("ADDED", "p")]
        cluster.restart_api(0.1)
        with pytest.raises(httpx.TransportError):
            next(events)
    wait_until(lambda: cluster.phase("p") == "Pending", 60, "it to answer")
    with client.watch("pods", namespace, resourceVersion=version, timeoutSeconds=20) as events:
        event = next(events)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    again = client.ok("GET", path(cluster, "pods"))
    assert [one["metadata"]["name"] for one in again["items"]] == ["p"]
    with client.watch("pods", namespace, resourceVersion=again["metadata"]["resourceVersion"], timeoutSeconds=20) as events:
        client.delete("pods", namespace, "p")
        assert take(events, 2) == [("MODIFIED", "p"), ("DELETED", "p")]


def test_who_may_what(cluster: Cluster) -> None:
    """A token is good for what its roles name, in the namespaces they are bound in, and for nothing else."""
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "create"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["one"]},
        {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    ]
    everywhere = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}]
    with KubeClient(cluster.account("weak", rules, everywhere)) as weak:

        def code(method: str, where: str, body: Any = None) -> int:
            return weak.call(method, where, body).status_code

        wait_until(lambda: code("GET", path(cluster, "pods")) == 200, what="the roles to be heeded")
        wait_until(lambda: code("GET", "/api/v1/nodes") == 200, what="the roles to be heeded")
        assert code("POST", path(cluster, "pods"), pod("p")) == 201
        assert weak.bind(cluster.namespace, "p", "some-node").status_code == 201
        assert refusal(weak.call("DELETE", path(cluster, "pods", "p"))) == (403, "Forbidden")
        assert refusal(weak.call("GET", path(cluster, "pods"), query={"watch": "1"})) == (403, "Forbidden")
        assert refusal(weak.call("PATCH", path(cluster, "pods", "p", "status"), {}, content_type="application/merge-patch+json"))[0] == 403
        assert refusal(weak.call("GET", "/api/v1/pods")) == (403, "Forbidden")
        assert refusal(weak.call("GET", "/api/v1/namespaces/default/pods")) == (403, "Forbidden")
        assert refusal(weak.call("GET", path(cluster, "secrets"))) == (403, "Forbidden")
        assert refusal(weak.call("GET", path(cluster, "secrets", "two"))) == (403, "Forbidden")
        assert refusal(weak.call("GET", path(cluster, "secrets", "one"))) == (404, "NotFound")
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}}
        for verb, wanted in (("create", True), ("delete", False)):
            review["spec"] = {"resourceAttributes": {"verb": verb, "resource": "pods", "namespace": cluster.namespace}}
            answer = weak.ok("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
            assert answer["status"]["allowed"] is wanted


def test_a_wrong_token_is_nobody(cluster: Cluster) -> None:
    with KubeClient(cluster.kubeconfig_of("no-such-token", cluster.folder / "wrong")) as nobody:
        assert refusal(nobody.call("GET", path(cluster, "pods"))) == (401, "Unauthorized")
