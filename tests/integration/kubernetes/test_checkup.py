"""`gpufair doctor` asks the cluster itself: who holds the Lease, and what the account may do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpufair.service.backends.kubernetes.api import Api
from gpufair.service.backends.kubernetes.checkup import Found, findings
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from tests.integration.kubernetes.conftest import Server


def options(server: Server, kubeconfig: Path, **changes: Any) -> KubernetesOptions:
    """Of a service on this server."""
    return KubernetesOptions("i", "https://gpufair.svc:1", namespace=server.namespace, kubeconfig=kubeconfig, lease="checked", **changes)


async def hold(server: Server, renewed: datetime | None, holder: str) -> None:
    """The Lease as some service left it."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{server.namespace}/leases"
    spec: dict[str, Any] = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    if renewed is not None:
        spec["renewTime"] = renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "checked", "namespace": server.namespace}}
    api = await Api.open(server.kubeconfig)
    try:
        await api.call("POST", path, lease | {"spec": spec})
    finally:
        await api.close()


async def test_all_is_well_with_the_rights_and_a_lease_that_is_renewed(server: Server) -> None:
    await hold(server, datetime.now(UTC), "service-1")
    assert await findings(options(server, server.kubeconfig, namespaces={"other": ("a",)})) == [
        Found("ok", f"service-1 holds the Lease {server.namespace}/checked"),
        Found("ok", "this account has all rights that the service needs there"),
    ]


async def test_nobody_leads(server: Server) -> None:
    """No Lease, one that was given back, and one whose holder is gone: each is told apart."""
    (first, _) = await findings(options(server, server.kubeconfig))
    assert (first.level, first.said) == ("problem", f"there is no Lease {server.namespace}/checked: no service has ever led there")
    await hold(server, datetime.now(UTC) - timedelta(minutes=5), "service-1")
    (first, _) = await findings(options(server, server.kubeconfig))
    assert first.level == "problem"
    assert "of service-1 was renewed 300 s ago" in first.said or "of service-1 was renewed 30" in first.said


async def test_each_right_that_is_missing_is_named_with_its_reason(server: Server, tmp_path: Path) -> None:
    """An account without any may not even read the Lease."""
    found = await findings(options(server, server.account(tmp_path / "weak.yaml")))
    assert [one.level for one in found] == ["problem"] * len(found)
    said = [one.said for one in found]
    assert any("this account may not list nodes of the whole cluster, which the service needs to know which GPUs there are" in one for one in said), said
    assert any(f"may not create pods in namespace {server.namespace}, which the service needs to make the pods of workloads" in one for one in said)
    assert any("leases" in one for one in said)


async def test_a_server_that_is_not_there_is_one_finding(server: Server, tmp_path: Path) -> None:
    (tmp_path / "nowhere.yaml").write_text(server.kubeconfig.read_text().replace("server: ", "server: https://127.0.0.1:9/"))
    (found,) = await findings(options(server, tmp_path / "nowhere.yaml"))
    assert found.level == "problem"
