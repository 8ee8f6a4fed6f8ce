"""A tour of what was recorded: each line an event or a decision of then; of others no more than the queue shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpufair.client.insight import Tour
from gpufair.client.reading import read
from gpufair.core import events as ev
from gpufair.core.model import Allocation, Kind, Node, Outcome, Shape, WorkloadSpec
from gpufair.core.units import DAY, MINUTE, SECOND, AllocationPath, Instant, Millis, NodeName, WorkloadId
from gpufair.service.insight.tour import Record, tour_view
from gpufair.service.insight.week import Week
from gpufair.service.storage import codec
from gpufair.service.storage.store import Entry
from tests.unit.service.rig import LAUNCH, bearer, service_at
from tests.world import CAUSE, FULL, LANDINGS, Delays, World

API = "/api/v1"


def entries(world: World) -> Iterator[Entry]:
    """The journal as the service keeps it."""
    for seq, entry in enumerate(world.journal, 1):
        yield Entry(entry.event.at, codec.dump_event(entry.event), codec.dump_actions(entry.actions), "", seq, "test")


def told(world: World, user: str, since: int = 0) -> dict[str, Any]:
    week = Week()
    week.take(entries(world))
    view = tour_view(week, Record(Instant(since), world.now), user)
    read(Tour, json.loads(json.dumps(view)))
    return view


def lived_in() -> World:
    """Bob's gang waits for two runs and lands, one of them comes back; eve's short run takes the place of a small one."""
    policy = replace(LANDINGS, debug_min_runtime=Millis(900), debug_share=0.5, debug_most=0.5)
    nodes = [Node(NodeName("n0"), 2), Node(NodeName("n1"), 2), Node(NodeName("n2"), 1, "t")]
    world = World(policy, Delays(300, 200, 400)).set_up(
        [Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))], nodes
    )
    world.submit("small", "b", gpus=1, min_runtime=1_000, user="moe", gpu_type="t")
    world.submit("run", "a", gpus=2, min_runtime=5_000, user="ria")
    wish = WorkloadSpec(AllocationPath("a"), "ada", Kind.SESSION, Shape(2), Millis(2_000), name="digits")
    world.feed(ev.Submitted(world.now, CAUSE, WorkloadId("session"), wish))
    world.advance(1_000)
    world.submit("gang", "b", gpus=2, nodes=2, min_runtime=4_000, user="bob")
    world.advance(60_000)
    world.advance(5_000)
    world.submit("quick", "b", gpus=1, min_runtime=800, user="eve", gpu_type="t")
    world.advance(5_000)
    world.feed(ev.Exited(world.now, CAUSE, WorkloadId("quick"), 1, Outcome.FAILED, "no secret.pt"))
    return world


def by_kind(view: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["kind"]: step for step in view["steps"]}


def test_ones_own_comes_first_and_each_line_is_what_was_recorded() -> None:
    """The sentence of each decision is in the journal, word for word, and in order."""
    world = lived_in()
    view = told(world, "ada")
    assert next(step["kind"] for step in view["steps"]) == "own"
    own = by_kind(view)["own"]
    assert (own["mine"], own["name"], own["workload"]) == (True, "digits", "session")
    recorded = {getattr(action, "why", "") for _, action in world.actions()}
    for step in view["steps"]:
        times = [line["at_s"] for line in step["lines"]]
        assert times == sorted(times)
        assert step["lines"], step
    text = next(line["text"] for line in by_kind(view)["landing"]["lines"] if line["text"].startswith("got a landing"))
    assert any(why and text.endswith(why) for why in recorded)
    assert all(term in view["terms"] for step in view["steps"] for term in step["terms"])


def test_a_landing_a_preemption_and_a_debug_run_are_found() -> None:
    """Who left for whom by which right, and how long before its promise the gang started."""
    view = told(lived_in(), "nobody")
    found = by_kind(view)
    assert set(found) == {"wait", "landing", "preemption", "debug"}
    assert view["missing"] == ["Nothing of yours has waited for GPUs or run on them."]
    assert found["debug"]["user"] == "eve"
    assert "debug right" in found["debug"]["terms"]
    assert any("is a debug workload" in line["text"] for line in found["debug"]["lines"])
    assert (found["landing"]["user"], found["landing"]["terms"]) == ("bob", ["metric", "landing"])
    assert "it started" in found["landing"]["title"]
    assert "makes room for" in found["preemption"]["title"]
    assert {"protection"} < set(found["preemption"]["terms"])


def test_names_are_their_owners() -> None:
    """Of others: whose it is, who pays, the start of the id; not its name, nor why it ended or failed."""
    world = lived_in()
    everything = json.dumps(told(world, "bob"))
    assert "digits" not in everything
    assert "ada's session session" in everything
    mine = json.dumps(told(world, "ada"))
    assert "digits" in mine
    assert "quick" in mine
    assert "secret.pt" not in mine
    assert "ended (failed): no secret.pt" in json.dumps(told(world, "eve"))


def test_no_workload_is_shown_twice() -> None:
    """A handful of different ones says more."""
    for user in ("ada", "bob", "eve", "ria", "nobody"):
        shown = [step["workload"] for step in told(lived_in(), user)["steps"]]
        assert len(shown) == len(set(shown))


def test_a_lab_without_a_week_says_so() -> None:
    """And what there is, and what there is none of."""
    world = World(FULL).set_up([Allocation(AllocationPath("a"))], [Node(NodeName("n0"), 2)])
    world.submit("only", "a", user="ada", min_runtime=5_000)
    world.advance(3 * MINUTE)
    view = told(world, "ada", since=0)
    assert (view["whole_week"], [step["kind"] for step in view["steps"]]) == (False, ["own"])
    assert view["about"] == (
        "This lab has no week yet: its record begins 3 min ago. Since then: 1 submission, 1 start, 0 preemptions."
    )
    assert view["steps"][0]["title"] == "Yours: it waited for less than a second"
    assert view["missing"] == [
        "Nobody else has waited for GPUs.",
        "Nobody was preempted for somebody else.",
        "Nothing has owned a landing.",
        "No debug run has taken somebody's place.",
    ]
    later = tour_view(Week(), Record(Instant(0), Instant(8 * DAY)), "ada")
    assert (later["whole_week"], later["steps"]) == (True, [])
    assert later["about"].startswith("The last 7 days: 0 submissions")


def test_who_still_waits_is_told_until_now_with_who_started_meanwhile() -> None:
    """The longest wait may not be over."""
    world = World().set_up([Allocation(AllocationPath("a")), Allocation(AllocationPath("b"))], [Node(NodeName("n0"), 2)])
    world.submit("v", "a", user="ria", min_runtime=5_000)
    world.submit("large", "a", user="bob", gpus=2, min_runtime=5_000)
    world.submit("small", "b", user="eve", min_runtime=5_000)
    world.advance(2_000)
    (step,) = [step for step in told(world, "ada")["steps"] if step["kind"] == "wait"]
    assert step["title"] == "The longest wait: it has waited for 2 s"
    assert step["lines"][0]["text"] == "asked for 2 GPUs with 5 s of protection; a pays"


def test_an_amended_wish_is_told() -> None:
    """What it asked for first, and then."""
    world = World().set_up([Allocation(AllocationPath("a"))], [Node(NodeName("n0"), 2)])
    world.submit("v", "a", user="ria")
    world.submit("p", "a", user="ada", gpus=2, min_runtime=5_000)
    spec = world.state.workload(WorkloadId("p")).spec
    world.advance(SECOND)
    shape = replace(spec.shape, gpus_per_node=1)
    world.feed(ev.Amended(world.now, CAUSE, WorkloadId("p"), spec.allocation, shape, spec.min_runtime, spec.pools))
    texts = [line["text"] for line in by_kind(told(world, "ada"))["own"]["lines"]]
    assert texts[0].startswith("asked for 2 GPUs with 5 s of protection")
    assert texts[1] == "asked for 1 GPU with 5 s of protection instead; a pays"
    assert texts[2].startswith("started on n0")


async def test_the_route_reads_the_live_journal(tmp_path: Path) -> None:
    """One's own by the token; an operator's server asks for its user, a user for nobody else."""
    async with service_at(tmp_path) as (it, client):
        empty = read(Tour, (await client.get(f"{API}/tour")).json())
        assert (empty.steps, empty.whole_week) == ((), False)
        body = {"gpus": 1, "min_runtime_s": 60, "launch": LAUNCH, "allocation": "b", "user": "ada", "name": "mine"}
        await client.post(f"{API}/workloads", json=body)
        ada, bo = (bearer(it.secrets.user_token(name)) for name in ("ada", "bo"))
        for answer in (await client.get(f"{API}/tour", headers=ada), await client.get(f"{API}/tour", params={"user": "ada"})):
            own = read(Tour, answer.json())
            assert [(step.kind, step.name, step.mine) for step in own.steps] == [("own", "mine", True)]
            assert own.steps[0].lines[1].text.startswith("started on n1")
        others = read(Tour, (await client.get(f"{API}/tour", headers=bo)).json())
        assert [(step.kind, step.name, step.user) for step in others.steps] == [("wait", "", "ada")]
        assert (await client.get(f"{API}/tour", params={"user": "ada"}, headers=bo)).status_code == 403
