"""Random options, so that every rule meets every other one."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from types import MappingProxyType

from gpufair.core.model import Hungry, Policy
from gpufair.core.units import Millis
from tests.world import SMALL

CHOICES: dict[str, tuple[object, ...]] = {
    "window": (Millis(60_000), Millis(20_000), Millis(200_000)),
    "max_min_runtime": (Millis(20_000), Millis(10_000)),
    "hysteresis": (0.02, 0.0, 0.3),
    "victim_band": (0.25, 0.0, 1.0),
    "grid": (Millis(5_000), Millis(1_000), Millis(12_000)),
    "grid_checkpoint": (Millis(500), Millis(2_000), Millis(20_000)),
    "grace_session": (Millis(3_000), Millis(0)),
    "grace_batch": (Millis(1_000), Millis(0), Millis(4_000)),
    "commitment": (True, True, False),
    "banking": (0.25, 1.0, 0.0),
    "newcomer": (Millis(2_000), Millis(0)),
    "take_limit": (1.25, None, 2.0),
    "take_least": (2, 0, 8),
    "hungry": tuple(Hungry),
    "landings": (True, False),
    "landing_share": (0.5, 1.0, 0.25),
    "half_life": (None, None, Millis(9_000)),
    "flattened": (False, False, True),
    "backoff": (Millis(500), Millis(0)),
    "backoff_most": (Millis(4_000),),
    "blocks": (("rack",), ()),
    "gpu_weights": (MappingProxyType({"t": 2.5}), MappingProxyType({}), MappingProxyType({"s": 0.125, "": 1.5})),
    "debug_min_runtime": (Millis(2_000), Millis(0), Millis(5_000)),
    "debug_gpus": (2, 1, 4),
    "debug_share": (0.25, 0.01),
    "debug_most": (0.5, 0.125, 1.0),
}


def random_policy(draw: Random, like: Policy | None = None) -> Policy:
    """Some options of a small world; near ``like`` if given, as an operator edits them.

    A third of the worlds has every rule on with its first choice, and a third each rule on or off by chance.
    """
    start = like or SMALL
    names = [name for name in CHOICES if hasattr(start, name)]
    if like is not None:
        names = draw.sample(sorted(names), 2)
    elif draw.random() < 0.33:
        return replace(start, **{name: CHOICES[name][0] for name in names})  # type: ignore[arg-type]
    return replace(start, **{name: draw.choice(CHOICES[name]) for name in names})  # type: ignore[arg-type]
