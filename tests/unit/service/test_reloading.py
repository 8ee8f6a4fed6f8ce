"""A changed configuration while everything goes on."""

from __future__ import annotations

from pathlib import Path

from gpufair.core.units import HOUR
from gpufair.service.settings.config import load_config
from tests.unit.service.rig import bearer, service_at

API = "/api/v1"
FIRST = """\
budgets = "budgets.toml"
users = ["ada"]
operators = ["olga"]

[policy]
max_min_runtime = "8h"
"""
SECOND = """\
budgets = "budgets.toml"
users = ["ada", "bo"]
auditors = ["ida"]

[policy]
max_min_runtime = "4h"

[[profile]]
name = "big"
gpus = 8

[[node]]
name = "gpu-9"
remote = true
"""


def write(folder: Path, config: str, *teams: str) -> Path:
    (folder / "budgets.toml").write_text("".join(f'[[allocation]]\npath = "{team}"\n' for team in teams))
    file = folder / "gpufair.toml"
    file.write_text(config)
    return file


async def test_people_profiles_budgets_and_policy_change_and_the_rest_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, FIRST, "a")
    known = load_config(file)
    changes = {name: getattr(known, name) for name in ("source", "budgets_file", "budgets", "users", "operators", "policy")}
    async with service_at(tmp_path / "state", **changes | {"budget_owners": {}}) as (it, client):
        operator, bo = bearer(it.secrets.operator_token()), bearer(it.secrets.user_token("bo"))
        olga, ida = bearer(it.secrets.user_token("olga")), bearer(it.secrets.user_token("ida"))
        assert (await client.get(f"{API}/status", headers=bo)).status_code == 401
        assert (await client.post(f"{API}/reload", headers=bearer(it.secrets.user_token("ada")))).status_code == 403

        write(tmp_path, SECOND, "a", "b")
        answer = await client.post(f"{API}/reload", headers=operator)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert {"users", "operators", "auditors", "policy", "profiles", "budgets"} <= set(told["changed"])
        assert "nodes" in told["needs_restart"]
        assert "service" not in told["needs_restart"], "nothing of it was changed"

        assert (await client.get(f"{API}/status", headers=bo)).json()["user"] == "bo"
        assert (await client.get(f"{API}/status", headers=olga)).status_code == 401
        assert (await client.get(f"{API}/audit", headers=ida)).status_code == 200
        assert [one["name"] for one in (await client.get(f"{API}/profiles", headers=bo)).json()["profiles"]] == ["big"]
        assert "b" in [one["path"] for one in (await client.get(f"{API}/budgets", headers=bo)).json()["allocations"]]
        assert (await it.runtime.read(lambda state: state.policy)).max_min_runtime == 4 * HOUR
        assert sorted(path.stem for path in (tmp_path / "state" / "tokens").iterdir()) == ["ada", "bo", "ida"]
        again = (await client.post(f"{API}/reload", headers=operator)).json()
        assert (again["changed"], again["needs_restart"]) == ([], told["needs_restart"])


async def test_a_mistake_changes_nothing(tmp_path: Path) -> None:
    file = write(tmp_path, FIRST, "a")
    known = load_config(file)
    changes = {name: getattr(known, name) for name in ("source", "budgets_file", "budgets", "users", "operators", "policy")}
    async with service_at(tmp_path / "state", **changes | {"budget_owners": {}}) as (it, client):
        operator = bearer(it.secrets.operator_token())
        for wrong in (FIRST.replace("8h", "eight"), FIRST.replace("users", "usres"), "["):
            write(tmp_path, wrong, "a")
            answer = await client.post(f"{API}/reload", headers=operator)
            assert answer.status_code in (400, 409, 422), answer.text
            assert "gpufair.toml" in answer.json()["detail"]
        file.unlink()
        assert (await client.post(f"{API}/reload", headers=operator)).status_code in (400, 409, 422)
        assert (await client.get(f"{API}/status", headers=bearer(it.secrets.user_token("ada")))).status_code == 200


CLUSTER = """\
[[pool]]
name = "kube"
backend = "kubernetes"

[pool.kubernetes]
image = "lab/kernel:1"
service_url = "https://gpufair.lab:8443"
kubeconfig = "kube.yaml"
claim = "state"
claim_path = "/var/lib/gpufair"

[[profile]]
name = "big"
gpus = 8
pod = { image = "lab/big:1" }
"""
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: lab
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
clusters: [{name: lab, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: lab, user: {}}]
"""


async def test_the_next_pod_of_a_profile_is_the_one_that_was_reloaded(tmp_path: Path) -> None:
    """What is said to be in use is: pods of the cluster come of the new profiles, new ones and changed ones alike."""
    (tmp_path / "kube.yaml").write_text(KUBECONFIG)
    known = load_config(write(tmp_path, FIRST + CLUSTER, "a"))
    changes = {name: getattr(known, name) for name in ("source", "budgets_file", "budgets", "users", "operators", "profiles", "pools")}
    async with service_at(tmp_path / "state", **changes | {"budget_owners": {}}) as (it, client):
        assert it.kubernetes is not None
        (cluster,) = it.kubernetes.clusters
        assert [cluster.site.template_of(name).image for name in ("big", "new")] == ["lab/big:1", ""]
        new = CLUSTER.replace("lab/big:1", "lab/big:2") + CLUSTER[CLUSTER.index("[[profile]]") :].replace("big", "new")
        write(tmp_path, FIRST + new, "a")
        answer = await client.post(f"{API}/reload", headers=bearer(it.secrets.operator_token()))
        assert "profiles" in answer.json()["changed"], answer.text
        assert [cluster.site.template_of(name).image for name in ("big", "new")] == ["lab/big:2", "lab/new:1"]
