"""The long run itself: that a short one passes, that it is the same each time, and that its watch can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufair.core import actions as act
from gpufair.core.model import Allocation, Node, PreemptReason
from gpufair.core.units import AllocationPath, Instant, NodeName, WorkloadId
from tests.long.hand import explore
from tests.long.watch import BrokenLawError, Watch
from tests.world import CAUSE, World


@pytest.mark.parametrize("seed", range(4))
def test_a_short_run_breaks_no_law(seed: int) -> None:
    """What ``make prop-long`` does for a million events."""
    found = explore(seed, 300)
    assert found["broken"] == ""
    assert found["events"] >= 300
    assert found["restarts"] >= 1


def test_a_seed_is_a_run() -> None:
    """Otherwise nobody could look at what broke."""
    assert explore(11, 200) == explore(11, 200)


def watched() -> tuple[Watch, World]:
    """One protected workload of 2 GPUs on a node of 4, seen by a watch."""
    world = World().set_up([Allocation(AllocationPath("a"))], [Node(NodeName("n"), 4)])
    world.submit("v", "a", gpus=2)
    watch = Watch()
    for entry in world.journal:
        watch.take(entry.event, list(entry.actions))
    return watch, world


def test_the_watch_sees_a_gpu_that_is_held_twice() -> None:
    """P2, from the actions alone."""
    watch, world = watched()
    start = next(action for _, action in world.actions() if isinstance(action, act.Start))
    watch.specs[WorkloadId("w")] = replace(watch.specs[WorkloadId("v")])
    again = replace(start, workload=WorkloadId("w"))
    watch.take(world.journal[0].event, [again])
    watch.specs[WorkloadId("x")] = watch.specs[WorkloadId("v")]
    with pytest.raises(BrokenLawError, match="P2"):
        watch.take(world.journal[0].event, [replace(start, workload=WorkloadId("x"))])


def test_the_watch_sees_a_preemption_of_protected_work() -> None:
    """P1, from the actions alone."""
    watch, world = watched()
    reason = PreemptReason.RANK
    notice = act.BeginCheckpoint(CAUSE, WorkloadId("v"), 1, Instant(1_000), reason, WorkloadId("v"), "")
    with pytest.raises(BrokenLawError, match="P1"):
        watch.take(world.journal[-1].event, [notice])
