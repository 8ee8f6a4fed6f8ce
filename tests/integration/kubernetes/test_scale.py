"""The figures of docs/scale.md, on a small scale: what is asked for each start and end does not grow unnoticed."""

from __future__ import annotations

from pathlib import Path

from tests.integration.kubernetes.conftest import Server
from tests.scale import counted, waves

WRITES = {"create pods": 1.0, "create secrets": 1.0, "create pods/binding": 1.0}


async def test_a_start_takes_three_writes_and_an_end_one(tmp_path: Path, server: Server) -> None:
    """Nothing is asked while nothing happens: the cluster is followed by watches, never polled."""
    found = await counted.measure(tmp_path, server, nodes=2, gpus=2, workloads=4, idle_s=2.5, within_s=60)
    phases = found["phases"]
    assert phases["start"]["per_workload"] == WRITES
    assert phases["rest"]["per_workload"] == {}
    assert {what: phases["preempt"]["per_workload"][what] for what in WRITES} == WRITES
    # One for the notice, and another if the pod lingers: a deletion may be repeated, and is then cheap. Four pods end, and the last
    # of the one that was preempted before may come only now.
    assert set(phases["end"]["per_workload"]) == {"delete pods"}
    assert 1.0 <= phases["end"]["per_workload"]["delete pods"] <= 2.5
    assert 1_000 < found["pods_bytes"] < 20_000
    assert 500 < found["secrets_bytes"] < 5_000


def test_spreading_saves_over_their_grace_lowers_the_peak() -> None:
    """Three at once: 3 × 2 GiB in 20 s, or each as fast as it can."""
    three = [waves.Save(0, 20_000, 2.0), waves.Save(0, 20_000, 2.00001), waves.Save(30_000, 120_000, 12.0)]
    assert round(waves.peak(three), 3) == 0.2
    assert round(waves.peak(three, {one: 1_000 * one.gib for one in three}), 3) == 2.0


def test_a_wave_is_counted() -> None:
    found = waves.measure("2x8", 1.0, 1, 1.0)
    assert found["saves"] > 0
    assert 0 < found["mean_gib_s"] <= found["peak_gib_s_staggered"] <= found["peak_gib_s_at_once"]
