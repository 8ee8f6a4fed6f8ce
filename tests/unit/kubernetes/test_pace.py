"""How many starts are under way at once: few enough that each has its node soon, and never fewer for what is not their doing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gpufair.service.backends.kubernetes import pace as module
from gpufair.service.backends.kubernetes.pace import HOLD_S, LATE_S, LEAST, MOST, SOON_S, Pace
from gpufair.service.web.context import Context
from tests.unit.service.rig import LAUNCH, service_at


class Clock:
    """Of the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def has_room(pace: Pace) -> bool:
    """Whether one more may be decided at once."""
    turn = asyncio.create_task(_enter(pace))
    for _ in range(5):
        await asyncio.sleep(0)
    if turn.done():
        return True
    turn.cancel()
    await asyncio.gather(turn, return_exceptions=True)
    return False


async def _enter(pace: Pace) -> None:
    async with pace.turn("ada"):
        pass


async def crowd(pace: Pace, clock: Clock, alone_s: float, shared_s: float, starts: int = 1000) -> tuple[int, float]:
    """So many who come as fast as they are let in, to a server that takes this long for each, and some for each that is there.

    Returns: how many were under way at the end, and how long most of the last hundred took at the most (seconds).
    """
    under_way: list[tuple[float, int]] = []  # when each is done
    took: list[float] = []
    for number in range(starts):
        while not await has_room(pace):
            done_s, which = under_way.pop(0)
            clock.now = max(clock.now, done_s)
            pace.bound(which)
        pace.begun(number)
        took.append(alone_s + shared_s * len(under_way))
        under_way.append((clock.now + took[-1], number))
        under_way.sort()
    last = sorted(took[-100:])
    return len(under_way), last[len(last) * 3 // 4]


async def test_a_few_may_always_be_under_way() -> None:
    """However slow each is: an API server works on several at once."""
    clock = Clock()
    pace = Pace(clock)
    for at in range(LEAST):
        assert await has_room(pace)
        pace.begun(at)
        clock.now += SOON_S / 2
    assert not await has_room(pace)
    pace.bound(0)
    assert await has_room(pace)


async def test_as_many_as_have_their_nodes_soon() -> None:
    """Where each more makes all others slower, no more come in than are quick together."""
    count, took_s = await crowd(Pace(clock := Clock()), clock, SOON_S / 10, SOON_S / 20)
    assert LEAST <= count <= MOST
    assert took_s <= 1.3 * SOON_S


async def test_a_server_that_is_far_away_is_given_many() -> None:
    """One that takes a while for each, and no longer for many: that is how it is, and no sign of a queue."""
    count, _ = await crowd(Pace(clock := Clock()), clock, 3 * SOON_S, SOON_S / 100)
    assert count == MOST


async def test_a_server_that_is_overwhelmed_is_given_few() -> None:
    """Though each would have its node soon alone."""
    count, _ = await crowd(Pace(clock := Clock()), clock, SOON_S / 10, SOON_S / 3)
    assert count == LEAST


async def test_a_quiet_month_is_nothing_special() -> None:
    """What was known before it counts for little."""
    clock = Clock()
    pace = Pace(clock)
    await crowd(pace, clock, SOON_S / 10, 0.0, starts=3)
    clock.now += 30 * 86400.0
    pace.begun("late")
    pace.bound("late")
    assert await has_room(pace)


async def test_what_is_stuck_holds_nobody_back() -> None:
    """A quota, say, that lets no pod in for an hour."""
    clock = Clock()
    pace = Pace(clock)
    for at in range(2 * MOST):
        pace.begun(at)
    assert not await has_room(pace)
    clock.now += LATE_S
    assert await has_room(pace)
    for at in range(MOST):
        pace.begun(f"other-{at}")
    assert not await has_room(pace)
    for at in range(MOST):
        pace.dropped(f"other-{at}")
    assert await has_room(pace)


async def test_who_decides_now_counts_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes of it is begun a moment later only."""
    pace = Pace()
    monkeypatch.setattr(module, "LATE_S", 60.0)
    async with AsyncExitStack() as stack:
        for _ in range(LEAST):
            await stack.enter_async_context(pace.turn("ada"))
        assert not await has_room(pace)
    assert await has_room(pace)


async def test_who_came_first_goes_first_and_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where nothing ever gets its node."""
    monkeypatch.setattr(module, "HOLD_S", 0.3)
    monkeypatch.setattr(module, "LATE_S", 60.0)
    pace, order = Pace(), list[int]()
    for at in range(MOST):
        pace.begun(at)

    async def enter(number: int) -> None:
        async with pace.turn("ada"):
            order.append(number)

    waiting = [asyncio.create_task(enter(number)) for number in range(5)]
    await asyncio.sleep(0.01)
    assert not order
    async with asyncio.timeout(HOLD_S):
        await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]


async def test_nobody_waits_behind_all_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who submits a thousand at once keeps himself waiting."""
    monkeypatch.setattr(module, "LATE_S", 60.0)
    pace, order = Pace(), list[str]()
    for at in range(LEAST):
        pace.begun(at)

    async def enter(user: str) -> None:
        async with pace.turn(user):
            order.append(user)

    waiting = [asyncio.create_task(enter(user)) for user in ("ada", "ada", "ada", "ada", "bo", "bo", "cy")]
    await asyncio.sleep(0.01)
    for at in range(LEAST):
        pace.dropped(at)
    async with asyncio.timeout(HOLD_S):
        await asyncio.gather(*waiting)
    assert order == ["ada", "bo", "cy", "ada", "bo", "ada", "ada"]


async def test_a_submission_waits_before_it_is_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no workload until then: nothing is decided for it by a state that will be an old one."""
    pace = Pace()
    monkeypatch.setattr(module, "LATE_S", 60.0)
    monkeypatch.setattr(Context, "turn", lambda _, user: pace.turn(user))
    for at in range(LEAST):
        pace.begun(at)
    async with service_at(tmp_path) as (it, client):
        body = {"id": "w", "kind": "session", "gpus": 1, "allocation": "a", "user": "ada", "launch": LAUNCH}
        asked = asyncio.create_task(client.post("/api/v1/workloads", json=body))
        await asyncio.sleep(0.2)
        assert not asked.done()
        assert "w" not in await it.runtime.read(lambda state: set(state.facts.records))
        pace.bound(0)
        assert (await asked).status_code == 201
