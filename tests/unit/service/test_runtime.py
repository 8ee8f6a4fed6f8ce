"""The runtime: what is due comes first, what is answered is durable, what failed has not happened."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.actions import BeginCheckpoint
from gpufair.core.errors import UnknownAllocation, UnknownWorkload
from gpufair.core.model import Phase
from gpufair.core.snapshot import snapshot
from gpufair.core.state import State
from gpufair.core.units import HOUR, MINUTE, SECOND, Instant, Millis, WorkloadId, after
from gpufair.service.runtime.broadcast import Subscription
from gpufair.service.storage.store import StoreUnavailable
from gpufair.service.workloads.asked import Closed, InternalError
from gpufair.service.workloads.turn import Turn
from tests.unit.service.rig import START, cluster, quiet, runtime_at, spec, submit


async def started(runtime: Any, name: str) -> None:
    await runtime.do(lambda turn: turn.handle(ev.Started(turn.now, turn.cause(), WorkloadId(name), 1)))


async def test_a_preemption_comes_exactly_at_the_end_of_the_protection(tmp_path: Path) -> None:
    """The clock jumps far past the moment: the decision carries the moment itself, and so does the journal."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, backend):
        await cluster(runtime)
        await submit(runtime, "v", spec("a"))
        await started(runtime, "v")
        await clock.advance(Millis(30 * MINUTE))
        await submit(runtime, "w", spec("b", min_runtime=Millis(10 * MINUTE)))
        assert not [one for one in backend.actions if isinstance(one, BeginCheckpoint)]
        await clock.advance(Millis(31 * MINUTE + 17))
        await quiet(runtime)
        notice = next(one for one in backend.actions if isinstance(one, BeginCheckpoint))
        assert (notice.workload, notice.beneficiary) == ("v", "w")
        assert notice.deadline == START + HOUR + 10 * SECOND
        entries = await runtime._journal.entries()
        decided = next(entry for entry in entries if "BeginCheckpoint" in entry.actions)
        assert decided.at_ms == START + HOUR
        assert (await runtime.read(lambda state: state.protected_preemptions)) == 0


async def test_due_moments_come_before_a_late_request(tmp_path: Path) -> None:
    """A request that arrives after a missed moment cannot change what was decided at it."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime)
        await submit(runtime, "v", spec("a"))
        await submit(runtime, "w", spec("b", min_runtime=Millis(10 * MINUTE)))
        await started(runtime, "v")
        clock._now = after(START, Millis(2 * HOUR))  # time jumps without waking anybody

        def step(turn: Turn) -> tuple[Phase, Instant]:
            return turn.state.workload(WorkloadId("v")).phase, turn.now

        phase, now = await runtime.do(step)
        # Preempted at its hour, and stopped when its grace was over.
        assert (phase, now) == (Phase.STOPPING, START + 2 * HOUR)


async def test_a_restart_recovers_the_same_state_and_decides_nothing(tmp_path: Path) -> None:
    """Through a snapshot plus tail, or the whole journal, the state is equal to the byte."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock, snapshot_every=4) as (runtime, _):
        await cluster(runtime)
        for number in range(6):
            await submit(runtime, f"w{number}", spec("ab"[number % 2]))
            await clock.advance(Millis(7 * SECOND))
        await started(runtime, "w0")
        before = await runtime.read(snapshot)
        seq = runtime._journal.seq
        detail = runtime.detail(WorkloadId("w0"))
    async with runtime_at(tmp_path, clock) as (runtime, backend):
        assert await runtime.read(snapshot) == before
        assert runtime.detail(WorkloadId("w0")) == detail
        assert runtime._journal.seq == seq
        assert backend.actions == []


async def test_what_cannot_be_journalled_has_not_happened(tmp_path: Path) -> None:
    """A full disk: the request fails with a clear error, the state is as before, reads go on, and later it works."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, backend):
        await cluster(runtime)
        before = await runtime.read(snapshot)
        store = runtime._journal._store
        with store._engine.begin() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        refused = 0
        for number in range(200):
            try:
                await submit(runtime, f"w{number}", spec())
            except StoreUnavailable:
                refused = number
                break
            before = await runtime.read(snapshot)
        assert refused
        assert await runtime.read(snapshot) == before
        assert len(await runtime.views()) == refused
        with pytest.raises(StoreUnavailable, match="nothing was changed"):
            await submit(runtime, "again", spec())
        assert await runtime.read(snapshot) == before
        assert "cannot be written" in runtime.problem  # and who watches the service is told
        with store._engine.begin() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
        await submit(runtime, f"w{refused}", spec())
        assert runtime.problem == ""
        assert len(await runtime.views()) == refused + 1
        assert len(backend.started()) == 1


async def test_concurrent_requests_share_a_commit_and_get_their_own_answers(tmp_path: Path) -> None:
    """Fifty submissions at once, every tenth wrong: each is answered for itself, in far fewer commits."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime)
        commits = 0
        append = runtime._journal.append

        async def counting(*args: Any, **kwargs: Any) -> list[int]:
            nonlocal commits
            commits += 1
            return await append(*args, **kwargs)

        runtime._journal.append = counting  # type: ignore[method-assign]
        wishes = [submit(runtime, f"w{n}", spec("nowhere" if n % 10 == 0 else "a")) for n in range(50)]
        answers = await asyncio.gather(*wishes, return_exceptions=True)
        assert [n for n, answer in enumerate(answers) if isinstance(answer, UnknownAllocation)] == [0, 10, 20, 30, 40]
        assert sum(answer is None for answer in answers) == 45
        assert commits <= 5


async def test_a_bug_in_one_step_harms_no_other(tmp_path: Path) -> None:
    """Half of what a broken step did must not be committed with what others asked for in the same turn."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime)

        def broken(turn: Turn) -> None:
            turn.handle(ev.Submitted(turn.now, turn.cause(), WorkloadId("half"), spec()))
            raise ZeroDivisionError

        good, bad = await asyncio.gather(submit(runtime, "good", spec()), runtime.do(broken), return_exceptions=True)
        assert good is None
        assert isinstance(bad, InternalError)
        assert [view["id"] for view in await runtime.views()] == ["good"]
        with pytest.raises(UnknownWorkload):
            await runtime.view(WorkloadId("half"))


async def test_a_bug_in_a_due_decision_leaves_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to no request, and meets them all: each is told so, and once it is gone all is as it was."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime)
        await submit(runtime, "v", spec("a"))
        await submit(runtime, "w", spec("b", min_runtime=Millis(10 * MINUTE)))
        await started(runtime, "v")
        handle = State.handle

        def broken(state: State, event: ev.Event) -> Any:
            if isinstance(event, ev.TimePassed):
                raise ZeroDivisionError
            return handle(state, event)

        with monkeypatch.context() as patch:
            patch.setattr(State, "handle", broken)
            clock._now = after(START, HOUR)
            answers = await asyncio.wait_for(
                asyncio.gather(*(submit(runtime, name, spec("a")) for name in "xyz"), return_exceptions=True), 5
            )
            assert [type(answer) for answer in answers] == [InternalError] * 3
            assert [view["id"] for view in await runtime.views()] == ["v", "w"]
        await submit(runtime, "x", spec("a"))
        assert (await runtime.view(WorkloadId("v")))["state"] == "checkpointing"


async def test_subscribers_hear_each_change_and_slow_ones_start_anew(tmp_path: Path) -> None:
    """A reader that falls behind costs a bounded amount of memory, and is told."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime)
        quick, slow = runtime.broadcast.subscribe(), runtime.broadcast.subscribe(capacity=2)
        await submit(runtime, "v", spec())
        await started(runtime, "v")
        assert [(await heard(quick))["state"] for _ in range(2)] == ["starting", "running"]
        await submit(runtime, "w", spec("b"))
        assert (await heard(quick))["position"] == 1
        assert await slow.get() is None
        assert (await heard(slow))["id"] == "w"


async def test_no_snapshot_is_taken_of_what_may_be_ahead_of_the_journal(tmp_path: Path) -> None:
    async with runtime_at(tmp_path, VirtualClock(START)) as (runtime, _):
        await cluster(runtime)
        await submit(runtime, "v", spec())
        runtime._spoil()
        await runtime.snapshot()
        assert (await runtime._journal.load()).snapshot is None
        await submit(runtime, "w", spec("b"))  # the next turn reads the journal
        await runtime.snapshot()
        taken = (await runtime._journal.load()).snapshot
        assert taken is not None
        assert taken.seq == runtime._journal.seq


async def heard(subscription: Subscription) -> dict[str, Any]:
    """The view of the next change."""
    told = await asyncio.wait_for(subscription.get(), 30)
    assert told is not None
    return told.view


async def test_time_never_goes_back(tmp_path: Path) -> None:
    """A clock that was set back does not undo charges: the present is at least the last journalled event."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime)
        await submit(runtime, "v", spec())
    early = VirtualClock(Instant(START - HOUR))
    async with runtime_at(tmp_path, early) as (runtime, _):
        assert runtime.now() == START
        await submit(runtime, "w", spec())
        assert (await runtime.view(WorkloadId("w")))["submitted_s"] == START / 1000


async def test_a_closed_runtime_refuses(tmp_path: Path) -> None:
    """Nobody waits for ever."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        pass
    with pytest.raises(Closed):
        await submit(runtime, "v", spec())
