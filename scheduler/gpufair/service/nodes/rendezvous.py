"""How the processes of a command on several nodes find each other: the variables that PyTorch and torchrun read.

One process is started on each node. A program that is one process per node finds MASTER_ADDR, MASTER_PORT, RANK and
WORLD_SIZE; `torchrun train.py` finds its own options in PET_*, and starts one process for each GPU.
"""

from __future__ import annotations

import zlib

# Below the ports that systems give to outgoing connections, and above those of well-known services.
_PORTS_FROM, _PORTS = 20_000, 8_000


def rendezvous(workload: str, incarnation: int, rank: int, nodes: int, gpus: int, address: str) -> dict[str, str]:
    """The variables for one node.

    Args:
        workload: Its id.
        incarnation: Which start of it. Each has a port of its own: the last one's may still be in use.
        rank: Of the node, from 0.
        nodes: How many there are.
        gpus: Of the node.
        address: Of the node with rank 0, as the others reach it.
    """
    port = str(_PORTS_FROM + zlib.crc32(f"{workload} {incarnation}".encode()) % _PORTS)
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "NODE_RANK": str(rank),
        "RANK": str(rank),
        "WORLD_SIZE": str(nodes),
        "LOCAL_RANK": "0",
        "PET_NNODES": str(nodes),
        "PET_NODE_RANK": str(rank),
        "PET_NPROC_PER_NODE": str(max(gpus, 1)),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
    }
