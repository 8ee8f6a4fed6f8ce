"""Random worlds and a random hand in them, from one seed: users, nodes that fail, operators, clocks, restarts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import BudgetError, GpufairError
from gpufair.core.model import HOLDING, Allocation, Kind, Maintenance, Node, Outcome, Phase, Shape, WorkloadSpec
from gpufair.core.snapshot import recover, replay, restore, snapshot
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, PoolName, WorkloadId
from tests.long.policies import random_policy
from tests.long.watch import BrokenLawError, Watch
from tests.world import CAUSE, DEFAULT, Delays, Entry, World

POOLS: Final = (DEFAULT, PoolName("other"), PoolName("third"))
# The last two are late, and one never releases by itself.
DELAYS: Final = (Delays(), Delays(0, 0, 0), Delays(900, 900, 950), Delays(300, 200, 8_000), Delays(300, 200, -500))
PAUSES: Final = (0, 0, 0, 1, 50, 200, 700, 1_000, 2_500, 7_000, 21_000)
EACH: Final = 1_500  # events of one world
RESEARCHERS: Final = ("ada", "bob", "eve", "kim")
# Everything that can happen and how often, in one long table so that it can be read.
HABITS: Final = {
    "submit": 34,
    "exit": 22,
    "cancel": 3,
    "park": 3,
    "resume": 5,
    "busy": 4,
    "idle": 4,
    "fail": 1,
    "sigterm": 1,
    "cordon": 1,
    "drain": 0.5,
    "plan": 0.4,
    "unplan": 0.4,
    "extend": 2,
    "safe": 2,
    "amend": 2,
    "uncordon": 2.5,
    "lose": 1,
    "remove": 0.3,
    "join": 2,
    "budgets": 1,
    "policy": 0.3,
    "clock": 0.6,
    "restart": 0.3,
}


@dataclass
class LongWorld(World):
    """A world that is watched, whose nodes are of mixed reliability. It keeps the journal since its last restart."""

    draw: Random = field(default_factory=Random)
    watch: Watch = field(default_factory=Watch)
    base: dict | None = None  # the snapshot that the journal continues
    replays: int = 0

    def feed(self, event: ev.Event) -> list[act.Action]:
        if self.draw.random() < 0.1:
            self.delays = self.draw.choice(DELAYS)
        actions = super().feed(event)
        self.watch.take(event, actions)
        due = self.state.next_wakeup()
        if due is not None and due <= self.state.now:
            raise BrokenLawError(f"no livelock: a pass at {self.state.now} asks to be woken at {due}")
        return actions

    def _answers(self, action):
        for delay, reply in super()._answers(action):
            chance = self.draw.random()
            if chance < 0.02 and isinstance(reply, ev.Started):
                yield delay, ev.StartFailed(reply.at, CAUSE, reply.workload, reply.incarnation, "no such image")
            elif chance < 0.03 and isinstance(reply, ev.CheckpointDone):
                yield delay, ev.CheckpointFailed(reply.at, CAUSE, reply.workload, reply.incarnation, "disk is full")
            else:
                yield delay, reply

    def restart(self) -> None:
        """As a service does after a crash: the last snapshot, and the journal since, applied without deciding."""
        journal = [(entry.event, entry.actions) for entry in self.journal]
        state = recover(journal, self.base, self.policy)
        now = snapshot(self.state)
        if snapshot(state) != now:
            raise BrokenLawError("P22: a restart ended in another state")
        if self.draw.random() < 0.4:  # it takes as long as all that was decided so far
            self.replays += 1
            again = replay(journal, self.base, self.policy)
            if not again.same:
                raise BrokenLawError(f"P22: decided anew, it differs: {again.differences[0]}")
        self.base = json.loads(json.dumps(now))
        self.state = restore(self.base)
        self.state.forget(Instant(self.now - 60_000))
        self.base = json.loads(json.dumps(snapshot(self.state)))
        self.journal.clear()


class Hand:
    """Everything in one random world.

    Args:
        seed: The world; the same seed gives the same run.
    """

    def __init__(self, seed: int) -> None:
        self.draw = draw = Random(seed)
        large = draw.random() < 0.12
        self.paths = self._tree(large)
        self.nodes = self._cluster(large)
        self.most = 150 if large else draw.choice((6, 15, 30))  # workloads at once
        self.world = LongWorld(policy=random_policy(draw), delays=draw.choice(DELAYS), validate=False, draw=draw)
        self.largest = {node.name: node.gpus for node in self.nodes}  # that a node ever was: some wait for that
        self.live: list[WorkloadId] = []
        self.plans = 0
        self.count = self.commands = self.refused = self.restarts = self.validated = 0
        weights = dict(HABITS)
        for what in draw.sample(sorted(set(HABITS) - {"submit", "exit"}), 4):
            weights[what] *= draw.choice((0, 0, 3, 6))
        self._what, self._weights = list(weights), list(weights.values())
        self.world.set_up(self._budgets(), self.nodes)

    def _tree(self, large: bool) -> list[str]:
        draw = self.draw
        if large:
            return [f"{a}/{b}/{c}" for a in "abc" for b in "xyz"[: draw.randint(1, 3)] for c in "pqr"]
        return draw.choice(
            (
                ["a"],
                ["a", "b"],
                ["a", "b", "c"],
                ["a/x", "a/y", "b"],
                ["a/x", "a/y", "b/x", "b/y"],
                ["a/x/p", "b", "c/q"],
            )
        )

    def _cluster(self, large: bool) -> list[Node]:
        draw = self.draw
        pools = POOLS[: draw.choice((1, 1, 1, 2, 3))]
        types = ("",) if draw.random() < 0.6 else ("t", "s")
        count = draw.randint(12, 32) if large else draw.randint(1, 5)
        sizes = (8, 8, 8, 4) if large else (1, 2, 4, 4, 8, 0)
        self.outfitted = draw.random() < 0.3  # racks, CPUs and memory beside GPUs
        return [
            Node(
                NodeName(f"n{index:02d}"),
                draw.choice(sizes) if index else max(sizes),
                draw.choice(types),
                draw.choice(pools),
                {"rack": draw.choice("rs")} if self.outfitted and draw.random() < 0.8 else {},
                cpus=draw.choice((4, 8, None)) if self.outfitted else None,
                memory=draw.choice((8, None)) if self.outfitted else None,
            )
            for index in range(count)
        ]

    def _budgets(self) -> tuple[Allocation, ...]:
        shares = ("1", "2", "3", "0.5", "5")
        return tuple(Allocation(AllocationPath(path), self.draw.choice(shares)) for path in self.paths)

    # -- what happens ---------------------------------------------------------------------------------------------

    def run(self, events: int) -> None:
        """Let so many events happen, then let everything come to its end.

        Raises:
            BrokenLawError: A law does not hold.
            GpufairError, AssertionError: The core broke.
        """
        while self.world.watch.events < events:
            self.world.advance(self.draw.choice(PAUSES))
            self.command()
            if self.commands % 64 == 0:
                self.check()
        self.finish()

    def check(self) -> None:
        """Compare the core's own figures with those of the watch, and validate its whole state."""
        state, watch = self.world.state, self.world.watch
        totals = state.conservation()
        if totals.error:
            raise BrokenLawError(f"P7: {totals.error} GPU-ms are not accounted for")
        if (totals.charged, totals.unallocated) != (watch.charged, watch.unallocated):
            raise BrokenLawError(
                f"P7: {totals.charged} charged and {totals.unallocated} unallocated by the ledger; "
                f"{watch.charged} and {watch.unallocated} by the journal"
            )
        if state.protected_preemptions:
            raise BrokenLawError(f"P1: {state.protected_preemptions} protected preemptions by the core's own count")
        state.validate()
        self.validated += 1

    def finish(self) -> None:
        """Nobody submits any more and all machines are well: everybody who waits gets his turn."""
        world = self.world
        for number in range(1, self.plans + 1):
            self._try(ev.MaintenanceCancelled(world.now, CAUSE, f"plan{number}"))
        for node in self.nodes:
            self._try(ev.NodeJoined(world.now, CAUSE, replace(node, gpus=self.largest[node.name])))
            self._try(ev.NodeUncordoned(world.now, CAUSE, node.name))
        self._try(ev.BudgetsApplied(world.now, CAUSE, self._budgets()))
        world.delays = Delays()
        for _ in range(40 + 3 * len(self._alive())):
            waiting = world.state.queue()
            if not waiting:
                break
            world.advance(world.policy.max_min_runtime // 4)
            for workload in self._alive():
                seen = world.state.facts.records[workload]
                if seen.phase is Phase.RUNNING:
                    self._try(ev.Exited(world.now, CAUSE, workload, seen.incarnation, Outcome.COMPLETED))
        else:
            raise BrokenLawError(f"P15: {len(world.state.queue())} still wait though everybody else has ended")
        self.check()
        world.restart()

    def command(self) -> None:
        """One thing that somebody does."""
        self.commands += 1
        what = self.draw.choices(self._what, self._weights)[0]
        if what == "submit" and len(self.live) >= self.most and len(self._alive()) >= self.most:
            what = "exit"
        getattr(self, f"_{what}" if what != "budgets" else "_edit_budgets")()

    def _try(self, event: ev.Event) -> None:
        if not self.world.try_feed(event):
            self.refused += 1

    def _alive(self) -> list[WorkloadId]:
        records = self.world.state.facts.records
        self.live = [one for one in self.live if one in records and records[one].phase is not Phase.ENDED]
        return self.live

    def _one(self, *phases: Phase):
        """A record in one of these phases, if there is one."""
        found = [self.world.state.facts.records[one] for one in self._alive()]
        found = [record for record in found if record.phase in phases]
        return self.draw.choice(found) if found else None

    def _submit(self) -> None:
        draw, world = self.draw, self.world
        cap = world.policy.max_min_runtime
        pools = list({node.pool: None for node in self.nodes})
        draw.shuffle(pools)
        biggest = max(node.gpus for node in self.nodes)
        spec = WorkloadSpec(
            allocation=draw.choice(world.state.tree.leaves),
            user=draw.choice(RESEARCHERS),
            kind=draw.choice((Kind.BATCH, Kind.BATCH, Kind.SESSION)),
            shape=self._shape(biggest),
            min_runtime=Millis(draw.choice((0, 0, 500, 1_000, 2_000, 5_000, 5_000, 10_000, cap))),
            resumable=draw.random() < 0.8,
            priority=draw.choice((0, 0, 0, 1, 2)),
            pools=tuple(pools[: draw.choice((1, 1, 2, 3))]),
            grace=Millis(draw.choice((0, 500, 4_000))) if draw.random() < 0.1 else None,
            idle_release=Millis(draw.choice((800, 5_000))) if draw.random() < 0.15 else None,
            expected=Millis(draw.choice((1_000, 9_000))) if draw.random() < 0.2 else None,
            movable=draw.random() < 0.2,
        )
        self.count += 1
        workload = WorkloadId(f"w{self.count:06d}")
        if world.try_feed(ev.Submitted(world.now, CAUSE, workload, spec)):
            self.live.append(workload)
        else:
            self.refused += 1

    def _shape(self, biggest: int) -> Shape:
        draw = self.draw
        shape = Shape(
            draw.choice((1, 1, 1, 2, 3, 4, biggest, 0)),
            draw.choice((1, 1, 1, 1, 2, 3, max(1, len(self.nodes) // 2))),
            draw.choice([node.gpu_type for node in self.nodes]) if draw.random() < 0.2 else "",
        )
        if not self.outfitted or draw.random() < 0.5:
            return shape
        return replace(
            shape,
            cpus_per_node=draw.choice((0, 1, 3)),
            memory_per_node=draw.choice((0, 2)),
            within=draw.choice(("", "rack")),
            exclude=(draw.choice(self.nodes).name,) if draw.random() < 0.2 else (),
        )

    def _exit(self) -> None:
        record = self._one(Phase.RUNNING, Phase.RUNNING, Phase.CHECKPOINTING)
        if record is not None:
            outcome = self.draw.choice((Outcome.COMPLETED, Outcome.COMPLETED, Outcome.FAILED))
            self._try(ev.Exited(self.world.now, CAUSE, record.id, record.incarnation, outcome))

    def _cancel(self) -> None:
        record = self._one(*Phase)
        if record is not None:
            self._try(ev.Cancelled(self.world.now, CAUSE, record.id))

    def _park(self) -> None:
        record = self._one(*HOLDING, Phase.QUEUED)
        if record is not None:
            self._try(ev.ParkRequested(self.world.now, CAUSE, record.id))

    def _resume(self) -> None:
        record = self._one(Phase.PARKED) or self._one(*HOLDING)
        if record is not None:
            kept = self.draw.random() < 0.8
            part = self.draw.choice((None, None, Millis(400), Millis(1_500)))
            self._try(ev.ResumeRequested(self.world.now, CAUSE, record.id, from_checkpoint=kept, slice=part))

    def _busy(self, busy: bool = True) -> None:
        record = self._one(Phase.RUNNING)
        if record is not None:
            self._try(ev.ActivityReported(self.world.now, CAUSE, record.id, record.incarnation, busy))

    def _idle(self) -> None:
        self._busy(busy=False)

    def _fail(self) -> None:
        record = self._one(Phase.STARTING, Phase.RESTORING)
        if record is not None:
            self._try(ev.StartFailed(self.world.now, CAUSE, record.id, record.incarnation, "no such image"))

    def _sigterm(self) -> None:
        record = self._one(*HOLDING)
        if record is not None:
            busy = self.draw.random() < 0.5
            self._try(ev.Released(self.world.now, CAUSE, record.id, record.incarnation, busy=busy))

    def _cordon(self) -> None:
        self._try(ev.NodeCordoned(self.world.now, CAUSE, self.draw.choice(self.nodes).name))

    def _drain(self) -> None:
        deadline = self.draw.choice((None, 0, 700, 4_000))
        when = Instant(self.world.now + deadline) if deadline is not None else None
        force = when is not None and self.draw.random() < 0.5
        self._try(ev.NodeDrained(self.world.now, CAUSE, self.draw.choice(self.nodes).name, when, force))

    def _plan(self) -> None:
        self.plans += 1
        name = f"plan{self.plans}"
        nodes = tuple(sorted({self.draw.choice(self.nodes).name for _ in range(2)}))
        at = Instant(self.world.now + self.draw.choice((500, 4_000, 15_000, 40_000)))
        self._try(ev.MaintenancePlanned(self.world.now, CAUSE, Maintenance(name, nodes, at)))

    def _unplan(self) -> None:
        for number in range(max(1, self.plans - 3), self.plans + 1):
            self._try(ev.MaintenanceCancelled(self.world.now, CAUSE, f"plan{number}"))

    def _extend(self) -> None:
        record = self._one(Phase.RUNNING)
        if record is not None:
            span = Millis(self.draw.choice((500, 2_000, 6_000)))
            self._try(ev.ExtensionRequested(self.world.now, CAUSE, record.id, span))

    def _amend(self) -> None:
        record = self._one(Phase.QUEUED, Phase.QUEUED, Phase.PARKED)
        if record is None:
            return
        draw, spec = self.draw, record.spec
        biggest = max(self.largest.values())
        leaf = draw.choice(self.world.state.tree.leaves) if draw.random() < 0.2 else spec.allocation
        self._try(
            ev.Amended(
                self.world.now,
                CAUSE,
                record.id,
                leaf,
                self._shape(biggest) if draw.random() < 0.7 else spec.shape,
                Millis(draw.choice((0, 500, 2_000, 5_000))) if draw.random() < 0.6 else spec.min_runtime,
                spec.pools if draw.random() < 0.8 else spec.pools[:1],
                draw.choice((0, 1, spec.priority)),
            )
        )

    def _safe(self) -> None:
        record = self._one(Phase.RUNNING)
        if record is not None:
            self._try(ev.SafePointReached(self.world.now, CAUSE, record.id, record.incarnation))

    def _uncordon(self) -> None:
        self._try(ev.NodeUncordoned(self.world.now, CAUSE, self.draw.choice(self.nodes).name))

    def _lose(self) -> None:
        self._try(ev.NodeLost(self.world.now, CAUSE, self.draw.choice(self.nodes).name))

    def _remove(self) -> None:
        lost = [view.node.name for view in self.world.state.nodes() if view.lost]
        if lost:
            self._try(ev.NodeRemoved(self.world.now, CAUSE, self.draw.choice(lost)))

    def _join(self) -> None:
        node = self.draw.choice(self.nodes)
        if self.draw.random() < 0.2:  # it comes back smaller or larger
            node = replace(node, gpus=max(1, node.gpus + self.draw.choice((-2, -1, 1))))
            self.largest[node.name] = max(self.largest[node.name], node.gpus)
        self._try(ev.NodeJoined(self.world.now, CAUSE, node))

    def _edit_budgets(self) -> None:
        tree = list(self._budgets())
        if self.draw.random() < 0.2:
            tree[self.draw.randrange(len(tree))] = replace(tree[0], share="0") if len(tree) > 1 else tree[0]
        try:
            self._try(ev.BudgetsApplied(self.world.now, CAUSE, tuple(tree)))
        except BudgetError:
            self.refused += 1

    def _policy(self) -> None:
        policy = random_policy(self.draw, like=self.world.state.policy)
        self._try(ev.PolicyChanged(self.world.now, CAUSE, policy))

    def _clock(self) -> None:
        """It was stepped: back, or forward over moments at which a pass was due."""
        leap = self.draw.choice((-90_000, -1_000, -1, 3_000, 30_000, 130_000))
        at = Instant(max(0, self.world.now + leap))
        self._try(ev.TimePassed(at, CAUSE))

    def _restart(self) -> None:
        self.restarts += 1
        self.world.restart()


def explore(seed: int, events: int) -> dict[str, Any]:
    """Run one world and return its figures, or what broke and after which events."""
    hand = Hand(seed)
    broken = ""
    try:
        hand.run(events)
    except (BrokenLawError, GpufairError, AssertionError) as err:
        broken = f"{type(err).__name__}: {err}"
    watch = hand.world.watch
    return {
        "seed": seed,
        "broken": broken,
        "events": watch.events,
        "actions": dict(watch.actions),
        "preemptions": dict(watch.preemptions),
        "commands": hand.commands,
        "refused": hand.refused,
        "restarts": hand.restarts + (not broken),
        "replays": hand.world.replays,
        "validated": hand.validated,
    }


def explore_whole(seed: int) -> dict[str, Any]:
    """One world of the usual length, in a process of a pool."""
    return explore(seed, EACH)


def last_events(hand: Hand, count: int) -> list[Entry]:
    """The end of the journal, to read after a breach."""
    return hand.world.journal[-count:]
