"""Which events are refused, and which mean nothing any more. Nothing here changes the state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from math import inf
from typing import Protocol

from gpufair.core import events as ev
from gpufair.core import possible, words
from gpufair.core.amount import Rest, held
from gpufair.core.errors import (
    BudgetError,
    InvalidSpec,
    MinRuntimeTooLong,
    NeverFits,
    NodeNotLost,
    UnknownAllocation,
    UnknownNode,
    WrongPhase,
)
from gpufair.core.events import CheckpointDone
from gpufair.core.facts import STAYING, Facts
from gpufair.core.model import HOLDING, Kind, Node, Phase, Policy, Shape, WorkloadSpec
from gpufair.core.record import NodeRecord
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath, NodeName, PoolName, WorkloadId
from gpufair.core.weights import check_weights


@singledispatch
def check(event: ev.Event, facts: Facts) -> None:
    """Refuse an event that the state cannot take.

    Raises:
        GpufairError: The subclass that says why. The state is unchanged.
    """


@check.register
def _policy_changed(event: ev.PolicyChanged, facts: Facts) -> None:
    check_policy(event.policy)


def check_policy(policy: Policy) -> None:
    """Refuse options that make no sense, or that are not implemented.

    Raises:
        InvalidSpec: Which one and why.
    """
    if not 0 <= policy.banking <= 1:
        raise InvalidSpec(f"banking (beta) of {policy.banking:g} is not a fraction; use one from 0 to 1, like 0.25")
    if not 0 <= policy.victim_band <= 1:
        raise InvalidSpec(f"victim_band of {policy.victim_band:g} is not a fraction; use one from 0 to 1, like 0.25")
    if not 0 <= policy.hysteresis < 1:
        raise InvalidSpec(f"hysteresis of {policy.hysteresis:g} is not a fraction; use one from 0 up to 1, like 0.02")
    if not all(policy.blocks) or len(set(policy.blocks)) < len(policy.blocks):
        raise InvalidSpec(f"blocks {list(policy.blocks)} must name labels of nodes, none empty and none twice")
    if not 0 <= policy.landing_share <= 1:
        raise InvalidSpec(f"landing_share of {policy.landing_share:g} is not a part of a pool; use one from 0 to 1")
    for name in ("window", "grid", "grid_checkpoint", "history", "history_step"):
        if getattr(policy, name) <= 0:
            raise InvalidSpec(f"{name} must be longer than 0")
    if policy.half_life is not None and policy.half_life <= 0:
        raise InvalidSpec("half_life must be longer than 0; leave it out to count by the window")
    spans = ("max_min_runtime", "grace_session", "grace_batch", "newcomer", "debug_min_runtime")
    for name in (*spans, "debug_gpus", "take_least", "backoff", "backoff_most", "consolidation_rest"):
        if getattr(policy, name) < 0:
            raise InvalidSpec(f"{name} cannot be negative")
    if policy.take_limit is not None and not 1 <= policy.take_limit < inf:
        raise InvalidSpec(
            f"take_limit of {policy.take_limit:g} times its entitlement would keep a leaf from what it owns; "
            "use one from 1, or none"
        )
    check_weights(policy.gpu_weights)
    for name in ("debug_share", "debug_most"):
        if not 0 <= getattr(policy, name) <= 1:
            raise InvalidSpec(f"{name} of {getattr(policy, name):g} is not a part of a pool; use one from 0 to 1")


@check.register
def _budgets_applied(event: ev.BudgetsApplied, facts: Facts) -> None:
    live = (record for record in facts.records.values() if record.phase is not Phase.ENDED)
    check_budgets(Tree(event.allocations), ((record.id, record.spec.allocation) for record in live))


def check_budgets(tree: Tree, live: Iterable[tuple[WorkloadId, AllocationPath]]) -> None:
    """Refuse budgets that drop the leaf of a workload that has not ended."""
    for workload, leaf in live:
        if not tree.is_leaf(leaf):
            became = "has sub-allocations" if leaf in tree else "is missing"
            raise BudgetError(
                f"allocation {leaf!r} {became} in the new budgets, but workload {workload!r} still lives in it; "
                "keep it as a leaf, or cancel its workloads first"
            )


@check.register
def _node_joined(event: ev.NodeJoined, facts: Facts) -> None:
    known = facts.nodes.get(event.node.name)
    check_node(event.node, known, held(known, facts.records) if known is not None else (0, 0))


def check_node(node: Node, known: NodeRecord | None, rest: Rest) -> None:
    """Refuse a node that makes no sense, or that came back with less than is held on it.

    Args:
        node: The node as it is now.
        known: The same as it was, if it was there before.
        rest: CPUs and memory that are held on it.
    """
    if not node.name or node.gpus < 0:
        raise InvalidSpec(f"node {node.name!r} with {node.gpus} GPUs is not a node; give it a name and 0 or more GPUs")
    if min(node.cpus or 0, node.memory or 0) < 0:
        raise InvalidSpec(f"node {node.name!r} cannot have fewer than 0 CPUs or bytes; leave out what is not counted")
    if known is None or not known.holders:
        return
    if (node.pool, node.gpu_type) != (known.node.pool, known.node.gpu_type):
        raise InvalidSpec(f"node {node.name!r} cannot change its pool or GPU type while workloads run on it; drain it")
    used = sum(known.holders.values())
    cpus, memory = rest
    for has, holds in (
        (words.gpus(node.gpus), words.gpus(used) if node.gpus < used else ""),
        (f"{node.cpus} CPUs", f"{cpus} CPUs" if node.cpus is not None and node.cpus < cpus else ""),
        (
            words.memory(node.memory or 0),
            words.memory(memory) if node.memory is not None and node.memory < memory else "",
        ),
    ):
        if holds:
            raise InvalidSpec(
                f"node {node.name!r} came back with {has} but {holds} are held on it; "
                "report it lost first, or wait until it is drained"
            )


@check.register
def _node_drained(event: ev.NodeDrained, facts: Facts) -> None:
    require_node(facts, event.node)
    if event.force and event.deadline is None:
        raise InvalidSpec(
            f"a forced drain of {event.node!r} needs a deadline at which protections are cut; use now for at once"
        )


@check.register(ev.NodeLost)
@check.register(ev.NodeCordoned)
@check.register(ev.NodeUncordoned)
def _known_node(event: ev.NodeLost | ev.NodeCordoned | ev.NodeUncordoned, facts: Facts) -> None:
    require_node(facts, event.node)


@check.register
def _node_removed(event: ev.NodeRemoved, facts: Facts) -> None:
    require_node(facts, event.node)
    if not facts.nodes[event.node].lost:
        raise NodeNotLost(event.node)


@check.register
def _maintenance_planned(event: ev.MaintenancePlanned, facts: Facts) -> None:
    plan = event.plan
    if not plan.id or plan.id in facts.maintenance:
        raise InvalidSpec(f"maintenance id {plan.id!r} is empty or taken; choose another, or cancel that one first")
    if not plan.nodes or len(set(plan.nodes)) < len(plan.nodes):
        raise InvalidSpec(f"maintenance {plan.id!r} must name at least one node, and none twice")
    for node in plan.nodes:
        require_node(facts, node)


@check.register
def _maintenance_cancelled(event: ev.MaintenanceCancelled, facts: Facts) -> None:
    if event.plan not in facts.maintenance:
        known = ", ".join(facts.maintenance) or "none"
        raise InvalidSpec(f"no maintenance {event.plan!r} is planned; planned are: {known}. Open closed nodes by uncordon")


def require_node(facts: Facts, node: NodeName) -> None:
    """Refuse an unknown node."""
    if node not in facts.nodes:
        raise UnknownNode(node, tuple(facts.nodes))


@check.register
def _utilization_reported(event: ev.UtilizationReported, facts: Facts) -> None:
    require_node(facts, event.node)
    gpus = facts.nodes[event.node].node.gpus
    if event.span <= 0 or any(not 0 <= sample.busy <= sample.measured for sample in event.samples):
        raise InvalidSpec(f"node {event.node!r} reported GPUs as busy for longer than it measured them")
    if sum(sample.measured for sample in event.samples) > gpus * event.span:
        raise InvalidSpec(
            f"node {event.node!r} reported more GPU time than its {words.gpus(gpus)} have in {words.span(event.span)}"
        )


@check.register
def _submitted(event: ev.Submitted, facts: Facts) -> None:
    if not event.workload:
        raise InvalidSpec("a workload needs an id")
    if event.workload in facts.records:
        raise InvalidSpec(f"workload id {event.workload!r} is taken; choose another")
    check_spec(event.spec, facts)


class Premises(Protocol):
    """What a wish is judged by."""

    @property
    def policy(self) -> Policy:
        """The options in force."""

    @property
    def tree(self) -> Tree:
        """The budget tree."""

    @property
    def by_pool(self) -> Mapping[PoolName, Sequence[NodeRecord]]:
        """All known nodes."""


def check_spec(spec: WorkloadSpec, facts: Premises) -> None:
    """Refuse a workload that makes no sense or could never run."""
    shape = spec.shape
    _check_shape(shape)
    if spec.min_runtime < 0 or (spec.grace is not None and spec.grace < 0):
        raise InvalidSpec("min_runtime and grace cannot be negative; a min_runtime of 0 is unallocated")
    if spec.movable and not spec.resumable:
        raise InvalidSpec("a workload that cannot be resumed cannot be moved; make it resumable, or not movable")
    if not spec.pools or len(set(spec.pools)) < len(spec.pools):
        raise InvalidSpec(f"pools {list(spec.pools)} must name at least one pool, and none twice")
    if not facts.tree.is_leaf(spec.allocation):
        raise UnknownAllocation(spec.allocation, facts.tree.leaves)
    if spec.min_runtime > facts.policy.max_min_runtime:
        raise MinRuntimeTooLong(spec.min_runtime, facts.policy.max_min_runtime)
    if spec.allocated and shape.gpus and not facts.tree[spec.allocation].entitlement:
        raise InvalidSpec(
            f"allocation {spec.allocation!r} has no share, so it runs only unallocated work; use min_runtime 0"
        )
    _check_fits(spec, facts)


def _check_shape(shape: Shape) -> None:
    if shape.gpus_per_node < 0 or shape.nodes < 1:
        raise InvalidSpec(f"{shape.nodes} nodes × {shape.gpus_per_node} GPUs is not a shape; use >= 1 node, >= 0 GPUs")
    if shape.cpus_per_node < 0 or shape.memory_per_node < 0:
        raise InvalidSpec("cpus_per_node and memory_per_node cannot be negative; 0 = does not care")
    if not shape.where and not shape.exclude:
        return
    labels = [label for label, _ in shape.where]
    if not all(labels) or labels != sorted(set(labels)):
        raise InvalidSpec(f"where {list(shape.where)} must name each label once, in alphabetical order, and none empty")
    if not all(shape.exclude) or list(shape.exclude) != sorted(set(shape.exclude)):
        raise InvalidSpec(f"exclude {list(shape.exclude)} must name each node once, in alphabetical order")


def _check_fits(spec: WorkloadSpec, facts: Premises) -> None:
    # A pool without any node may still get some: there is nothing to judge by.
    pools = [facts.by_pool.get(pool, []) for pool in spec.pools]
    asked = spec.shape
    if not all(pools) or any(possible.could_hold(nodes, asked) for nodes in pools):
        return
    nearest = [best for nodes in pools if (best := possible.largest(nodes, asked)) is not None]
    most = max(nearest, key=lambda best: (best.gpus, best.gpus_per_node), default=None)
    if most is None:
        absent = f"no {asked.gpu_type} is here" if not asked.demanding else "no node here is like that"
        raise NeverFits(words.shape(asked), f"nothing: {absent}", _ruled_out_by(pools, asked))
    raise NeverFits(words.shape(asked), words.shape(most), _ruled_out_by(pools, asked))


def _ruled_out_by(pools: list[Sequence[NodeRecord]], asked: Shape) -> str:
    return next((demand for nodes in pools if (demand := possible.ruled_out_by(nodes, asked))), "")


@check.register
def _amended(event: ev.Amended, facts: Facts) -> None:
    record = facts.record(event.workload)
    if record.phase not in (Phase.QUEUED, Phase.PARKED) or record.cancelled:
        instead = "submit it anew" if record.phase is Phase.ENDED else "only what waits or rests can ask for something else"
        raise WrongPhase(record.id, record.phase, "amend", instead)
    if record.reservation is not None:
        doing = "about to start, and others leave for it already"
        raise WrongPhase(record.id, doing, "amend", "wait until it runs, or cancel it and submit another")
    check_spec(event.of(record.spec), facts)


@check.register
def _cancelled(event: ev.Cancelled, facts: Facts) -> None:
    record = facts.record(event.workload)
    if record.phase is Phase.ENDED:
        raise WrongPhase(record.id, record.phase, "cancel", "there is nothing left to do")


@check.register
def _park_requested(event: ev.ParkRequested, facts: Facts) -> None:
    record = facts.record(event.workload)
    if record.spec.kind is not Kind.SESSION:
        raise WrongPhase(record.id, f"a {record.spec.kind} workload", "park", "only sessions are parked; cancel it")
    if record.phase is Phase.ENDED or record.cancelled:
        raise WrongPhase(record.id, Phase.ENDED, "park", "there is nothing left to park")


@check.register
def _resume_requested(event: ev.ResumeRequested, facts: Facts) -> None:
    record = facts.record(event.workload)
    if record.phase is Phase.ENDED or record.cancelled:
        raise WrongPhase(record.id, Phase.ENDED, "resume", "submit it again")
    if event.slice is not None and event.slice <= 0:
        raise InvalidSpec("a slice must be longer than 0; leave it out to ask for the whole min_runtime")


@check.register
def _extension_requested(event: ev.ExtensionRequested, facts: Facts) -> None:
    record = facts.record(event.workload)
    if record.phase not in STAYING or record.cancelled or record.parking is not None:
        raise WrongPhase(record.id, record.phase, "extend", "only what runs and stays can be protected longer")
    if not record.spec.allocated or not record.gpus:
        raise WrongPhase(record.id, "unallocated", "extend", "submit it with a min_runtime to have it protected")
    if event.min_runtime <= 0:
        raise InvalidSpec("an extension must be longer than 0")
    if event.min_runtime > facts.policy.max_min_runtime:
        raise MinRuntimeTooLong(event.min_runtime, facts.policy.max_min_runtime)


_Report = (
    ev.SafePointReached
    | ev.ActivityReported
    | ev.Started
    | ev.StartFailed
    | ev.CheckpointDone
    | ev.CheckpointFailed
    | ev.Released
    | ev.Exited
)


@check.register(ev.SafePointReached)
@check.register(ev.ActivityReported)
@check.register(ev.Started)
@check.register(ev.StartFailed)
@check.register(ev.CheckpointDone)
@check.register(ev.CheckpointFailed)
@check.register(ev.Released)
@check.register(ev.Exited)
def _report(event: _Report, facts: Facts) -> None:
    facts.record(event.workload)


def is_stale(event: ev.Event, facts: Facts) -> bool:
    """Whether a report is about an earlier start, or comes when it means nothing any more."""
    if isinstance(event, CheckpointDone):
        # It may arrive after the release: it is still the newest state there is.
        record = facts.record(event.workload)
        newest = record.checkpoint.sequence if record.checkpoint is not None else -1
        ended = record.phase is Phase.ENDED
        return ended or event.incarnation != record.incarnation or event.checkpoint.sequence <= newest
    # Named here and not in a constant: compiled, it is then a matter of a few pointers.
    if isinstance(
        event,
        (
            ev.Started,
            ev.Exited,
            ev.Released,
            ev.ActivityReported,
            ev.StartFailed,
            ev.CheckpointFailed,
            ev.SafePointReached,
        ),
    ):
        record = facts.record(event.workload)
        return event.incarnation != record.incarnation or record.phase not in HOLDING
    return False
