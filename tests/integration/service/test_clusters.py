"""Two clusters under one service: this machine, and one whose agent is remote. One budget tree, a ledger for each."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufair.client import Client
from tests.integration.service.rig import CONFIG, Rig, until

CLUSTERS = CONFIG + (
    '\n[[node]]\nname = "far"\nremote = true\npool = "far"\n[[pool]]\nname = "default"\n[[pool]]\nname = "far"\nbackend = "agents"\n'
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, CLUSTERS)
    try:
        yield rig
    finally:
        rig.clean()


def agent(rig: Rig, port: int) -> subprocess.Popen[bytes]:
    """`gpufair agent far`, as on another machine; a restarted service is found at the same address."""
    gpufair, token = [sys.executable, "-m", "gpufair.cli"], rig.folder / "far.token"
    given = [*gpufair, "nodes", "token", "far", "--output", str(token), "--state-dir", str(rig.state)]
    subprocess.run(given, check=True, capture_output=True, timeout=60)
    command = [*gpufair, "agent", "far", "--run-as", "agent", "--service", f"http://127.0.0.1:{port}", "--token-file", str(token), "--gpus", "1"]
    command += ["--host", "127.0.0.1", "--listen", "127.0.0.1", "--folder", str(rig.folder / "far")]
    with (rig.folder / "agent.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def test_one_tree_and_two_ledgers(rig: Rig) -> None:
    """A preemption in one cluster leaves the other alone, a restart finds both again, and one is emptied for itself."""
    port = free_port()
    rig.start("--port", str(port))
    far = agent(rig, port)
    try:
        with Client(state_dir=rig.state) as client:
            until("the far cluster", lambda: [one for one in client.pools() if one.name == "far" and one.gpus == 1], 60)
            # Both are a's, and neither is protected when b comes, who wants the near cluster only.
            for pool, protected_s in (("default", 0), ("far", 1)):
                rig.submit(f"a-{pool}", "sleep 600", pools=[pool], min_runtime_s=protected_s)
                rig.await_state(f"a-{pool}", "running")
            until("the end of the protections", lambda: time.time() > rig.get("a-far")["protected_until_s"])
            rig.submit("b-near", "sleep 600", allocation="b", pools=["default"])
            told = rig.await_state("b-near", "running")
            assert (told["pool"], rig.await_state("a-default", "queued")["pools"]) == ("default", ["default"])
            assert (rig.get("a-far")["state"], rig.get("a-far")["preemptions"]) == ("running", 0)
            parts = {(one.path, part.pool): part for one in client.budgets().allocations for part in one.pools}
            assert parts["b", "far"].occupancy_gpu_s + parts["b", "far"].commitment_gpu_s == 0
            assert parts["b", "default"].commitment_gpu_s > 0
            assert parts["a", "far"].occupancy_gpu_s > 0
            assert parts["a", "default"].occupancy_gpu_s == 0
            assert (parts["a", "far"].gpus_held, parts["b", "default"].gpus_held) == (1, 1)
        rig.kill()
        rig.start("--port", str(port))
        with Client(state_dir=rig.state) as client:
            until("both clusters", lambda: [one.lost for one in client.pools()] == [0, 0], 60)
            for name in ("b-near", "a-far"):
                assert rig.await_state(name, "running")["incarnation"] == 1
                assert rig.starts(name) == 1
            drained = client.drain_pool("far", within_s=0, force=True)
            assert (drained.cordoned, drained.free_gpus) == (1, 0)
            rig.await_state("a-far", "queued")
            assert rig.get("b-near")["state"] == "running"
            client.uncordon_pool("far")
            assert rig.await_state("a-far", "running")["incarnation"] == 2
            for name in ("a-default", "a-far", "b-near"):
                client.stop(name)
                rig.await_state(name, "ended")
            rig.check_books()
    finally:
        far.terminate()
        far.wait(30)
