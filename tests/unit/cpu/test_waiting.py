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


def test_a_pool_of_several_users_says_whose_turn_it_is_and_that_a_quota_is_used() -> None:
    """Other tasks run, so that "busy" would not explain it."""
    quota = str(Line(workers=4, threads=4, ahead=12, turns=True, quota=8).told("tls://pool:1"))
    assert "your quota of 8 tasks in the CPU pool at tls://pool:1 is in use; 12 ahead of you" in quota
    assert "furthest below its share" in str(Line(workers=4, threads=4, ahead=9, turns=True).told("tls://pool:1"))
    assert Line(workers=4, threads=4, ahead=0, turns=True).told("tls://pool:1") is None
    empty = str(Line(workers=0, threads=0, ahead=0, turns=True).told("tls://pool:1"))
    assert "It starts workers now" in empty
    assert "dask worker" not in empty
