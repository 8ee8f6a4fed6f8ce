"""Who was cut off hears of what it missed, or lists anew; never less."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufair.service.broadcast import CAPACITY, Broadcast, Subscription


def waiting(subscription: Subscription, count: int) -> list[int]:
    """The next ``count`` changes."""

    async def get() -> list[int]:
        told = [await asyncio.wait_for(subscription.get(), 5) for _ in range(count)]
        return [one.view["at"] for one in told if one is not None]

    return asyncio.run(get())


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 5))
def test_a_subscriber_goes_on_where_it_was_cut_off(before: int, missed: int, later: int) -> None:
    broadcast = Broadcast()
    first = broadcast.subscribe()
    last = first.since
    broadcast.publish({"at": at} for at in range(before))
    for _ in range(before):
        told = asyncio.run(first.get())
        assert told is not None
        last = told.id
    broadcast.unsubscribe(first)
    broadcast.publish({"at": at} for at in range(before, before + missed))
    again = broadcast.resume(last)
    assert again is not None
    broadcast.publish({"at": at} for at in range(before + missed, before + missed + later))
    assert waiting(again, missed + later) == list(range(before, before + missed + later))


def test_what_is_too_old_or_anothers_is_listed_anew() -> None:
    broadcast, other = Broadcast(), Broadcast()
    old = broadcast.subscribe().since
    broadcast.publish({"at": at} for at in range(CAPACITY + 1))
    listeners = broadcast.listeners
    assert broadcast.resume(old) is None
    assert broadcast.resume(other.subscribe().since) is None
    assert broadcast.listeners == listeners


@pytest.mark.parametrize("last", ["", "-", "x-1", "{boot}-", "{boot}--1", "{boot}-2", "{boot}-99999999999999999999", "{boot}-\u0661"])
def test_nonsense_is_listed_anew(last: str) -> None:
    broadcast = Broadcast()
    broadcast.publish([{"at": 0}])
    boot = broadcast.subscribe().since.partition("-")[0]
    assert broadcast.resume(last.format(boot=boot)) is None
