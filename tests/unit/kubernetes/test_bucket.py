"""The rate limit of calls: what it lets pass at once, and how fast it fills."""

from __future__ import annotations

import asyncio

from gpufair.service.backends.kubernetes.bucket import Bucket


class Time:
    """Turned by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.now_s

    async def sleep(self, span_s: float) -> None:
        self.slept.append(round(span_s, 6))


async def test_a_burst_passes_and_then_the_rate_holds() -> None:
    """Who comes next waits longer than who came before."""
    time = Time()
    bucket = Bucket(10, 3, time.now, time.sleep)
    for _ in range(6):
        await bucket.take()
    assert time.slept == [0.1, 0.2, 0.3]


async def test_it_fills_while_nobody_asks_and_holds_no_more_than_the_burst() -> None:
    """A quiet night is no licence for a flood."""
    time = Time()
    bucket = Bucket(10, 3, time.now, time.sleep)
    for _ in range(3):
        await bucket.take()
    time.now_s += 0.2
    await bucket.take()
    await bucket.take()
    assert time.slept == []
    time.now_s += 3600
    for _ in range(4):
        await bucket.take()
    assert time.slept == [0.1]


async def test_no_rate_means_no_limit() -> None:
    """For those whose API server limits by itself."""
    bucket = Bucket(0, 1)
    async with asyncio.timeout(5):
        for _ in range(1000):
            await bucket.take()
