"""The worst traces that were found for P12 and P14, kept as tests; ``python -m tests.search`` looks for worse ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpufair.core.units import Millis
from tests.adversary import Game
from tests.search import Crowd, p12, p14
from tests.world import SMALL


@pytest.mark.parametrize(
    "one",
    [
        Game(SMALL, shares=(1, 2), nodes=(4, 2), sizes=(1, 1), spans=(5_000, 1_000)),
        # A gang of 4 with a claim to 4.5 of 6 GPUs, of which its shape can fill 4.
        Game(SMALL, shares=(3, 1), nodes=(4, 2), sizes=(4, 1), spans=(3_000, 5_000)),
    ],
    ids=lambda one: f"{one.shares}-{one.sizes}",
)
def test_p12_the_worst_games_that_were_found_are_within_the_bound(one: Game) -> None:
    """Their part of the last window, and what may come between."""
    assert p12(replace(one, policy=replace(one.policy, grid=Millis(500)))) <= 1


@pytest.mark.parametrize(
    "one", [Crowd(446869806, 100), Crowd(32845751, 62), Crowd(144272509, 100)], ids=lambda one: str(one.seed)
)
def test_p14_the_worst_worlds_that_were_found_are_within_the_bound(one: Crowd) -> None:
    """From the landing to the start, over M + 2 graces."""
    assert 0.5 < p14(one) <= 1
