"""Hypothesis strategies: budget trees, clusters, and scripts of what users and machines do to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from gpufair.core import events as ev
from gpufair.core.errors import GpufairError
from gpufair.core.model import Allocation, Kind, Node, Outcome, Phase, Policy
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, PoolName
from tests.world import CAUSE, DEFAULT, FULL, SMALL, Delays, World

OTHER, THIRD = PoolName("other"), PoolName("third")

TREES: tuple[tuple[tuple[str, str], ...], ...] = (
    (("a", "1"),),
    (("a", "50"), ("b", "50")),
    (("a", "1"), ("b", "2"), ("c", "3")),
    (("a/x", "1"), ("a/y", "3"), ("b", "1")),
    (("a", "2"), ("b", "1"), ("a/x", "1"), ("a/y", "1"), ("b/x", "0.5"), ("b/y", "1.5")),
)

CLUSTERS: tuple[tuple[tuple[int, str, PoolName], ...], ...] = (
    ((1, "", DEFAULT),),
    ((4, "", DEFAULT),),
    ((2, "", DEFAULT), (2, "", DEFAULT)),
    ((4, "", DEFAULT), (2, "", DEFAULT), (1, "", DEFAULT)),
    ((2, "t", DEFAULT), (2, "s", DEFAULT), (0, "", DEFAULT)),
    ((2, "", DEFAULT), (2, "", DEFAULT), (2, "", OTHER)),
    ((8, "", DEFAULT), (8, "", DEFAULT), (8, "", DEFAULT)),
    ((2, "", DEFAULT), (2, "", OTHER), (1, "", OTHER), (2, "", THIRD)),
)


@dataclass(frozen=True)
class Command:
    """One thing that happens after ``wait`` ms. The numbers choose among what there is then, so any script runs."""

    wait: int
    what: str
    one: int
    two: int
    three: int


@dataclass(frozen=True)
class Outfit:
    """What the nodes of a cluster have beside GPUs. Nodes without a value of a label lie in no block."""

    racks: tuple[str, ...] = ("",)  # of the nodes in turn, "" = none
    links: tuple[str, ...] = ("",)
    cpus: tuple[int | None, ...] = (None,)
    memory: tuple[int | None, ...] = (None,)

    @property
    def plain(self) -> bool:
        """Whether there is nothing to ask for."""
        return self == Outfit()

    def of(self, index: int) -> tuple[dict[str, str], int | None, int | None]:
        """Labels, CPUs and memory of the n-th node."""
        labels = {"rack": self.racks[index % len(self.racks)], "nvlink": self.links[index % len(self.links)]}
        present = {label: value for label, value in labels.items() if value}
        return present, self.cpus[index % len(self.cpus)], self.memory[index % len(self.memory)]


OUTFITS = (
    Outfit(),
    Outfit(racks=("r1", "r1", "r2"), cpus=(4,), memory=(8,)),
    Outfit(racks=("r1", "r2"), links=("x", "y", "y", ""), cpus=(None, 6), memory=(None, 6, 3)),
)
# What a workload may ask for beside GPUs, by what the numbers of its command choose.
DEMANDS: tuple[dict[str, object], ...] = (
    {},
    {},
    {},
    {"cpus_per_node": 1},
    {"cpus_per_node": 3, "memory_per_node": 2},
    {"memory_per_node": 5},
    {"within": "rack"},
    {"within": "nvlink", "cpus_per_node": 2},
    {"exclude": (NodeName("n0"),)},
    {"exclude": (NodeName("n1"), NodeName("n2"))},
    {"where": (("rack", "r1"),)},
)


@dataclass(frozen=True)
class Script:
    """A world and what happens in it."""

    tree: tuple[tuple[str, str], ...]
    cluster: tuple[tuple[int, str, PoolName], ...]
    delays: Delays
    commands: tuple[Command, ...]
    policy: Policy = SMALL
    outfit: Outfit = Outfit()

    def allocations(self) -> tuple[Allocation, ...]:
        return tuple(Allocation(AllocationPath(path), share) for path, share in self.tree)

    def nodes(self) -> tuple[Node, ...]:
        return tuple(
            Node(NodeName(f"n{index}"), gpus, gpu_type, pool, *self.outfit.of(index))
            for index, (gpus, gpu_type, pool) in enumerate(self.cluster)
        )


USERS = ("submit",) * 4 + ("exit", "cancel", "park", "resume", "busy", "idle", "extend", "safe", "amend")
# Many who want the same few GPUs: it is there that somebody is preempted.
CROWD = ("submit",) * 8 + ("exit", "idle")
MACHINES = ("cordon", "drain", "uncordon", "lose", "remove", "join", "fail", "sigterm", "budgets")


def commands(what: Sequence[str], least: int, most: int) -> st.SearchStrategy[tuple[Command, ...]]:
    """Scripts of ``least`` to ``most`` commands."""
    one = st.builds(
        Command,
        wait=st.sampled_from((0, 0, 1, 200, 1_000, 2_500, 7_000)),
        what=st.sampled_from(what),
        one=st.integers(0, 63),
        two=st.integers(0, 63),
        three=st.integers(0, 63),
    )
    return st.lists(one, min_size=least, max_size=most).map(tuple)


def scripts(
    what: Sequence[str] = USERS + MACHINES,
    least: int = 3,
    most: int = 25,
    trees: Sequence[tuple[tuple[str, str], ...]] = TREES,
    clusters: Sequence[tuple[tuple[int, str, PoolName], ...]] = CLUSTERS,
    late: bool = True,
    policies: Sequence[Policy] = (SMALL, FULL),
    outfits: Sequence[Outfit] = OUTFITS,
) -> st.SearchStrategy[Script]:
    """Whole worlds."""
    delays = (Delays(), Delays(0, 0, 0), Delays(900, 900, 950))
    return st.builds(
        Script,
        tree=st.sampled_from(trees),
        cluster=st.sampled_from(clusters),
        delays=st.sampled_from((*delays, Delays(300, 200, 8_000), Delays(300, 200, -500)) if late else delays),
        commands=commands(what, least, most),
        policy=st.sampled_from(policies),
        outfit=st.sampled_from(outfits),
    )


def crowds(policies: Sequence[Policy] = (SMALL, FULL)) -> st.SearchStrategy[Script]:
    """Worlds in which nearly everybody has to wait."""
    return scripts(CROWD, least=12, most=30, clusters=CLUSTERS[:4], late=False, policies=policies)


def begin(script: Script, *, validate: bool = True) -> World:
    """The world of a script before anything happens."""
    return World(policy=script.policy, delays=script.delays, validate=validate).set_up(
        script.allocations(), script.nodes()
    )


def run(script: Script, *, validate: bool = True, settle_ms: int = 20_000) -> World:
    """Run a script to its end, and let the dust settle."""
    world = begin(script, validate=validate)
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    world.advance(settle_ms)
    return world


RESEARCHERS = ("ada", "bob", "eve")
SLICES = (None, None, Millis(1_500), Millis(400))
MIN_RUNTIMES = (0, 1_000, 2_000, 5_000, 5_000, 10_000)


def step(world: World, script: Script, command: Command, index: int) -> None:
    """Let one command happen."""
    world.advance(command.wait)
    now, one, two, three = world.now, command.one, command.two, command.three
    if command.what in {"submit", "withhold"}:
        _submit(world, script, command, index)
        return
    if command.what == "remove":
        lost = [view.node.name for view in world.state.nodes() if view.lost]
        if lost:
            world.try_feed(ev.NodeRemoved(now, CAUSE, lost[one % len(lost)]))
        return
    if command.what in {"cordon", "drain", "uncordon", "lose", "join"}:
        nodes = script.nodes()
        node = nodes[one % len(nodes)]
        events: dict[str, ev.Event] = {
            "cordon": ev.NodeCordoned(now, CAUSE, node.name),
            "drain": ev.NodeDrained(now, CAUSE, node.name, _deadline(now, two), force=bool(three % 2 and two % 4)),
            "uncordon": ev.NodeUncordoned(now, CAUSE, node.name),
            "lose": ev.NodeLost(now, CAUSE, node.name),
            "join": ev.NodeJoined(now, CAUSE, node),
        }
        world.try_feed(events[command.what])
        return
    if command.what == "budgets":
        shares = ("1", "2", "0.1", "0") if three % 4 == 0 else ("1", "2", "0.1")
        tree = [(path, shares[(two + place) % len(shares)]) for place, (path, _) in enumerate(script.tree)]
        world.try_feed(ev.BudgetsApplied(now, CAUSE, tuple(Allocation(AllocationPath(p), s) for p, s in tree)))
        return
    known = [workload for workload in world.state.workloads() if workload.phase is not Phase.ENDED]
    if not known:
        return
    workload = known[one % len(known)]
    identity = (workload.id, workload.incarnation)
    if command.what == "amend":
        world.try_feed(_amended(world, script, command))
        return
    outcome = (Outcome.COMPLETED, Outcome.FAILED)[two % 2]
    reports: dict[str, ev.Event] = {
        "exit": ev.Exited(now, CAUSE, *identity, outcome),
        "cancel": ev.Cancelled(now, CAUSE, workload.id),
        "park": ev.ParkRequested(now, CAUSE, workload.id),
        "resume": ev.ResumeRequested(now, CAUSE, workload.id, bool(two % 4), SLICES[three % len(SLICES)]),
        "busy": ev.ActivityReported(now, CAUSE, *identity, busy=True),
        "idle": ev.ActivityReported(now, CAUSE, *identity, busy=False),
        "extend": ev.ExtensionRequested(now, CAUSE, workload.id, Millis(MIN_RUNTIMES[three % len(MIN_RUNTIMES)])),
        "safe": ev.SafePointReached(now, CAUSE, *identity),
        "fail": ev.StartFailed(now, CAUSE, *identity, "no such image"),
        "sigterm": ev.Released(now, CAUSE, *identity, busy=bool(three % 2)),
    }
    if command.what == "fail" and workload.phase not in {Phase.STARTING, Phase.RESTORING}:
        return
    world.try_feed(reports[command.what])


def _amended(world: World, script: Script, command: Command) -> ev.Amended:
    """Another wish of one who waits or rests, if anybody does."""
    one, two, three = command.one, command.two, command.three
    known = [workload for workload in world.state.workloads() if workload.phase is not Phase.ENDED]
    still = [workload for workload in known if workload.phase in {Phase.QUEUED, Phase.PARKED}] or known
    workload, leaves = still[one % len(still)], world.state.tree.leaves
    spec, types = workload.spec, sorted({gpu_type for _, gpu_type, _ in script.cluster if gpu_type})
    demands: Any = {} if script.outfit.plain or two % 2 else DEMANDS[three % len(DEMANDS)]
    shape = replace(
        spec.shape,
        gpus_per_node=(0, 1, 2, 4, spec.shape.gpus_per_node, spec.shape.gpus_per_node)[two % 6],
        nodes=(1, spec.shape.nodes, 2)[three % 3],
        gpu_type=types[two % len(types)] if types and one % 4 == 0 else spec.shape.gpu_type,
        **demands,
    )
    return ev.Amended(
        world.now,
        CAUSE,
        workload.id,
        leaves[two % len(leaves)] if one % 3 == 0 else spec.allocation,
        shape,
        Millis(MIN_RUNTIMES[three % len(MIN_RUNTIMES)]) if two % 3 else spec.min_runtime,
        spec.pools[::-1] if one % 2 else spec.pools,
        spec.priority + (0, 0, 1)[three % 3],
    )


def _deadline(now: Instant, number: int) -> Instant | None:
    return None if number % 4 == 0 else Instant(now + (0, 500, 3_000)[number % 3])


def _submit(world: World, script: Script, command: Command, index: int) -> None:
    leaves = world.state.tree.leaves
    sizes = (1, 1, 2, 3, 4, 0, 2, 8)
    kinds = (Kind.BATCH, Kind.SESSION)
    types = sorted({gpu_type for _, gpu_type, _ in script.cluster if gpu_type})
    pools: tuple[tuple[PoolName, ...], ...] = ((DEFAULT,), (DEFAULT,), (DEFAULT, OTHER), (OTHER, DEFAULT))
    several = any(pool == OTHER for _, _, pool in script.cluster)
    if any(pool == THIRD for _, _, pool in script.cluster):
        pools = ((DEFAULT,), (THIRD, DEFAULT), (DEFAULT, OTHER, THIRD), (OTHER, THIRD))
    one, two, three = command.one, command.two, command.three
    demands = {} if script.outfit.plain else DEMANDS[(one + two + three) % len(DEMANDS)]
    try:
        world.submit(
            f"w{index:03d}",
            leaves[one % len(leaves)],
            gpus=sizes[two % len(sizes)],
            min_runtime=MIN_RUNTIMES[three % len(MIN_RUNTIMES)],
            nodes=2 if two % 5 == 4 else 1,
            kind=kinds[three % 2],
            priority=(0, 0, 1)[one % 3],
            resumable=bool(three % 3),
            gpu_type=types[three % len(types)] if types and two % 3 == 0 else "",
            pools=pools[three % 4] if several else (DEFAULT,),
            user=RESEARCHERS[(one + index) % len(RESEARCHERS)],
            demands=demands,
            idle_release=4_000 if script.policy.take_limit is not None and three % 4 == 3 else None,
            movable=bool(three % 3) and one % 4 == 0,
            withheld=command.what == "withhold",
        )
    except GpufairError:
        return
