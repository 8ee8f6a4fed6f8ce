"""What a Kubernetes cluster behind the service bears: 200 nodes of 8 GPUs, 500 workloads whose pods do nothing.

Against the API server that ``GPUFAIR_TEST_KUBECONFIG`` names, else a real one of the programs that ``make kube-build`` has put
into the cache, else (or with ``GPUFAIR_TEST_WITHOUT_REAL_KUBERNETES``) the fake one in a process of its own; the notes say which.
The service is the real one in another process, and all machines are played in a third.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.bench.core_world import cpu_scale
from tests.bench.result import Result
from tests.bench.service import running
from tests.kube.client import KubeClient
from tests.kube.control_plane import ControlPlane
from tests.kube.programs import Programs, find

STARTS_PER_S, BIND_MS = 50.0, 500.0
_FAKE = """
import sys
from pathlib import Path
from tests.kube.fake_api import FakeApi
with FakeApi() as api:
    api.kubeconfig(Path(sys.argv[1] + ".part")).rename(sys.argv[1])
    sys.stdin.read()
"""


@contextmanager
def api_server(folder: Path) -> Iterator[tuple[str, Path]]:
    """Which one it is, and its kubeconfig."""
    programs = find()
    if named := os.environ.get("GPUFAIR_TEST_KUBECONFIG"):
        yield _version(Path(named)), Path(named)
        return
    if isinstance(programs, Programs) and not os.environ.get("GPUFAIR_TEST_WITHOUT_REAL_KUBERNETES"):
        (folder / "control-plane").mkdir()
        with ControlPlane(folder / "control-plane", programs) as plane:
            yield _version(plane.kubeconfig), plane.kubeconfig
        return
    path = folder / "kubeconfig"
    process = subprocess.Popen([sys.executable, "-c", _FAKE, str(path)], stdin=subprocess.PIPE)
    try:
        until = time.monotonic() + 30
        while not path.exists():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError("the fake API server did not start")
            time.sleep(0.05)
        yield "fake", path
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)


def _version(kubeconfig: Path) -> str:
    with KubeClient(kubeconfig) as admin:
        return f"kube-apiserver {admin.ok('GET', '/version')['gitVersion']}"


def config(kubeconfig: Path, namespace: str) -> str:
    """Of a service whose only pool is the cluster; its pods' agents are told elsewhere where it is.

    One user stands for many here, so it may ask as often as they.
    """
    return f"""
budgets = "budgets.toml"
users = ["u0"]
[service]
requests_per_s = 0
[[pool]]
name = "default"
backend = "kubernetes"
[pool.kubernetes]
image = "none"
service_url = "http://127.0.0.1:9"
insecure = true
namespace = "{namespace}"
kubeconfig = {json.dumps(str(kubeconfig))}
cpu_nodes = false
gpus = {{ "nvidia.com/gpu" = "" }}
"""


@cache
def played() -> dict[str, Any]:
    """What was seen of 500 starts at the rate that is asked for, and of 500 at once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "budgets.toml").write_text('[[allocation]]\npath = "lab"\nshare = 1\n', encoding="utf-8")
        namespace = f"bench-{uuid.uuid4().hex[:8]}"
        with api_server(folder) as (server, kubeconfig), KubeClient(kubeconfig) as admin:
            admin.ok("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
            try:
                with running(folder, config(kubeconfig, namespace)) as (address, process, env):
                    asked = [address, str(folder / "state"), str(kubeconfig), namespace, str(STARTS_PER_S)]
                    everybody = [sys.executable, "-m", "tests.bench.kubernetes_crowd", *asked]
                    before = cpu_scale()
                    done = subprocess.run(everybody, env=env, stdout=subprocess.PIPE, text=True, check=False)
                    if done.returncode:
                        raise RuntimeError((folder / "service.log").read_text(encoding="utf-8")[-2000:])
                    seen: dict[str, Any] = json.loads(done.stdout)
                    seen["cpu_s"] = sum(process.cpu_times()[:2])
                    seen["cpu_scale"] = (before + cpu_scale()) / 2
            finally:
                admin.call("DELETE", f"/api/v1/namespaces/{namespace}")
    if seen["failed"]:
        raise RuntimeError(f"somebody was turned away: {seen['failed']}")
    return seen | {"server": server}


def _notes(more: dict[str, float]) -> dict[str, float | str]:
    seen = played()
    return {**more, "server": seen["server"], "cpu_s": seen["cpu_s"], "cpu_scale": seen["cpu_scale"]}


def kubernetes_starts() -> Result:
    """500 workloads at once: from the first decision until the agent in the last pod has been heard."""
    burst = played()["burst"]
    return Result(burst["per_s"], "starts per s", STARTS_PER_S, at_least=True, notes=_notes(burst))


def kubernetes_bind() -> Result:
    """From a decision until its pod is seen to have a node: the worse of two, at that rate and with 500 at once."""
    seen = played()
    both = {f"{how}_{what}": value for how in ("steady", "burst") for what, value in seen[how].items()}
    worse = max(seen[how]["bind_p99_ms"] for how in ("steady", "burst"))
    return Result(worse, "ms from decision to binding, p99", BIND_MS, notes=_notes(both))


CASES = {"kubernetes_bind": kubernetes_bind, "kubernetes_starts": kubernetes_starts}
