"""`gpufair doctor`: what is well, what is not, and what to do about it."""

from __future__ import annotations

import sqlite3
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Gpufair
from tests.unit.client.fake_service import FakeService, Reply


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder as the service makes it, of nobody's configuration."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("GPUFAIR_CONFIG", raising=False)
    place = tmp_path / "state"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(place))
    with sqlite3.connect(place / "journal.sqlite") as journal:
        journal.execute("CREATE TABLE journal (seq INTEGER)")
        journal.executemany("INSERT INTO journal VALUES (?)", [(at,) for at in range(300)])
    journal.close()
    return place


@pytest.fixture
def service(fake: FakeService) -> FakeService:
    """One that is well."""
    version = metadata.version("jupyter-gpufair")
    fake.routes |= {
        "GET /api/v1/status": lambda _asked: Reply(body={"version": version, "now_s": time.time(), "user": "ops"}),
        "GET /readyz": Reply(body={"ready": True}),
        "GET /api/v1/nodes": Reply(body={"nodes": [{"name": "gpu-1", "gpus": 8, "state": "ready"}]}),
    }
    return fake


def findings(gpufair: Gpufair, *args: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Exit code, and what was found about what."""
    seen = gpufair("doctor", "--json", *args)
    found: dict[str, list[dict[str, Any]]] = {}
    for one in seen.json["findings"]:
        found.setdefault(one["about"], []).append(one)
    assert seen.json["healthy"] == (seen.code == 0)
    return seen.code, found


def test_all_is_well(gpufair: Gpufair, service: FakeService, folder: Path) -> None:
    code, found = findings(gpufair)
    assert code == 0, found
    assert found["journal"][0]["said"] == f"300 entries in {folder / 'journal.sqlite'}"
    assert found["nodes"][0]["said"] == "1 node with 8 GPUs"
    assert found["clock"][0]["level"] == "ok"
    text = gpufair("doctor")
    assert (text.code, text.out.splitlines()[-1]) == (0, "0 problems, 0 warnings")


@pytest.mark.parametrize(
    ("about", "word", "change"),
    [
        ("nodes", "gpu-2 is lost", {"GET /api/v1/nodes": {"nodes": [{"name": "gpu-2", "gpus": 8, "state": "lost"}]}}),
        ("service", "a full disk", {"GET /readyz": Reply(503, {"ready": False, "detail": "a full disk"})}),
        ("service", "not your token", {"GET /api/v1/status": Reply(401, {"detail": "not your token", "error": "Unauthorized"})}),
    ],
)
def test_a_problem_is_named_and_fails(
    gpufair: Gpufair, service: FakeService, folder: Path, about: str, word: str, change: dict[str, Any]
) -> None:
    service.routes |= {at: one if isinstance(one, Reply) else Reply(body=one) for at, one in change.items()}
    code, found = findings(gpufair)
    assert code == 1
    assert any(one["level"] == "problem" and word in one["said"] for one in found[about]), found


def test_a_lost_node_may_be_taken_off_the_list(gpufair: Gpufair, service: FakeService, folder: Path) -> None:
    """Else one that was sold stays a problem for ever."""
    service.routes["GET /api/v1/nodes"] = Reply(body={"nodes": [{"name": "gpu-2", "gpus": 8, "state": "lost"}]})
    _, found = findings(gpufair)
    assert any(one["advice"].endswith("`gpufair nodes remove gpu-2` if it will not come back") for one in found["nodes"]), found


def test_versions_and_clocks_that_differ_are_warnings(gpufair: Gpufair, service: FakeService, folder: Path) -> None:
    service.routes["GET /api/v1/status"] = lambda _asked: Reply(
        body={"version": "0.0.1", "now_s": time.time() - 90, "user": "ops"}
    )
    code, found = findings(gpufair)
    assert code == 0
    assert any("version 0.0.1" in one["said"] for one in found["service"])
    (clock,) = found["clock"]
    assert clock["level"] == "warning"
    assert "differ by 90 s" in clock["said"]


def test_what_is_wrong_with_the_files(gpufair: Gpufair, service: FakeService, folder: Path) -> None:
    """A folder that others read, a journal that is none, a configuration with a mistake: all are told at once."""
    folder.chmod(0o755)
    (folder / "journal.sqlite").write_bytes(b"no database at all " * 100)
    config = folder.parent / "wrong.toml"
    config.write_text("[service]\nprot = 1\n", encoding="utf-8")
    code, found = findings(gpufair, "--config", str(config))
    assert code == 1
    assert f"chmod 700 {folder}" in found["state folder"][0]["advice"]
    assert "cannot be read" in found["journal"][0]["said"]
    (configuration,) = found["configuration"]
    assert configuration["level"] == "problem"
    assert "wrong.toml" in configuration["said"]
    assert found["nodes"][0]["level"] == "ok"


def test_nodes_of_a_cluster_have_other_next_steps(gpufair: Gpufair, service: FakeService, folder: Path) -> None:
    """There is no agent whose log one could read, and a cordon of ours opens nothing that kubectl has closed."""
    held = "nothing is changed in Kubernetes: the Lease 'gpufair' is held by another-1"
    labels = {"kubernetes.io/hostname": "k1"}
    nodes = [
        {"name": "k1_mig-1g.5gb", "gpus": 4, "state": "cordoned", "cordoned": True, "labels": labels,
         "problems": [held, "k1 is cordoned in Kubernetes; `kubectl uncordon k1` opens it"]},
        {"name": "k2", "gpus": 4, "state": "lost", "labels": labels, "problems": [held, "Kubernetes has no node k2 for this pool any more"]},
        {"name": "k3", "gpus": 4, "state": "cordoned", "labels": labels, "problems": [held, "k3 is not ready: no network"]},
        {"name": "k4", "gpus": 4, "state": "lost", "labels": labels, "problems": [held]},
    ]  # fmt: skip
    service.routes["GET /api/v1/nodes"] = Reply(body={"nodes": nodes})
    code, found = findings(gpufair)
    assert code == 1
    told = {one["said"]: (one["level"], one["advice"]) for one in found["nodes"]}
    assert told == {
        f"k1_mig-1g.5gb, k2, k3 and 1 more: {held}": ("problem", ""),
        "k1_mig-1g.5gb: k1 is cordoned in Kubernetes; `kubectl uncordon k1` opens it": ("warning", ""),
        "k2: Kubernetes has no node k2 for this pool any more": ("problem", "`kubectl describe node k2` says more"),
        "k3: k3 is not ready: no network": ("warning", "`kubectl describe node k3` says more"),
        "2 nodes with 8 GPUs": ("ok", ""),
    }
    service.routes["GET /api/v1/nodes"] = Reply(body={"nodes": [{"name": "k1", "gpus": 0, "labels": labels}]})
    (none,) = findings(gpufair)[1]["nodes"]
    assert "kubectl describe nodes" in none["advice"]
    assert "[[node]]" not in none["advice"]


def test_a_cluster_that_is_not_there_is_a_finding(gpufair: Gpufair, service: FakeService, folder: Path) -> None:
    """The pool is named, and the other checks go on."""
    (folder.parent / "kube.yaml").write_text("apiVersion: v1\nkind: Config\n", encoding="utf-8")
    config = folder.parent / "cluster.toml"
    pool = '[[pool]]\nname = "c"\nbackend = "kubernetes"\n[pool.kubernetes]\nimage = "i"\nservice_url = "https://127.0.0.1:1"\n'
    config.write_text(f'{pool}kubeconfig = "kube.yaml"\nclaim = "s"\nclaim_path = "{folder}/nowhere"\n', encoding="utf-8")
    code, found = findings(gpufair, "--config", str(config))
    assert code == 1
    said = [one["said"] for one in found["pool c"]]
    assert said[0] == "service_url names 127.0.0.1, which is each pod itself: no pod reaches the service there"
    assert said[1].startswith(f"claim_path {folder}/nowhere is not there")
    assert "kube.yaml" in said[2]
    assert found["nodes"][-1]["level"] == "ok"
