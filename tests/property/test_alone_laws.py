"""Whoever waits alone is served as by the walk through the whole queue (``gpufair.core.alone``)."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from gpufair.core import actions as act
from gpufair.core import alone, engine
from gpufair.core import events as ev
from gpufair.core.errors import GpufairError
from gpufair.core.facts import Facts
from gpufair.core.metrics import metric_of, shares_of
from tests.long.policies import random_policy
from tests.strategies import Script, crowds, scripts, step
from tests.world import FULL, SMALL, World

POLICIES = (SMALL, FULL, *(random_policy(random.Random(seed)) for seed in range(12)))


@dataclass
class Walked(World):
    """A world in which each event is also decided by the walk alone, on a copy."""

    def feed(self, event: ev.Event) -> list[act.Action]:
        twin = self.state.facts.copy()
        expected: list[act.Action] | None = None
        with (
            mock.patch.object(alone, "alone", return_value=None),
            mock.patch.object(alone, "nobody_waits", return_value=False),
            suppress(GpufairError),
        ):
            expected = engine.handle(twin, event)
        actions = super().feed(event)
        assert actions == expected
        check_metrics(self.state.facts)
        return actions


def check_metrics(facts: Facts) -> None:
    """The metric of each leaf by itself is the one that it has among all."""
    for pool in facts.pools():
        shares = shares_of(facts, pool)
        assert all(metric_of(facts, pool, leaf) == shares.metric(leaf) for leaf in facts.ranking.leaves)


@given(st.one_of(scripts(policies=POLICIES), crowds(POLICIES)))
def test_who_waits_alone_is_served_as_by_the_walk(script: Script) -> None:
    """Each event, under any options and with landings, to the last word of each reason."""
    world = Walked(policy=script.policy, delays=script.delays, validate=False)
    world.set_up(script.allocations(), script.nodes())
    for index, command in enumerate(script.commands):
        step(world, script, command, index)
    world.advance(20_000)
