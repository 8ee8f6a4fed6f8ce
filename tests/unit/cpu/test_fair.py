"""What the plugin does with a scheduler's tasks. Beside a real Dask, in tests/integration/cpu/test_fair_pool.py, the rare cases."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpufair.cpu.fair import TURN, Turns
from gpufair.cpu.plan import Plan

PLAN = Plan({"vision": (3, 4), "language": (1, 4)}, window_s=3600.0)


@dataclass(eq=False)
class Worker:
    """As much of one as matters here."""

    address: str
    nthreads: int = 1
    processing: dict[str, Any] = field(default_factory=dict)
    long_running: set[str] = field(default_factory=set)


@dataclass(eq=False)
class Wanted:
    """A task as Dask knows it."""

    key: str
    priority: tuple[int, ...]
    state: str = "released"
    run_spec: object = "code"
    actor: bool = False
    resource_restrictions: dict[str, float] | None = None
    worker_restrictions: set[str] | None = None
    host_restrictions: set[str] | None = None
    processing_on: Worker | None = None


class Scheduler:
    """Moves tasks as Dask's does, and tells the plugin."""

    def __init__(self, folder: Path, plan: Plan, *workers: Worker) -> None:
        self.turns = Turns(folder, plan)
        self.turns._scheduler = self
        self.running, self.tasks = set(workers), dict[str, Wanted]()
        self.clients = dict[str, str]()

    def submit(self, client: str, *keys: str, only: str = "") -> None:
        for key in keys:
            self.tasks[key] = Wanted(key, (0, len(self.tasks)), worker_restrictions={only} if only else None)
        self.turns.update_graph(self, client=client, tasks=list(keys))
        for key in keys:
            self.move(key, "waiting")
            self.transitions({key: "processing"}, "test")

    def move(self, key: str, state: str) -> None:
        task = self.tasks[key]
        before, task.state = task.state, state
        self.turns.transition(key, before, state, stimulus_id="test")

    def valid_workers(self, task: Wanted) -> set[Worker] | None:
        if task.resource_restrictions:
            return set()
        if task.worker_restrictions is None:
            return None
        return {worker for worker in self.running if worker.address in task.worker_restrictions}

    def transitions(self, wanted: dict[str, str], stimulus_id: str) -> None:
        for key in wanted:
            may = self.valid_workers(self.tasks[key])
            worker = min(may or self.running, key=lambda one: (len(one.processing), one.address))
            if may == set():
                self.move(key, "no-worker")
            else:
                self.tasks[key].processing_on = worker
                worker.processing[key] = self.tasks[key]
                self.move(key, "processing")

    async def ended(self, key: str, state: str = "memory") -> None:
        worker = self.tasks[key].processing_on
        assert worker is not None
        del worker.processing[key]
        self.move(key, state)
        await self.settled()

    async def settled(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    def under_way(self) -> list[str]:
        return sorted(key for key, task in self.tasks.items() if task.state == "processing")


async def test_one_task_for_each_free_thread_and_the_next_when_one_ends(tmp_path: Path) -> None:
    """Whoever came first, it is the other allocation's turn."""
    scheduler = Scheduler(tmp_path, PLAN, Worker("w1"), Worker("w2"))
    scheduler.turns.introduce("c1", "vision", "ada")
    scheduler.turns.introduce("c2", "language", "bo")
    scheduler.submit("c1", "a1", "a2", "a3")
    await scheduler.settled()
    assert scheduler.under_way() == ["a1", "a2"]
    assert scheduler.tasks["a1"].resource_restrictions == {}, "the resource is not asked of its worker"
    scheduler.submit("c2", "b1")
    await scheduler.ended("a1")
    assert scheduler.under_way() == ["a2", "b1"]
    assert scheduler.turns.standing(["a3"]) == (2, 0)
    await scheduler.ended("b1", "released")  # its worker died
    assert scheduler.tasks["b1"].resource_restrictions == {TURN: 1}, "it is held, whenever it can run again"


async def test_a_task_that_may_run_on_a_busy_worker_only_holds_nobody_up(tmp_path: Path) -> None:
    """Not even the same user's next one; and it is not lost."""
    scheduler = Scheduler(tmp_path, PLAN, Worker("w1"), Worker("w2"))
    scheduler.submit("c1", "a1", only="w1")
    await scheduler.settled()
    scheduler.submit("c1", "a2", only="w1")
    scheduler.submit("c1", "a3")
    await scheduler.settled()
    assert scheduler.under_way() == ["a1", "a3"]
    assert scheduler.tasks["a2"].worker_restrictions == {"w1"}, "what its user asked for is as it was"
    await scheduler.ended("a1")
    assert scheduler.under_way() == ["a2", "a3"]


async def test_data_and_actors_take_no_turn(tmp_path: Path) -> None:
    """The first do not run, the second stay in their worker."""
    scheduler = Scheduler(tmp_path, PLAN, Worker("w1"))
    scheduler.tasks = {"data": Wanted("data", (0,), run_spec=None), "actor": Wanted("actor", (0,), actor=True)}
    scheduler.turns.update_graph(scheduler, client="c1", tasks=["data", "actor"])
    assert [task.resource_restrictions for task in scheduler.tasks.values()] == [None, None]


async def test_no_worker_is_started_for_what_a_quota_holds_back(tmp_path: Path) -> None:
    """It would idle."""
    scheduler = Scheduler(tmp_path, replace(PLAN, tasks_per_user=2), Worker("w1"))
    for client, user in (("c1", "ada"), ("c2", "ada"), ("c3", "bo")):
        scheduler.turns.introduce(client, "vision", user)
    scheduler.submit("c1", "a1", "a2", "a3")
    scheduler.submit("c2", "a4")
    assert scheduler.turns.useful() == 2
    await scheduler.settled()
    assert (scheduler.under_way(), scheduler.turns.useful()) == (["a1"], 2)
    scheduler.submit("c3", "b1")
    assert scheduler.turns.useful() == 3
    scheduler.turns.plan = PLAN
    assert scheduler.turns.useful() == 5
