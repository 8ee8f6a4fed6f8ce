"""The plain manifests say what the code does: names, labels, ports, rights; and their configuration is valid."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from gpufair.core.units import WorkloadId
from gpufair.service.backends.kubernetes import names
from gpufair.service.backends.kubernetes.names import PodKey
from gpufair.service.lifecycle.leading_pod import LABEL
from gpufair.service.settings.config import load_config
from tests.kube.certificates import write_certificates
from tests.unit.deploy.read import BASE, DEPLOY, ROOT, base, documents, kustomizations, the

CONFIGS = (BASE / "config" / "gpufair.toml", DEPLOY / "kubernetes" / "overlays" / "one-node" / "config" / "gpufair.toml")


@pytest.mark.parametrize("path", kustomizations(), ids=lambda path: path.parent.name)
def test_a_kustomization_lists_what_there_is(path: Path) -> None:
    """And all of it: a file that nobody lists is applied by nobody."""
    (listed,) = documents(path)
    files = [*listed.get("resources", []), *listed.get("components", [])]
    files += [name for made in listed.get("configMapGenerator", []) for name in made["files"]]
    assert all((path.parent / name).exists() for name in files), files
    beside = {one.name for one in path.parent.glob("*.yaml")} - {path.name}
    assert beside <= set(files)


@pytest.mark.parametrize("path", CONFIGS, ids=["base", "one-node"])
def test_the_configuration_is_valid(path: Path, tmp_path: Path) -> None:
    """As the service reads it in its pod, with the certificate of a Secret."""
    write_certificates(tmp_path)
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).write_text("")
    text = path.read_text(encoding="utf-8").replace("/etc/gpufair-tls", str(tmp_path))
    (tmp_path / "gpufair.toml").write_text(text)
    (tmp_path / "budgets.toml").write_bytes((BASE / "config" / "budgets.toml").read_bytes())
    config = load_config(tmp_path / "gpufair.toml")
    (pool,) = config.pools
    assert pool.backend == "kubernetes"
    assert bool(config.store.url) == (path == CONFIGS[0])


def test_both_configurations_are_one_but_for_the_store() -> None:
    of_base, of_one = (tomllib.loads(path.read_text(encoding="utf-8")) for path in CONFIGS)
    assert of_base.pop("store")
    assert of_base == of_one


def test_the_service_is_the_pod_that_leads() -> None:
    """It selects by the label that the leader gives its pod, and by those of the Deployment."""
    objects = base()
    template = the(objects, "Deployment")["spec"]["template"]
    assert the(objects, "Service")["spec"]["selector"] == template["metadata"]["labels"] | {LABEL: "true"}
    told = {one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"] for one in template["spec"]["containers"][0]["env"][:2]}
    assert told == {"GPUFAIR_POD": "metadata.name", "GPUFAIR_POD_NAMESPACE": "metadata.namespace"}


def test_a_rollout_and_a_drain_leave_one() -> None:
    """Who stands by is ready, too: else a rollout would wait for it, and a drain for the leader, for ever."""
    objects = base()
    deployment = the(objects, "Deployment")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert deployment["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/healthz"
    assert the(objects, "PodDisruptionBudget")["spec"]["selector"] == deployment["selector"]


def test_ports_and_addresses_are_those_of_the_configuration() -> None:
    objects, config = base(), tomllib.loads(CONFIGS[0].read_text(encoding="utf-8"))
    port, options = config["service"]["port"], config["pool"][0]["kubernetes"]
    assert the(objects, "Service")["spec"]["ports"][0]["port"] == port
    assert options["service_url"] == f"https://gpufair.gpufair.svc:{port}"
    assert options["namespace"] == the(objects, "Namespace")["metadata"]["name"]
    pod = the(objects, "Deployment")["spec"]["template"]["spec"]
    mounted = {one["name"]: one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    claims = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one}
    assert {mounted[name]: claim for name, claim in claims.items()} == {options["claim_path"]: options["claim"]}
    first, last = options["tunnel_ports"]
    kernels = the(objects, "NetworkPolicy", "gpufair-workloads")["spec"]
    assert [one["port"] for one in kernels["ingress"][0]["ports"]] == list(range(first, last + 1))


def test_network_policies_speak_of_our_pods() -> None:
    """A label that pods do not have would shut them off, or leave them open."""
    ours = {"matchLabels": {names.MANAGED_BY: names.MANAGER}}
    for path in ("base/network-policies.yaml", "components/internet/network-policy.yaml"):
        objects = documents(DEPLOY / "kubernetes" / path)
        selected = [one["spec"]["podSelector"] for one in objects if "workloads" in one["metadata"]["name"]]
        assert selected == [ours]
    gangs = the(base(), "NetworkPolicy", "gpufair-gangs")["spec"]
    batch = names.labels(PodKey(WorkloadId("w"), 1), "default", "lab", "ada", "batch")
    assert gangs["podSelector"]["matchLabels"].items() <= batch.items()
    service = the(base(), "NetworkPolicy")["spec"]
    assert {"podSelector": ours} in service["ingress"][0]["from"]
    assert the(base(), "NetworkPolicy", "nobody")["spec"]["podSelector"] == {}


def test_nothing_runs_with_more_than_it_needs() -> None:
    """The level "restricted" of Kubernetes' pod security, which the namespace enforces."""
    pod = the(base(), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    container = pod["containers"][0]["securityContext"]
    assert container == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert not {"hostPath", "hostNetwork"} & set(str(pod).replace("'", " ").split())
    assert the(base(), "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_versions_are_that_of_the_package() -> None:
    """A service and a kernel of two releases do not speak with each other."""
    version = json.loads((ROOT / "labextension" / "package.json").read_text(encoding="utf-8"))["version"]
    files = [*(DEPLOY / "kubernetes").rglob("*.*"), DEPLOY / "helm" / "gpufair" / "values.yaml", DEPLOY / "images" / "Dockerfile"]
    told = "".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
    assert set(re.findall(r"jupyter-gpufair/[a-z]+:([0-9.]+)", told)) == {version}
    chart = documents(DEPLOY / "helm" / "gpufair" / "Chart.yaml")[0]
    assert (chart["version"], chart["appVersion"]) == (version, version)
