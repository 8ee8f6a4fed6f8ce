"""The fake kubelet, against the fake API server and a real one: what the tests of the backend rest on."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.kube.client import path_of
from tests.kube.cluster import Cluster, pod, wait_until
from tests.kube.fake_node import FakeNodes


def run(cluster: Cluster, nodes: FakeNodes, obj: dict[str, Any], node: int = 0, until: str = "Running") -> None:
    name = obj["metadata"]["name"]
    cluster.client.create("pods", cluster.namespace, obj)
    assert cluster.client.bind(cluster.namespace, name, nodes.names[node]).status_code == 201
    wait_until(lambda: cluster.phase(name) == until, what=f"{name} {until}: {cluster.client.get('pods', cluster.namespace, name)}")


def state(cluster: Cluster, name: str) -> dict[str, Any]:
    there = cluster.client.get("pods", cluster.namespace, name)
    assert there is not None
    found: dict[str, Any] = there["status"]["containerStatuses"][0]["state"]
    return found


def sh(name: str, script: str, **more: Any) -> dict[str, Any]:
    return pod(name, "sh", "-c", script, **more)


def test_a_bound_pod_becomes_a_process_and_its_exit_code_is_told(cluster: Cluster) -> None:
    nodes = cluster.nodes()
    run(cluster, nodes, sh("good", "exit 0"), until="Succeeded")
    run(cluster, nodes, sh("bad", "echo out of luck; exit 7"), until="Failed")
    assert state(cluster, "good")["terminated"]["exitCode"] == 0
    assert state(cluster, "bad")["terminated"]["exitCode"] == 7
    assert "out of luck" in nodes.log(cluster.namespace, "bad")


def test_environment_secrets_and_volumes_reach_the_process(cluster: Cluster, tmp_path: Path) -> None:
    """The paths in the container are not here: they are rewritten wherever they are said."""
    disk = tmp_path / "disk"
    nodes = cluster.nodes(claims={"shared": disk})
    data = {"token": base64.b64encode(b"s3cret").decode()}
    cluster.client.create("secrets", cluster.namespace, {"metadata": {"name": "keys"}, "data": data})
    script = 'echo "$POD $UID1 $IP $TOKEN $(cat $TOKEN_FILE)"; echo kept > /records/w1/file; echo x > /scratch/y; exit 0'
    obj = sh("reader", script)
    container = obj["spec"]["containers"][0]
    container["env"] = [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "UID1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        {"name": "TOKEN_FILE", "value": "/run/keys/token"},
    ]
    container["volumeMounts"] = [
        {"name": "keys", "mountPath": "/run/keys"},
        {"name": "disk", "mountPath": "/records/w1", "subPath": "of/w1"},
        {"name": "scratch", "mountPath": "/scratch"},
    ]
    obj["spec"]["volumes"] = [
        {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "disk", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    run(cluster, nodes, obj, until="Succeeded")
    there = cluster.client.get("pods", cluster.namespace, "reader")
    assert there is not None
    assert nodes.log(cluster.namespace, "reader").split() == ["reader", there["metadata"]["uid"], "127.0.0.1", "s3cret", "s3cret"]
    assert (disk / "of" / "w1" / "file").read_text() == "kept\n"


def test_deletion_gives_the_process_its_grace(cluster: Cluster) -> None:
    nodes = cluster.nodes()
    run(cluster, nodes, sh("polite", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    log = nodes.folder / "pods"
    wait_until(lambda: "up" in nodes.log(cluster.namespace, "polite"), what="the trap")
    assert cluster.client.delete("pods", cluster.namespace, "polite").status_code == 200
    wait_until(lambda: cluster.phase("polite") is None, what="the pod to go")
    assert any("bye" in path.read_text() for path in log.glob("*/main.log"))


def test_a_second_deletion_can_only_shorten_the_grace(cluster: Cluster) -> None:
    nodes = cluster.nodes()
    run(cluster, nodes, sh("stubborn", "trap '' TERM; echo up; while :; do sleep 0.05; done", terminationGracePeriodSeconds=600))
    wait_until(lambda: "up" in nodes.log(cluster.namespace, "stubborn"), what="the trap")
    pid = nodes.pid(cluster.namespace, "stubborn")
    cluster.client.delete("pods", cluster.namespace, "stubborn")
    cluster.client.delete("pods", cluster.namespace, "stubborn", grace_s=900)
    there = cluster.client.get("pods", cluster.namespace, "stubborn")
    assert there is not None
    assert there["metadata"]["deletionGracePeriodSeconds"] == 600
    os.kill(pid, 0)
    cluster.client.delete("pods", cluster.namespace, "stubborn", grace_s=1)
    wait_until(lambda: cluster.phase("stubborn") is None, what="the pod to go")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_left_the_session_of_the_process_ends_with_the_pod(cluster: Cluster) -> None:
    nodes = cluster.nodes()
    run(cluster, nodes, sh("parent", "setsid sleep 3600 & echo $!; exit 0"), until="Succeeded")
    pid = int(nodes.log(cluster.namespace, "parent"))
    wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, what="the child to end")


def test_a_node_takes_no_more_than_it_has(cluster: Cluster) -> None:
    """Whoever binds twice to the same GPUs is told: the proof that none are booked twice rests on it."""
    nodes = cluster.nodes(gpus=2)
    run(cluster, nodes, sh("first", "sleep 60", gpus=2))
    run(cluster, nodes, sh("second", "sleep 60", gpus=1), until="Failed")
    there = cluster.client.get("pods", cluster.namespace, "second")
    assert there is not None
    assert there["status"]["reason"] == "OutOfnvidia.com/gpu"


def test_troubles_of_pods_look_as_a_kubelet_says_them(cluster: Cluster) -> None:
    nodes = cluster.nodes()
    nodes.fail_pulls("no-image")
    nodes.hang_volumes("no-volume")
    run(cluster, nodes, sh("no-image", "exit 0"), until="Pending")
    wait_until(lambda: waits(cluster, "no-image") == "ErrImagePull", what="the pull error")
    run(cluster, nodes, sh("no-volume", "exit 0"), until="Pending")
    wait_until(lambda: waits(cluster, "no-volume") == "ContainerCreating", what="the volume")
    said = wait_until(lambda: cluster.client.list("events", cluster.namespace, fieldSelector="involvedObject.name=no-volume"), what="an event")
    assert said[0]["reason"] == "FailedAttachVolume"
    run(cluster, nodes, sh("big", "sleep 60"))
    nodes.oom(cluster.namespace, "big")
    wait_until(lambda: cluster.phase("big") == "Failed", what="the kill")
    assert state(cluster, "big")["terminated"] | {"startedAt": "", "finishedAt": "", "containerID": ""} == {
        "exitCode": 137, "reason": "OOMKilled", "startedAt": "", "finishedAt": "", "containerID": "",
    }  # fmt: skip
    run(cluster, nodes, sh("victim", "sleep 60"))
    nodes.evict(cluster.namespace, "victim")
    wait_until(lambda: cluster.phase("victim") == "Failed", what="the eviction")
    victim = cluster.client.get("pods", cluster.namespace, "victim")
    assert victim is not None
    assert victim["status"]["reason"] == "Evicted"
    nodes.mend()
    wait_until(lambda: cluster.phase("no-image") == "Succeeded" and cluster.phase("no-volume") == "Succeeded", what="both to run after all")


def waits(cluster: Cluster, name: str) -> str:
    there = cluster.client.get("pods", cluster.namespace, name)
    assert there is not None
    statuses = there["status"].get("containerStatuses") or [{}]
    return str(statuses[0].get("state", {}).get("waiting", {}).get("reason", ""))


def test_a_dead_node_is_unknown_and_comes_back(cluster: Cluster) -> None:
    nodes = cluster.nodes(2)
    dead = nodes.names[0]
    run(cluster, nodes, sh("lost", "sleep 600"))
    pid = nodes.pid(cluster.namespace, "lost")
    nodes.die(dead)
    assert ready(cluster, dead) == "Unknown"
    assert ready(cluster, nodes.names[1]) == "True"
    assert cluster.phase("lost") == "Running", "nobody is there to say otherwise"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    wait_until(lambda: "node.kubernetes.io/unreachable" in taints(cluster, dead), what="the taint")
    nodes.revive(dead)
    wait_until(lambda: cluster.phase("lost") == "Failed", what="the kubelet to look at what is left")
    wait_until(lambda: not taints(cluster, dead), what="the taint to go")


def ready(cluster: Cluster, name: str) -> str:
    node = cluster.client.ok("GET", path_of("nodes", "", name))
    return str(next(c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"))


def taints(cluster: Cluster, name: str) -> list[str]:
    node = cluster.client.ok("GET", path_of("nodes", "", name))
    return [taint["key"] for taint in node["spec"].get("taints") or []]


def test_pods_without_processes_are_for_scale(cluster: Cluster) -> None:
    nodes = cluster.nodes(20, runs=False)
    for place in range(40):
        cluster.client.create("pods", cluster.namespace, pod(f"p{place}", gpus=4))
        cluster.client.bind(cluster.namespace, f"p{place}", nodes.names[place % 20])
    wait_until(lambda: {cluster.phase(f"p{place}") for place in range(40)} == {"Running"}, what="all to run")
    nodes.finish(cluster.namespace, "p7", 3)
    wait_until(lambda: cluster.phase("p7") == "Failed", what="one to end")
    assert state(cluster, "p7")["terminated"]["exitCode"] == 3
    for place in range(40):
        cluster.client.delete("pods", cluster.namespace, f"p{place}")
    wait_until(lambda: not cluster.client.list("pods", cluster.namespace), what="all to go")


def test_nodes_outlast_a_restart_of_the_api_server(cluster: Cluster) -> None:
    if not cluster.restartable:
        pytest.skip("this API server is not ours to restart")
    nodes = cluster.nodes()
    run(cluster, nodes, sh("steady", "sleep 600"))
    pid = nodes.pid(cluster.namespace, "steady")
    cluster.restart_api(0.2)
    os.kill(pid, 0)
    run(cluster, nodes, sh("after", "exit 0"), until="Succeeded")
    cluster.client.delete("pods", cluster.namespace, "steady", grace_s=1)
    wait_until(lambda: cluster.phase("steady") is None, what="the pod to go")
