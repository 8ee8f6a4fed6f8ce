"""The raw facts of each event, written down. What follows from them is decided elsewhere, or was recorded earlier."""

from __future__ import annotations

from functools import singledispatch

from gpufair.core import events as ev
from gpufair.core.amending import amend
from gpufair.core.facts import STAYING, Facts
from gpufair.core.maintenance import cancel_maintenance, leave_plans, plan_maintenance
from gpufair.core.model import HOLDING, Drain, Phase, PreemptReason
from gpufair.core.record import Record
from gpufair.core.transitions import move
from gpufair.core.tree import Tree
from gpufair.core.units import GpuMillis, NodeName, WorkloadId, since

Touched = tuple[WorkloadId, ...]


@singledispatch
def record_event(event: ev.Event, facts: Facts) -> Touched:
    """Write an admitted event down.

    Returns:
        The workloads about which something new is known, in order.
    """
    raise NotImplementedError(type(event).__name__)


@record_event.register
def _time_passed(event: ev.TimePassed, facts: Facts) -> Touched:
    return ()


@record_event.register
def _policy_changed(event: ev.PolicyChanged, facts: Facts) -> Touched:
    facts.change_policy(event.policy)
    return ()


@record_event.register
def _budgets_applied(event: ev.BudgetsApplied, facts: Facts) -> Touched:
    facts.apply_budgets(Tree(event.allocations))
    return ()


@record_event.register
def _node_joined(event: ev.NodeJoined, facts: Facts) -> Touched:
    facts.put_node(event.node)
    known = facts.nodes[event.node.name]
    return _cordon(facts, event.node.name, None) if event.closed and not known.cordoned else ()


@record_event.register
def _node_lost(event: ev.NodeLost, facts: Facts) -> Touched:
    node = facts.nodes[event.node]
    holders = tuple(sorted(node.holders))
    for workload in holders:
        record = facts.records[workload]
        _note_who_waits(record, busy=False)
        facts.release(record, only=event.node)
    facts.lose_node(event.node)
    return holders


@record_event.register
def _node_removed(event: ev.NodeRemoved, facts: Facts) -> Touched:
    leave_plans(facts, event.node)
    facts.remove_node(event.node)
    return ()


@record_event.register
def _node_cordoned(event: ev.NodeCordoned, facts: Facts) -> Touched:
    return _cordon(facts, event.node, None)


@record_event.register
def _node_drained(event: ev.NodeDrained, facts: Facts) -> Touched:
    return _cordon(facts, event.node, Drain(event.deadline, event.force))


def _cordon(facts: Facts, node: NodeName, drain: Drain | None) -> Touched:
    facts.nodes[node].cordoned, facts.nodes[node].drain = True, drain
    facts.touch(node)
    return ()


@record_event.register
def _node_uncordoned(event: ev.NodeUncordoned, facts: Facts) -> Touched:
    facts.nodes[event.node].cordoned, facts.nodes[event.node].drain = False, None
    facts.touch(event.node)
    return ()


@record_event.register
def _maintenance_planned(event: ev.MaintenancePlanned, facts: Facts) -> Touched:
    plan_maintenance(facts, event.plan)
    return ()


@record_event.register
def _maintenance_cancelled(event: ev.MaintenanceCancelled, facts: Facts) -> Touched:
    cancel_maintenance(facts, event.plan)
    return ()


@record_event.register
def _submitted(event: ev.Submitted, facts: Facts) -> Touched:
    facts.add(event.workload, event.spec, event.withheld)
    return ()


@record_event.register
def _amended(event: ev.Amended, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    amend(facts, record, event.of(record.spec))
    return (event.workload,)


@record_event.register
def _cancelled(event: ev.Cancelled, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    record.cancelled, record.cancelled_why = True, event.why
    return (event.workload,)


@record_event.register
def _park_requested(event: ev.ParkRequested, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    if record.phase is not Phase.PARKED:
        record.parking = event.reason
    record.touched = False
    return (event.workload,)


@record_event.register
def _resume_requested(event: ev.ResumeRequested, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    if record.phase is Phase.PARKED:
        record.touched = True
        record.resume_from_checkpoint = event.from_checkpoint
        record.slice = event.slice
    elif record.phase not in STAYING:
        # On its way out: it comes back instead of being parked. A queued one does so anyway.
        record.parking = None
        record.interrupted = record.phase in HOLDING
        record.resume_from_checkpoint = record.resume_from_checkpoint and event.from_checkpoint
        if record.phase is Phase.QUEUED and event.slice is not None:
            facts.ask_for_a_slice(record, event.slice)
        elif record.phase in HOLDING and record.notice is not PreemptReason.CONSOLIDATION:
            record.slice = event.slice  # who is moved has what was left of his protection
    return (event.workload,)


@record_event.register
def _utilization_reported(event: ev.UtilizationReported, facts: Facts) -> Touched:
    ledger, start = facts.ledger(facts.nodes[event.node].node.pool), max(0, facts.now - event.span)
    for sample in event.samples:
        record = facts.records.get(sample.workload)
        if record is not None:
            ledger.used(record.spec.allocation, start, facts.now, sample.measured, sample.busy)
            record.measured = GpuMillis(record.measured + sample.measured)
            record.worked = GpuMillis(record.worked + sample.busy)
    return ()


@record_event.register
def _activity_reported(event: ev.ActivityReported, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    record.busy, record.active_at = event.busy, facts.now
    facts.idling.watch(record)
    return ()


@record_event.register
def _safe_point_reached(event: ev.SafePointReached, facts: Facts) -> Touched:
    facts.record(event.workload).safe_at = facts.now
    return ()


@record_event.register
def _extension_requested(event: ev.ExtensionRequested, facts: Facts) -> Touched:
    facts.record(event.workload).extension = event.min_runtime
    return (event.workload,)


@record_event.register
def _started(event: ev.Started, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    record.devices, record.lost = event.devices, event.lost
    if record.phase in {Phase.STARTING, Phase.RESTORING}:
        if record.phase is Phase.RESTORING and record.held is not None:
            record.restored_in = since(facts.now, record.held.granted_at)
        move(facts, record, Phase.RUNNING)
        record.active_at = facts.now
        facts.idling.watch(record)
    return ()


@record_event.register
def _start_failed(event: ev.StartFailed, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    record.start_failures += 1
    record.failure = event.reason or "no reason was given"
    _note_who_waits(record, busy=False)
    facts.release(record)
    return (event.workload,)


@record_event.register
def _checkpoint_done(event: ev.CheckpointDone, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    record.checkpoint = event.checkpoint
    record.resume_from_checkpoint = True
    return ()


@record_event.register
def _checkpoint_failed(event: ev.CheckpointFailed, facts: Facts) -> Touched:
    facts.record(event.workload).reason = f"its checkpoint failed: {event.reason}; the last good one stands"
    return ()


@record_event.register
def _released(event: ev.Released, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    _note_who_waits(record, busy=event.busy)
    facts.release(record)
    return (event.workload,)


@record_event.register
def _exited(event: ev.Exited, facts: Facts) -> Touched:
    record = facts.record(event.workload)
    record.exit, record.withheld = (event.outcome, event.reason), event.withheld
    facts.release(record)
    return (event.workload,)


def _note_who_waits(record: Record, busy: bool) -> None:
    """Somebody waits for a session that ran a cell, or that was not up yet, when its GPUs went."""
    unannounced = record.phase in STAYING and (record.busy or record.phase is not Phase.RUNNING)
    record.interrupted = record.interrupted or busy or unannounced
