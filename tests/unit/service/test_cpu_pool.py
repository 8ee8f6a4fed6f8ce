"""``[cpu_pool]`` and the routes of the pool that the service keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.core.units import HOUR
from gpufair.service.settings.config import parse_config
from gpufair.service.settings.cpu_pool_options import CpuPoolOptions
from gpufair.service.settings.tables import ConfigError
from tests.unit.service.rig import LAUNCH, bearer, service_at


def read(text: str, folder: Path = Path("/x")) -> CpuPoolOptions:
    return parse_config(f"[cpu_pool]\n{text}", str(folder / "gpufair.toml")).cpu_pool


def pems(folder: Path) -> str:
    """Three files, and the options that name them."""
    for name in ("ca", "certificate", "key"):
        (folder / f"{name}.pem").write_text(f"PEM of {name}")
    return "\n".join(f'{name} = "{name}.pem"' for name in ("ca", "certificate", "key"))


def test_a_laptop_has_one_without_asking() -> None:
    """It costs nothing until it is used."""
    assert parse_config("", "x").cpu_pool == CpuPoolOptions(enabled=True)


def test_all_options_are_read(tmp_path: Path) -> None:
    """With their units."""
    own = read('workers = 8\nmemory = "4GiB"\ntasks_per_user = 16\nwindow = "1h"')
    assert own == CpuPoolOptions(workers=8, memory=4 << 30, tasks_per_user=16, window=HOUR)
    assert read('tasks_per_user = "off"').tasks_per_user == 0
    assert not read("enabled = false").enabled
    other = read(f'address = "tls://pool:8786"\n{pems(tmp_path)}', tmp_path)
    assert other.address == "tls://pool:8786"
    assert other.tls == (tmp_path / "ca.pem", tmp_path / "certificate.pem", tmp_path / "key.pem")
    assert read('address = "gateway://hub.example/services/dask-gateway"').tls == ()
    assert read('address = "tcp://10.0.0.1:8786"').tls == ()
    assert read('address = "operator://team-a/pool"').address == "tcp://pool-scheduler.team-a.svc:8786"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workers = 0", ["allowed are 1 to"]),
        ('memory = "1MiB"', ["64MiB"]),
        ("memory = 4", ["4GiB"]),
        ("tasks_per_user = -1", ["allowed are 0 to"]),
        ('window = "1s"', ["allowed are 1m"]),
        ("worker = 2", ["unknown key 'worker'", "workers"]),
        ('address = "pool:8786"', ["tls://host:8786"]),
        ('address = "tls://pool"', ["tls://host:8786"]),
        ('address = "operator://pool"', ["names no DaskCluster", "write operator://NAMESPACE/NAME"]),
        ('address = "tls://pool:8786"', ["needs ca, certificate and key"]),
        ('address = "tcp://pool:8786"\nworkers = 2', ["workers is for a pool that the service starts"]),
        ('ca = "ca.pem"', ["needs certificate and key"]),
        ('ca = "no.pem"\ncertificate = "no.pem"\nkey = "no.pem"', ["/x/no.pem, which is not there"]),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, words: list[str]) -> None:
    """With the place and the remedy."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    for part in ("/x/gpufair.toml, line", *words):
        assert part in str(caught.value)


async def test_everybody_may_join_and_counts_for_himself(tmp_path: Path) -> None:
    """For the allocation of the workload that asks, if it is one's own."""
    options = read(f'address = "tls://pool:8786"\n{pems(tmp_path)}', tmp_path)
    async with service_at(tmp_path / "state", cpu_pool=options) as (it, client):
        body = {"id": "w1", "user": "ada", "allocation": "b", "gpus": 0, "launch": LAUNCH}
        assert (await client.post("/api/v1/workloads", json=body)).status_code == 201
        ada, bo = (bearer(it.secrets.user_token(user)) for user in ("ada", "bo"))
        seen = (await client.get("/api/v1/cpu-pool", headers=ada)).json()
        assert (seen["state"], seen["address"]) == ("running", "tls://pool:8786")
        assert not {"ca", "certificate", "key", "log"} & set(seen)

        async def joined(headers: dict[str, str], **named: str) -> dict[str, str]:
            answer = await client.post("/api/v1/cpu-pool/join", json=named, headers=headers)
            assert answer.status_code == 200, answer.text
            found: dict[str, str] = answer.json()
            return found

        mine = await joined(ada, workload="w1")
        assert (mine["user"], mine["allocation"]) == ("ada", "b")
        assert [mine[name] for name in ("ca", "certificate", "key")] == ["PEM of ca", "PEM of certificate", "PEM of key"]
        for other in ({"workload": "w1"}, {"workload": "gone"}, {}):
            found = await joined(bo, **other)
            assert (found["user"], found["allocation"]) == ("bo", "b")
        operators = await joined({}, workload="w1")
        assert (operators["user"], operators["allocation"]) == ("ada", "b"), "a workload on this machine asks with the operator's token"
        assert (await client.post("/api/v1/cpu-pool/join", headers=bearer("nobody"))).status_code == 401

        (tmp_path / "key.pem").unlink()
        failed = await joined(ada)
        assert failed["state"] == "failed"
        assert "TLS files" in failed["reason"]


async def test_one_that_is_off_is_said_to_be_off(tmp_path: Path) -> None:
    """So that notebooks start workers of their own."""
    async with service_at(tmp_path, cpu_pool=CpuPoolOptions(enabled=False)) as (_, client):
        for answer in (await client.get("/api/v1/cpu-pool"), await client.post("/api/v1/cpu-pool/join")):
            assert answer.json()["state"] == "off"
            assert "key" not in answer.json()
