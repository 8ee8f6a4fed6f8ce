"""Nodes and the CPU pool, as the service answers them.

Instants are Unix seconds (``_s``), GPU time is GPU-seconds, sizes are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpufair.client.marks import one_of, sometimes


@dataclass(frozen=True, slots=True)
class LandingView:
    """Part of a node on which a blocked workload will start: about ``at_s``, and by ``start_by_s`` at the latest."""

    workload: str
    gpus: int = 0
    at_s: float = 0.0
    start_by_s: float = 0.0


@dataclass(frozen=True, slots=True)
class DrainView:
    """How a cordoned node is to be emptied. ``force``: protections that last longer are cut at the deadline."""

    deadline_s: float | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class ProtectedView:
    """Who is protected on a node, and until when."""

    workload: str
    until_s: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeView:
    """A machine of the service."""

    name: str
    pool: str = "default"
    gpus: int = 0
    gpu_type: str = ""
    free_gpus: int = 0
    state: str = field(default="ready", metadata=one_of("ready", "cordoned", "lost"))
    cordoned: bool = False
    workloads: tuple[str, ...] = ()
    last_seen_s: float | None = None
    labels: dict[str, str] = field(default_factory=dict)
    cpus: int | None = None  # None: not counted here
    memory_bytes: int | None = None
    landings: tuple[LandingView, ...] = ()
    drain: DrainView | None = None
    protected: tuple[ProtectedView, ...] = ()
    empty_by_s: float | None = None  # when a cordoned node is empty at the latest
    closes_at_s: float | None = None  # when a planned maintenance begins
    guest_gpus: int = 0  # free, but only for what is done before a landing or a maintenance
    problems: tuple[str, ...] = ()  # of the machine, as its agent says: failing GPUs, full disks
    clock_skew_s: float | None = None  # by how much its clock is ahead of the service's; None: unknown
    agent_version: str = ""  # "": unknown


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """What an allocation had of the CPU pool in its window. ``share``: of the worker time, where all want more."""

    allocation: str
    share: float = 0.0
    worker_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CpuPool:
    """The CPU pool that the service keeps (``kept``), or knows of.

    ``state``: off, stopped (nobody has asked for it), starting, running or failed. ``memory_bytes`` is of one worker.
    What follows it is answered to who joins: the leaf and the user that tasks are counted for, and PEM texts.
    """

    state: str = field(metadata=one_of("off", "stopped", "starting", "running", "failed"))
    address: str = ""
    reason: str = ""
    kept: bool = field(default=False, metadata=sometimes())
    workers: int = field(default=0, metadata=sometimes())
    memory_bytes: int = field(default=0, metadata=sometimes())
    tasks_per_user: int = 0
    pid: int = field(default=0, metadata=sometimes())
    started_s: float = field(default=0.0, metadata=sometimes())
    log: str = field(default="", metadata=sometimes())
    window_s: float = field(default=0.0, metadata=sometimes())
    usage: tuple[CpuUsage, ...] = field(default=(), metadata=sometimes())
    allocation: str = field(default="", metadata=sometimes())
    user: str = field(default="", metadata=sometimes())
    ca: str = field(default="", repr=False, metadata=sometimes())
    certificate: str = field(default="", repr=False, metadata=sometimes())
    key: str = field(default="", repr=False, metadata=sometimes())
