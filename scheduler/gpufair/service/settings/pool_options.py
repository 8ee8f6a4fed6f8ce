"""``[[pool]]`` of the configuration: the clusters of the service, and who carries out what is decided for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpufair.service.settings.node_options import NodeConfig
from gpufair.service.settings.profile_options import Profile
from gpufair.service.settings.tables import Table, hint, shown

AGENTS: Final = "agents"
BACKENDS: Final = (AGENTS,)


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """A cluster, or a part of one, and who carries out what is decided for it: one of ``BACKENDS``."""

    name: str
    backend: str = AGENTS


def read_pool(table: Table) -> PoolConfig:
    """One table as a pool.

    Raises: ConfigError: Something in it is not valid.
    """
    pool = PoolConfig(table.ident("name"), table.choice("backend", AGENTS, BACKENDS))
    table.finish()
    return pool


def refuse_unknown_pools(
    root: Table, nodes: tuple[NodeConfig, ...], pools: tuple[PoolConfig, ...], profiles: tuple[Profile, ...]
) -> None:
    """Who lists the pools has listed all; a profile names those that there are.

    Raises: ConfigError: A node or a profile names another one.
    """
    known = sorted({pool.name for pool in pools} or {node.pool for node in nodes})
    for table, node in zip(root.tables("node"), nodes, strict=False) if pools else ():
        if node.pool not in known:
            table.fail(f"pool = {shown(node.pool)}: there is no [[pool]] of this name{hint(node.pool, known)}", "pool")
    for table, profile in zip(root.tables("profile"), profiles, strict=True):
        if len(set(profile.pools)) < len(profile.pools):
            table.fail("pools names one of them twice", "pools")
        for name in profile.pools:
            if name not in known:
                listed = ", ".join(known)
                table.fail(f"pools: no node belongs to a pool {shown(name)}{hint(name, known)}; known are {listed}", "pools")
