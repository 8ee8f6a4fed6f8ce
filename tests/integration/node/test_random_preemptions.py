"""The short form of ``python -m tests.preemptions``: the result never depends on when a notebook was preempted or killed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.preemptions.__main__ import play_all


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_random_preemptions_change_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("GPUFAIR_SEED") or random.SystemRandom().randrange(1 << 30))
    print(f"python -m tests.preemptions --count 50 --seed {seed}")
    sums = play_all(tmp_path, 50, seed, notebooks=2)
    assert sums["preemptions"] + sums["kills at work"] + sums["kills at restore"] >= 40, sums
    assert sums["restores"] >= 20, sums
    assert sums["cells"] >= 30, sums
