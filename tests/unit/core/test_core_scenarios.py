"""The scenarios of ``tests/data``: counterexamples that other schedulers are known for, and some that we found.

Each file holds a cluster, a tree, options, timed events, and the timed actions that must follow, all of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.model import Allocation, Kind, Node, Policy
from gpufair.core.units import AllocationPath, Instant, Millis, NodeName, PoolName, WorkloadId
from tests.world import CAUSE, FULL, SMALL, Delays, World

DATA = Path(__file__).resolve().parents[2] / "data"
SCENARIOS = sorted(DATA.glob("*.toml"))
POLICIES = {"small": SMALL, "full": FULL}


def load(path: Path) -> dict[str, Any]:
    """A scenario; unknown keys are mistakes."""
    plain = tomllib.loads(path.read_text())
    unknown = plain.keys() - {"about", "policy", "options", "delays", "tree", "nodes", "events", "until", "expected"}
    assert not unknown, f"{path.name}: {sorted(unknown)}"
    return plain


def policy_of(plain: dict[str, Any]) -> Policy:
    """The named options, with those changed that the scenario is about. Spans end in ``_s``."""
    changed: dict[str, Any] = {}
    for name, value in plain.get("options", {}).items():
        if name.endswith("_s"):
            changed[name.removesuffix("_s")] = Millis(round(value * 1_000))
        else:
            changed[name] = value
    return replace(POLICIES[plain.get("policy", "small")], **changed)


def play(plain: dict[str, Any]) -> World:
    """The world after all events."""
    delays = Delays(**plain.get("delays", {"start": 0, "save": 0, "release": 0}))
    world = World(policy=policy_of(plain), delays=delays)
    tree = [Allocation(AllocationPath(path), str(share)) for path, share in plain["tree"].items()]
    world.set_up(tree, [node_of(name, each) for name, each in plain["nodes"].items()])
    for at, what, whom, *rest in plain["events"]:
        world.advance(round(at * 1_000) - world.now)
        happen(world, what, whom, rest[0] if rest else {})
    world.advance(round(plain["until"] * 1_000) - world.now)
    return world


def node_of(name: str, each: int | dict[str, Any]) -> Node:
    """A node, by its GPUs or by its fields."""
    fields = {"gpus": each} if isinstance(each, int) else dict(each)
    return Node(NodeName(name), **fields)


def happen(world: World, what: str, whom: str, how: dict[str, Any]) -> None:
    """One event."""
    now = world.now
    match what:
        case "submit":
            how = dict(how)
            leaf = how.pop("leaf")
            spans = {key: how.pop(key) for key in tuple(how) if key.endswith("_s")}
            how |= {key.removesuffix("_s"): round(value * 1_000) for key, value in spans.items()}
            how["kind"] = Kind(how.get("kind", "batch"))
            if "pools" in how:
                how["pools"] = tuple(map(PoolName, how["pools"]))
            world.submit(whom, leaf, **how)
        case "exit":
            world.exit(whom)
        case "cancel":
            world.feed(ev.Cancelled(now, CAUSE, WorkloadId(whom)))
        case "cordon":
            world.feed(ev.NodeCordoned(now, CAUSE, NodeName(whom)))
        case "uncordon":
            world.feed(ev.NodeUncordoned(now, CAUSE, NodeName(whom)))
        case "lose":
            world.feed(ev.NodeLost(now, CAUSE, NodeName(whom)))
        case "tick":  # somebody whose clock says otherwise
            world.feed(ev.TimePassed(Instant(round(float(whom) * 1_000)), CAUSE))
        case "join":
            world.feed(ev.NodeJoined(now, CAUSE, node_of(whom, how)))
        case _:
            raise AssertionError(f"no such event: {what}")


def told(world: World) -> Iterator[list[object]]:
    """What was decided, as the tables write it: [second, action, workload, where or for whom]."""
    for entry, action in world.actions():
        at = max(entry.event.at, 0) / 1_000
        match action:
            case act.Start():
                yield [at, "start", action.workload, " ".join(lease.node for lease in action.held.leases)]
            case act.Reserve():
                yield [at, "keep", action.workload, " ".join(lease.node for lease in action.leases)]
            case act.BeginCheckpoint():
                yield [at, str(action.reason), action.workload, action.beneficiary or ""]
            case _:
                yield [at, type(action).__name__.lower(), action.workload, ""]


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    """Every decision, to the millisecond."""
    plain = load(path)
    found = list(told(play(plain)))
    assert found == [[float(at), *rest] for at, *rest in plain["expected"]], "\n" + "\n".join(map(str, found))


def test_every_scenario_says_what_it_is_about() -> None:
    """And there are some."""
    assert len(SCENARIOS) >= 6
    assert all(len(load(path)["about"]) > 40 for path in SCENARIOS)
    assert Instant(0) == 0
