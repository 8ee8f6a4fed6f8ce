"""A pool that the Dask operator for Kubernetes keeps: ``operator://NAMESPACE/NAME`` is the DaskCluster NAME there.

The operator gives each cluster's scheduler a Service of a known name, so notebooks need no right to ask Kubernetes for
anything: pods of kernels have no token. Who starts, scales and ends it is the operator, by the cluster's own resources.
"""

from __future__ import annotations

import re

from gpufair.cpu.errors import PoolMissing

SCHEME = "operator"
PORT = 8786  # "tcp-comm" of the scheduler's Service
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"  # RFC 1123
_ADDRESS = re.compile(rf"{SCHEME}://(?P<namespace>{_LABEL})/(?P<name>{_LABEL})(?::(?P<port>[1-9]\d{{0,4}}))?")


def meant(address: str) -> bool:
    """Whether it names a cluster of the operator's."""
    return address.partition(":")[0] == SCHEME


def scheduler_of(address: str) -> str:
    """Where the scheduler of ``operator://NAMESPACE/NAME[:PORT]`` listens, for pods of the same Kubernetes.

    Raises:
        PoolMissing: It is written otherwise.

    Examples:
        >>> scheduler_of("operator://team-a/pool")
        'tcp://pool-scheduler.team-a.svc:8786'
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise PoolMissing(f"the CPU pool at {address}", "this names no DaskCluster", "write operator://NAMESPACE/NAME")
    return f"tcp://{found['name']}-scheduler.{found['namespace']}.svc:{found['port'] or PORT}"
