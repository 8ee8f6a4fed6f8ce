"""A pod has what its workload was granted, sees what is its own, and may do nothing else."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpufair.core.units import SECOND, Millis, WorkloadId
from gpufair.service.backends.kubernetes import manifests, names
from gpufair.service.backends.kubernetes.manifests import BadManifest, PodOrder, pod
from gpufair.service.backends.kubernetes.names import PodKey, key_of
from gpufair.service.backends.kubernetes.requests import requested
from gpufair.service.settings.kubernetes_options import KubernetesOptions
from gpufair.service.settings.pod_template import PodTemplate, pod_template
from gpufair.service.settings.quantities import parse_quantity

GPU = "nvidia.com/gpu"
OPTIONS = KubernetesOptions(
    "lab/kernel:1", "https://service", claim="state", claim_path=Path("/var/lib/gpufair"), margin=Millis(15 * SECOND)
)
ORDER = PodOrder(
    key=PodKey(WorkloadId("w1"), 3),
    pool="cluster",
    allocation="language/speech",
    user="ada",
    name="train",
    kind="session",
    node="gpu-01",
    resource=GPU,
    gpus=2,
    grace=Millis(120 * SECOND),
    record_dir="/var/lib/gpufair/state/records/w1",
    checkpoint_dir="/var/lib/gpufair/state/checkpoints/ada/w1",
    cpus=4,
    memory_bytes=8 << 30,
)


def made(order: PodOrder = ORDER, options: KubernetesOptions = OPTIONS, **template: Any) -> dict[str, Any]:
    """The pod of a profile with these fields in its template."""
    return pod(order, options, pod_template(template))


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    """The one that there is."""
    (one,) = manifest["spec"]["containers"]
    return dict(one)


def environment(manifest: dict[str, Any]) -> dict[str, Any]:
    """Variables by name."""
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(manifest)["env"]}


def test_a_pod_may_do_as_little_as_possible() -> None:
    """What Pod Security calls restricted, and no way into the cluster."""
    spec, one = made()["spec"], container(made())
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["schedulerName"] == "gpufair"
    assert "nodeName" not in spec
    assert spec["terminationGracePeriodSeconds"] == 135


def test_it_sees_only_folders_of_its_own() -> None:
    """Of the shared volume its record and its checkpoints, under the paths that the service has for them."""
    mounts = {one["mountPath"]: one for one in container(made())["volumeMounts"]}
    shared = {path: one["subPath"] for path, one in mounts.items() if one["name"] == "gpufair-shared"}
    assert shared == {
        "/var/lib/gpufair/state/records/w1": "state/records/w1",
        "/var/lib/gpufair/state/checkpoints/ada/w1": "state/checkpoints/ada/w1",
    }
    assert set(mounts) == {*shared, "/tmp", "/run/gpufair", "/etc/gpufair", "/dev/shm"}
    assert mounts["/etc/gpufair"]["readOnly"] is True
    volumes = {one["name"]: one for one in made()["spec"]["volumes"]}
    assert volumes["gpufair-shared"]["persistentVolumeClaim"] == {"claimName": "state"}
    assert volumes["gpufair-config"]["secret"] == {"secretName": names.pod_name(ORDER.key), "defaultMode": 0o440}
    assert volumes["gpufair-state"] == {"name": "gpufair-state", "emptyDir": {}}


def test_checkpoints_elsewhere_and_no_volume_at_all() -> None:
    """A bucket is mounted nowhere; without a claim nothing is shared."""
    away = made(replace(ORDER, checkpoint_dir="s3://bucket/ada/w1"))
    assert [one["mountPath"] for one in container(away)["volumeMounts"] if one["name"] == "gpufair-shared"] == [ORDER.record_dir]
    without = made(options=replace(OPTIONS, claim="", claim_path=None))
    assert "gpufair-shared" not in str(without)
    # Its root is read-only, and outputs are written in any case.
    mounts = {one["name"]: one for one in container(without)["volumeMounts"]}
    assert mounts["gpufair-records"]["mountPath"] == ORDER.record_dir
    assert {"name": "gpufair-records", "emptyDir": {}} in without["spec"]["volumes"]
    own = [{"name": "a", "mountPath": "/var/lib/gpufair"}]
    options = replace(OPTIONS, claim="", claim_path=None)
    assert "gpufair-records" not in str(made(options=options, volumes=[{"name": "a", "emptyDir": {}}], volumeMounts=own))


@pytest.mark.parametrize("folder", ["/srv/records/w1", "/var/lib/gpufair", "/var/lib/gpufair/../etc", "/var/lib/gpufairs/x"])
def test_a_folder_that_is_not_on_the_volume(folder: str) -> None:
    """Mounted it would be the whole volume, or nothing."""
    with pytest.raises(BadManifest, match=r"is not on the volume of state.*correct claim_path"):
        made(replace(ORDER, record_dir=folder))


def test_what_it_asks_for_is_what_was_granted() -> None:
    """Both ledgers, the core's and the cluster's, count the same; GPUs and memory are limits as well."""
    one = container(made())
    assert one["resources"] == {
        "requests": {"cpu": "4", "memory": str(8 << 30), GPU: "2"},
        "limits": {"memory": str(8 << 30), GPU: "2"},
    }
    assert [requested(made(), what) for what in (GPU, "cpu", "memory")] == [2, 4, 8 << 30]


def test_a_template_never_makes_it_ask_for_more() -> None:
    """A limit without a request would become one that nobody has counted; too low a limit is raised to what was granted."""
    nothing = replace(ORDER, gpus=0, resource="", cpus=0, memory_bytes=0)
    limits = {"cpu": "8", "memory": "4Gi", "ephemeral-storage": "10Gi"}
    bare = made(nothing, resources={"requests": {"cpu": "2", "memory": "1Gi"}, "limits": limits})
    assert container(bare)["resources"] == {"requests": {"cpu": "0", "memory": "0"}, "limits": limits}
    assert [requested(bare, what) for what in (GPU, "cpu", "memory")] == [0, 0, 0]
    low = container(made(resources={"limits": {"cpu": "1", "memory": "1Gi"}}))["resources"]["limits"]
    assert parse_quantity(low["cpu"]) == 4
    assert parse_quantity(low["memory"]) == 8 << 30


def test_gpus_by_the_back_door_are_refused() -> None:
    """Whatever the configuration calls a GPU."""
    options = replace(OPTIONS, gpus={"lab.io/accelerator": ""})
    with pytest.raises(BadManifest, match=r"asks for lab.io/accelerator, which is a GPU here"):
        pod(ORDER, options, pod_template({"resources": {"limits": {"lab.io/accelerator": 1}}}))


def test_without_gpus_none_are_seen() -> None:
    """Images of CUDA ask NVIDIA's runtime for all; with GPUs it is the device plugin that says which."""
    assert environment(made(replace(ORDER, gpus=0, resource="")))["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES" not in environment(made())
    assert made(replace(ORDER, gpus=0, resource=""))["spec"]["tolerations"] == []
    assert made()["spec"]["tolerations"] == [{"key": GPU, "operator": "Exists"}]


def test_the_agent_knows_where_it_is() -> None:
    """By the downward API: an address is known only when the pod has one."""
    env = environment(made())
    assert env["GPUFAIR_POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert env["HOME"] == "/tmp"
    assert environment(made(env=[{"name": "HOME", "value": "/home/ada"}]))["HOME"] == "/home/ada"
    agent = ["python", "-P", "-m", "gpufair.node.pod"]
    assert container(made())["command"] == [*agent, "--config", "/etc/gpufair/pod.json"]


def test_no_secret_is_in_the_pod() -> None:
    """Whoever may read pods reads no token: that is in the secret, and the kernel's keys are in no object at all."""
    files = {"pod.json": "{}", "token": "t0ken"}
    kept = manifests.secret(ORDER, OPTIONS, "uid-1", files)
    assert kept["immutable"] is True
    assert {name: base64.b64decode(text).decode() for name, text in kept["data"].items()} == files
    assert kept["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": names.pod_name(ORDER.key), "uid": "uid-1"}
    ]
    assert "t0ken" not in str(made())


def test_everything_says_whose_it_is() -> None:
    """For people, for selectors, and to be adopted after a restart."""
    for manifest in (made(), manifests.secret(ORDER, OPTIONS, "u", {}), manifests.service(ORDER, OPTIONS, "u")):
        assert key_of(manifest) == ORDER.key
        assert manifest["metadata"]["namespace"] == "gpufair"
        assert names.is_ours(manifest, "cluster")
    told = made()["metadata"]["annotations"][manifests.WHY]
    assert told == (
        "session 'train' of ada, start 3: 2 GPUs on gpu-01 for language/speech, decided by gpufair; `gpufair why w1` says more"
    )
    assert made()["metadata"]["annotations"][names.ALLOCATION] == "language/speech"


def test_the_template_is_kept_and_ours_stands_above_it() -> None:
    """What an operator says is there; what is ours cannot be talked away by labels or by a context."""
    manifest = made(
        image="lab/torch:2",
        labels={"team": "speech"},
        annotations={"note": "x"},
        tolerations=[{"key": "dedicated", "operator": "Exists"}],
        volumes=[{"name": "data", "emptyDir": {}}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        securityContext={"runAsUser": 2000},
        containerSecurityContext={"readOnlyRootFilesystem": False},
        runtimeClassName="nvidia",
        envFrom=[{"secretRef": {"name": "s3"}}],
    )
    spec, one = manifest["spec"], container(manifest)
    assert one["image"] == "lab/torch:2"
    assert one["envFrom"] == [{"secretRef": {"name": "s3"}}]
    assert one["volumeMounts"][0] == {"name": "data", "mountPath": "/data"}
    assert spec["volumes"][0] == {"name": "data", "emptyDir": {}}
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["securityContext"]["runAsUser"] == 2000
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert one["securityContext"]["readOnlyRootFilesystem"] is False
    assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["tolerations"][0]["key"] == "dedicated"
    assert manifest["metadata"]["labels"]["team"] == "speech"
    assert manifest["metadata"]["annotations"]["note"] == "x"


def test_a_template_is_not_changed_by_use() -> None:
    """It is shared by all pods of its profile."""
    template = pod_template({"volumes": [{"name": "data", "emptyDir": {}}], "resources": {"limits": {"memory": "1Gi"}}})
    before = repr(template)
    first = pod(ORDER, OPTIONS, template)
    first["spec"]["volumes"].clear()
    assert repr(template) == before
    assert pod(ORDER, OPTIONS, template)["spec"]["volumes"][0]["name"] == "data"


def test_mounts_of_a_template_cannot_cover_the_shared_folders() -> None:
    """A checkpoint would go into the wrong volume, and be gone with the pod."""
    with pytest.raises(BadManifest, match="mounts a volume at /var/lib, where this workload has"):
        made(volumes=[{"name": "a", "emptyDir": {}}], volumeMounts=[{"name": "a", "mountPath": "/var/lib"}])
    own = made(volumes=[{"name": "a", "emptyDir": {}}], volumeMounts=[{"name": "a", "mountPath": "/dev/shm"}])
    assert [one["name"] for one in container(own)["volumeMounts"] if one["mountPath"] == "/dev/shm"] == ["a"]


def test_a_gang_finds_itself() -> None:
    """Each pod has a name under the headless service, before it counts as ready; a single pod needs none."""
    second = replace(ORDER, key=PodKey(WorkloadId("w1"), 3, 1), nodes=2)
    spec = made(second)["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("gpufair-w1-3-1", "gpufair-w1-3")
    assert manifests.host_of(second.key, OPTIONS) == "gpufair-w1-3-1.gpufair-w1-3.gpufair.svc"
    found = manifests.service(second, OPTIONS, "uid-0")
    assert found["metadata"]["name"] == spec["subdomain"]
    assert found["spec"]["clusterIP"] == "None"
    assert found["spec"]["publishNotReadyAddresses"] is True
    labels = made(second)["metadata"]["labels"]
    assert found["spec"]["selector"].items() <= labels.items()
    assert names.RANK not in found["spec"]["selector"]
    assert "part 2 of 2" in manifests.why(second)
    assert "subdomain" not in made()["spec"]


def test_a_binding_is_for_one_very_pod() -> None:
    """One that was made anew under the same name is not bound by mistake."""
    assert manifests.binding("p", "ns", "uid-1", "gpu-01") == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-1"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-01"},
    }


def test_an_empty_template_is_enough() -> None:
    """The image is then that of the pool."""
    assert container(pod(ORDER, OPTIONS, PodTemplate()))["image"] == "lab/kernel:1"
