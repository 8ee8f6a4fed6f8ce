"""The life of a workload: queued once after a preemption, and told the truth about where it stands."""

from __future__ import annotations

from hypothesis import given

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Kind, Phase, PreemptReason
from gpufair.core.units import WorkloadId
from tests.strategies import CLUSTERS, Script, begin, run, scripts, step
from tests.world import EVICTIONS, World


@given(scripts(("submit",) * 6 + ("exit", "busy", "idle"), least=8, clusters=CLUSTERS[:3], late=False))
def test_p20_a_preempted_workload_is_queued_exactly_once(script: Script) -> None:
    """Never lost, never twice; only an idle session rests instead."""
    world = run(script)
    out: dict[WorkloadId, act.BeginCheckpoint] = {}
    for entry in world.journal:
        if isinstance(entry.event, ev.Exited):
            out.pop(entry.event.workload, None)
        for action in entry.actions:
            if isinstance(action, act.BeginCheckpoint):  # idle release and moves too
                assert action.workload not in out
                out[action.workload] = action
            elif isinstance(action, act.Requeue | act.Park):
                notice = out.pop(action.workload, None)
                assert notice is not None, f"{action.workload} was not on its way out"
                if isinstance(action, act.Park):
                    assert world.state.workload(action.workload).spec.kind is Kind.SESSION
    assert not [one for one in out if world.phase(one) is not Phase.CHECKPOINTING]


@given(scripts())
def test_p24_explanations_agree_with_the_state(script: Script) -> None:
    """Everything that an explanation says can be checked, and explaining changes nothing."""
    world = begin(script)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        if index % 3 == 0:
            _check_explanations(world)


def _check_explanations(world: World) -> None:
    queue = world.state.queue()
    holders = {(node.node.name, holder): gpus for node in world.state.nodes() for holder, gpus in node.holders}
    for workload in world.state.workloads():
        told = world.state.explain(workload.id)
        assert told.sentence.endswith(".")
        assert told.phase is workload.phase
        assert (told.position is not None) == (workload.phase is Phase.QUEUED)
        if told.position is not None:
            assert queue[told.position - 1] == workload.id
        assert told.estimate is None or told.estimate >= world.now
        assert not told.binding
        for holder in told.holders:
            other = world.state.workload(holder.workload)
            assert other.held is not None
            assert holders[holder.node, holder.workload] == holder.gpus
            assert holder.protected_until == other.held.protected_until
            if holder.preemptible_now:
                assert other.held.protected_until <= world.now
        if told.mine is not None and told.theirs is not None and told.level is not None:
            assert told.level == (told.mine.path, told.theirs.path)
            tree = world.state.tree
            assert tree[told.mine.path].parent == tree[told.theirs.path].parent


@given(scripts())
def test_checkpoints_never_go_back(script: Script) -> None:
    """The last good checkpoint is never replaced by an older one."""
    world = begin(script)
    newest: dict[WorkloadId, int] = {}
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
        for workload in world.state.workloads():
            sequence = workload.checkpoint.sequence if workload.checkpoint is not None else 0
            assert sequence >= newest.get(workload.id, 0)
            newest[workload.id] = sequence


@given(scripts())
def test_everybody_who_is_told_to_leave_is_told_until_when(script: Script) -> None:
    """The grace is the workload's own or the policy's, counted from the notice."""
    world = run(script)
    for entry, action in world.actions():
        if isinstance(action, act.BeginCheckpoint):
            assert action.deadline - entry.event.at in {world.policy.grace_session, world.policy.grace_batch}
            assert (action.beneficiary is not None) == (action.reason in EVICTIONS)
            assert isinstance(action.reason, PreemptReason)
