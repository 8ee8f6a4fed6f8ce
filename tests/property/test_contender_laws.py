"""Laws of every policy that can be compared, ours and the others, over random events. ``Contest`` checks at each step
that no GPU is held twice, that gangs are whole, that whoever starts was submitted and waits, and that whoever was told to
leave is queued once.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import GpufairError
from gpufair.core.model import Allocation, Kind, Node, Outcome, Phase, PreemptReason
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, PoolName, WorkloadId
from gpufair.sim.policies.levels import level_of
from gpufair.sim.policies.registry import CONTENDERS, contender
from tests.contest import CAUSE, Contest
from tests.strategies import CLUSTERS, MACHINES, TREES, USERS, Command, Script, commands, scripts
from tests.world import DEFAULT, FULL, Delays

NAMES = tuple(CONTENDERS)
OTHERS = tuple(name for name in NAMES if name not in {"fair-share", "plain"})
OTHER = PoolName("other")


def begin(script: Script, name: str) -> Contest:
    return Contest(contender(name), script.policy, script.delays).set_up(script.allocations(), script.nodes())


def play(script: Script, name: str, settle_ms: int = 60_000) -> Contest:
    """A script under a policy, and then time."""
    world = begin(script, name)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    world.advance(settle_ms)
    return world


def step(world: Contest, script: Script, command: Command, index: int) -> None:
    """Let one command happen; the numbers choose among what there is."""
    world.advance(command.wait)
    now, one, two, three = Instant(world.now), command.one, command.two, command.three
    nodes = script.nodes()
    node = nodes[one % len(nodes)]
    machines: dict[str, ev.Event] = {
        "cordon": ev.NodeCordoned(now, CAUSE, node.name),
        "drain": ev.NodeDrained(now, CAUSE, node.name, Instant(now + 3_000)),
        "uncordon": ev.NodeUncordoned(now, CAUSE, node.name),
        "lose": ev.NodeLost(now, CAUSE, node.name),
        "remove": ev.NodeRemoved(now, CAUSE, node.name),
        "join": ev.NodeJoined(now, CAUSE, node),
    }
    if command.what == "amend":
        return  # contenders know nothing of it: nobody amends anything in a simulation
    if command.what == "submit":
        _submit(world, script, command, index)
        return
    if command.what in machines:
        world.try_feed(machines[command.what])
        return
    if command.what == "budgets":
        shares = [(path, ("1", "2", "0.1")[(two + place) % 3]) for place, (path, _) in enumerate(script.tree)]
        world.try_feed(ev.BudgetsApplied(now, CAUSE, tuple(Allocation(AllocationPath(p), s) for p, s in shares)))
        return
    known = sorted(name for name, player in world.players.items() if player.phase is not Phase.ENDED)
    if not known:
        return
    name = known[one % len(known)]
    player = world.players[name]
    start = (name, player.incarnation)
    users: dict[str, ev.Event] = {
        "exit": ev.Exited(now, CAUSE, *start, (Outcome.COMPLETED, Outcome.FAILED)[two % 2]),
        "cancel": ev.Cancelled(now, CAUSE, name),
        "park": ev.ParkRequested(now, CAUSE, name),
        "resume": ev.ResumeRequested(now, CAUSE, name, bool(two % 4), (None, Millis(400))[three % 2]),
        "busy": ev.ActivityReported(now, CAUSE, *start, busy=True),
        "idle": ev.ActivityReported(now, CAUSE, *start, busy=False),
        "extend": ev.ExtensionRequested(now, CAUSE, name, Millis(2_000)),
        "safe": ev.SafePointReached(now, CAUSE, *start),
        "fail": ev.StartFailed(now, CAUSE, *start, "no such image"),
        "sigterm": ev.Released(now, CAUSE, *start, busy=bool(three % 2)),
    }
    if command.what != "fail" or player.phase in {Phase.STARTING, Phase.RESTORING}:
        world.try_feed(users[command.what])


def _submit(world: Contest, script: Script, command: Command, index: int) -> None:
    one, two, three = command.one, command.two, command.three
    leaves = [path for path, _ in script.tree if not any(other.startswith(f"{path}/") for other, _ in script.tree)]
    types = sorted({gpu_type for _, gpu_type, _ in script.cluster if gpu_type})
    several = any(pool == OTHER for _, _, pool in script.cluster)
    pools = ((DEFAULT,), (OTHER,), (DEFAULT, OTHER), (OTHER, DEFAULT))[three % 4] if several else (DEFAULT,)
    runs = (None, 700, 3_000, 9_000)[three % 4]
    try:
        world.submit(
            f"w{index:03d}",
            leaves[one % len(leaves)],
            gpus=(1, 1, 2, 3, 4, 0, 2, 8)[two % 8],
            nodes=2 if two % 5 == 4 else 1,
            kind=(Kind.BATCH, Kind.SESSION)[three % 3 == 2],
            min_runtime=(0, 1_000, 5_000, 5_000)[one % 4],
            priority=(0, 0, 0, -1, 1, 10, 100)[(one + two) % 7],
            resumable=bool(three % 3),
            expected=(None, runs, 5_000)[two % 3],
            runs=runs,
            user=("ada", "bob")[one % 2],
            gpu_type=types[three % len(types)] if types and two % 3 == 0 else "",
            pools=pools,
            idle_release=4_000 if three % 4 == 3 else None,
        )
    except GpufairError:
        return


@pytest.mark.parametrize("name", NAMES)
@given(script=scripts(least=8, most=30, policies=(FULL,)))
def test_every_policy_keeps_the_rules_of_the_game(name: str, script: Script) -> None:
    """Whatever happens: nodes are lost and come back, users cancel and resume, nodes are late."""
    world = play(script, name)
    assert world.decider.protected_preemptions == 0


FINITE = ("submit",) * 8 + ("cordon", "uncordon", "lose", "join", "cancel")


@pytest.mark.parametrize("name", OTHERS)
@given(script=scripts(FINITE, least=8, most=30, policies=(FULL,), clusters=CLUSTERS[:5], late=False))
def test_whoever_can_start_has_started_when_all_others_are_done(name: str, script: Script) -> None:
    """Nobody is forgotten: with all nodes back and all runs over, the queue is empty."""
    world = play(script, name)
    for node in script.nodes():
        world.try_feed(ev.NodeJoined(Instant(world.now), CAUSE, node))
        world.try_feed(ev.NodeUncordoned(Instant(world.now), CAUSE, node.name))
    for _ in range(3 * len(world.players)):
        world.advance(10_000)
        for holder in world.holding():
            world.exit(holder)
    assert not world.waiting()
    assert not world.holding()


SINGLES = ("submit",) * 6 + ("exit", "cancel", "lose", "join", "cordon", "uncordon")


@pytest.mark.parametrize("name", OTHERS)
@given(script=scripts(SINGLES, least=8, most=30, trees=TREES[:3], clusters=CLUSTERS[:4], policies=(FULL,), late=False))
def test_p13_single_gpus_never_idle_while_somebody_waits(name: str, script: Script) -> None:
    """With one GPU each and one pool there is nothing that could keep anybody from a free GPU, at any moment."""
    world = begin(script, name)
    for index, command in enumerate(script.commands):
        if command.what == "submit":
            world.advance(command.wait)
            runs = (400, 3_000, 9_000)[command.two % 3]
            leaf = script.tree[command.one % len(script.tree)][0]
            world.submit(f"w{index:03d}", leaf, min_runtime=5_000 * (command.three % 2), expected=runs, runs=runs)
        else:
            step(world, script, command, index)
        free = sum(world.free(node) for node in world.nodes if world.is_open(node))
        leaving = {Phase.CHECKPOINTING, Phase.STOPPING}
        going = any(player.phase in leaving for player in world.players.values())
        assert going or not free or not world.waiting()


@given(commands(("submit",), 4, 20), st.sampled_from(CLUSTERS[:4]))
def test_backfilling_never_delays_who_is_first(
    draws: tuple[Command, ...], cluster: tuple[tuple[int, str, PoolName], ...]
) -> None:
    """Where everybody needs exactly what he said, the first of the queue starts when it would if nobody else came."""
    nodes = [Node(NodeName(f"n{at}"), gpus) for at, (gpus, _, _) in enumerate(cluster)]
    world = Contest(contender("fifo-backfill"), FULL, Delays(0, 0, 0)).set_up([Allocation(AllocationPath("a"))], nodes)
    promised: dict[WorkloadId, int] = {}
    for index, draw in enumerate(draws):
        world.advance(600 * draw.wait)
        runs = 60_000 * (5, 20, 40, 90)[draw.two % 4]
        try:
            world.submit(
                f"w{index:03d}", gpus=1 + draw.one % 4, nodes=1 + (draw.three % 5 == 0), expected=runs, runs=runs
            )
        except GpufairError:
            continue
        waiting = world.waiting()
        if waiting:
            promised.setdefault(waiting[0], _would_start(world, waiting[0]))
    # Who becomes first later on is looked at as well.
    while world.waiting():
        first = world.waiting()[0]
        promised.setdefault(first, _would_start(world, first))
        world.advance(60_000)
    began = {
        action.workload: event.at for event, actions in world.log for action in actions if isinstance(action, act.Start)
    }
    for workload, at in promised.items():
        assert began[workload] <= at, f"{workload} was to start at {at}"


def _would_start(world: Contest, name: WorkloadId) -> int:
    """When it would, if nobody but those who run now were there."""
    shape = world.players[name].spec.shape
    ends = {
        other: player.held.granted_at + player.spec.expected
        for other, player in world.players.items()
        if player.held is not None and player.spec.expected is not None
    }
    for moment in sorted({world.now, *ends.values()}):
        room = dict.fromkeys(world.nodes, 0)
        for node in world.nodes:
            room[node] = world.free(node)
        for other, end in ends.items():
            held = world.players[other].held
            if end <= moment and held is not None:
                for lease in held.leases:
                    room[lease.node] += lease.gpus
        if sum(1 for gpus in room.values() if gpus >= shape.gpus_per_node) >= shape.nodes:
            return max(moment, world.now)
    raise AssertionError("it does not even fit when all are gone")


@given(scripts(("submit",) * 8 + ("exit", "idle"), least=12, most=30, policies=(FULL,), late=False))
def test_only_the_more_urgent_preempt_and_nobody_who_has_opted_out(script: Script) -> None:
    """And in vain does nobody leave: the beneficiary starts, or is gone."""
    world = play(script, "priority")
    for _, actions in world.log:
        for action in actions:
            if isinstance(action, act.BeginCheckpoint) and action.reason is PreemptReason.PRIORITY:
                assert action.beneficiary is not None
                victim, better = world.players[action.workload], world.players[action.beneficiary]
                assert level_of(action.workload, victim.spec) < level_of(action.beneficiary, better.spec)
                assert better.starts or better.phase is Phase.ENDED or better.phase is Phase.PARKED
    assert world.decider.protected_preemptions == 0


def digest() -> str:
    """Of everything that all contenders decided in some fixed worlds."""
    made = hashlib.sha256()
    for seed in range(6):
        draws = tuple(
            Command(
                (at * 37 + seed) % 900,
                (USERS + MACHINES)[(at * 7 + seed * 5) % 20],
                at * 13 % 64,
                at * 29 % 64,
                at * 11 % 64,
            )
            for at in range(1, 60)
        )
        script = Script(TREES[3], CLUSTERS[5 - seed % 3], Delays(), draws, FULL)
        for name in NAMES:
            made.update(repr(play(script, name).log).encode())
    return made.hexdigest()


def test_p22_hash_seeds_change_no_decision_of_any_policy() -> None:
    """The same submissions give the same run on every machine."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "scheduler")])
    command = [sys.executable, "-c", "from tests.property.test_contender_laws import digest; print(digest())"]
    found = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {digest() + "\n"}
