"""From what somebody asked for to a workload of the core: profile, defaults, and whether they may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpufair.core.errors import GpufairError, InvalidSpec, NotAMember, UnknownAllocation
from gpufair.core.facts import Facts
from gpufair.core.model import Kind, Policy, Shape, WorkloadSpec
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, Millis, NodeName
from gpufair.service.settings.config import Config
from gpufair.service.settings.profile_options import POD_PROFILE, Profile
from gpufair.service.settings.tables import hint
from gpufair.service.workloads import notices, pools

DEBUG_PRIORITY = 10


class UnknownProfile(GpufairError):
    """No such profile is configured."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)
        self.name, self.known = name, known

    def __str__(self) -> str:
        known = ", ".join(self.known) or "none"
        return f"there is no profile {self.name!r}{hint(self.name, self.known)}; known are {known}"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A submission. None: left to the profile, or to the default."""

    launch: Mapping[str, Any]
    profile: str | None = None
    allocation: str | None = None
    gpus: int | None = None
    nodes: int | None = None
    gpu_type: str | None = None
    min_runtime_s: float | None = None
    kind: str | None = None
    name: str | None = None
    priority: int | None = None
    resumable: bool | None = None
    movable: bool | None = None
    pools: tuple[str, ...] | None = None
    expected_s: float | None = None
    idle_release_s: float | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    within: str | None = None
    exclude: tuple[str, ...] | None = None
    where: Mapping[str, str] | None = None


def spec_of(wanted: Wanted, user: str, config: Config, facts: Facts) -> WorkloadSpec:
    """The workload that ``user`` gets.

    Raises:
        UnknownProfile: The profile isn't configured.
        UnknownAllocation: The allocation is no leaf of the tree.
        UnknownPool: It names a pool that there is not.
        NotAMember: It isn't open to ``user``, or none is.
        OneNodeOnly: A kernel on several nodes in a Kubernetes cluster.
        InvalidSpec: A kernel on several nodes of 0 GPUs, say.
    """
    profile = _profile(wanted.profile, config)
    gpus = profile.gpus if wanted.gpus is None else wanted.gpus
    # A workload without GPUs draws on no budget, so it needs no protection to be charged for.
    min_runtime = profile.min_runtime
    if wanted.min_runtime_s is not None:
        min_runtime = span_of(wanted.min_runtime_s, "min_runtime_s")
    shape = Shape(
        gpus_per_node=gpus,
        nodes=profile.nodes if wanted.nodes is None else wanted.nodes,
        gpu_type=profile.gpu_type if wanted.gpu_type is None else wanted.gpu_type,
        cpus_per_node=profile.cpus if wanted.cpus is None else wanted.cpus,
        memory_per_node=profile.memory if wanted.memory_bytes is None else wanted.memory_bytes,
        within=profile.within if wanted.within is None else wanted.within,
        exclude=nodes_of(profile.exclude if wanted.exclude is None else wanted.exclude),
        where=tuple(sorted((profile.where if wanted.where is None else wanted.where).items())),
    )
    kind = Kind(wanted.kind) if wanted.kind is not None else profile.kind
    priority = profile.priority if wanted.priority is None else wanted.priority
    named = wanted.pools or profile.pools
    accepted = pools.named(named, config, facts) if named else pools.usual(config, facts, shape, wanted.launch)
    pools.on_one_node(wanted.launch, shape, accepted, config)
    return WorkloadSpec(
        allocation=allocation_of(wanted.allocation or profile.allocation, user, facts.tree),
        user=user,
        kind=kind,
        shape=shape,
        min_runtime=min_runtime,
        resumable=True if wanted.resumable is None else wanted.resumable,
        movable=profile.movable if wanted.movable is None else wanted.movable,
        priority=usual_priority(config.policy, shape, min_runtime) if priority is None else priority,
        pools=accepted,
        name=wanted.name or "",
        grace=profile.grace,
        expected=profile.expected if wanted.expected_s is None else span_of(wanted.expected_s, "expected_s"),
        idle_release=_idle_release(wanted, profile, kind, shape),
        launch=MappingProxyType(_told_by_default(kind, config) | dict(wanted.launch) | _as_pod(profile)),
    )


def _as_pod(profile: Profile) -> dict[str, Any]:
    """Which template its pods are made from, in case that it comes to a cluster."""
    return {} if profile.pod is None else {POD_PROFILE: profile.name}


def _told_by_default(kind: Kind, config: Config) -> dict[str, Any]:
    """What the owner of unattended work is told who does not say. At a session he sits himself."""
    default = config.notifications.default
    return {notices.KEY: list(default)} if kind is Kind.BATCH and default else {}


def usual_priority(policy: Policy, shape: Shape, min_runtime: Millis) -> int:
    """The priority inside its allocation of a workload that names none: what is small and short comes first."""
    debug = 0 < min_runtime <= policy.debug_min_runtime and 0 < shape.gpus <= policy.debug_gpus
    return DEBUG_PRIORITY if debug else 0


def span_of(given: float, name: str) -> Millis:
    """Seconds of a request as the core counts them.

    Raises:
        InvalidSpec: Less than a millisecond, which is not nothing.
    """
    span = Millis(round(given * 1000))
    if given > 0 and span == 0:
        raise InvalidSpec(f"{name} is below a millisecond; use 0 for none at all, or more")
    return span


def _idle_release(wanted: Wanted, profile: Profile, kind: Kind, shape: Shape) -> Millis | None:
    """After how long without a running cell it gives its GPUs back. Commands have no cells, so they never idle."""
    if kind is not Kind.SESSION or not shape.gpus or wanted.launch.get("type") == "command":
        return None
    if wanted.idle_release_s is None:
        # Who cannot be saved loses everything by it: only if its owner asks for that.
        return None if wanted.resumable is False else profile.idle_release
    return span_of(wanted.idle_release_s, "idle_release_s") or None


def _profile(name: str | None, config: Config) -> Profile:
    if name is None:
        return Profile("", "", gpus=0)
    for profile in config.profiles:
        if profile.name == name:
            return profile
    raise UnknownProfile(name, tuple(profile.name for profile in config.profiles))


def allocation_of(asked: str, user: str, tree: Tree) -> AllocationPath:
    """The leaf that a user means; "": the first that is open to him.

    Raises:
        UnknownAllocation: It is no leaf.
        NotAMember: It isn't open to ``user``, or none is.
    """
    if not asked:
        if not (open_to := tree.open_to(user)):
            raise NotAMember(user, AllocationPath("(any)"), ())
        return open_to[0]
    path = AllocationPath(asked)
    if not tree.is_leaf(path):
        raise UnknownAllocation(path, tree.leaves)
    if not tree.allows(user, path):
        raise NotAMember(user, path, tree.open_to(user))
    return path


def nodes_of(names: Iterable[str]) -> tuple[NodeName, ...]:
    """As the core wants them: equal wishes are equal."""
    return tuple(NodeName(name) for name in sorted(set(names)))

