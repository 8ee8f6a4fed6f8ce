"""Two allocations with the same entitlement and the same work, one of which also holds GPUs without using them."""

from __future__ import annotations

from typing import Final

from gpufair.core.model import Allocation
from gpufair.core.units import DAY, HOUR, AllocationPath, Instant, Millis
from gpufair.sim.job import Burst, JobKind
from gpufair.sim.scenario import Scenario
from gpufair.sim.worlds.builder import Builder
from gpufair.sim.worlds.profile import Profile
from gpufair.sim.worlds.setting import Setting
from gpufair.sim.worlds.steady import DEMAND

HONEST: Final = AllocationPath("twins/honest")
SQUATTER: Final = AllocationPath("twins/squatter")
NO_OP: Final = "no-op"  # the name of all that is submitted to hold GPUs only; useful is what is called otherwise
_TREE: Final = tuple(
    Allocation(AllocationPath(path), share)
    for path, share in (
        ("twins", "30"),
        (HONEST, "1"),
        (SQUATTER, "1"),
        ("north", "35"),
        ("south", "25"),
        ("west", "10"),
    )
)


def squatter(setting: Setting, squats: bool = True) -> Scenario:
    """Twins who work on weekdays from 8 to 20 o'clock; ``twins/squatter`` holds its part with no-ops in between as well.

    Their useful jobs are the same to the millisecond, so what each gets of them can be compared directly. The others
    ask for 2.5 times their entitlement all the time. No-ops for the squatter's whole part are submitted anew each time
    the longest protection is over, and protected for all of it; an eighth are notebooks in which a cell runs once in
    three days.

    Args:
        setting: Where and how long.
        squats: False: the world without the no-ops.
    """
    world = Builder(setting, _TREE)
    for leaf in world.tree.leaves:
        if leaf not in (HONEST, SQUATTER):
            world.stream(leaf, world.demand(DEMAND), unallocated=world.free())
    edges = [0]
    weights = []
    for day in range(0, world.until, DAY):
        for hour, busy in ((8, False), (20, day // DAY % 7 < 5), (24, False)):
            edge = min(day + hour * HOUR, world.until)
            if edge > edges[-1]:
                edges.append(edge)
                weights.append(1.0 if busy else 0.0)
    when = Profile(edges, weights) if any(weights) else None
    for job in world.stream(HONEST, 1.0, profile=when, stock=False):
        world.submit(
            SQUATTER,
            job.submit,
            job.gpus,
            job.work,
            kind=job.kind,
            user=job.spec.user.replace("honest", "squatter"),
            bursts=job.bursts,
            min_runtime=job.spec.min_runtime,
            resumable=job.spec.resumable,
        )
    if squats:
        _squat(world)
    notes = (
        "twins/honest and twins/squatter have the same useful jobs",
        f"{'the squatter also submits' if squats else 'nobody submits'} jobs that only hold GPUs (named {NO_OP!r})",
    )
    return world.scenario("squatter", notes)


def _squat(world: Builder) -> None:
    gpus = max(1, int(world.part(SQUATTER)))
    size = min(gpus, world.setting.cluster.groups[0].gpus)
    hold = world.setting.max_min_runtime
    for number in range(max(1, gpus // size)):
        idle = number % 8 == 7
        # A notebook that nobody uses stays open for days.
        span = Millis(3 * DAY) if idle else hold
        for at in range(0, world.until, span):
            world.submit(
                SQUATTER,
                Instant(at),
                size,
                span,
                kind=JobKind.SESSION if idle else JobKind.BATCH,
                bursts=(Burst(Millis(1000), Millis(span - 1000)),) if idle else (),
                min_runtime=hold,
                resumable=True,
                name=NO_OP,
            )
