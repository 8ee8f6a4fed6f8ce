"""One service with its journal in a file, and a cluster whose Lease somebody else takes: it begins again, and waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.test_backend_sessions import free_port
from tests.integration.service.rig import Rig, until
from tests.kube.client import KubeClient

MARK = "gpufair.test/world"
SOMEBODY = "somebody-else"
LOOKS_S = 2.0  # several looks at the cluster
CONFIG = """\
budgets = "budgets.toml"

[service]
port = {port}
agent_silence = "{{silence}}"

[[pool]]
name = "kube"
backend = "kubernetes"

[pool.kubernetes]
image = "gpufair/kernel"
service_url = "http://127.0.0.1:{port}"
insecure = true
namespace = "{namespace}"
kubeconfig = "{kubeconfig}"
node_selector = {{{{ "{mark}" = "{namespace}" }}}}
lease_for = "5s"
"""


def holder(admin: KubeClient, server: Server) -> str:
    """Who has the Lease; "": nobody."""
    found = admin.get("leases", server.namespace, "gpufair")
    return str(found["spec"].get("holderIdentity") or "") if found else ""


def give(admin: KubeClient, server: Server, whom: str, seconds: int) -> None:
    """As a service of another state folder would take it, or give it up."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": whom, "leaseDurationSeconds": seconds, "renewTime": now, "acquireTime": now}
    admin.patch("leases", server.namespace, "gpufair", {"spec": spec})


@contextmanager
def served(tmp_path: Path, server: Server) -> Iterator[tuple[Rig, KubeClient]]:
    """A service of its own process, which has the Lease."""
    config = CONFIG.format(port=free_port(), namespace=server.namespace, kubeconfig=server.kubeconfig, mark=MARK)
    rig = Rig(tmp_path, config, embedded=False)
    with KubeClient(server.kubeconfig) as admin:
        rig.start()
        try:
            until("it to have the Lease", lambda: holder(admin, server))
            yield rig, admin
        finally:
            if rig.process is not None and rig.process.poll() is None:
                rig.kill()


def answered(rig: Rig) -> dict[str, Any] | None:
    """The only node, as soon as a service answers that has heard of it."""
    try:
        found = rig.ask("GET", "/nodes")["nodes"]
    except httpx.TransportError:
        return None
    return dict(found[0]) if found else None


def test_a_service_that_has_lost_a_lease_begins_again_and_waits_for_it(server: Server, tmp_path: Path) -> None:
    """Of the same process, journal and address; while somebody else has the Lease it answers, and changes nothing in the cluster."""
    server.cluster.nodes(1, gpus=2, runs=False, labels={MARK: server.namespace})
    with served(tmp_path, server) as (rig, admin):
        until("the node", lambda: answered(rig))
        assert rig.process is not None
        first = holder(admin, server)
        give(admin, server, SOMEBODY, 3600)
        until("it to begin again", lambda: "beginning again, and waiting for it" in rig.log())

        def waits() -> bool:
            node = answered(rig)
            return node is not None and any(f"is held by {SOMEBODY}" in text for text in node["problems"])

        until("it to answer, and to wait", waits)
        rig.submit("w", "true", gpus=2)
        time.sleep(LOOKS_S)
        assert holder(admin, server) == SOMEBODY
        assert admin.list("pods", server.namespace) == []
        assert rig.process.poll() is None
        give(admin, server, "", 1)
        until("it to have the Lease again", lambda: holder(admin, server) not in {"", SOMEBODY, first})
        (pod,) = until("its work to be carried out", lambda: admin.list("pods", server.namespace))
        assert pod["metadata"]["name"] == "gpufair-w-1-0"
        # Told to end it ends, and does not begin again.
        assert rig.stop() == 0
        assert rig.log().count("beginning again") == 1
        assert holder(admin, server) == ""
