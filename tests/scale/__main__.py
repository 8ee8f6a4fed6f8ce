"""What 1,000 and 10,000 GPUs ask of a Kubernetes and of the store of checkpoints (docs/scale.md).

    python -m tests.scale requests [--nodes 16 --gpus 8 --workloads 128] [--kubeconfig FILE] [--json FILE]
    python -m tests.scale waves [--cluster 128x8 --days 3 --seed 1] [--json FILE]

Not a test of the suite, apart from a small run of it. Without --kubeconfig the requests go to the fake API server in this process: numbers
of requests and sizes of objects are the same there, times are not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.integration.kubernetes.conftest import Server
from tests.kube.cluster import Cluster, make_cluster
from tests.kube.fake_api import FakeApi
from tests.scale import counted, waves


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    requests = parts.add_parser("requests", help="count what is asked of an API server")
    requests.add_argument("--nodes", type=int, default=16)
    requests.add_argument("--gpus", type=int, default=8, help="of each node")
    requests.add_argument("--workloads", type=int, help="of one GPU each; all GPUs are in use without it")
    requests.add_argument("--idle", type=float, default=10.0, metavar="SECONDS", help="how long nothing happens")
    requests.add_argument("--within", type=float, default=300.0, metavar="SECONDS", help="for each step")
    requests.add_argument("--kubeconfig", type=Path, help="of a real API server without a scheduler of its own for these pods")
    wave = parts.add_parser("waves", help="simulate how much is saved at once")
    wave.add_argument("--cluster", default="128x8")
    wave.add_argument("--days", type=float, default=3.0)
    wave.add_argument("--seed", type=int, default=1)
    wave.add_argument("--writer", type=float, default=1.0, metavar="GIB_S", help="what one pod writes, undisturbed")
    for part in (requests, wave):
        part.add_argument("--json", type=Path, help="keep the figures here")
    given = parser.parse_args(arguments)
    if given.part == "waves":
        found = waves.measure(given.cluster, given.days, given.seed, given.writer)
    else:
        workloads = given.workloads or given.nodes * given.gpus
        if workloads > given.nodes * given.gpus:
            parser.error(f"{workloads} workloads need as many GPUs, and there are {given.nodes * given.gpus}; ask for fewer")
        found = asyncio.run(_requests(given, workloads))
    print(json.dumps(found, indent=1))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


async def _requests(given: argparse.Namespace, workloads: int) -> dict[str, Any]:
    sizes = {"nodes": given.nodes, "gpus": given.gpus, "workloads": workloads, "idle_s": given.idle, "within_s": given.within}
    with tempfile.TemporaryDirectory(prefix="gpufair-scale-") as name:
        folder = Path(name)
        if given.kubeconfig is not None:
            return await _at(make_cluster("real", given.kubeconfig, folder), folder, sizes)
        with FakeApi() as fake:
            return await _at(make_cluster("fake", fake.kubeconfig(folder / "kubeconfig"), folder, fake=fake), folder, sizes)


async def _at(cluster: Cluster, folder: Path, sizes: dict[str, Any]) -> dict[str, Any]:
    server = Server(cluster.kubeconfig, cluster.namespace, cluster.fake, cluster)
    try:
        version = cluster.client.ok("GET", "/version")["gitVersion"]
        return {"server": version, **await counted.measure(folder, server, **sizes)}
    finally:
        cluster.close()


if __name__ == "__main__":
    sys.exit(main())
