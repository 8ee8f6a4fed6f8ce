"""The journal's format: strict, so that damage is found when it is read and not when it has spread."""

from __future__ import annotations

import json

import pytest

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.codec import ACTIONS, EVENTS, MalformedRecord, decode, decode_action, decode_event, encode
from gpufair.core.errors import Inconsistent
from gpufair.core.model import Allocation, Capacity, Held, Kind, Lease, Node, Policy, PreemptReason, Shape, WorkloadSpec
from gpufair.core.snapshot import recover, replay, restore, snapshot
from gpufair.core.state import State
from gpufair.core.units import AllocationPath, CauseId, Instant, Millis, NodeName, PoolName, WorkloadId
from tests.world import CAUSE, World

SPEC = WorkloadSpec(
    AllocationPath("a"), "u", Kind.SESSION, Shape(1), Millis(5), launch={"argv": ["x", 1, None], "deep": {"y": [True]}}
)
SUBMITTED = ev.Submitted(Instant(1), CauseId("c"), WorkloadId("v"), SPEC)
VALUES = [
    SUBMITTED,
    ev.NodeJoined(Instant(1), CAUSE, Node(NodeName("n"), 2, labels={"rack": "r1"})),
    ev.NodeJoined(Instant(1), CAUSE, Node(NodeName("n"), 2, capacity=Capacity(4, 8)), closed=True),
    ev.NodeRemoved(Instant(1), CAUSE, NodeName("n")),
    ev.PolicyChanged(Instant(1), CAUSE, Policy()),
    ev.ParkRequested(Instant(1), CAUSE, WorkloadId("v"), PreemptReason.SHUTDOWN),
    ev.Started(Instant(1), CAUSE, WorkloadId("v"), 1, ((NodeName("n"), "GPU-0"),), (("x", "why"),)),
    act.Start(
        CAUSE,
        WorkloadId("v"),
        Held((Lease(NodeName("n"), 1),), PoolName("p"), 1, Instant(1), Instant(2)),
        None,
        "why",
    ),
    act.BeginCheckpoint(CAUSE, WorkloadId("v"), 1, Instant(2), PreemptReason.RANK, None, "why"),
    Policy(),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_it_survives_json(value: object) -> None:
    """Values with every kind of field."""
    assert decode(json.loads(json.dumps(encode(value)))) == value


def test_nodes_of_older_journals_are_read() -> None:
    """Those that knew of no capacity, and of nodes that are open when they come only."""
    joined = ev.NodeJoined(Instant(1), CAUSE, Node(NodeName("n"), 2))
    plain = encode(joined)
    del plain["closed"], plain["node"]["capacity"]
    assert decode(plain) == joined


def test_every_event_and_action_is_known() -> None:
    """A new one cannot be forgotten here."""
    assert {"Submitted", "TimePassed", "Exited"} <= EVENTS.keys()
    assert {"Start", "Reserve", "End"} <= ACTIONS.keys()
    assert "Event" not in EVENTS
    assert "Action" not in ACTIONS


def damaged(**changes: object) -> dict[str, object]:
    plain = encode(SUBMITTED)
    return {name: value for name, value in {**plain, **changes}.items() if value is not ...}


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (damaged(type="Nonsense"), "'Nonsense' is unknown"),
        (damaged(type=...), "None is unknown"),
        (damaged(colour="red"), "Submitted.colour: is an unknown field"),
        (damaged(at="now"), "Submitted.at: 'now' is not of type int"),
        (damaged(at=True), "Submitted.at: True is not of type int"),
        (damaged(at=1.5), "is not of type int"),
        (damaged(workload=...), "lacks workload"),
        (damaged(spec=[]), "is not an object"),
        (damaged(spec=encode(Policy())), "is of type 'Policy'"),
        (damaged(spec={**encode(SPEC), "kind": "party"}), "none of session, batch"),
        (damaged(spec={**encode(SPEC), "pools": "default"}), "is not a list"),
        (damaged(spec={**encode(SPEC), "launch": []}), "is not an object"),
        (damaged(spec={**encode(SPEC), "launch": {"x": object()}}), "is not JSON"),
        (encode(Policy()), "is not an event"),
    ],
)
def test_damage_is_refused_with_its_place(plain: dict[str, object], said: str) -> None:
    """Wherever it is."""
    with pytest.raises(MalformedRecord) as caught:
        decode_event(plain)
    assert said in str(caught.value)


def test_events_are_no_actions() -> None:
    """And other things are neither."""
    with pytest.raises(MalformedRecord, match="not an action"):
        decode_action(encode(SUBMITTED))
    with pytest.raises(MalformedRecord, match="no event, action or noun"):
        encode(("a", "tuple"))
    with pytest.raises(MalformedRecord, match="cannot be written"):
        encode(WorkloadSpec(AllocationPath("a"), "u", Kind.BATCH, Shape(1), Millis(1), launch={"x": {1, 2}}))


def small_world() -> World:
    world = World().set_up([Allocation(AllocationPath("a"))], [Node(NodeName("n"), 1)])
    world.submit("v", "a")
    world.advance(1_000)
    return world


def test_a_snapshot_of_another_version_is_refused() -> None:
    """Guessing would corrupt a cluster's books."""
    plain = snapshot(small_world().state)
    with pytest.raises(MalformedRecord, match="version is 99"):
        restore({**plain, "version": 99})
    with pytest.raises(MalformedRecord, match="damaged"):
        restore({name: value for name, value in plain.items() if name != "ledgers"})
    with pytest.raises(MalformedRecord):
        restore({**plain, "workloads": [encode(Policy())]})


def test_a_replay_shows_what_would_be_decided_otherwise() -> None:
    """The recorded decision stands; the difference is reported once."""
    world = small_world()
    journal = [(entry.event, entry.actions) for entry in world.journal]
    assert replay(journal, policy=world.policy).same
    index = next(index for index, (event, _) in enumerate(journal) if isinstance(event, ev.Submitted))
    journal[index] = (journal[index][0], ())
    again = replay(journal[: index + 1], policy=world.policy)
    (difference,) = again.differences
    assert difference.index == index
    assert [type(action).__name__ for action in difference.decided] == ["Start"]
    assert again.state.queue() == ("v",)


def test_actions_that_do_not_fit_are_refused() -> None:
    """A journal of another cluster must not be applied."""
    world = small_world()
    journal = [(entry.event, entry.actions) for entry in world.journal]
    start = next(action for _, action in world.actions() if isinstance(action, act.Start))
    with pytest.raises(Inconsistent, match="cannot go from running to starting"):
        recover([*journal, (ev.TimePassed(world.now, CAUSE), [start])], policy=world.policy)


def test_validate_finds_a_broken_state() -> None:
    """The net under everything else has to be taut."""
    world = small_world()
    facts = world.state.facts
    facts.nodes[NodeName("n")].holders[WorkloadId("ghost")] = 5
    facts.records[WorkloadId("ghost")] = facts.records[WorkloadId("v")]
    with pytest.raises(Inconsistent, match="P2"):
        world.state.validate()
    assert isinstance(State(), State)
