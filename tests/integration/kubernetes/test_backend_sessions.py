"""Sessions as pods, with all that is real but the cluster's machines: Jupyter, service, pod agents, supervisors, kernels."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpufair.client import Client
from gpufair.core.errors import GpufairError
from tests.integration.jupyter.real import real_service, service_pid, wait_until
from tests.integration.jupyter.server import Server as Jupyter
from tests.integration.jupyter.server import Tab
from tests.integration.kubernetes.conftest import Server
from tests.kube.client import KubeClient
from tests.kube.fake_node import FakeNodes

GPU = "example.com/gpu"  # of a maker whose devices NVML does not know: their numbers are enough
WAIT_S = 90.0
CONFIG = """\
budgets = "budgets.toml"
users = ["ria", "ben"]

[service]
port = {port}
linger = "120s"

[checkpoints]
after_cells = "off"  # so that a test knows what is saved

[grace]
session = "10s"
batch = "10s"

[[node]]
name = "here"
gpus = 0

[[pool]]
name = "default"

[[pool]]
name = "kube"
backend = "kubernetes"

[pool.kubernetes]
image = "gpufair/kernel"
service_url = "http://127.0.0.1:{port}"
insecure = true
namespace = "{namespace}"
kubeconfig = "{kubeconfig}"
gpus = {{ "{gpu}" = "virtual" }}
cpu_nodes = false
node_selector = {{ "gpufair.test/world" = "{namespace}" }}
node_silence = "5s"
lease_for = "6s"
margin = "5s"

[[profile]]
name = "digits"
display_name = "Digits"
gpus = 1
allocation = "language/digits"
min_runtime = "10m"
"""


def free_port() -> int:
    """Of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def nodes(server: Server, folder: Path, *names: str, gpus: int = 1) -> Iterator[FakeNodes]:
    """Nodes of this test alone, whose pods find our Python as an image would have it."""
    path = [str(Path(sys.executable).parent), os.environ["PATH"]]
    env = {"PATH": os.pathsep.join(path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    there = [f"{name}-{server.namespace}" for name in names]
    marks = {"gpufair.test/world": server.namespace}
    with FakeNodes(
        server.kubeconfig, folder / "nodes", names=there, gpus=gpus, gpu_resource=GPU, labels=marks, environment=env
    ) as found:
        try:
            yield found
        finally:
            with KubeClient(server.kubeconfig) as admin:
                for name in there:
                    admin.call("DELETE", f"/api/v1/nodes/{name}")


@contextmanager
def lab(server: Server, folder: Path) -> Iterator[tuple[Jupyter, Client]]:
    """Jupyter and its service, whose GPUs are the cluster's."""
    config = CONFIG.format(port=free_port(), namespace=server.namespace, kubeconfig=server.kubeconfig, gpu=GPU)
    with real_service(folder / "home", config) as found:
        yield found


def ready(client: Client, count: int) -> None:
    """So many nodes of the cluster take work."""
    wait_until(lambda: sum(one.pool == "kube" and one.state == "ready" for one in client.nodes()) == count, WAIT_S)


def test_a_session_moves_with_its_variables(server: Server, tmp_path: Path) -> None:
    """It runs in a pod, `kubectl cordon` and a park take it away, and it is restored in another pod on another node."""
    with nodes(server, tmp_path, "n1", "n2") as cluster, lab(server, tmp_path) as (jupyter, client):
        ready(client, 2)
        kernel = jupyter.new("far.ipynb")
        with Tab(jupyter, kernel) as tab:
            first = tab.run("import os\nx = [1, 2]\nprint(os.environ['GPUFAIR_POD'])")
            assert tab.reply(first, 120)["status"] == "ok", cluster.logs()
            pod = tab.text(first).strip()
            assert (server.namespace, pod) in cluster.pods()
            (one,) = client.workload(kernel).leases
            with KubeClient(server.kubeconfig) as admin:
                admin.patch("nodes", "", one.node, {"spec": {"unschedulable": True}})
            assert jupyter.call("POST", f"/gpufair/sessions/{kernel}/park")[0] == 202
            jupyter.wait_for(kernel, "parked")
            wait_until(lambda: cluster.pods() == [], WAIT_S)
            again = tab.run("print(x, os.environ['GPUFAIR_POD'])")
            assert tab.reply(again, 120)["status"] == "ok", cluster.logs()
            other = tab.text(again).strip().removeprefix("[1, 2] ")
            assert other != pod
            (two,) = client.workload(kernel).leases
            assert two.node != one.node
        jupyter.call("DELETE", f"/api/kernels/{kernel}")
        wait_until(lambda: not client.workload(kernel).live and not cluster.pods(), WAIT_S)


def test_a_session_outlives_its_service_its_api_server_and_its_node(server: Server, tmp_path: Path) -> None:
    """Neither a killed service nor an API server that is away is noticed in it; of a dead node it has its last checkpoint."""
    with nodes(server, tmp_path, "n1", "n2") as cluster, lab(server, tmp_path) as (jupyter, client):
        ready(client, 2)
        kernel = jupyter.new("far.ipynb")
        with Tab(jupyter, kernel) as tab:
            first = tab.run("x = [1]")
            assert tab.reply(first, 120)["status"] == "ok", cluster.logs()
            if server.cluster.restartable:
                server.cluster.restart_api(1.0)
            os.kill(service_pid(tmp_path / "home" / "gpufair"), signal.SIGKILL)
            again = tab.run("x.append(2); print(x)")
            assert tab.reply(again, 60)["status"] == "ok", cluster.logs()
            assert tab.text(again) == "[1, 2]\n"
            wait_until(lambda: alive(client), WAIT_S)
            ready(client, 2)
            found = client.workload(kernel)
            assert (found.state, found.incarnation) == ("running", 1)
            wait_until(lambda: jupyter.call("POST", f"/gpufair/sessions/{kernel}/checkpoint")[0] == 202, WAIT_S)
            wait_until(lambda: jupyter.session(kernel)["checkpoint"], WAIT_S)
            (lease,) = found.leases
            cluster.die(lease.node)
            wait_until(lambda: client.workload(kernel).state in {"parked", "queued", "restoring"}, WAIT_S)
            last = tab.run("print(x)")
            assert tab.reply(last, 120)["status"] == "ok", cluster.logs()
            assert tab.text(last) == "[1, 2]\n"
            (other,) = client.workload(kernel).leases
            assert other.node != lease.node
        jupyter.call("DELETE", f"/api/kernels/{kernel}")
        wait_until(lambda: not client.workload(kernel).live, WAIT_S)


def alive(client: Client) -> bool:
    """Whether a service answers."""
    try:
        client.status()
    except GpufairError:
        return False
    return True


def test_a_gang_of_commands_meets(server: Server, tmp_path: Path) -> None:
    """One pod on each node, all with the address of the first; the outcome is that of all."""
    with nodes(server, tmp_path, "n1", "n2", gpus=2) as cluster, lab(server, tmp_path) as (_, client):
        ready(client, 2)
        told = tmp_path / "told"
        line = f"echo $RANK $WORLD_SIZE $MASTER_ADDR $GPUFAIR_POD >> {told}"
        launch = {"type": "command", "argv": ["/bin/sh", "-c", line], "cwd": str(tmp_path)}
        asked = client.submit(
            launch, kind="batch", gpus=2, nodes=2, min_runtime_s=60, allocation="language/digits", user="ria", pools=("kube",)
        )
        wait_until(lambda: not client.workload(asked.id).live, WAIT_S)
        ended = client.workload(asked.id)
        assert ended.outcome == "completed", (ended.reason, cluster.logs())
        lines = sorted(line.split() for line in told.read_text().splitlines())
        assert [(rank, size, address) for rank, size, address, _ in lines] == [("0", "2", "127.0.0.1"), ("1", "2", "127.0.0.1")]
        assert len({pod for *_, pod in lines}) == 2
