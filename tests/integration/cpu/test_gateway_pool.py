"""The CPU pool in clusters of a real dask-gateway, with its proxy, whose clusters are processes of this machine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.config
import pytest

from gpufair import cpu
from gpufair.cpu import gateway, kept, worker
from gpufair.cpu.connection import reach
from gpufair.cpu.errors import PoolMissing

pytest.importorskip("dask_gateway")
pytest.importorskip("dask_gateway_server", reason="its wheel with the proxy is for Linux on x86-64")

WAIT_S = 60.0
CONFIG = """
import sys
from dask_gateway_server.options import Options, String

c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.SimpleAuthenticator.password = "sesame"
c.DaskGateway.address = "127.0.0.1:{api}"
c.Proxy.address = "127.0.0.1:{proxy}"
c.LocalBackend.clusters_directory = {clusters!r}
c.LocalBackend.sigint_timeout = c.LocalBackend.sigterm_timeout = 2
c.LocalBackend.inherited_environment = ["PATH", "PYTHONPATH"]
c.ClusterConfig.scheduler_cmd = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = [sys.executable, "-m", "distributed.cli.dask_worker"]
c.ClusterConfig.cluster_max_workers = 2
c.ClusterConfig.adaptive_period = 0.5
c.Backend.cluster_options = Options(String("image", default="plain"))
"""
KERNEL = """
import sys, time
from gpufair import cpu

print(cpu.connect(sys.argv[1]).where.scheduler, flush=True)
time.sleep(600)
"""


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway, in our words."""
    folder = tmp_path_factory.mktemp("gateway")
    api, proxy = free_ports()
    (folder / "clusters").mkdir()
    config, log = folder / "config.py", folder / "log"
    config.write_text(CONFIG.format(api=api, proxy=proxy, clusters=str(folder / "clusters")))
    argv = [sys.executable, "-m", "dask_gateway_server", "-f", str(config)]
    with log.open("wb") as file:
        process = subprocess.Popen(argv, cwd=folder, stdout=file, stderr=file)
    try:
        until = time.monotonic() + WAIT_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{proxy}/api/version", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.1)
        yield f"gateway+http://127.0.0.1:{proxy}"
    finally:
        process.terminate()  # which ends its clusters, too
        process.wait(WAIT_S)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder whose notebooks know the password, as other processes with this environment do."""
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("GPUFAIR_CPU_POOL", raising=False)
    monkeypatch.delenv("GPUFAIR_ALLOCATION", raising=False)
    monkeypatch.setenv("DASK_GATEWAY__AUTH__KWARGS__USERNAME", "ada")
    monkeypatch.setenv("DASK_GATEWAY__AUTH__KWARGS__PASSWORD", "sesame")
    with dask.config.set({"gateway.auth.kwargs": {"username": "ada", "password": "sesame"}}):
        yield tmp_path
        cpu.close()
        gateway.stop()


def command(*words: str) -> Any:
    """What ``gpufair cpu WORDS --gateway --json`` prints."""
    argv = [sys.executable, "-m", "gpufair.cli", "cpu", *words, "--gateway", "--json"]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, timeout=WAIT_S).stdout)


def test_a_cluster_outlives_kernels_and_is_found_by_the_next(
    server: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole life: started once for two kernels that are killed, used by the next one, looked at, stopped."""
    argv = [sys.executable, "-c", KERNEL, server]
    kernels = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        first, other = (kernel.stdout.readline().strip() for kernel in kernels if kernel.stdout)
    finally:
        for kernel in kernels:
            kernel.kill()
            kernel.communicate()
    assert first == other != ""
    pool = cpu.connect(server, workers=2)
    assert pool.where.scheduler == first
    assert "/status" in repr(pool)
    factor = 6
    assert cpu.submit(lambda: 7 * factor).result() == 42
    assert cpu.gather(cpu.map(lambda n: n * factor, range(5))) == [0, 6, 12, 18, 24]
    [seen] = command("status")
    assert (seen["status"], seen["address"], seen["dashboard"]) == ("running", pool.address, pool.dashboard)

    # A task that a checkpoint mentions is there for the kernel that restores it.
    task = cpu.submit(lambda: 8 * factor)
    assert kept.keep_new(pool.client, [task.ticket]) == {task.ticket}
    cpu.close()
    [future] = reach(pool.where, "a task").futures([task.ticket]).values()
    assert worker.opened(future.result(timeout=WAIT_S)) == 48
    cpu.close()

    # Another allocation's budget, and other options, are another cluster.
    monkeypatch.setenv("GPUFAIR_ALLOCATION", "language/pretrain")
    with pytest.raises(PoolMissing, match=r"did not start in 0 s; connect again"):
        gateway.found(server, options={"image": "large"}, wait_s=0)
    ours = {each.name: each.allocation for each in gateway.started()}
    assert len(ours) == 2
    assert {ours.pop(seen["name"]), *ours.values()} == {"", "language/pretrain"}

    assert {each["name"] for each in command("stop")} == {seen["name"], *ours}
    assert command("status") == []
    assert gateway.again(pool.address) is None
    with pytest.raises(PoolMissing, match="did not start"):
        gateway.found(server, options={"image": "large"}, wait_s=0)
    assert {each.name for each in gateway.started()}.isdisjoint({seen["name"], *ours})


def test_what_is_wrong_is_said(server: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with what to do; nothing is left behind."""
    with pytest.raises(PoolMissing, match=r"(?s)answers 401.*gateway\.auth"), dask.config.set({"gateway.auth.kwargs": {}}):
        cpu.connect(server)
    with pytest.raises(PoolMissing, match="flavour"):
        cpu.connect(server, options={"flavour": "hot"})
    with pytest.raises(PoolMissing, match="gives no answer"):
        cpu.connect(f"gateway+http://127.0.0.1:{free_ports()[0]}")
    with pytest.raises(PoolMissing, match="no host in it"):
        cpu.connect("gateway://")
    with pytest.raises(PoolMissing, match="No dask-gateway address"):
        cpu.connect("gateway:")
    assert gateway.started() == []
    monkeypatch.setitem(sys.modules, "dask_gateway", None)
    with pytest.raises(PoolMissing, match=r"jupyter-gpufair\[gateway\]"):
        cpu.connect(server)
