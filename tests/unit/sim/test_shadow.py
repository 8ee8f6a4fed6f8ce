"""The mirror of shadow mode remembers the newest of each job, for so long, in bounded memory, over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.core.units import DAY, HOUR, Millis
from gpufair.sim.shadow import Mirror
from gpufair.sim.traces import Row, Trace, TraceError, read_trace

EPOCH_S = 1_800_000_000.0


def seen(*jobs: tuple[str, float, float], status: str = "completed", epoch_s: float | None = EPOCH_S) -> Trace:
    """Jobs as (id, hours after the epoch, hours that they ran)."""
    rows = tuple(
        Row(line, name, Millis(round(at * HOUR)), Millis(round(ran * HOUR)), 2.0, "u", "p", "batch", status)
        for line, (name, at, ran) in enumerate(jobs, 1)
    )
    return Trace("x", "csv", rows, epoch_s=epoch_s)


def test_the_newest_state_of_a_job_counts() -> None:
    mirror = Mirror()
    assert mirror.take(seen(("a", 0, 1), ("b", 1, 2))) == 2
    assert mirror.take(seen(("a", 0, 1), ("b", 1, 2))) == 0
    assert mirror.take(seen(("b", 1, 5), ("c", 3, 1))) == 2
    assert {name: row.duration // HOUR for name, row in mirror.jobs.items()} == {"a": 1, "b": 5, "c": 1}
    # A reading that begins in the middle of a job knows less of it.
    assert mirror.take(seen(("b", 1, 3))) == 0


def test_readings_with_other_zeros_agree() -> None:
    """A trace begins with its first job: another reading has another zero."""
    mirror = Mirror()
    mirror.take(seen(("a", 0, 1), ("b", 2, 1)))
    assert mirror.take(seen(("b", 0, 1), epoch_s=EPOCH_S + 2 * 3600)) == 0


def test_what_is_old_is_forgotten_and_memory_is_bounded() -> None:
    mirror = Mirror(kept=Millis(2 * DAY), most=3)
    mirror.take(seen(("old", 0, 1), ("a", 40, 1), ("b", 50, 1)))
    assert sorted(mirror.jobs) == ["a", "b"]
    mirror.take(seen(("c", 51, 1), ("d", 52, 1)))
    assert sorted(mirror.jobs) == ["b", "c", "d"]


def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    """Its file holds all, is whole, and is a trace itself."""
    path, mirror = tmp_path / "s.csv.gz", Mirror()
    mirror.take(seen(("a", 0, 1.5), ("b", 1, 2)))
    mirror.save(path)
    assert [one.name for one in tmp_path.iterdir()] == ["s.csv.gz"]
    again = Mirror.load(path)
    assert again.take(seen(("a", 0, 1.5), ("b", 1, 2))) == 0
    assert again.jobs.keys() == mirror.jobs.keys()
    trace = read_trace(path)
    assert (trace.epoch_s, len(trace.rows)) == (EPOCH_S, 2)
    assert Mirror.load(tmp_path / "none.csv.gz").jobs == {}
    path.write_bytes(b"damaged")
    with pytest.raises(TraceError):
        Mirror.load(path)


def test_the_last_days_are_a_trace() -> None:
    mirror = Mirror()
    assert mirror.recent(Millis(DAY)) is None
    mirror.take(seen(("a", 0, 1), ("b", 30, 1), ("c", 40, 1)))
    recent = mirror.recent(Millis(DAY))
    assert recent is not None
    assert [(row.job_id, row.submit // HOUR) for row in recent.rows] == [("b", 0), ("c", 10)]
    assert recent.epoch_s == EPOCH_S + 30 * 3600


def test_submissions_without_dates_are_refused() -> None:
    with pytest.raises(TraceError, match="no dates"):
        Mirror().take(seen(("a", 0, 1), epoch_s=None))
