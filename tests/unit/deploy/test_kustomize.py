"""Overlays and components, put together by kustomize itself (it is a part of kubectl)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.unit.deploy.read import DEPLOY, Object, the

# One that was installed by pip lies beside the interpreter.
KUBECTL = shutil.which("kubectl") or shutil.which("kubectl", path=str(Path(sys.executable).parent))
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl here: nothing is put together by this run")


def built(folder: Path) -> list[Object]:
    """The objects of a kustomization."""
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "kustomize", str(folder)], check=True, capture_output=True, text=True)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def test_one_node_has_one_service_and_no_database() -> None:
    """Nothing that it needs is left to be made, but the certificate."""
    objects = built(DEPLOY / "kubernetes" / "overlays" / "one-node")
    deployment = the(objects, "Deployment")["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    names = [one["name"] for one in deployment["template"]["spec"]["containers"][0]["env"]]
    assert "GPUFAIR_DATABASE_PASSWORD" not in names
    assert {"GPUFAIR_POD", "GPUFAIR_POD_NAMESPACE", "GPUFAIR_STATE_DIR", "GPUFAIR_CONFIG"} <= set(names)
    assert "PodDisruptionBudget" not in {one["kind"] for one in objects}
    config = the(objects, "ConfigMap", "gpufair-config")["data"]
    assert "store" not in tomllib.loads(config["gpufair.toml"])
    assert tomllib.loads(config["budgets.toml"])["allocation"]


def test_a_labs_own_names_its_images_and_its_volumes() -> None:
    objects = built(DEPLOY / "kubernetes" / "overlays" / "lab")
    container = the(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example.org/lab/gpufair-service:0.1.0"
    assert the(objects, "PersistentVolumeClaim", "gpufair-state")["spec"]["storageClassName"] == "shared"
    assert {"ServiceMonitor", "Certificate"} <= {one["kind"] for one in objects}
    assert all(one["metadata"].get("namespace") == "gpufair" for one in objects if one["kind"] in {"Deployment", "Certificate"})


def test_before_1_21_there_is_no_policy_v1(tmp_path: Path) -> None:
    shutil.copytree(DEPLOY / "kubernetes", tmp_path / "kubernetes")
    old = tmp_path / "kubernetes" / "overlays" / "old"
    old.mkdir()
    kustomization = {"resources": ["../../base"], "components": ["../../components/before-1.21"], "namespace": "gpufair"}
    (old / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    assert the(built(old), "PodDisruptionBudget")["apiVersion"] == "policy/v1beta1"


@pytest.mark.parametrize("name", ["others", "upgrade"])
def test_the_rest_can_be_put_together(name: str) -> None:
    assert built(DEPLOY / "kubernetes" / name)
