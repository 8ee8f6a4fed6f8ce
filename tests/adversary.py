"""Users who try to get more than their share, and what they get by it, measured on twin worlds (P17, P18).

Everybody else always has work waiting, so whatever the adversary gains, somebody loses. Useful is what his real work
was given; no-op work and what was cancelled count for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from gpufair.core import events as ev
from gpufair.core.model import Allocation, Node, Policy
from gpufair.core.units import AllocationPath, Millis, NodeName, WorkloadId
from tests.world import CAUSE, Audit, Delays, World

SPAN = 180_000  # three windows of the small policy


@dataclass(frozen=True)
class Game:
    """A world of steady demand, and what the adversary in leaf ``a`` honestly asks for."""

    policy: Policy
    shares: tuple[int, ...]  # of a, b, c ...
    nodes: tuple[int, ...]
    sizes: tuple[int, ...]  # GPUs of each leaf's workloads
    spans: tuple[int, ...]  # their min_runtime
    jobs: int = 8  # of each leaf, always waiting or running

    @property
    def granule(self) -> int:
        """GPU-milliseconds of the largest protected run of any leaf: what luck at the end of the game is worth."""
        return max(size * span for size, span in zip(self.sizes, self.spans, strict=True))


def game(draw: Random, policy: Policy) -> Game:
    """A random one."""
    leaves = draw.choice((2, 2, 3))
    # The debug right is bounded by GPUs and not by rank, so what it brings is not what these laws are about.
    least = policy.debug_min_runtime
    nodes = draw.choice(((1,), (2,), (2, 2), (4,), (4, 2), (3, 3)))
    return Game(
        policy=replace(policy, grid=Millis(500)),
        shares=tuple(draw.randint(1, 3) for _ in range(leaves)),
        nodes=nodes,
        # Others take any free GPU, so that nobody profits from what they cannot place.
        sizes=(draw.choice([size for size in (1, 1, 2, 4) if size <= max(nodes)]), *(1,) * (leaves - 1)),
        spans=tuple(least + draw.choice((1_000, 2_000, 3_000, 5_000)) for _ in range(leaves)),
    )


Trick = Callable[[World, Game, int], None]


def honest(world: World, game: Game, at: int) -> None:
    """Submit everything at the start."""
    if at == 0:
        for number in range(game.jobs):
            world.submit(f"a{number:03d}", "a", gpus=game.sizes[0], min_runtime=game.spans[0])


def squat(world: World, game: Game, at: int) -> None:
    """Hold GPUs with work that does nothing, at once and for as long as one may, to keep them for later."""
    if at == 0:
        for number, span in enumerate((game.spans[0], world.policy.max_min_runtime)):
            world.submit(f"0-noop-{number}", "a", gpus=game.sizes[0], min_runtime=span, priority=1)
    honest(world, game, at)


def squat_unallocated(world: World, game: Game, at: int) -> None:
    """The same, free of charge."""
    if at == 0:
        world.submit("0-noop-2", "a", gpus=game.sizes[0], min_runtime=0)
    honest(world, game, at)


def split(world: World, game: Game, at: int) -> None:
    """Ask for the same GPUs in workloads of one GPU each."""
    if at == 0:
        for number in range(game.jobs * game.sizes[0]):
            world.submit(f"a{number:03d}", "a", gpus=1, min_runtime=game.spans[0])


def burst(world: World, game: Game, at: int) -> None:
    """Stay away for a window, then submit everything and as much again."""
    if at == world.policy.window:
        for number in range(2 * game.jobs):
            world.submit(f"a{number:03d}", "a", gpus=game.sizes[0], min_runtime=game.spans[0])


def cancel(world: World, game: Game, at: int) -> None:
    """Queue much and cancel it again, over and over."""
    honest(world, game, at)
    if at % 2_000 == 0:
        for number in range(3):
            name = f"zz-fake-{at}-{number}"
            world.submit(name, "a", gpus=game.sizes[0], min_runtime=game.spans[0])
            if world.phase(name) == "queued":
                world.feed(ev.Cancelled(world.now, CAUSE, WorkloadId(name)))


def protect(world: World, game: Game, at: int) -> None:
    """Declare twice the protection."""
    if at == 0:
        for number in range(game.jobs):
            world.submit(f"a{number:03d}", "a", gpus=game.sizes[0], min_runtime=2 * game.spans[0])


TRICKS: dict[str, Trick] = {
    "squat": squat,
    "squat unallocated": squat_unallocated,
    "split": split,
    "burst": burst,
    "cancel": cancel,
    "protect": protect,
}


def played(game: Game, trick: Trick, span: int = SPAN) -> World:
    """The game, with the adversary doing this."""
    world = World(policy=game.policy, delays=Delays(0, 0, 0), validate=False)
    leaves = "abcdef"[: len(game.shares)]
    tree = [Allocation(AllocationPath(leaf), str(share)) for leaf, share in zip(leaves, game.shares, strict=True)]
    world.set_up(tree, [Node(NodeName(f"n{index}"), gpus) for index, gpus in enumerate(game.nodes)])
    for leaf, size, asked in list(zip(leaves, game.sizes, game.spans, strict=True))[1:]:
        for number in range(game.jobs):
            world.submit(f"{leaf}{number:03d}", leaf, gpus=size, min_runtime=asked)
    for at in range(0, span, 1_000):
        trick(world, game, at)
        world.advance(at + 1_000 - world.now)
    return world


def useful(world: World) -> int:
    """GPU-milliseconds that the adversary's real work was given."""
    stays = Audit.of(world.journal).stays
    return sum(stay.within(0, stay.end) for stay in stays if stay.workload.startswith("a"))


def entitled(game: Game, span: int) -> int:
    """GPU-milliseconds to which the adversary is entitled in that time."""
    return span * sum(game.nodes) * game.shares[0] // sum(game.shares)


def gain(game: Game, trick: Trick, span: int = SPAN) -> int:
    """GPU-milliseconds by which a trick brings more than honesty and more than the entitlement; below 0 if it costs.

    Whoever splits a gang is easier to place, and may catch up to what is his: that is no gain.
    """
    return useful(played(game, trick, span)) - max(useful(played(game, honest, span)), entitled(game, span))


def allowed(game: Game, trick: Trick) -> float:
    """The bound of P12: one granule, in which the tricked protection counts; the hysteresis on a window; and what the
    pool does in one interval of the grid."""
    granule = game.granule
    if trick is protect:
        granule = max(granule, game.sizes[0] * 2 * game.spans[0])
    late = sum(game.nodes) * game.policy.grid
    return granule + game.policy.hysteresis * entitled(game, game.policy.window) + late
