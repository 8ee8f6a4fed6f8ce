"""Everything at once: users, broken machines, budget edits, time, and restarts in between; all invariants after each."""

from __future__ import annotations

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpufair.core.errors import GpufairError
from gpufair.core.snapshot import recover, restore, snapshot
from tests.strategies import CLUSTERS, MACHINES, OUTFITS, TREES, USERS, Command, Script, begin, step
from tests.world import FULL, LANDINGS, MOVING, SMALL, Delays, World

NUMBERS = st.integers(0, 63)


class Cluster(RuleBasedStateMachine):
    """A world under a random hand."""

    world: World
    script: Script
    steps: int

    @initialize(
        tree=st.sampled_from(TREES),
        cluster=st.sampled_from(CLUSTERS),
        delays=st.sampled_from((Delays(), Delays(0, 0, 0), Delays(300, 200, 8_000), Delays(300, 200, -500))),
        policy=st.sampled_from((SMALL, FULL, LANDINGS, MOVING)),
        outfit=st.sampled_from(OUTFITS),
    )
    def begin(self, tree, cluster, delays, policy, outfit) -> None:
        self.script = Script(tree, cluster, delays, (), policy, outfit)
        self.world = begin(self.script)
        self.steps = 0

    @rule(what=st.sampled_from((*USERS, "withhold", "resume")), one=NUMBERS, two=NUMBERS, three=NUMBERS)
    def user(self, what: str, one: int, two: int, three: int) -> None:
        self._do(Command(0, what, one, two, three))

    @rule(what=st.sampled_from(MACHINES), one=NUMBERS, two=NUMBERS, three=NUMBERS)
    def machine(self, what: str, one: int, two: int, three: int) -> None:
        self._do(Command(0, what, one, two, three))

    @rule(span=st.sampled_from((1, 100, 1_000, 5_000, 20_000, 61_000)))
    def time_passes(self, span: int) -> None:
        self.world.advance(span)

    @rule()
    def restart_from_a_snapshot(self) -> None:
        self.world.state = restore(json.loads(json.dumps(snapshot(self.world.state))), validate=True)

    @rule()
    def restart_from_the_journal(self) -> None:
        journal = [(entry.event, entry.actions) for entry in self.world.journal]
        state = recover(journal, policy=self.world.policy)
        assert snapshot(state) == snapshot(self.world.state)
        self.world.state = state

    @rule(one=NUMBERS, two=NUMBERS, three=NUMBERS)
    def a_refused_event_changes_nothing(self, one: int, two: int, three: int) -> None:
        before, entries = snapshot(self.world.state), len(self.world.journal)
        trial, frozen = self.world.state.copy(), self.world.state.frozen()
        try:
            self._do(Command(0, "cancel" if one % 2 else "park", one, two, three))
        except GpufairError:  # pragma: no cover (the world catches them)
            raise AssertionError from None
        assert snapshot(frozen) == before  # whatever went on meanwhile
        if len(self.world.journal) == entries:
            assert snapshot(self.world.state) == before == snapshot(trial)

    def _do(self, command: Command) -> None:
        self.steps += 1
        step(self.world, self.script, command, self.steps)

    @invariant()
    def all_invariants_hold(self) -> None:
        if hasattr(self, "world"):
            self.world.state.validate()
            assert self.world.state.conservation().error == 0
            assert self.world.state.protected_preemptions == 0


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=40)
