"""What the fake API server can be told to do wrong. (A real one does it when it likes.)"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import httpx
import pytest

from tests.kube.client import KubeClient
from tests.kube.cluster import Cluster, pod, wait_until
from tests.kube.fake_api import FakeApi

PODS = r"/pods$"


def server(cluster: Cluster) -> FakeApi:
    assert cluster.fake is not None
    return cluster.fake


def test_the_next_requests_fail_as_told(fake_cluster: Cluster) -> None:
    client, namespace = fake_cluster.client, fake_cluster.namespace
    fault = server(fake_cluster).fail("POST", PODS, status=429, count=2, retry_after_s=7)
    for _ in range(2):
        answer = client.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod("p"))
        assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
        assert answer.json()["details"]["retryAfterSeconds"] == 7
    assert client.list("pods", namespace) == [], "nothing was done, and other requests are served"
    client.create("pods", namespace, pod("p"))
    assert (fault.hits, fault.left) == (2, 0)


def test_a_cut_connection_may_have_done_it(fake_cluster: Cluster) -> None:
    client, namespace = fake_cluster.client, fake_cluster.namespace
    for name, carried_out in (("undone", False), ("done", True)):
        server(fake_cluster).cut("POST", PODS, carried_out=carried_out)
        with pytest.raises(httpx.TransportError):
            client.create("pods", namespace, pod(name))
        assert (fake_cluster.phase(name) is not None) is carried_out


def test_a_delay_holds_up_its_own_request_only(fake_cluster: Cluster) -> None:
    client, namespace = fake_cluster.client, fake_cluster.namespace
    server(fake_cluster).delay("POST", PODS, delay_s=1.0)
    began = time.monotonic()
    slow = Thread(target=client.create, args=("pods", namespace, pod("p")))
    slow.start()
    assert client.list("secrets", namespace) is not None
    assert fake_cluster.phase("p") is None
    slow.join()
    assert time.monotonic() - began >= 1.0
    assert fake_cluster.phase("p") == "Pending"


def test_watches_are_cut_and_history_is_forgotten(fake_cluster: Cluster) -> None:
    client, namespace, fake = fake_cluster.client, fake_cluster.namespace, server(fake_cluster)
    version = client.ok("GET", "/api/v1/pods")["metadata"]["resourceVersion"]
    with client.watch("pods", namespace, resourceVersion=version, timeoutSeconds=20) as events:
        wait_until(lambda: fake.watches == 1, what="the watch")
        assert fake.cut_watches() == 1
        with pytest.raises(httpx.TransportError):
            next(events)
    fake.forget_history()
    with client.watch("pods", namespace, resourceVersion=version, timeoutSeconds=20) as events:
        assert next(events)["object"]["code"] == 410


def test_an_api_server_that_is_down_refuses_and_keeps_its_port(fake_cluster: Cluster) -> None:
    client, namespace, fake = fake_cluster.client, fake_cluster.namespace, server(fake_cluster)
    client.create("pods", namespace, pod("p"))
    fake.down()
    for _ in range(2):
        with pytest.raises(httpx.TransportError):
            client.list("pods", namespace)
    fake.up()
    assert [one["metadata"]["name"] for one in client.list("pods", namespace)] == ["p"]


def test_over_tls_it_is_known_by_its_authority(tmp_path: Path) -> None:
    """As every real one; what breaks there breaks over TLS, too."""
    with FakeApi(tls=tmp_path) as api, KubeClient(api.kubeconfig(tmp_path / "kubeconfig")) as client:
        assert client.get("namespaces", "", "default") is not None
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{api.url}/readyz", trust_env=False)
        with client.watch("pods", "default", timeoutSeconds=20) as events:
            wait_until(lambda: api.watches == 1, what="the watch")
            client.create("pods", "default", pod("p"))
            assert next(events)["object"]["metadata"]["name"] == "p"
            api.restart()
            with pytest.raises(httpx.TransportError):
                next(events)
        wait_until(lambda: client.get("pods", "default", "p"), what="it to answer")


def test_requests_are_on_record(fake_cluster: Cluster) -> None:
    """So that a test can say how many there were, and whose."""
    fake_cluster.client.list("pods", fake_cluster.namespace, labelSelector="a=b")
    method, path, user = server(fake_cluster).requests[-1]
    assert (method, path, user) == ("GET", f"/api/v1/namespaces/{fake_cluster.namespace}/pods?labelSelector=a%3Db", "admin")
