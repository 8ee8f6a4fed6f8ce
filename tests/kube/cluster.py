"""What a test of the Kubernetes backend gets: a namespace of its own, and nodes, in a fake cluster or a real one."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from tests.kube.client import KubeClient, path_of
from tests.kube.control_plane import ControlPlane
from tests.kube.fake_api import FakeApi
from tests.kube.fake_node import FakeNodes
from tests.kube.kubeconfig import read_kubeconfig, write_kubeconfig

Found = TypeVar("Found")

TEST_LABEL = "gpufair-test"
"""On every node of a test, with its namespace as value: nodes of other tests may be in the same cluster."""

_RBAC = "rbac.authorization.k8s.io"


@dataclass
class Cluster:
    """``client`` is an administrator's. ``fake`` is there where the cluster is one: for faults. ``plane`` is ours to kill."""

    kind: Literal["fake", "real"]
    kubeconfig: Path
    client: KubeClient
    namespace: str
    folder: Path
    fake: FakeApi | None = None
    plane: ControlPlane | None = None
    _nodes: list[FakeNodes] = field(default_factory=list)
    _cluster_roles: list[str] = field(default_factory=list)

    @property
    def selector(self) -> dict[str, str]:
        """The labels of this test's nodes."""
        return {TEST_LABEL: self.namespace}

    def nodes(self, count: int = 1, *, prefix: str = "node", labels: Mapping[str, str] | None = None, **options: Any) -> FakeNodes:
        """Nodes of unique names that are ready and labelled as this test's; see FakeNodes. They end with the test."""
        names = [f"{prefix}-{self.namespace.removeprefix('t-')}-{len(self._nodes)}-{place}" for place in range(count)]
        folder = self.folder / f"nodes-{len(self._nodes)}"
        made = FakeNodes(self.kubeconfig, folder, names=names, labels={**self.selector, **(labels or {})}, **options)
        self._nodes.append(made)
        wait_until(lambda: all(self._usable(name) for name in names), 30.0, f"the taints of {names} to go")
        return made

    def _usable(self, name: str) -> bool:
        node = self.client.get("nodes", "", name)
        return node is not None and not any("not-ready" in taint["key"] for taint in node["spec"].get("taints") or [])

    def account(
        self,
        name: str,
        rules: Sequence[Mapping[str, Any]],
        cluster_rules: Sequence[Mapping[str, Any]] = (),
        path: Path | None = None,
    ) -> Path:
        """The kubeconfig of a new ServiceAccount that may do what these rules of RBAC say, in its namespace and everywhere."""
        subject = {"kind": "ServiceAccount", "name": name, "namespace": self.namespace}
        self.client.create("serviceaccounts", self.namespace, {"metadata": {"name": name}})
        self._grant("Role", name, self.namespace, rules, subject)
        if cluster_rules:
            whole = f"{self.namespace}-{name}"
            self._grant("ClusterRole", whole, "", cluster_rules, subject)
            self._cluster_roles.append(whole)
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None, "expirationSeconds": 7200}}
        answer = self.client.ok("POST", path_of("serviceaccounts", self.namespace, name, "token"), request)
        return self.kubeconfig_of(answer["status"]["token"], path or self.folder / f"{name}.kubeconfig")

    def kubeconfig_of(self, token: str, path: Path) -> Path:
        """A kubeconfig with this token."""
        if self.fake is not None:
            return self.fake.kubeconfig(path, token, self.namespace)
        authority = path.with_suffix(".crt")
        access = read_kubeconfig(self.kubeconfig)
        assert access.authority is not None, f"{self.kubeconfig} names no certificate authority"
        authority.write_text(access.authority)
        return write_kubeconfig(path, access.url, token, ca_file=authority, namespace=self.namespace)

    def _grant(self, kind: str, name: str, namespace: str, rules: Sequence[Mapping[str, Any]], subject: Mapping[str, str]) -> None:
        plural = f"{kind.lower()}s"
        self.client.create(plural, namespace, {"metadata": {"name": name}, "rules": [*rules]})
        ref = {"apiGroup": _RBAC, "kind": kind, "name": name}
        self.client.create(f"{kind.lower()}bindings", namespace, {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]})

    def restart_api(self, down_s: float = 0.0) -> None:
        """All connections break; for ``down_s`` seconds and as long as it takes to come up none is made."""
        if self.fake is not None:
            self.fake.restart(down_s)
        else:
            assert self.plane is not None, "this API server is not ours to restart"
            self.plane.restart_api(down_s)

    @property
    def restartable(self) -> bool:
        return self.fake is not None or self.plane is not None

    def phase(self, pod: str) -> str | None:
        """None where there is no such pod."""
        there = self.client.get("pods", self.namespace, pod)
        return None if there is None else str(there["status"]["phase"])

    def close(self) -> None:
        """End the nodes' processes, and take away what would stay in a shared cluster."""
        for nodes in self._nodes:
            nodes.close()
        if self.kind == "real":
            for name in self._cluster_roles:
                self.client.delete("clusterrolebindings", "", name)
                self.client.delete("clusterroles", "", name)
            for nodes in self._nodes:
                for name in nodes.names:
                    self.client.delete("nodes", "", name)
                    self.client.delete("leases", "kube-node-lease", name)
            for pod in self.client.list("pods", self.namespace):
                self.client.delete("pods", self.namespace, pod["metadata"]["name"], grace_s=0)
            self.client.delete("namespaces", "", self.namespace)
        self.client.close()


def make_cluster(
    kind: Literal["fake", "real"], kubeconfig: Path, folder: Path, *, fake: FakeApi | None = None, plane: ControlPlane | None = None
) -> Cluster:
    """With a new namespace in which pods can be created."""
    namespace = f"t-{secrets.token_hex(4)}"
    client = KubeClient(kubeconfig)
    client.create("namespaces", "", {"metadata": {"name": namespace}})
    probe = pod("probe")
    # Until its default ServiceAccount is there, and in old releases the token of that.
    wait_until(
        lambda: client.call("POST", path_of("pods", namespace), probe, query={"dryRun": "All"}).is_success,
        30.0,
        f"the default ServiceAccount of {namespace}",
    )
    return Cluster(kind, kubeconfig, client, namespace, folder, fake, plane)


def wait_until(true: Callable[[], Found | None], timeout_s: float = 20.0, what: str = "") -> Found:
    """Wait for a true answer; return it."""
    deadline = time.monotonic() + timeout_s
    while not (value := true()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.03)
    return value


def pod(
    name: str,
    *command: str,
    gpus: int | str = 1,
    gpu_resource: str = "nvidia.com/gpu",
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of one container. Without a command it sleeps for an hour."""
    resources = {"limits": {gpu_resource: str(gpus)}} if str(gpus) != "0" else {}
    one = {"name": "main", "image": "registry.invalid/test", "command": [*(command or ("sleep", "3600"))], "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"schedulerName": "gpufair", "restartPolicy": "Never", "containers": [one], **spec},
    }
