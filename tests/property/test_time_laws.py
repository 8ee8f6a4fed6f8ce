"""Decisions fall at events and due moments, and depend on nobody's looking at the clock in between (P23)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.decide import Pass
from gpufair.core.snapshot import snapshot
from gpufair.core.units import CauseId, Instant
from tests.strategies import Script, crowds, scripts, step
from tests.world import CAUSE, DEFAULT, World


@dataclass
class Impatient(World):
    """Somebody asks what time it is at many moments between those that are due."""

    moments: random.Random = field(default_factory=random.Random)
    every: int = 0  # ms; 0 is at random

    def advance(self, span: int) -> None:
        end = self.now + span
        while self.now < end:
            pause = self.every or self.moments.choice((1, 7, 250, 999, 1_000, 3_000))
            super().advance(min(end - self.now, pause))
        super().advance(0)


def decided(world: World) -> list[tuple[int, ev.Event, tuple[act.Action, ...]]]:
    """The journal without the moments at which time passed and nothing was decided."""
    return [
        (entry.event.at, entry.event, entry.actions)
        for entry in world.journal
        if entry.actions or not isinstance(entry.event, ev.TimePassed)
    ]


def played(world: World, script: Script) -> World:
    world.set_up(script.allocations(), script.nodes())
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    world.advance(30_000)
    return world


@given(st.one_of(crowds(), scripts()), st.integers(0, 10**6), st.sampled_from((0, 1_000)))
def test_p23_asking_for_the_time_changes_no_decision(script: Script, seed: int, every: int) -> None:
    """Each second, or at any other moment: the simulator may leap from event to event."""
    leaping = played(World(script.policy, script.delays, False), script)
    stepping = played(Impatient(script.policy, script.delays, False, moments=random.Random(seed), every=every), script)
    assert decided(stepping) == decided(leaping)
    assert snapshot(stepping.state) == snapshot(leaping.state)


def quiet_moments(world: World, end: int) -> set[int]:
    """The grid, and every end of a protection or of a grace, until ``end``."""
    grid = world.policy.grid
    moments = set(range((world.now // grid + 1) * grid, end, grid))
    for record in world.state.facts.holding.values():
        if record.held is not None and record.gpus:  # without GPUs there is nothing to protect
            moments |= {record.held.protected_until, record.deadline or 0}
    return {at for at in moments if world.now < at < end}


@dataclass
class Checked(World):
    """Before each leap a pass is tried at every moment that it leaves out."""

    tried: int = 0

    def feed(self, event: ev.Event) -> list[act.Action]:
        due = self.state.next_wakeup()
        for moment in sorted(quiet_moments(self, min(event.at, due if due is not None else event.at))):
            twin = self.state.facts.copy()
            twin.advance(Instant(moment))
            Pass(twin, CauseId("trial"), nothing_to_do).run(())
            self.tried += 1
        return super().feed(event)


def nothing_to_do(action: act.Action) -> None:
    raise AssertionError(f"a pass that was left out would have decided {action}")


@given(st.one_of(crowds(), scripts()))
def test_p23_a_pass_that_is_left_out_would_have_decided_nothing(script: Script) -> None:
    """The grid may be skipped where nobody could act, and only there."""
    played(Checked(delays=script.delays, validate=False), script)


def test_p23_passes_are_left_out_and_time_is_asked_for() -> None:
    """The laws above would say nothing of worlds in which every moment is due."""
    world = Checked(validate=False)
    script = Script((("a", "1"), ("b", "1")), ((1, "", DEFAULT),), world.delays, ())
    world.set_up(script.allocations(), script.nodes())
    world.submit("a1", "a", min_runtime=20_000)
    world.advance(60_000)
    assert world.tried >= 10
    assert world.feed(ev.TimePassed(Instant(world.now + 1), CAUSE)) == []
