"""``[[pool]]`` of the configuration: the clusters of the service, and who carries out what is decided for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpufair.service.settings.kubernetes_options import KubernetesOptions, read_kubernetes
from gpufair.service.settings.node_options import NodeConfig
from gpufair.service.settings.pod_storage import claims
from gpufair.service.settings.profile_options import Profile
from gpufair.service.settings.tables import Table, hint, shown

AGENTS: Final = "agents"
KUBERNETES: Final = "kubernetes"
BACKENDS: Final = (AGENTS, KUBERNETES)


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """A cluster, or a part of one, and who carries out what is decided for it: one of ``BACKENDS``.

    ``kubernetes``: its options where that is the backend.
    """

    name: str
    backend: str = AGENTS
    kubernetes: KubernetesOptions | None = None


def read_pool(table: Table, folder: Path) -> PoolConfig:
    """One table as a pool. ``folder``: what relative paths count from.

    Raises: ConfigError: Something in it is not valid.
    """
    name, backend = table.ident("name"), table.choice("backend", AGENTS, BACKENDS)
    kubernetes = None
    if backend == KUBERNETES:
        if not table.has("kubernetes"):
            table.fail(f"pool {name!r} has no [pool.kubernetes] below it; say there which image and address its pods use", None)
        kubernetes = read_kubernetes(table.table("kubernetes"), folder)
    elif table.has("kubernetes"):
        table.fail(f'[pool.kubernetes] is for a pool with backend = "{KUBERNETES}"; {name!r} has "{backend}"', "kubernetes")
    table.finish()
    return PoolConfig(name, backend, kubernetes)


def refuse_unknown_pools(
    root: Table, nodes: tuple[NodeConfig, ...], pools: tuple[PoolConfig, ...], profiles: tuple[Profile, ...]
) -> None:
    """Who lists the pools has listed all; a profile names those that there are; a cluster tells its nodes itself.

    Raises: ConfigError: A node or a profile names another one, or a node one that is a cluster of Kubernetes.
    """
    clusters = {pool.name for pool in pools if pool.kubernetes is not None}
    known = sorted({pool.name for pool in pools} or {node.pool for node in nodes})
    for table, node in zip(root.tables("node"), nodes, strict=False) if pools else ():
        if node.pool not in known:
            table.fail(f"pool = {shown(node.pool)}: there is no [[pool]] of this name{hint(node.pool, known)}", "pool")
        if node.pool in clusters:
            table.fail(
                f"node {node.name!r} is in the pool {node.pool!r}, whose nodes Kubernetes tells; give it to a pool of its own",
                "pool" if table.has("pool") else None,
            )
    for table, profile in zip(root.tables("profile"), profiles, strict=True):
        if len(set(profile.pools)) < len(profile.pools):
            table.fail("pools names one of them twice", "pools")
        for name in profile.pools:
            if name not in known:
                listed = ", ".join(known)
                table.fail(f"pools: no node belongs to a pool {shown(name)}{hint(name, known)}; known are {listed}", "pools")


def refuse_mounted_state(root: Table, pools: tuple[PoolConfig, ...], profiles: tuple[Profile, ...]) -> None:
    """The volume with everybody's records and checkpoints is no volume of a profile: its pods would see all of it.

    Raises: ConfigError: A profile has it.
    """
    state = {pool.kubernetes.claim for pool in pools if pool.kubernetes is not None and pool.kubernetes.claim}
    for table, profile in zip(root.tables("profile"), profiles, strict=True):
        for volume, claim in claims(profile.pod.pod.get("volumes", [])) if profile.pod is not None else ():
            if claim in state:
                table.fail(
                    f"pod: the volume {volume!r} is the claim {claim!r} of [pool.kubernetes], which holds everybody's checkpoints; "
                    "each pod gets the folders that are its own by itself",
                    "pod",
                )


def refuse_unknown_allocations(root: Table, pools: tuple[PoolConfig, ...], leaves: Iterable[str]) -> None:
    """What a namespace may use has to be there, else each of its pods would be refused one by one.

    Raises: ConfigError: One names another allocation.
    """
    known = list(leaves)
    for table, pool in zip(root.tables("pool"), pools, strict=True):
        for namespace, allocations in pool.kubernetes.namespaces.items() if pool.kubernetes is not None else ():
            for name in allocations:
                if name not in known:
                    table.table("kubernetes").table("namespaces").fail(
                        f"{shown(name)} of namespace {namespace!r} is not a leaf of the budget tree{hint(name, known)}; "
                        f"leaves are {', '.join(known)}",
                        namespace,
                    )
