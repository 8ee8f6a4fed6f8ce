"""The role that is shipped is enough for all that the backend does, and for nothing else: asked of the server itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from gpufair.core.model import Phase
from gpufair.core.units import Millis
from gpufair.service.backends.kubernetes import rights
from gpufair.service.backends.kubernetes.api import RETRY_S, Api
from gpufair.service.backends.kubernetes.asked import asked
from gpufair.service.backends.kubernetes.problems import Forbidden
from gpufair.service.backends.kubernetes.rights import Right
from tests.integration.kubernetes.conftest import Server, server_of
from tests.integration.kubernetes.inside import world
from tests.kube.client import KubeClient
from tests.kube.cluster import Cluster
from tests.unit.deploy.read import BASE, documents

ACCOUNT = "gpufair"

# What an attacker who has the service's token must not be able to do. Namespace "": at the level of the cluster.
REFUSED_HERE = (
    Right("pods", ("deletecollection", "update"), "emptying a namespace at one stroke; changing what runs"),
    Right("pods/exec", ("create", "get"), "a shell in somebody's kernel"),
    Right("pods/attach", ("create",), "the same"),
    Right("pods/portforward", ("create",), "its ports"),
    Right("pods/ephemeralcontainers", ("update", "patch"), "one's own code beside it"),
    Right("pods/eviction", ("create",), "we delete by ourselves"),
    Right("pods/status", ("update", "patch"), "lies about pods"),
    Right(
        "secrets",
        ("list", "watch", "update", "patch", "deletecollection"),
        "all passwords of the namespace by one call",
    ),
    Right("serviceaccounts", ("create", "get", "list", "impersonate"), "other accounts"),
    Right("serviceaccounts/token", ("create",), "their tokens"),
    Right("configmaps", ("get", "list", "create", "update"), "what others configure"),
    Right("services", ("get", "list", "watch", "update", "patch", "delete"), "traffic led astray"),
    Right("events", ("create", "delete"), "lies in the log"),
    Right("persistentvolumeclaims", ("create", "delete"), "storage"),
    Right("resourcequotas", ("create", "update", "delete"), "one's own limits"),
    Right("leases", ("delete", "list", "watch", "patch"), "other leaders", "coordination.k8s.io"),
    Right("roles", ("create", "update", "bind", "escalate"), "more rights", "rbac.authorization.k8s.io"),
    Right("rolebindings", ("create", "update"), "more rights", "rbac.authorization.k8s.io"),
    Right("deployments", ("create", "update", "delete"), "the service itself", "apps"),
)
REFUSED_EVERYWHERE = (
    Right("nodes", ("create", "update", "patch", "delete"), "the machines"),
    Right("nodes/status", ("update", "patch"), "what they say of themselves"),
    Right("nodes/proxy", ("get", "create"), "their kubelets"),
    Right("pods", ("create", "delete", "update", "patch"), "pods of others"),
    Right("pods/binding", ("create",), "pods of others"),
    Right("secrets", ("get", "list", "watch", "create", "delete"), "secrets of others"),
    Right("leases", ("get", "update", "create"), "leaders of others", "coordination.k8s.io"),
    Right("namespaces", ("create", "delete"), "whole namespaces"),
    Right("persistentvolumes", ("create", "delete"), "storage"),
    Right("clusterroles", ("create", "update", "bind", "escalate"), "more rights", "rbac.authorization.k8s.io"),
    Right("clusterrolebindings", ("create", "update"), "more rights", "rbac.authorization.k8s.io"),
)


def grant(server: Server, account: str = ACCOUNT) -> None:
    """What ``deploy/kubernetes/base/role.yaml`` grants, in the test's namespace, under names of this test's own."""
    own = f"{account}-{server.namespace}"
    with KubeClient(server.kubeconfig) as admin:
        for one in documents(BASE / "role.yaml"):
            plural = f"{one['kind'].lower()}s"
            inside = "" if one["kind"].startswith("Cluster") else f"/namespaces/{server.namespace}"
            if "roleRef" in one:
                one["roleRef"]["name"] = own
                one["subjects"] = [{"kind": "ServiceAccount", "name": account, "namespace": server.namespace}]
            one["metadata"] = {"name": own}
            admin.ok("POST", f"/apis/rbac.authorization.k8s.io/v1{inside}/{plural}", one)


def withdraw(server: Server, account: str = ACCOUNT) -> None:
    """What is not in the namespace does not go with it."""
    with KubeClient(server.kubeconfig) as admin:
        for plural in ("clusterrolebindings", "clusterroles"):
            admin.call("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{plural}/{account}-{server.namespace}")


async def allowed(api: Api, table: Iterable[Right], namespace: str) -> dict[tuple[str, str], bool]:
    """What the server says of each (verb, resource)."""
    found = {}
    for right in table:
        resource, _, sub = right.resource.partition("/")
        for verb in right.verbs:
            about = {
                "verb": verb,
                "group": right.group,
                "resource": resource,
                "subresource": sub,
                "namespace": namespace,
            }
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": about},
            }
            answer = await api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
            found[verb, right.resource] = bool(answer["status"]["allowed"])
    return found


async def test_the_server_allows_what_is_listed_and_refuses_the_rest(server: Server, tmp_path: Path) -> None:
    """Asked of its own authorizer, with the token of an account that has the shipped role and nothing else."""
    path = server.account(tmp_path / "account", ACCOUNT)
    grant(server)
    api = await Api.open(path)
    try:
        assert all((await allowed(api, rights.NAMESPACE, server.namespace)).values())
        assert all((await allowed(api, rights.CLUSTER, "")).values())
        for table, namespace in (
            (REFUSED_HERE, server.namespace),
            (REFUSED_EVERYWHERE, ""),
            (REFUSED_EVERYWHERE, "default"),
        ):
            found = await allowed(api, table, namespace)
            assert not [one for one, may in found.items() if may]
    finally:
        await api.close()
        withdraw(server)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/namespaces/{ns}/secrets", None),
        ("DELETE", "/api/v1/namespaces/{ns}/pods", None),
        ("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "x"}}),
        ("GET", "/api/v1/namespaces/kube-system/secrets/x", None),
        ("PATCH", "/api/v1/nodes/x", {"spec": {"unschedulable": True}}),
        ("DELETE", "/api/v1/nodes/x", None),
        ("POST", "/api/v1/namespaces/{ns}/pods/x/eviction", {}),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings", {"metadata": {"name": "x"}}),
        ("POST", "/api/v1/namespaces/{ns}/serviceaccounts", {"metadata": {"name": "x"}}),
    ],
)
async def test_calls_beyond_the_role_are_refused(
    server: Server, tmp_path: Path, method: str, path: str, body: Any
) -> None:
    """Not only on paper; and the text names the right that is missing."""
    account = server.account(tmp_path / "account", ACCOUNT)
    grant(server)
    api = await Api.open(account)
    try:
        with pytest.raises(Forbidden, match="grant the service's role") as caught:
            await api.call(method, path.format(ns=server.namespace), body, content_type=_type(method), retry_s=RETRY_S)
        assert caught.value.kind == "rights"
    finally:
        await api.close()
        withdraw(server)


def _type(method: str) -> str:
    return "application/merge-patch+json" if method == "PATCH" else "application/json"


async def test_without_the_role_the_first_right_that_is_missing_is_named(server: Server, tmp_path: Path) -> None:
    """Whoever forgot to apply it reads what to do."""
    api = await Api.open(server.account(tmp_path / "account", ACCOUNT))
    try:
        with pytest.raises(Forbidden, match="'list' on 'nodes'"):
            await api.call("GET", "/api/v1/nodes")
    finally:
        await api.close()


async def test_the_role_is_enough_for_the_whole_life_of_workloads(
    fake_cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Started, preempted, stopped, adopted by the next service: nothing is refused, and each call is in the table."""
    server, fake = server_of(fake_cluster), fake_cluster.fake
    assert fake is not None
    async with world(tmp_path, server) as it:
        it.kubeconfig = server.account(tmp_path / "account", ACCOUNT)
        grant(server)
        backend = await it.begin()
        await backend.await_node(it.named("n1"), gpus=4)
        await backend.submit("v", gpus=4, min_runtime=Millis(0))
        await backend.await_phase("v", Phase.RUNNING)
        await backend.submit("p", gpus=4, allocation="b")
        await backend.await_phase("p", Phase.RUNNING)
        await it.end()
        backend = await it.begin()
        await backend.await_phase("p", Phase.RUNNING)
        await backend.cancel("p")
        await backend.await_phase("v", Phase.RUNNING)
        await it.end()
    assert "grant the service's role" not in caplog.text
    ours = [(method, path) for method, path, user in fake.requests if user.endswith(f":{ACCOUNT}")]
    assert len(ours) > 20
    for method, path in ours:
        call = asked(method, urlsplit(path).path, dict(parse_qsl(urlsplit(path).query)))
        table = rights.NAMESPACE if call.namespace == server.namespace else rights.CLUSTER
        assert any(right.covers(call) for right in table), call
