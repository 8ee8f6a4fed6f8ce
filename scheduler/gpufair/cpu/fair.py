"""Turns in a pool that several users share: a plugin of its Dask scheduler.

Dask hands a task to a worker as soon as it can run, and from then on it waits there in the order of arrival. So each
task is held in the scheduler, as one that asks for a resource that no worker has, until ``turns`` says that its turn has
come and a thread is free; only then is the resource taken from what it asks for. To Dask it is a task for which there is
no worker yet, which it knows how to cancel, to count and to start workers for. A task that has to run again (its worker
died) is held again.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

from distributed import SchedulerPlugin
from distributed.deploy.adaptive import Adaptive

from gpufair.cpu.plan import Plan
from gpufair.cpu.turns import CHARGED_FILE, EXPECTED_MS, Charged, Whom, next_turn
from gpufair.cpu.waiting import TURNS
from gpufair.node.files import read_json, write_json

TURN = "gpufair-turn"  # the resource
_KEEP_S = 5.0
_log = logging.getLogger(__name__)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Turns(SchedulerPlugin):
    """Holds tasks and gives turns.

    Args:
        folder: Of the pool; what was charged is kept there.
        plan: How it is shared. May be replaced at any time, from another thread too.
    """

    name = TURNS

    def __init__(self, folder: Path, plan: Plan) -> None:
        self.plan = plan
        self._file = folder / CHARGED_FILE
        self._scheduler: Any = None
        self._who: dict[str, Whom] = {}  # client ->
        self._owners: dict[Any, Whom] = {}  # task ->
        self._held: dict[Any, int] = {}  # task -> when it came
        self._queues: dict[Whom, list[tuple[Any, int, Any]]] = {}  # heaps; tasks that have left are in them still
        self._running: dict[Any, tuple[Whom, int]] = {}
        self._expected: dict[Whom, int] = {}
        self._came, self._poked, self._kept_at = 0, False, 0.0
        self._charged = self._books()

    def _books(self) -> Charged:
        books = Charged(max(1, round(self.plan.window_s * 1000)))
        try:
            books.load((read_json(self._file) or {}).get("charged", ()))
        except (ValueError, TypeError):
            _log.warning("%s is damaged; what was charged is counted from now on", self._file)
        return books

    # -- what Dask calls ------------------------------------------------------------------------------------------

    async def start(self, scheduler: Any) -> None:
        """Once, before any client."""
        self._scheduler = scheduler
        # A site may have set a limit after which Dask fails tasks that no worker may run; those that wait for a turn are no such.
        scheduler.no_workers_timeout = None
        self._ticking = asyncio.create_task(self._tick())

    async def close(self) -> None:
        """The pool ends."""
        self._ticking.cancel()
        self._keep()

    def remove_client(self, scheduler: Any, client: str) -> None:
        """It has gone; what it left running stays its user's."""
        self._who.pop(client, None)

    def update_graph(self, scheduler: Any, *, client: str, tasks: list[Any], **more: Any) -> None:
        """Tasks came, and Dask has not moved them yet."""
        whom = self._who.get(client) or Whom("", client)
        for key in tasks:
            task = scheduler.tasks[key]
            # An actor stays in its worker and takes no thread; what has no code is data that somebody brought.
            if task.state == "released" and task.run_spec is not None and not task.actor and key not in self._owners:
                self._owners[key] = whom
                self._hold(task)

    def transition(self, key: Any, start: str, finish: str, *arguments: Any, **more: Any) -> None:
        """A task's state has changed; nothing may be moved from here."""
        whom = self._owners.get(key)
        if whom is None or start == finish:
            return
        now = _now_ms()
        if start == "processing":
            _, began = self._running.pop(key)
            ran_ms = max(1, now - began)  # thousands of nothing are something
            self._charged.add(whom, began, began + ran_ms)
            if finish == "memory":
                self._expected[whom] = max(1, (3 * self._expected.get(whom, ran_ms) + ran_ms) // 4)
            self._poke()
        elif start == "no-worker":
            self._held.pop(key, None)
        if finish == "released":
            self._hold(self._scheduler.tasks[key])
        elif finish == "no-worker":
            self._came += 1
            self._held[key] = self._came
            entry = (self._scheduler.tasks[key].priority, self._came, key)
            heapq.heappush(self._queues.setdefault(whom, []), entry)
            self._poke()
        elif finish == "processing":
            self._running[key] = (whom, now)
        elif finish == "forgotten":
            del self._owners[key]

    def add_worker(self, scheduler: Any, worker: str) -> None:
        """It has free threads."""
        self._poke()

    def remove_worker(self, scheduler: Any, worker: str, **more: Any) -> None:
        """Its tasks are held again."""
        self._poke()

    # -- what notebooks ask ---------------------------------------------------------------------------------------

    def introduce(self, client: str, leaf: str, user: str) -> None:
        """Who a client works for. Nobody checks it: who may use the pool may run anything in it."""
        self._who[client] = Whom(leaf, user)

    def standing(self, keys: list[Any]) -> tuple[int, int]:
        """How many tasks come before these of one user, and the quota, if that is what they wait for (else 0).

        Where it is, only tasks of his own are ahead; else those that run, and his own. None are once one of these runs.
        """
        if any(key in self._running for key in keys):
            return 0, 0
        first = min((self._held[key] for key in keys if key in self._held), default=0)
        user = next((self._owners[key].user for key in keys if key in self._held), "")
        before = sum(came < first and self._owners[key].user == user for key, came in self._held.items())
        quota = self.plan.tasks_per_user
        if quota and self._busy_users()[user] >= quota:
            return before, quota
        return len(self._running) + before, 0

    def useful(self) -> int:
        """How many tasks could run at once, had the pool that many threads: what is beyond a quota needs no worker."""
        quota, busy, held = self.plan.tasks_per_user, self._busy_users(), Counter[str]()
        for key in self._held:
            held[self._owners[key].user] += 1
        room = sum(min(count, max(0, quota - busy[user])) if quota else count for user, count in held.items())
        return len(self._running) + room

    # -- inside ---------------------------------------------------------------------------------------------------

    def _busy_users(self) -> Counter[str]:
        return Counter(whom.user for whom, _ in self._running.values())

    @staticmethod
    def _hold(task: Any) -> None:
        task.resource_restrictions = {**(task.resource_restrictions or {}), TURN: 1}

    @staticmethod
    def _let_go(task: Any) -> None:
        task.resource_restrictions = {name: n for name, n in task.resource_restrictions.items() if name != TURN}

    def _poke(self) -> None:
        """Give turns when what is going on is over."""
        if not self._poked:
            self._poked = True
            asyncio.get_running_loop().call_soon(self._give)

    async def _tick(self) -> None:
        """A worker that pauses or goes on, and a plan that changes, tell nobody."""
        while True:
            await asyncio.sleep(1.0)
            if self._charged.window_ms != max(1, round(self.plan.window_s * 1000)):
                self._keep()
                self._charged = self._books()
            if time.monotonic() - self._kept_at > _KEEP_S:
                self._keep()
            self._poke()

    def _keep(self) -> None:
        self._kept_at = time.monotonic()
        self._charged.totals(_now_ms())
        try:
            write_json(self._file, {"charged": self._charged.dump()}, durable=False)
        except OSError as err:
            _log.warning("what was charged cannot be kept in %s: %s", self._file, err)

    def _give(self) -> None:
        """Give every turn that can be given now."""
        self._poked = False
        free = {
            worker: threads
            for worker in self._scheduler.running
            if (threads := worker.nthreads - len(worker.processing) + len(worker.long_running)) > 0
        }
        if not free or not self._held:
            return
        now, shares = _now_ms(), self.plan.fractions()
        charged, running = Counter(self._charged.totals(now)), Counter[Whom]()
        for whom, began in self._running.values():
            charged[whom] += max(now - began, self._expected.get(whom, EXPECTED_MS))
            running[whom] += 1
        waiting = {whom: at for whom in list(self._queues) if (at := self._head(whom))}
        while free and (turn := next_turn(waiting, charged, running, shares, self.plan.tasks_per_user)) is not None:
            worker = self._place(turn, free)
            if worker is None:  # his tasks may run on workers that are busy only
                del waiting[turn]
                continue
            free[worker] -= 1
            if not free[worker]:
                del free[worker]
            charged[turn] += self._expected.get(turn, EXPECTED_MS)
            running[turn] += 1
            if at := self._head(turn):
                waiting[turn] = at
            else:
                del waiting[turn]

    def _head(self, whom: Whom) -> int:
        """When the first of his held tasks came; 0 where there is none."""
        queue = self._queues.get(whom, [])
        while queue:
            _, came, key = queue[0]
            if self._held.get(key) == came:
                return came
            heapq.heappop(queue)
        self._queues.pop(whom, None)
        return 0

    def _place(self, whom: Whom, free: dict[Any, int]) -> Any:
        """Start the first of his tasks that may run on a free worker; the worker, or None."""
        passed = []
        worker = None
        while worker is None and self._head(whom):
            passed.append(heapq.heappop(self._queues[whom]))
            worker = self._start(self._scheduler.tasks[passed[-1][2]], free)
        for entry in passed if worker is None else passed[:-1]:
            heapq.heappush(self._queues.setdefault(whom, []), entry)
        return worker

    def _start(self, task: Any, free: dict[Any, int]) -> Any:
        self._let_go(task)
        may = self._scheduler.valid_workers(task)
        here = {worker.address for worker in free if may is None or worker in may}
        if here:
            # Dask prefers a worker that has the data, and would have it wait there for a thread.
            asked = task.worker_restrictions, task.host_restrictions
            task.worker_restrictions, task.host_restrictions = here, None
            self._scheduler.transitions({task.key: "processing"}, stimulus_id=f"gpufair-turn-{self._came}-{time.time()}")
            task.worker_restrictions, task.host_restrictions = asked
            if task.state == "processing":
                return task.processing_on
        if task.state == "no-worker":
            self._hold(task)
        return None


class Useful(Adaptive):
    """Starts no worker for tasks that their user's quota holds back."""

    async def target(self) -> int:
        """How many workers there should be."""
        wanted: int = await super().target()  # type: ignore[no-untyped-call]
        scheduler: Any = cast("Any", self.cluster).scheduler
        useful: int = scheduler.plugins[TURNS].useful()
        return min(wanted, max(len(scheduler.workers), useful))
