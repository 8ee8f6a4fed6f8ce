"""``[[node]]`` of the configuration: the nodes of the service, and what each offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpufair.service.settings.tables import Table, shown

MAX_GPUS = 1024  # of one node; the largest machines sold have 72
MAX_NODES = 4096
MAX_CPUS = 4096
VIRTUAL_GPUS = 2  # of a laptop without NVML


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A node that the local backend runs an agent for, or another machine (``remote``), whose agent says what it has.

    ``gpus`` None: those that NVML finds. ``cpus`` and ``memory`` (bytes) None: what the machine has.
    """

    name: str
    gpus: int | None
    gpu_type: str = ""
    pool: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: int | None = None
    memory: int | None = None
    device_files: tuple[str, ...] = ()  # patterns of files which only those hold open who use its GPUs
    fallback_gpus: int = 0  # virtual ones where ``gpus`` is None and NVML finds none
    remote: bool = False


DEFAULT_NODES = (NodeConfig("local", None, fallback_gpus=VIRTUAL_GPUS), NodeConfig("cpu", 0))


def read_node(table: Table) -> NodeConfig:
    """One table as a node.

    Raises: ConfigError: Something in it is not valid.
    """
    name = table.ident("name")
    if table.boolean("remote", False):
        return _remote_node(table, name)
    gpus: int | None
    if table.raw("gpus") == "auto":
        gpus = None
    elif isinstance(table.raw("gpus"), str):
        table.fail(
            f'gpus = {shown(table.raw("gpus"))}: expected an integer (virtual GPUs) or "auto" (found by NVML)', "gpus"
        )
    else:
        gpus = table.integer("gpus", 0, 0, MAX_GPUS)
    node = NodeConfig(
        name=name,
        gpus=gpus,
        gpu_type=table.text("gpu_type", ""),
        pool=table.ident("pool", "default"),
        labels=table.labels("labels"),
        cpus=table.integer("cpus", 1, 0, MAX_CPUS) if table.has("cpus") else None,
        memory=table.size("memory", 0) if table.has("memory") else None,
        device_files=table.strings("device_files"),
    )
    table.finish()
    return node


def _remote_node(table: Table, name: str) -> NodeConfig:
    for key in ("gpus", "cpus", "memory", "device_files"):
        if table.has(key):
            table.fail(f"{key}: the agent of a remote node says what the machine has; leave it out here", key)
    node = NodeConfig(
        name,
        0,
        gpu_type=table.text("gpu_type", ""),
        pool=table.ident("pool", "default"),
        labels=table.labels("labels"),
        remote=True,
    )
    table.finish()
    return node


def refuse_two_autos(root: Table, nodes: tuple[NodeConfig, ...]) -> None:
    """Raises: ConfigError: Two nodes would be given the same real GPUs."""
    autos = [table for table, node in zip(root.tables("node"), nodes, strict=True) if node.gpus is None]
    if len(autos) > 1:
        autos[1].fail('another node has gpus = "auto" already, and both would be given the same real GPUs', "gpus")
