"""What `deploy/` ships is taken by an API server: each object is sent as a dry run, which checks it and keeps nothing.

What a server does not know (a kind of a newer Kubernetes, or of an operator that it lacks) cannot be checked there: such
objects are listed here, and anything else that is not known is a fault.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from gpufair.service.lifecycle.leading_pod import LABEL, Pod
from tests.integration.kubernetes.conftest import Server
from tests.kube.client import KubeClient
from tests.kube.kubeconfig import read_kubeconfig
from tests.kube.resources import BY_PLURAL
from tests.unit.deploy.read import DEPLOY, Object, base, documents

# Kinds of operators, which a bare Kubernetes does not have.
OPERATORS = {"monitoring.coreos.com", "cert-manager.io", "kubernetes.dask.org"}
# And those that came with a later Kubernetes than the oldest that is tested: (group, version) and the minor release.
NEWER = {("policy", "v1"): 21}


def shipped() -> list[Object]:
    """All plain objects; the ConfigMap as kustomize makes it."""
    config = DEPLOY / "kubernetes" / "base" / "config"
    data = {path.name: path.read_text(encoding="utf-8") for path in config.iterdir()}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gpufair-config"}, "data": data}
    places = [DEPLOY / "kubernetes" / "components", DEPLOY / "kubernetes" / "others", DEPLOY / "kubernetes" / "upgrade", DEPLOY / "dask"]
    files = [path for place in places for path in sorted(place.rglob("*.yaml")) if path.name != "kustomization.yaml"]
    return [*base(), made, *(one for path in files for one in documents(path))]


def place(obj: Object) -> tuple[str, str]:
    """Group and version."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    return group, version


def known(client: KubeClient, group: str, version: str) -> dict[str, Any] | None:
    """Kinds that the server has there, and their plural and whether they are in a namespace; None: no such group."""
    answer = client.call("GET", f"/apis/{group}/{version}" if group else f"/api/{version}")
    if answer.status_code == 404:
        return None
    return {one["kind"]: one for one in answer.json()["resources"] if "/" not in one["name"]}


def unchecked(server: Server, client: KubeClient, obj: Object) -> str:
    """Why this server cannot check an object; "": it can, and takes it."""
    group, version = place(obj)
    if server.fake is not None and obj["kind"] not in {one.kind for one in BY_PLURAL.values()}:
        return "a kind that the fake one lacks"
    kinds = known(client, group, version)
    if kinds is None or obj["kind"] not in kinds:
        return "an operator's" if group in OPERATORS else f"newer: {obj['apiVersion']}"
    found = kinds[obj["kind"]]
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    sent = {**obj, "metadata": dict(obj["metadata"])}
    if found["namespaced"]:
        sent["metadata"]["namespace"] = server.namespace
        root += f"/namespaces/{server.namespace}"
    elif obj["kind"] == "Namespace":
        sent["metadata"]["name"] = f"{server.namespace}-dry"
    answer = client.call("POST", f"{root}/{found['name']}", sent, query={"dryRun": "All"})
    assert answer.status_code == 201, f"{obj['kind']} {obj['metadata']['name']}: {answer.text}"
    return ""


def test_each_object_is_taken(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with KubeClient(server.kubeconfig) as client:
        why = {f"{obj['kind']} {obj['metadata']['name']}": unchecked(server, client, obj) for obj in shipped()}
        version = client.ok("GET", "/version")
    minor = int(version["minor"].rstrip("+"))
    newer = {name: said for name, said in why.items() if said.startswith("newer")}
    allowed = {f"newer: {group}/{version}" for (group, version), since in NEWER.items() if minor < since}
    assert set(newer.values()) <= allowed, "this server should know it"
    assert len([name for name, said in why.items() if not said]) >= (8 if server.fake else 16)
    with capsys.disabled():
        left = ", ".join(f"{name} ({said})" for name, said in why.items() if said and not server.fake)
        if left:
            print(f"\n{version['gitVersion']} did not check: {left}")


def test_a_budget_for_older_servers_is_taken(server: Server) -> None:
    """`components/before-1.21` asks for the version that a 1.20 has; nothing else of the object differs there."""
    (budget,) = [one for one in base() if one["kind"] == "PodDisruptionBudget"]
    with KubeClient(server.kubeconfig) as client:
        if known(client, "policy", "v1beta1") is None:
            pytest.skip("this server has no policy/v1beta1 any more")
        path = f"/apis/policy/v1beta1/namespaces/{server.namespace}/poddisruptionbudgets"
        sent = budget | {"apiVersion": "policy/v1beta1"}
        answer = client.call("POST", path, sent, query={"dryRun": "All"})
        assert answer.status_code == 201, answer.text


def test_a_slip_would_be_found(server: Server) -> None:
    """A dry run does check: else all of the above would say nothing."""
    (deployment,) = [one for one in base() if one["kind"] == "Deployment"]
    if server.fake is not None:
        pytest.skip("the fake API server looks into pods only")
    spec = deployment["spec"] | {"selector": {"matchLabels": {"no": "such"}}}
    with KubeClient(server.kubeconfig) as client:
        path = f"/apis/apps/v1/namespaces/{server.namespace}/deployments"
        answer = client.call("POST", path, deployment | {"spec": spec}, query={"dryRun": "All"})
    assert answer.status_code == 422


async def test_the_leader_labels_its_pod_with_the_shipped_role(server: Server, tmp_path: Path) -> None:
    """What the Service selects by has to come from the service's own account, with its rights alone."""
    if server.fake is not None:
        pytest.skip("a service account speaks TLS, which the fake API server does not")
    (role,) = [one for one in base() if one["kind"] == "Role"]
    access = read_kubeconfig(server.cluster.account("gpufair", role["rules"], path=tmp_path / "kubeconfig"))
    assert access.context is not None
    (tmp_path / "token").write_text(access.headers["Authorization"].removeprefix("Bearer "))
    certificates = access.context.get_ca_certs(binary_form=True)
    (tmp_path / "ca.crt").write_text("".join(ssl.DER_cert_to_PEM_cert(one) for one in certificates))
    with KubeClient(server.kubeconfig) as client:
        container = {"name": "service", "image": "x"}
        client.create("pods", server.namespace, {"metadata": {"name": "leader"}, "spec": {"containers": [container]}})
        for value in ("false", "true"):
            await Pod("leader", server.namespace, access.url, tmp_path).label(value)
            pod = client.get("pods", server.namespace, "leader")
            assert pod is not None
            assert pod["metadata"]["labels"] == {LABEL: value}
