"""What befalls a session's pod: a drain, a kill, and both while the service is away. Its notebook stays as it is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from gpufair.client import Client
from tests.integration.jupyter.real import service_pid, wait_until
from tests.integration.jupyter.server import Server as Jupyter
from tests.integration.jupyter.server import Tab
from tests.integration.kubernetes.conftest import Server
from tests.integration.kubernetes.test_backend_sessions import WAIT_S, lab, nodes, ready
from tests.kube.client import KubeClient
from tests.kube.fake_node import FakeNodes

POD = "__import__('os').environ['GPUFAIR_POD']"


def begun(tab: Tab, cluster: FakeNodes) -> str:
    """The name of the pod in which the session has x = [1, 2]."""
    first = tab.run(f"x = [1, 2]\nprint({POD})")
    assert tab.reply(first, WAIT_S)["status"] == "ok", cluster.logs()
    return tab.text(first).strip()


def let_go(jupyter: Jupyter, client: Client, kernel: str, server: Server, pod: str, cluster: FakeNodes) -> None:
    """Wait until the pod is gone, and Jupyter knows: a cell that is sent sooner is cut, and its author told so."""
    wait_until(lambda: (server.namespace, pod) not in cluster.pods(), WAIT_S)
    held = {"running", "checkpointing", "stopping"}
    wait_until(lambda: jupyter.session(kernel)["state"] not in held or client.workload(kernel).incarnation > 1, WAIT_S)


def elsewhere(tab: Tab, pod: str, cluster: FakeNodes, value: str = "x") -> str:
    """What the session has in its next pod."""
    again = tab.run(f"print({POD}, {value})")
    reply = tab.reply(again, WAIT_S)
    assert reply["status"] == "ok", f"{reply}\n{cluster.logs()}"
    other, _, found = tab.text(again).strip().partition(" ")
    assert other != pod
    return found


def ended(jupyter: Jupyter, client: Client, kernel: str, cluster: FakeNodes) -> None:
    jupyter.call("DELETE", f"/api/kernels/{kernel}")
    wait_until(lambda: not client.workload(kernel).live and not cluster.pods(), WAIT_S)


def test_a_drain_saves_a_session(server: Server, tmp_path: Path) -> None:
    """`kubectl drain` knows nothing of us: it deletes the pod, and the session goes on in the next one."""
    with nodes(server, tmp_path, "n1") as cluster, lab(server, tmp_path) as (jupyter, client):
        ready(client, 1)
        kernel = jupyter.new("far.ipynb")
        with Tab(jupyter, kernel) as tab:
            pod = begun(tab, cluster)
            with KubeClient(server.kubeconfig) as admin:
                admin.delete("pods", server.namespace, pod)
            let_go(jupyter, client, kernel, server, pod, cluster)
            assert elsewhere(tab, pod, cluster) == "[1, 2]"
        ended(jupyter, client, kernel, cluster)


def test_a_pod_that_is_killed_has_its_last_checkpoint(server: Server, tmp_path: Path) -> None:
    """For its memory, say: all in it is gone at once, without a word. The session is started again, and offered what was saved."""
    with nodes(server, tmp_path, "n1") as cluster, lab(server, tmp_path) as (jupyter, client):
        ready(client, 1)
        kernel = jupyter.new("far.ipynb")
        with Tab(jupyter, kernel) as tab:
            pod = begun(tab, cluster)
            client.checkpoint(kernel)
            wait_until(lambda: client.workload(kernel).checkpoint is not None, WAIT_S)
            os.kill(cluster.pid(server.namespace, pod), signal.SIGKILL)
            let_go(jupyter, client, kernel, server, pod, cluster)
            assert elsewhere(tab, pod, cluster) == "[1, 2]"
        ended(jupyter, client, kernel, cluster)


def test_a_session_outlives_the_service_and_then_its_pod(server: Server, tmp_path: Path) -> None:
    """The service is killed; cells run on. The next one knows the pod, and a drain saves the session as ever."""
    with nodes(server, tmp_path, "n1") as cluster, lab(server, tmp_path) as (jupyter, client):
        ready(client, 1)
        kernel = jupyter.new("far.ipynb")
        state = tmp_path / "home" / "gpufair"
        with Tab(jupyter, kernel) as tab:
            pod = begun(tab, cluster)
            former = service_pid(state)
            os.kill(former, signal.SIGKILL)
            more = tab.run("x.append(3); print(x)")
            assert tab.reply(more, WAIT_S)["status"] == "ok"
            assert tab.text(more) == "[1, 2, 3]\n"
            wait_until(lambda: served_anew(state, former), WAIT_S)
            with KubeClient(server.kubeconfig) as admin:
                admin.delete("pods", server.namespace, pod)
            let_go(jupyter, client, kernel, server, pod, cluster)
            assert elsewhere(tab, pod, cluster) == "[1, 2, 3]"
        ended(jupyter, client, kernel, cluster)


def test_a_pod_that_has_to_end_while_the_service_hangs(server: Server, tmp_path: Path) -> None:
    """A drain of its node, too: what the pod could tell nobody it has left beside the records, and nothing is lost."""
    with nodes(server, tmp_path, "n1") as cluster, lab(server, tmp_path) as (jupyter, client):
        ready(client, 1)
        kernel = jupyter.new("far.ipynb")
        state = tmp_path / "home" / "gpufair"
        with Tab(jupyter, kernel) as tab:
            pod = begun(tab, cluster)
            hangs = service_pid(state)
            os.kill(hangs, signal.SIGSTOP)
            try:
                with KubeClient(server.kubeconfig) as admin:
                    admin.delete("pods", server.namespace, pod)
                wait_until(lambda: (server.namespace, pod) not in cluster.pods(), WAIT_S)
                assert "what the service does not know yet is in" in cluster.logs()
            finally:
                os.kill(hangs, signal.SIGCONT)
            let_go(jupyter, client, kernel, server, pod, cluster)
            assert elsewhere(tab, pod, cluster) == "[1, 2]"
            assert not list((state / "records").glob("*/unreported.*")), "taken"
        ended(jupyter, client, kernel, cluster)


def served_anew(state: Path, former: int) -> bool:
    """Whether another service than this has come up."""
    try:
        return service_pid(state) != former
    except (OSError, ValueError):
        return False
