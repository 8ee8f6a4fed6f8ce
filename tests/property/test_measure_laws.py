"""Figures of a run equal what counting minute by minute gives, whatever happened in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import events as ev
from gpufair.core.model import Allocation, Kind, Lease, Node, Outcome, Policy, Shape, WorkloadSpec
from gpufair.core.tree import Tree
from gpufair.core.units import MINUTE, AllocationPath, CauseId, Instant, Millis, NodeName, PoolName, WorkloadId
from gpufair.sim.job import Job
from gpufair.sim.measures import Figures, measure
from gpufair.sim.scenario import Scenario
from gpufair.sim.story import Life, Stint, Story

CAUSE = CauseId("test")
END = 260  # minutes
MICRO = 1_000_000
ONE, TWO = PoolName("one"), PoolName("two")
NODES = (
    Node(NodeName("n0"), 4, pool=ONE),
    Node(NodeName("n1"), 2, pool=ONE),
    Node(NodeName("n2"), 4, "old", pool=ONE),
    Node(NodeName("n3"), 3, "old", pool=TWO),
    Node(NodeName("n4"), 3, pool=TWO),
)
LEAVES = ("a/x", "a/y", "b")
SHAPES = (Shape(1), Shape(2), Shape(4), Shape(2, 2), Shape(3, 2), Shape(1, 1, "old"), Shape(2, 2, "old"))


def at(minute: int) -> Instant:
    return Instant(minute * MINUTE)


def budgets(draw: st.DrawFn) -> tuple[Allocation, ...]:
    shares = st.sampled_from(("0", "1", "2", "3.5"))
    return tuple(Allocation(AllocationPath(path), draw(shares)) for path in ("a", "a/x", "a/y", "b"))


def specs(draw: st.DrawFn, pools: tuple[PoolName, ...]) -> WorkloadSpec:
    return WorkloadSpec(
        AllocationPath(draw(st.sampled_from(LEAVES))),
        "u",
        Kind.BATCH,
        draw(st.sampled_from(SHAPES)),
        Millis(draw(st.sampled_from((0, 30, 90))) * MINUTE),
        resumable=draw(st.booleans()),
        pools=tuple(draw(st.permutations(pools))),
    )


def stints(
    draw: st.DrawFn, spec: WorkloadSpec, nodes: tuple[Node, ...], submitted: int
) -> tuple[list[Stint], int | None]:
    """What it held, and since when it waits in the end (None: it is parked, holds GPUs or has ended)."""
    spans = st.integers(0, 40)
    found: list[Stint] = []
    since, released = submitted, submitted
    for _ in range(draw(st.integers(0, 3))):
        granted = max(since, released) + draw(spans)
        freed = granted + draw(st.integers(1, 80))
        if granted >= END:
            return found, since
        pool = draw(st.sampled_from(spec.pools))
        there = [node for node in nodes if node.pool == pool]
        leases = tuple(Lease(node.name, spec.shape.gpus_per_node) for node in draw(st.permutations(there)))
        stint = Stint(leases[: spec.shape.nodes], pool, at(granted), at(granted), at(since))
        found.append(stint)
        up, notice = granted + draw(spans), freed - draw(spans)
        if up <= min(freed, END):
            stint.up = at(up)
            left = min(freed, END)
            if granted <= notice <= END:
                stint.notice, left = at(notice), max(up, notice)
            stint.worked = Millis(draw(st.integers(0, left - up)) * MINUTE)
            stint.lost = Millis(draw(st.integers(0, stint.worked)))
        if freed >= END:
            return found, None
        stint.freed = at(freed)
        since, released = freed + draw(st.sampled_from((0, 0, 25, -5))), freed
        since = max(since, granted)
    return found, since if since < END and draw(st.booleans()) else None


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Not what a policy would do, but whatever a story could say."""
    nodes = draw(st.sampled_from((NODES[:1], NODES[:2], NODES[:3], NODES, NODES, NODES)))
    pools = tuple(sorted({node.pool for node in nodes}))
    minutes = st.integers(0, END - 1)
    incidents: list[ev.Event] = []
    for node in nodes:
        moments = sorted(draw(st.lists(minutes, max_size=3, unique=True)))
        for minute in moments:
            back = replace(node, gpus=draw(st.sampled_from((node.gpus, node.gpus + 1))))
            lost, joined = ev.NodeLost(at(minute), CAUSE, node.name), ev.NodeJoined(at(minute), CAUSE, back)
            incidents += draw(st.sampled_from(((lost,), (lost,), (joined,), (joined,), (lost, joined))))
        for index, minute in enumerate(sorted(draw(st.lists(minutes, max_size=2, unique=True)))):
            open_, shut = ev.NodeUncordoned(at(minute), CAUSE, node.name), ev.NodeCordoned(at(minute), CAUSE, node.name)
            incidents.append(open_ if index % 2 else shut)
    incidents += [ev.BudgetsApplied(at(minute), CAUSE, budgets(draw)) for minute in draw(st.lists(minutes, max_size=2))]
    lives: dict[WorkloadId, Life] = {}
    for index, submitted in enumerate(sorted(draw(st.lists(minutes, max_size=6)))):
        name, spec = WorkloadId(f"w{index}"), specs(draw, pools)
        held, waits = stints(draw, spec, nodes, submitted)
        life = Life(Job(name, at(submitted), Millis(0), spec), at(submitted), stints=held)
        if waits is not None:
            life.waiting_since = at(waits)
        if waits is not None or not held or held[-1].freed is not None:
            over = draw(st.none() | st.integers(0, 30))
            last = max(waits or 0, submitted, END if held and held[-1].freed is None else 0)
            last = max([last, *(stint.freed // MINUTE for stint in held if stint.freed is not None)])
            if over is not None and last + over < END:
                life.ended, life.outcome = at(last + over), Outcome.CANCELLED
        if not held and draw(st.sampled_from((False, False, True))):
            life.refused, life.ended = "it never fits", life.submitted
        lives[name] = life
    incidents.sort(key=lambda one: one.at)
    scenario = Scenario(
        "law", nodes, budgets(draw), [life.job for life in lives.values()], at(END), incidents=tuple(incidents)
    )
    options = replace(Policy(), gpu_weights=draw(st.sampled_from(({}, {"old": 0.25}, {"": 0.5, "old": 1.5}))))
    return Story(scenario, "law", options, lives, ended_at=at(END))


@dataclass
class Minute:
    """What is so at a minute, looked up from the beginning each time."""

    story: Story
    minute: int

    def _incidents(self) -> list[ev.Event]:
        return [one for one in self.story.scenario.incidents if one.at <= at(self.minute)]

    def nodes(self) -> dict[NodeName, Node]:
        """Those that are there."""
        there = {node.name: node for node in self.story.scenario.nodes}
        for one in self._incidents():
            if isinstance(one, ev.NodeLost):
                there.pop(one.node, None)
            elif isinstance(one, ev.NodeJoined):
                there[one.node.name] = one.node
        return there

    def installed(self) -> int:
        """GPUs of all nodes as they were last."""
        known = {node.name: node for node in self.story.scenario.nodes}
        known.update((one.node.name, one.node) for one in self._incidents() if isinstance(one, ev.NodeJoined))
        return sum(node.gpus for node in known.values())

    def cordoned(self) -> set[NodeName]:
        shut: set[NodeName] = set()
        for one in self._incidents():
            if isinstance(one, ev.NodeCordoned):
                shut.add(one.node)
            elif isinstance(one, ev.NodeUncordoned):
                shut.discard(one.node)
        return shut

    def tree(self) -> Tree:
        edits = [one for one in self._incidents() if isinstance(one, ev.BudgetsApplied)]
        return Tree(edits[-1].allocations if edits else self.story.scenario.allocations)

    def leases(self, stint: Stint) -> list[Lease]:
        """What it holds now: not what was on a node that was lost since the grant."""
        now = at(self.minute)
        if not stint.granted <= now or (stint.freed is not None and stint.freed <= now):
            return []
        gone = {
            one.node
            for one in self.story.scenario.incidents
            if isinstance(one, ev.NodeLost) and stint.granted < one.at <= now
        }
        there = Minute(self.story, stint.granted // MINUTE).nodes()
        return [one for one in stint.leases if one.node in there and one.node not in gone]

    def waits(self, life: Life) -> bool:
        """Whether it is queued and holds nothing."""
        now = at(self.minute)
        if life.refused or any(s.granted <= now and (s.freed is None or s.freed > now) for s in life.stints):
            return False
        if any(stint.waited_since <= now < stint.granted for stint in life.stints):
            return True
        since = life.waiting_since
        return since is not None and since <= now and (life.ended is None or now < life.ended)


class ByHand:
    """All sums, minute by minute. A GPU counts as a quarter of itself four times, so that weights are whole."""

    def __init__(self, story: Story, start: int, end: int) -> None:
        self.story, self.sums = story, Counter[str]()
        self.charged: defaultdict[tuple[str, PoolName], Counter[int]] = defaultdict(Counter)
        self.owed: defaultdict[tuple[str, PoolName], Counter[int]] = defaultdict(Counter)
        self.useful, self.lost = Fraction(0), Fraction(0)
        self.pools = sorted({node.pool for node in story.scenario.nodes})
        for minute in range(start, end):
            self._count(Minute(story, minute))

    def _weight(self, gpu_type: str) -> int:
        return int(4 * self.story.options.gpu_weights.get(gpu_type, 1))

    def _count(self, now: Minute) -> None:
        nodes, shut, hour = now.nodes(), now.cordoned(), now.minute // 60
        present = sum(node.gpus for node in nodes.values())
        self.sums["installed"] += now.installed()
        self.sums["away"] += now.installed() - present
        used: Counter[NodeName] = Counter()
        demand: Counter[tuple[str, PoolName]] = Counter()
        waiting = []
        for life in self.story.lives.values():
            spec = life.job.spec
            for stint in life.stints:
                for lease in now.leases(stint):
                    used[lease.node] += lease.gpus
                    self.sums["allocated" if spec.allocated else "unallocated"] += lease.gpus
                    self._spend(now, stint, lease.gpus)
                    if spec.allocated:
                        units = lease.gpus * self._weight(self._node(lease.node).gpu_type)
                        self.charged[spec.allocation, stint.pool][hour] += units
                        demand[spec.allocation, stint.pool] += units
            if now.waits(life):
                waiting.append(spec)
                pool = next((pool for pool in spec.pools if self._holds(nodes, pool, spec.shape)), None)
                if spec.allocated and pool is not None and (life.stints or life.ended is None):
                    demand[spec.allocation, pool] += spec.shape.gpus * self._weight(spec.shape.gpu_type)
        for name in shut & nodes.keys():
            self.sums["cordoned"] += nodes[name].gpus - used[name]
        self._owe(now, nodes, demand, hour)
        free = {name: node.gpus - used[name] for name, node in nodes.items() if name not in shut}
        self._look(nodes, {name: left for name, left in free.items() if left > 0}, waiting)

    def _node(self, name: NodeName) -> Node:
        return next(node for node in self.story.scenario.nodes if node.name == name)

    def _holds(self, nodes: dict[NodeName, Node], pool: PoolName, shape: Shape) -> bool:
        fitting = [
            node
            for node in nodes.values()
            if node.pool == pool and node.gpus >= shape.gpus_per_node and shape.gpu_type in {"", node.gpu_type}
        ]
        return len(fitting) >= shape.nodes

    def _spend(self, now: Minute, stint: Stint, gpus: int) -> None:
        moment = at(now.minute)
        if stint.up is None or moment < stint.up or (stint.notice is not None and moment >= stint.notice):
            self.sums["switching"] += gpus

    def _owe(self, now: Minute, nodes: dict[NodeName, Node], demand: Counter[tuple[str, PoolName]], hour: int) -> None:
        tree = now.tree()
        for pool in self.pools:
            worth = sum(node.gpus * self._weight(node.gpu_type) for node in nodes.values() if node.pool == pool)
            for leaf in LEAVES:
                # In millionths of the unit in which weights are whole, which is coarser than a quarter at times.
                ceiling = tree[AllocationPath(leaf)].entitlement * worth * MICRO
                scale = 4 // self._unit()
                floored = ceiling.numerator // (ceiling.denominator * scale) * scale
                self.owed[leaf, pool][hour] += min(demand[leaf, pool] * MICRO, floored)

    def _unit(self) -> int:
        weights = self.story.options.gpu_weights.values()
        return max([1, *(Fraction(str(weight)).denominator for weight in weights)])

    def _look(self, nodes: dict[NodeName, Node], free: dict[NodeName, int], waiting: list[WorkloadSpec]) -> None:
        scattered: dict[PoolName, int] = {}
        kept: dict[PoolName, int] = {}
        for spec in waiting:
            shape = spec.shape
            rooms = {
                pool: [
                    left
                    for name, left in free.items()
                    if nodes[name].pool == pool and shape.gpu_type in {"", nodes[name].gpu_type}
                ]
                for pool in spec.pools
            }
            most = max(node.gpus for node in self._ever())
            fits = [p for p, lefts in rooms.items() if sum(lefts) >= shape.gpus and shape.gpus_per_node <= most]
            placed = [p for p in fits if sum(left >= shape.gpus_per_node for left in rooms[p]) >= shape.nodes]
            for pool in placed or fits:
                found = kept if placed else scattered
                found[pool] = max(found.get(pool, 0), sum(rooms[pool]))
        self.sums["fragmented"] += sum(scattered.values())
        self.sums["withheld"] += sum(kept.values())

    def _ever(self) -> list[Node]:
        scenario = self.story.scenario
        return [*scenario.nodes, *(one.node for one in scenario.incidents if isinstance(one, ev.NodeJoined))]

    def account(self, path: str) -> dict[str, int]:
        """What one node of the tree comes to, in GPU-milliseconds."""
        whole = [key for key in {**self.charged, **self.owed} if not path or f"{key[0]}/".startswith(f"{path}/")]
        charged = sum(sum(self.charged[key].values()) for key in whole)
        owed = sum(sum(self.owed[key].values()) for key in whole)
        capped = sum(min(sum(self.charged[key].values()) * MICRO, sum(self.owed[key].values())) for key in whole)
        hourly = sum(
            min(self.charged[key][hour] * MICRO, self.owed[key][hour]) for key in whole for hour in range(END // 60 + 1)
        )
        return {
            "charged": charged * MINUTE // 4,
            "owed": owed * MINUTE // (4 * MICRO),
            "capped": capped * MINUTE // (4 * MICRO),
            "hourly": hourly * MINUTE // (4 * MICRO),
        }


@given(stories(), st.integers(0, END - 1), st.integers(1, END))
def test_figures_equal_counting_minute_by_minute(story: Story, start: int, length: int) -> None:
    """Nodes come and go, are cordoned, budgets change, GPUs are weighted, work is parked, refused and taken back."""
    end = min(END, start + length)
    figures = measure(story, (at(start), at(end)))
    hand = ByHand(story, start, end)
    for name in ("installed", "away", "cordoned", "allocated", "unallocated", "switching", "fragmented", "withheld"):
        assert getattr(figures.time, name) == hand.sums[name] * MINUTE, name
    for account in figures.delivered.accounts:
        mine = {name: getattr(account, name) for name in ("charged", "owed", "capped", "hourly")}
        assert mine == hand.account(account.path), account.path
    _adds_up(figures)


def _adds_up(figures: Figures) -> None:
    """Parts are no more than the whole, and inner nodes are the sums of their leaves."""
    time, whole = figures.time, figures.delivered.whole
    assert 0 <= time.lost <= time.useful + time.lost <= time.held
    for account in figures.delivered.accounts:
        assert account.hourly <= account.capped <= min(account.charged + 1, account.owed) or not account.leaf
        assert account.net <= account.capped
    leaves = figures.delivered.leaves
    assert abs(whole.owed - sum(leaf.owed for leaf in leaves)) <= len(leaves)
    assert abs(whole.charged - sum(leaf.charged for leaf in leaves)) <= len(leaves)


@given(stories(), st.integers(1, END - 1))
def test_two_periods_are_one(story: Story, middle: int) -> None:
    """What is integrated adds up wherever a period is cut."""
    first, second = measure(story, (at(0), at(middle))).time, measure(story, (at(middle), at(END))).time
    whole = measure(story).time
    for name in ("installed", "away", "cordoned", "allocated", "unallocated", "switching", "fragmented", "withheld"):
        assert getattr(first, name) + getattr(second, name) == getattr(whole, name), name
    parts = 20 * sum(len(life.stints) for life in story.lives.values())
    for name in ("useful", "lost"):
        assert abs(getattr(first, name) + getattr(second, name) - getattr(whole, name)) <= parts, name
