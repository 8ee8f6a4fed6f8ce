"""Nobody gets more than his share by trickery: squatting, splitting, bursts, cancelling, protection (P17, P18)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.adversary import (
    TRICKS,
    Game,
    allowed,
    burst,
    cancel,
    entitled,
    gain,
    game,
    honest,
    played,
    protect,
    split,
    squat,
    squat_unallocated,
    useful,
)
from tests.world import FULL, SMALL

FEW = settings(max_examples=max(4, settings().max_examples // 8))
SEEDS = st.integers(0, 10**6)
POLICIES = st.sampled_from((SMALL, FULL))


@FEW
@given(SEEDS, POLICIES, st.sampled_from((squat, squat_unallocated)))
def test_p17_squatting_never_pays(seed: int, policy, trick) -> None:
    """Work that does nothing takes its GPUs from the same allocation's other work, never from the neighbours."""
    one = game(Random(seed), policy)
    assert gain(one, trick) <= 0


@FEW
@given(SEEDS, POLICIES, st.sampled_from((split, burst, cancel, protect)))
def test_p18_tricks_gain_nothing_beyond_one_granule(seed: int, policy, trick) -> None:
    """Beyond what is his, and what honesty would have brought him. Waiting is never rewarded either."""
    one = game(Random(seed), policy)
    assert gain(one, trick) <= allowed(one, trick)


@pytest.mark.parametrize("name", sorted(TRICKS))
def test_the_tricks_are_played(name: str) -> None:
    """The laws would say nothing if the adversary's moves came to nothing; and everybody is served."""
    one = Game(SMALL, shares=(1, 1), nodes=(2, 2), sizes=(2, 1), spans=(3_000, 3_000))
    tricked, plain = played(one, TRICKS[name], 90_000), played(one, honest, 90_000)
    assert tricked.journal != plain.journal
    assert useful(plain) >= entitled(one, 90_000) // 2
    started = {action.workload for _, action in tricked.actions() if type(action).__name__ == "Start"}
    assert any(workload.startswith("b") for workload in started)
    if name == "squat":
        assert "0-noop-0" in started
