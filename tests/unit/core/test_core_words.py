"""How amounts are said to people."""

from __future__ import annotations

import pytest

from gpufair.core.units import HOUR, MINUTE
from gpufair.core.words import gpu_time


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (0, "0 GPU h"),
        (75 * MINUTE, "1.25 GPU h"),
        (999 * HOUR, "999 GPU h"),
        (999 * HOUR + 59 * MINUTE, "1,000 GPU h"),
        (1_344 * HOUR, "1,344 GPU h"),
        (1_234_567 * HOUR, "1,234,567 GPU h"),
    ],
)
def test_gpu_time_is_said_without_powers_of_ten(amount: int, said: str) -> None:
    assert gpu_time(amount) == said
