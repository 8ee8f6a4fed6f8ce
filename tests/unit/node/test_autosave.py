"""Checkpoints after cells: taken when they are cheap, never too often, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gpufair.node.autosave import MAX_PAUSE_S, Autosave
from gpufair.node.saving import CheckpointFailed


class Time:
    """A clock that is moved by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await _turn()


_turn: Callable[[], Coroutine[Any, Any, None]] = lambda: asyncio.sleep(0)  # noqa: E731


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    real = asyncio.sleep

    async def turn() -> None:
        await real(0)

    monkeypatch.setattr(asyncio, "sleep", time.sleep)
    monkeypatch.setitem(globals(), "_turn", turn)
    return time


class Kernel:
    """Saves in ``costs_s``, as it says before."""

    def __init__(self, time: Time, costs_s: float) -> None:
        self.time, self.costs_s = time, costs_s
        self.asked: list[tuple[float, float]] = []  # when, within_s
        self.saved: list[float] = []
        self.dirty = True

    async def attempt(self, within_s: float, wait_s: float) -> dict[str, Any]:
        self.asked.append((self.time.now, within_s))
        await _turn()
        if not self.dirty:
            return {"status": "skipped", "expected_s": 0.0}
        if self.costs_s > within_s:
            return {"status": "skipped", "expected_s": self.costs_s}
        self.time.now += self.costs_s
        self.saved.append(self.time.now)
        self.dirty = False
        return {"status": "ok", "duration_s": self.costs_s}


async def _settled(saver: Autosave) -> None:
    while saver._task is not None and not saver._task.done():
        await _turn()


def test_saving_takes_no_more_than_its_share(time: Time) -> None:
    kernel = Kernel(time, costs_s=1.0)

    async def play() -> None:
        saver = Autosave(0.05, kernel.attempt, lambda: False, lambda: time.now)
        begun = time.now
        while time.now < begun + 400:
            kernel.dirty = True
            saver.cell()
            time.now += 2.0
            await _turn()
        await _settled(saver)

    asyncio.run(play())
    assert len(kernel.saved) >= 15
    for one, other in zip(kernel.saved, kernel.saved[1:], strict=False):
        assert other - one >= 1.0 / 0.05 - 0.01


def test_what_is_not_cheap_yet_is_tried_again_when_it_is_and_what_never_will_be_is_not(time: Time) -> None:
    kernel, huge = Kernel(time, costs_s=2.0), Kernel(time, costs_s=MAX_PAUSE_S + 1)

    async def play(kernel: Kernel) -> None:
        saver = Autosave(0.1, kernel.attempt, lambda: False, lambda: time.now)
        saver.cell()
        await _settled(saver)

    asyncio.run(play(kernel))
    assert [len(kernel.asked), len(kernel.saved)] == [2, 1]
    asyncio.run(play(huge))
    assert [len(huge.asked), len(huge.saved)] == [1, 0]


def test_nothing_new_is_not_asked_for_again(time: Time) -> None:
    kernel = Kernel(time, costs_s=0.01)
    kernel.dirty = False

    async def play() -> None:
        saver = Autosave(0.05, kernel.attempt, lambda: False, lambda: time.now)
        saver.cell()
        await _settled(saver)
        off = Autosave(0.0, kernel.attempt, lambda: False, lambda: time.now)
        off.cell()
        assert off._task is None

    asyncio.run(play())
    assert len(kernel.asked) == 1


def test_a_kernel_that_cannot_is_left_alone(time: Time) -> None:
    asked = []

    async def attempt(within_s: float, wait_s: float) -> dict[str, Any]:
        asked.append(within_s)
        raise CheckpointFailed("this kernel cannot be checkpointed", final=True)

    async def play() -> None:
        saver = Autosave(0.05, attempt, lambda: False, lambda: time.now)
        saver.cell()
        await _settled(saver)
        saver.cancel()
        saver.cell()
        assert saver._task is not None
        assert saver._task.done()

    asyncio.run(play())
    assert len(asked) == 1
