"""A pool that several users share, with a real Dask cluster: turns by allocation, and quotas."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import distributed
import pytest

from gpufair.cpu import plan, resident, served, waiting
from gpufair.cpu.pool import Pool
from gpufair.cpu.task import Task
from gpufair.node.files import try_lock

WAIT_S = 60.0
PLAN = plan.Plan({"vision": (3, 4), "language": (1, 4)}, window_s=3600.0)
Join = Callable[[str, str], Pool]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a pool with up to two workers, whose service lives."""
    made = tmp_path_factory.mktemp("pool")
    lock = try_lock(made / "service.lock")
    assert lock is not None
    plan.write(made, replace(PLAN, service_lock=str(made / "service.lock")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DASK_DISTRIBUTED__SCHEDULER__VALIDATE", "True")  # Dask checks its whole state after each change
        resident.start(made, workers=2, memory_bytes=1 << 30)
    yield made
    log = resident.place(made, "log").read_text()
    resident.stop(made)
    os.close(lock)
    assert "Traceback" not in log, log[-5000:]


@pytest.fixture
def join(folder: Path) -> Iterator[Join]:
    """Connects as a user of an allocation; all leave at the end."""
    living = resident.found(folder)
    assert living is not None
    joined: list[Pool] = []

    def one(leaf: str, user: str) -> Pool:
        client = distributed.Client(living.address, security=living.security(), set_as_default=False)
        served.introduce(client, leaf, user)
        joined.append(Pool(client, None, "own"))
        return joined[-1]

    yield one
    for pool in joined:
        pool.close()


def planned(folder: Path, pool: Pool, **changes: Any) -> None:
    """Change the plan, and wait until the pool does as it says."""
    wanted = replace(plan.read(folder) or PLAN, **changes)
    plan.write(folder, wanted)
    until(lambda: pool.client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins[waiting.TURNS].plan) == wanted)


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, "it never was so"
        time.sleep(0.02)


def done(tasks: list[Task]) -> int:
    return sum(task.done() for task in tasks)


def test_allocations_have_their_shares_and_a_newcomer_does_not_wait_for_the_queue(join: Join) -> None:
    """Dask alone would run the first user's hundreds of tasks first."""
    ada, bo, cy = join("vision", "ada"), join("language", "bo"), join("language", "cy")
    nobody = join("", "")
    nobody.gather(nobody.map(time.sleep, [0.5] * 4))  # both workers are there, and what they cost is nobody's
    hers, his = ada.map(time.sleep, [0.03] * 250), bo.map(time.sleep, [0.03] * 250)
    until(lambda: done(hers) >= 120)
    ahead, behind = done(hers), done(his)
    assert 2.0 <= ahead / behind <= 4.5, f"{ahead} of hers, {behind} of his for shares of 3 and 1"
    assert cy.submit(len, "abc").result() == 3
    assert done(his) < 200, "the same allocation's other user waited for his tasks"
    ada.cancel(hers)
    bo.cancel(his)


def test_a_quota_is_kept_and_said(join: Join, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Although there are two threads; others have what it leaves."""
    monkeypatch.setattr(waiting, "TELL_S", 0.3)
    ada, bo = join("vision", "ada"), join("language", "bo")
    bo.gather(bo.map(time.sleep, [0.5] * 4))  # both workers are there
    planned(folder, ada, tasks_per_user=1)
    try:
        gate = folder / "gate"

        def held(begun: Path) -> None:
            begun.touch()
            while not gate.exists():
                time.sleep(0.02)

        first, second = (ada.submit(held, folder / f"begun-{n}") for n in (1, 2))
        again = join("vision", "ada")  # another notebook of hers has no quota of its own
        third = again.submit(len, "abc")
        assert bo.submit(len, "ab").result() == 2
        assert [(folder / f"begun-{n}").exists() for n in (1, 2)] == [True, False], "a thread is free, but not for her"
        timer = threading.Timer(2.0, gate.touch)
        timer.start()
        assert third.result() == 3
        timer.join()
        assert ada.gather([first, second]) == [None, None]
        told = capsys.readouterr().err
        assert "your quota of 1 task" in told
        assert "1 ahead of you" in told
    finally:
        planned(folder, bo, tasks_per_user=0)


def test_a_task_whose_worker_died_waits_for_its_turn_again(join: Join, tmp_path: Path) -> None:
    """It must neither be lost nor jump the queue."""
    ada = join("vision", "ada")

    def dies_once() -> str:
        if not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "done"

    results = ada.map(lambda _: dies_once(), range(3))
    assert ada.gather(results) == ["done"] * 3
    total = ada.submit(sum, ada.map(len, ["a", "bc"]))  # with results that stay there
    assert total.result() == 3

    def long(_: int) -> None:
        for _ in range(6_000):
            time.sleep(0.01)

    blocked = ada.map(long, range(4))
    ada.cancel(blocked)
    assert ada.submit(len, "abc").result() == 3, "cancelled tasks hold nobody up"


def test_it_ends_when_its_service_has_been_gone_for_long(tmp_path: Path) -> None:
    """Nobody would ever end it. And what was charged is kept."""
    plan.write(tmp_path, replace(PLAN, service_lock=str(tmp_path / "service.lock"), linger_s=2.0))
    living, _ = resident.start(tmp_path, workers=1, memory_bytes=1 << 30)
    until(lambda: resident.began(living.pid) != living.began)
    assert not resident.place(tmp_path, "json").exists()
    assert (tmp_path / "charged.json").exists()
