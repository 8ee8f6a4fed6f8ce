"""What whoever waits for the CPU pool is told."""

from __future__ import annotations

from gpufair.cpu.waiting import Line


def test_a_running_task_is_no_news() -> None:
    """A long computation is not a wait."""
    assert Line(workers=2, threads=4, ahead=3).told("tls://pool:1") is None


def test_a_pool_that_cannot_begin_says_what_is_true_and_what_to_do() -> None:
    """How many workers, how many tasks ahead, where."""
    busy = Line(workers=2, threads=4, ahead=4).told("tls://pool:1")
    assert busy is not None
    for part in ("tls://pool:1", "all its 2 workers are busy", "4 tasks are ahead", "Interrupt"):
        assert part in busy
    assert "only worker is busy, and 1 task is ahead" in str(Line(workers=1, threads=1, ahead=1).told("tls://pool:1"))
    empty = str(Line(workers=0, threads=0, ahead=0).told("tls://pool:1"))
    for part in ("tls://pool:1", "no workers", "0 tasks are ahead", "dask worker"):
        assert part in empty
