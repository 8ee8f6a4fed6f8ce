"""The one task that owns the core's state.

Steps (requests of the API, reports of agents) are queued; a turn takes all that are there, feeds every due moment and
then the steps' events to the state, commits them with the actions decided, and only then answers, hands the actions to
the backend and tells subscribers. If the commit fails, nothing has happened: the state is read anew from the journal.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from gpufair.clock import Clock
from gpufair.core.errors import GpufairError
from gpufair.core.events import TimePassed
from gpufair.core.model import Phase
from gpufair.core.state import State
from gpufair.core.units import CauseId, Instant, Millis, WorkloadId, after
from gpufair.service.budgets import budget_changes
from gpufair.service.runtime.attic import Attic, due
from gpufair.service.runtime.backend import Backend
from gpufair.service.runtime.broadcast import Broadcast
from gpufair.service.runtime.meter import Meter
from gpufair.service.runtime.recovery import Recovered, agree_on_stays, rebuild, recover, take_snapshot
from gpufair.service.runtime.telling import Places, Teller, notices, places_for
from gpufair.service.storage import announcements, budget_requests, ended
from gpufair.service.storage.announcements import Board
from gpufair.service.storage.audit import doer
from gpufair.service.storage.budget_requests import Requests
from gpufair.service.storage.ended import Wanted
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.leadership import Deposed
from gpufair.service.storage.outbox import Letter
from gpufair.service.storage.store import StoreError, StoreUnavailable
from gpufair.service.workloads import retries, standin
from gpufair.service.workloads.asked import MAX_WAITING, Asked, Closed, InternalError, Overloaded, Step
from gpufair.service.workloads.details import Detail
from gpufair.service.workloads.turn import EMPTY, Turn

R = TypeVar("R")

MAX_STEPS = 256  # of one commit
MAX_MOMENTS = 500  # of one commit: after a long sleep there may be many grid passes to make up for
# Questions that are thought over in threads: each takes a processor, and the loop that decides needs one too.
MAX_THINKING = 2
STORE_RETRY = Millis(1000)
REFRESH_PAUSE = 9  # times as long as telling some of those who wait takes
REFRESHED = 64  # workloads that are looked at again in one go: about 10 ms
PAUSE_S = 0.005  # of who writes a snapshot, after each millisecond of work: there is time
REFRESH_S = 0.25  # queue positions and estimates are told to subscribers at most that often

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Options:
    """How the runtime runs."""

    snapshot_every: int = 1000  # journal entries
    suggest_cpu_after: Millis = Millis(0)  # see ``suggesting``; 0: never
    validate: bool = False  # check all invariants after each event
    channels: Callable[[str], Sequence[str]] = lambda _user: ()  # through which of them a user is told something


class Runtime:
    """Owns the state, feeds it, and tells what came of it. ``start`` before the first ``do``."""

    def __init__(self, journal: Journal, clock: Clock, options: Options | None = None) -> None:
        self._journal, self._clock = journal, clock
        self._options = options or Options()
        self.backend: Backend | None = None
        self.broadcast = Broadcast()
        self._teller = Teller(self.broadcast, self._options.suggest_cpu_after)
        self.meter = Meter()
        self.on_notices: Callable[[], None] = lambda: None  # called when some are in the outbox; it must not block
        self._state = State(validate=self._options.validate)
        self._details: dict[WorkloadId, Detail] = {}
        self._waiting: set[WorkloadId] = set()  # for others to end, or to be tried again: those whose details say so
        self._requests = Requests()  # for other budgets: live ones, as committed
        self._board = Board()  # of announcements, as committed
        self._asked: deque[Asked[Any]] = deque()
        self._arrived = asyncio.Event()
        self._turning = asyncio.Lock()  # held while the state is ahead of the journal
        self._thinking = asyncio.Semaphore(MAX_THINKING)
        self._sound = False  # the state is that of the journal
        self._readable = False  # the state was that of the journal when its database was last heard
        self._doubtful: Turn | None = None  # its commit failed, but may have gone through
        self._snapshot_seq = 0
        self._saving: asyncio.Task[None] | None = None  # a snapshot
        self._hurry = threading.Event()  # somebody waits for one
        self._attic = Attic(journal)
        self._last_at = Instant(0)
        self._retry_at: Instant | None = None
        self._said = ""  # the problem with the journal that was logged last
        self._task: asyncio.Task[None] | None = None
        self._refresher: asyncio.Task[None] | None = None

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the state from the journal and begin to take steps.

        Raises:
            StoreError: The journal is damaged or of another version.
            StoreUnavailable: It can't be read.
        """
        await self._rebuild()
        await agree_on_stays(self._journal, self._state)
        if len(due(self._state)) > self._options.snapshot_every:
            self._saving = asyncio.create_task(self._save(), name="runtime-snapshot")  # of before there was an attic
        self._teller.begin(self._state, self._details, self._board, self.now())
        self._task = asyncio.create_task(self._run(), name="runtime")
        self._refresher = asyncio.create_task(self._refresh(), name="runtime-refresh")

    async def close(self) -> None:
        """Finish the turn in progress; refuse what still waits."""
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)
        for task in (self._refresher, self._task):
            if task is not None:
                async with self._turning:  # a commit in progress is finished first
                    task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        while self._asked:
            self._asked.popleft().fail(Closed())

    @property
    def alive(self) -> bool:
        """Whether the task runs."""
        return self._task is not None and not self._task.done()

    @property
    def problem(self) -> str:
        """Why nothing can be decided now; "" if it can. After a failed commit it stays until one succeeds.

        It is told to anybody who asks, so the particulars (paths, addresses) are in the log only.
        """
        if not self.alive:
            return "the scheduler has ended"
        if self._said:
            return "the journal cannot be written or read now; the service's log says why"
        return "" if self._sound else "the journal has not been read yet"

    # -- what others call -----------------------------------------------------------------------------------------

    def now(self) -> Instant:
        """The present: the clock's, but never before the last journalled event."""
        return Instant(max(self._clock.now(), self._last_at))

    async def do(self, step: Step[R]) -> R:
        """Run ``step`` at its turn; return its result once all it did is durable.

        Raises:
            GpufairError: What the step raised.
            StoreUnavailable: The journal can't be written; nothing has changed.
        """
        return await self._ask(step).done

    async def do_to(
        self, workload: WorkloadId, step: Step[R], others: Iterable[WorkloadId] = ()
    ) -> tuple[R, dict[str, Any]]:
        """The same, with the Workload object as it is right after the step: nobody has to wait for the state once more.

        The step finds it, and ``others``, in the state even if they ended long ago.

        Raises:
            GpufairError: What the step raised.
            StoreUnavailable: As with ``do``.
        """
        asked = self._ask(step)
        asked.about, asked.looks_at = workload, (workload, *others)
        result = await asked.done
        assert asked.view is not None
        return result, asked.view

    def _ask(self, step: Step[R]) -> Asked[R]:
        if not self.alive:
            raise Closed
        if len(self._asked) >= MAX_WAITING:
            raise Overloaded
        asked: Asked[R] = Asked(step, asyncio.get_running_loop().create_future(), doer.get())
        self._asked.append(asked)
        self._arrived.set()
        return asked

    async def read(self, look: Callable[[State], R], about: Iterable[WorkloadId] = ()) -> R:
        """What ``look`` returns for the committed state. It must be quick and must not keep the state.

        The workloads that it is ``about`` it finds there even if they ended long ago, and so does who asks within a minute.

        Raises:
            GpufairError: What ``look`` raised.
            StoreUnavailable: The state could not be recovered after a failed commit yet.
        """
        async with self._turning:
            # The loop is trying to reach the database; whoever only looks need not wait for that.
            if not self._sound and not self._readable:
                await self._rebuild()
            await self._attic.recall(about, self._state, self._details)
            return look(self._state)

    async def past(self, wanted: Wanted) -> list[dict[str, Any]]:
        """The Workload objects of those that ended long ago. ``views`` does not tell of them.

        Raises:
            StoreError: What is kept of one is damaged.
            StoreUnavailable: They can't be read.
        """
        found = await self._journal.within(partial(ended.page, wanted=wanted))
        return await self.read(
            lambda state: [self._attic.seen(one, state, self._details, self._view) for one in found]
        )

    @property
    def past_count(self) -> int:
        """How many there are of those."""
        return self._attic.beyond()

    async def think(self, about: Callable[[State], R]) -> R:
        """What ``about`` returns for the state as it is at this moment; for what takes longer than ``read`` may.

        It is given a copy of its own, in a thread. The committed state is as of its last event, and where nothing happens
        there is none for long; on the copy time has passed until now.

        Raises:
            GpufairError: What ``about`` raised.
            StoreUnavailable: As with ``read``.
        """
        async with self._thinking:
            state = await self.read(lambda state: state.copy())
            now = self.now()

            def think() -> R:
                state.handle(TimePassed(now, CauseId("question")))
                return about(state)

            return await asyncio.to_thread(think)

    async def write_down(self, write: Callable[[State, int], R]) -> R:
        """What ``write`` returns for the state exactly as the journal has it, and the number of its last entry.

        As with ``think`` it has a copy of its own, in a thread; but no time has passed on it, and it is ``frozen``.

        Raises:
            StoreUnavailable: As with ``read``.
        """
        async with self._thinking:
            state, seq = await self.read(lambda state: (state.frozen(), self._journal.seq))
            return await asyncio.to_thread(write, state, seq)

    def detail(self, workload: WorkloadId) -> Detail:
        """The committed detail of a workload."""
        return self._details.get(workload, EMPTY)

    async def view(self, workload: WorkloadId) -> dict[str, Any]:
        """The Workload object of one workload.

        Raises:
            UnknownWorkload: There is none.
        """

        def look(state: State) -> dict[str, Any]:
            state.workload(workload)
            return self._view(workload)

        return await self.read(look, (workload,))

    async def views(
        self, only: Callable[[Any], bool] = lambda _record: True, most: int | None = None
    ) -> list[dict[str, Any]]:
        """The Workload objects of all workloads whose record ``only`` accepts, in the order of submission; the first ``most``."""

        def look(state: State) -> list[dict[str, Any]]:
            chosen = [one for one in state.facts.records.values() if only(one) and not standin.session_of(one.spec)]
            chosen.sort(key=lambda record: (record.submitted_at, record.id))
            chosen = chosen[:most]
            places = places_for(state, len(chosen))
            return [self._view(record.id, places) for record in chosen]

        return await self.read(look)

    async def noticed(self) -> dict[str, Any]:
        """What everybody is to see now: announcements, and the maintenance that is planned."""
        return await self.read(lambda state: notices(self._board, state, self.now()))

    # -- the loop -------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wait()
            try:
                async with self._turning:
                    await self._turn()
            except Exception:  # noqa: BLE001
                # The loop is the service: it must outlive any bug in a turn.
                _log.exception("a turn of the runtime failed")
                self._spoil()
                self._retry_at = after(self.now(), STORE_RETRY)

    def _due(self) -> Instant | None:
        """When the state or a retry wants a turn."""
        wakeup = None
        if self._sound:
            again = retries.next_due(self.detail(workload) for workload in self._waiting)
            dated, seen = self._requests.next_due(), self._board.next_due(self._teller.noticed_at)
            known = (self._state.next_wakeup(), again, dated, seen)
            wakeup = min((one for one in known if one is not None), default=None)
        if self._retry_at is None:
            return wakeup
        return self._retry_at if wakeup is None else Instant(max(wakeup, self._retry_at))

    async def _wait(self) -> None:
        """Return when something was asked or a moment is due."""
        if self._asked:
            return
        self._arrived.clear()
        due = self._due()
        if due is None:
            await self._arrived.wait()
            return
        if due <= self._clock.now():
            return
        tasks = [asyncio.create_task(self._arrived.wait()), asyncio.create_task(self._clock.sleep_until(due))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _turn(self) -> None:
        batch = [self._asked.popleft() for _ in range(min(MAX_STEPS, len(self._asked)))]
        turn: Turn | None = None
        try:
            if not self._sound:
                await self._rebuild()
            self._retry_at = None
            looked_at = [workload for asked in batch for workload in asked.looks_at]
            await self._attic.recall(looked_at, self._state, self._details)
            held = self._attic.held
            turn = Turn(self.now(), self._state, self._details, self._journal.seq + 1, self._waiting, held)
            turn.requests, turn.board = self._requests.begun(), self._board.begun()
            if self._pass_time(turn):
                culprit = self._take_steps(turn, batch)
                if culprit is not None:
                    # What it left half done must not be committed; the others try again without it.
                    await self._rebuild()
                    batch.remove(culprit)
                    culprit.answer()
                    self._asked.extendleft(reversed(batch))
                    return
            else:
                self._asked.extendleft(reversed(batch))  # more moments are due: they come first
                batch = []
            begun = time.monotonic()
            await self._journal.append(turn.entries, turn.durable_details(), self._letters(turn), turn.also())
            took_s = time.monotonic() - begun
        except (StoreUnavailable, StoreError) as err:
            self._spoil()
            self._doubtful = turn or self._doubtful
            self.meter.commit_failed()
            self._retry_at = after(self.now(), STORE_RETRY)
            if str(err) != self._said:  # a full disk would otherwise be filled with complaints as soon as there is room
                self._said = str(err)
                _log.error("%s", err)
            for asked in batch:
                asked.fail(err)
            with suppress(StoreUnavailable, StoreError):
                await self._rebuild()
            return
        except Exception as err:
            # A bug that belongs to no step: those who asked must hear of it, or they would wait for ever.
            for asked in batch:
                asked.fail(InternalError(type(err).__name__))
            raise
        self._committed(turn, batch)
        if turn.entries:
            self.meter.committed(turn.events, turn.actions, took_s)
        self._snapshot_if_due()

    def _letters(self, turn: Turn) -> list[Letter]:
        channels = self._options.channels
        return [
            Letter(channel, one.to_dict(), due_ms=turn.now) for one in turn.notices for channel in channels(one.user)
        ]

    def _pass_time(self, turn: Turn) -> bool:
        """Feed each due moment in order. False: there are more than fit into one commit."""
        for _ in range(MAX_MOMENTS):
            due, dated = self._state.next_wakeup(), turn.requests.next_due()
            if dated is not None and dated <= turn.now and (due is None or dated <= due):
                budget_changes.come_due(turn, dated)
                continue
            if due is None or due > turn.now:
                retries.go_on(turn)
                return True
            self.meter.waited((turn.now - due) / 1000)
            turn.handle(TimePassed(due, turn.cause()))
        return False

    def _take_steps(self, turn: Turn, batch: list[Asked[Any]]) -> Asked[Any] | None:
        """Run the steps. A step that broke (a bug, not a refusal) is returned; the turn is then to be dropped."""
        for asked in batch:
            asked.error, asked.result = None, None
            try:
                before = turn.mark()
                asked.result = asked.step(turn)
                if asked.doer is not None and (entries := turn.since(before)) is not None:
                    turn.note(asked.doer, entries)
            except GpufairError as err:
                asked.error = err
            except Exception as err:  # noqa: BLE001
                _log.exception("a step failed")
                asked.error = InternalError(type(err).__name__)
                return asked
        return None

    def _committed(self, turn: Turn, batch: list[Asked[Any]]) -> None:
        if turn.entries:
            self._last_at = self._state.now
            self._said = ""
        self._requests, self._board = turn.requests.begun(), turn.board.begun()
        self._details.update(turn.staged)
        for workload, detail in turn.staged.items():
            (self._waiting.add if detail.rests else self._waiting.discard)(workload)
        answered, fresh = time.monotonic(), dict[WorkloadId, dict[str, Any]]()
        for asked in batch:
            self.meter.waited(answered - asked.since)
            if asked.about is not None and asked.error is None:
                try:
                    asked.view = fresh[asked.about] = self._view(asked.about)
                except GpufairError as err:  # there is none
                    asked.error = err
            asked.answer()
        if turn.notices:
            self.on_notices()
        if self.backend is not None and turn.actions:
            self.backend.perform(turn.actions, self._state)
        for deed in turn.afterwards:
            deed()
        self._teller.publish(self._state, self._details, turn.touched, self.now(), fresh=fresh)
        self._teller.announce(self._board, self._state, turn.now)

    # -- recovery -------------------------------------------------------------------------------------------------

    async def _rebuild(self) -> None:
        """Make the state that of the journal; while its database is gone, what it was."""
        self._spoil()
        try:
            recovered = await rebuild(self._journal, self._options.validate)
            requests = await self._journal.within(budget_requests.live)
            board = await self._journal.within(partial(announcements.live, now=self.now()))
        except StoreUnavailable:
            if not self._readable:
                self._adopt(recover(await self._journal.remembered(), self._options.validate))
                await self._attic.adopt(self._state, reachable=False)
            raise
        self._adopt(recovered)
        await self._attic.adopt(self._state)
        self._requests, self._board = requests, board
        self._sound = True
        turn, self._doubtful = self._doubtful, None
        if turn is not None and self._journal.went_through:
            # Who asked was told that it is not known. But it was decided, so it is carried out.
            self._committed(turn, [])

    def _spoil(self) -> None:
        """What is in memory may be ahead of the journal."""
        if self._sound:
            self._sound = self._readable = False

    def _adopt(self, recovered: Recovered) -> None:
        self._state, self._details = recovered.state, recovered.details
        self._waiting = {workload for workload, detail in self._details.items() if detail.rests}
        self._snapshot_seq, self._last_at = recovered.snapshot_seq, recovered.last_at
        self._readable = True

    def _snapshot_if_due(self) -> None:
        # What it costs grows with the state, so that is how often it is done: a large one is not written all the time.
        least = max(self._options.snapshot_every, len(self._state.facts.records) // 2)
        if self._journal.seq - self._snapshot_seq >= least and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save(), name="runtime-snapshot")

    async def snapshot(self) -> None:
        """Save a snapshot now, so that the next start is quick."""
        self._hurry.set()
        try:
            if self._saving is not None:
                await asyncio.gather(self._saving, return_exceptions=True)
            await self._save()
        finally:
            self._hurry.clear()

    async def _save(self) -> None:
        async with self._turning:
            if not self._sound:
                return  # it may be ahead of the journal
            live, details, seq = self._state, self._details, self._journal.seq
            state, leaving = live.frozen(), self._attic.begin(live)
        state.drop(leaving)
        self._snapshot_seq = seq  # if it fails, not at each event until there is room again
        try:
            if not await self._attic.write(seq, leaving, live, details):
                return
            taken = await asyncio.to_thread(take_snapshot, state, seq, partial(self._hurry.wait, PAUSE_S))
            if self._state is not live:
                return  # what was recovered meanwhile may have more in it that the journal goes on to name
            await self._journal.save_snapshot(taken)
        except (StoreUnavailable, Deposed) as err:
            _log.warning("no snapshot was saved (%s); the journal alone is enough", err)
        async with self._turning:
            self._teller.forget(self._attic.finish(self._state, self._details))

    # -- telling --------------------------------------------------------------------------------------------------

    def _view(self, workload: WorkloadId, places: Places | None = None) -> dict[str, Any]:
        return self._teller.view(self._state, self._details, workload, self.now(), places)

    async def _refresh(self) -> None:
        """Positions, estimates and reasons of those who wait change with everybody else's events."""
        seen = -1
        while True:
            await asyncio.sleep(REFRESH_S)
            if seen == self._journal.seq or not self.broadcast.listeners:
                continue
            async with self._turning:
                if not self._sound:
                    continue
                seen = self._journal.seq
                waiting = (one for one in self._state.facts.records.values() if one.phase is Phase.QUEUED)
                listened = [one.id for one in waiting if self.broadcast.wants(one.spec.user)]
            # A few at a time: whoever asks for something meanwhile is served in between.
            for first in range(0, len(listened), REFRESHED):
                async with self._turning:
                    begun = time.monotonic()
                    if self._sound:
                        some = set(listened[first : first + REFRESHED])
                        self._teller.publish(self._state, self._details, some, self.now())
                    took_s = time.monotonic() - begun
                # A long queue is told of more slowly, and decisions are made all the same.
                await asyncio.sleep(REFRESH_PAUSE * took_s)
