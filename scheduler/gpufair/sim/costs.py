"""What it costs to start, save, restore and stop: the assumptions of a simulation, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from gpufair.core.units import MINUTE, SECOND, Millis


@dataclass(frozen=True, slots=True)
class Costs:
    """How long nodes and workloads take. Each start draws its launch time between the two bounds, seeded.

    Args:
        launch_least: From a grant until the workload is up, at the least.
        launch_most: The same, at the most.
        save_per_gib: From a notice until a checkpoint is durable, per GiB of state.
        restore_per_gib: The same for a restore, which follows the launch.
        stop: From the end of a save (or from a stop) until the GPUs are really free.
        checkpoint_every: How often a resumable batch run saves by itself while it goes on; 0: never. Sessions save
            after each burst.
    """

    launch_least: Millis = Millis(15 * SECOND)
    launch_most: Millis = Millis(60 * SECOND)
    save_per_gib: Millis = Millis(10 * SECOND)
    restore_per_gib: Millis = Millis(10 * SECOND)
    stop: Millis = Millis(2 * SECOND)
    checkpoint_every: Millis = Millis(10 * MINUTE)

    def save(self, gib: float) -> Millis:
        """How long it takes to save so much."""
        return Millis(round(self.save_per_gib * gib))

    def restore(self, gib: float) -> Millis:
        """How long it takes to restore so much."""
        return Millis(round(self.restore_per_gib * gib))


USUAL = Costs()
FREE = Costs(Millis(0), Millis(0), Millis(0), Millis(0), Millis(0), Millis(0))
