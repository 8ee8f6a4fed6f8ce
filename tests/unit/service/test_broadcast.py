"""Who was cut off hears of what it missed, or lists anew; never less."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpufair.service.runtime.broadcast import CAPACITY, OTHERS_S, Broadcast, Subscription


def waiting(subscription: Subscription, count: int) -> list[int]:
    """The next ``count`` changes."""

    async def get() -> list[int]:
        told = [await asyncio.wait_for(subscription.get(), 5) for _ in range(count)]
        return [one.view["at"] for one in told if one is not None]

    return asyncio.run(get())


@settings(deadline=None)
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


async def test_each_is_told_of_their_own_and_that_there_is_more() -> None:
    broadcast = Broadcast()
    ada, everything = broadcast.subscribe("ada"), broadcast.subscribe()
    assert broadcast.wants("bo"), "who listens to all listens to bo"
    broadcast.publish([{"user": "bo", "at": 0}, {"user": "ada", "at": 1}, {"user": "bo", "at": 2}])
    assert [await one(ada), await one(ada)] == [1, None]
    assert [await one(everything) for _ in range(3)] == [0, 1, 2]
    broadcast.publish([{"user": "bo", "at": 3}, {"user": "ada", "at": 4}])
    assert await one(ada) == 4
    begun = time.monotonic()
    assert await one(ada) is None  # of others once in a while
    assert time.monotonic() - begun > OTHERS_S / 2


async def one(subscription: Subscription) -> int | None:
    """The next change; None: something of others."""
    told = await asyncio.wait_for(subscription.get(), 30)
    assert told is not None
    return told.view.get("at")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["ada", "bo"]), st.booleans()), max_size=30),
    st.integers(0, 30),
    st.sampled_from(["ada", None]),
)
def test_nobody_goes_on_over_a_gap(changes: list[tuple[str, bool]], cut_at: int, user: str | None) -> None:
    """What nobody heard of is remembered as such: who would have wanted it lists anew, all others go on."""
    broadcast = Broadcast()
    last = broadcast.subscribe(user).since
    gap, missed = False, []
    for number, (whose, heard) in enumerate(changes):
        if heard:
            broadcast.publish([{"user": whose, "at": number}])
        else:
            broadcast.unheard(whose)
        if number < cut_at:
            last = broadcast.subscribe(user).since
        elif user in (None, whose):
            gap = gap or not heard
            missed.append(number)
    assert broadcast.can_resume(last, user) == (not gap)
    if not gap:
        again = broadcast.resume(last, user)
        assert again is not None
        assert waiting(again, len(missed)) == missed


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
