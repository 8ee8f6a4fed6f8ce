"""The worst traces of P12 and P14, by random draws and hill climbing: ``python -m tests.search p12|p14 [SECONDS [SEED]]``.

Prints each new worst value with the game or the world that shows it, so that it can be run again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from gpufair.core.model import Policy
from tests.adversary import Game, game, honest, played
from tests.property.test_landing_laws import promises, run_with, wide
from tests.world import LANDINGS, SMALL

P12_SPAN = 2 * SMALL.window


def p12(one: Game) -> float:
    """How far a leaf is from its part of the last window, over the bound of docs/policy.md; above 1 it would not hold.

    The bound: the largest gang x its min_runtime, the hysteresis on what is entitled, one interval of the grid, the GPU
    time that was idle in the game, and what a leaf is entitled to beyond what its shape could ever fill.
    """
    world = played(one, honest, P12_SPAN)
    capacity = sum(one.nodes)
    idle, window = world.state.conservation().idle, one.policy.window
    figures = {figure.path: figure for figure in world.state.budgets()}
    loss = sum(
        max(0.0, window * (capacity * share / sum(one.shares) - sum(gpus // size * size for gpus in one.nodes)))
        for share, size in zip(one.shares, one.sizes, strict=True)
    )
    worst = 0.0
    for index in range(len(one.shares)):
        figure = figures["abcdef"[index]]  # type: ignore[index]
        entitled = float(figure.entitlement) * capacity * window
        bound = one.granule + one.policy.hysteresis * entitled + capacity * one.policy.grid + idle + loss
        worst = max(worst, abs(figure.occupancy - entitled) / bound)
    return worst


def p12_near(draw: Random, one: Game) -> Game:
    """The game with one thing changed."""
    other = game(draw, one.policy)
    if len(other.shares) != len(one.shares):
        return other
    name = draw.choice(("shares", "nodes", "sizes", "spans"))
    changed = replace(one, **{name: getattr(other, name)})
    return changed if max(changed.sizes) <= max(changed.nodes) else other


@dataclass(frozen=True)
class Crowd:
    """A world of ``wide`` from the laws of landings."""

    seed: int
    length: int
    policy: Policy = LANDINGS


def p14(one: Crowd) -> float:
    """The longest wait from a landing to the start, over M + 2 x grace; above 1 it would not hold."""
    policy = one.policy
    bound = policy.max_min_runtime + 2 * max(policy.grace_session, policy.grace_batch)
    waits = [
        promise.end - promise.granted
        for promise in promises(run_with(wide(one.seed, machines=False, length=one.length), policy, validate=False))
        if promise.how == "started" and promise.end is not None
    ]
    return max(waits, default=0) / bound


def p14_draw(draw: Random) -> Crowd:
    """A random one."""
    return Crowd(draw.randrange(10**9), draw.choice((30, 60, 100)))


def p14_near(draw: Random, one: Crowd) -> Crowd:
    """The same beginning with more that happens after it, or less: a world of one seed is drawn in order."""
    return replace(one, length=max(10, one.length + draw.choice((-10, -3, 3, 10, 25))))


def climb(draw: Random, first: Callable, near: Callable, value: Callable[..., float], seconds: float) -> tuple:
    """The worst that is found in that time: random beginnings, each climbed until nothing near is worse."""
    until = time.monotonic() + seconds
    best: tuple = (-1.0, None)
    tries = 0
    while time.monotonic() < until:
        here = first(draw)
        at, misses = value(here), 0
        while misses < 6 and time.monotonic() < until:
            tries += 1
            there = near(draw, here)
            found = value(there)
            misses = 0 if found > at else misses + 1
            if found > at:
                here, at = there, found
        if at > best[0]:
            best = at, here
            print(f"{at:.3f} of the bound after {tries} tries: {here}", flush=True)
    return best


def main(arguments: list[str]) -> int:
    """Search; 1 if a bound was broken."""
    what = arguments[0] if arguments else ""
    seconds = float(arguments[1]) if len(arguments) > 1 else 60.0
    draw = Random(int(arguments[2]) if len(arguments) > 2 else 0)
    if what == "p12":
        worst = climb(draw, lambda one: game(one, SMALL), p12_near, p12, seconds)
    elif what == "p14":
        worst = climb(draw, p14_draw, p14_near, p14, seconds)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 1 if worst[0] > 1 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
