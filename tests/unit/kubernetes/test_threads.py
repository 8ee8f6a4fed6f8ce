"""Calls that block: bounded, and nothing waits for one that hangs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time

import pytest

from gpufair.service.backends.kubernetes.threads import Threads, ThreadsClosed


async def test_no_more_than_so_many_at_a_time_and_all_get_done() -> None:
    """Threads are few, calls may be many."""
    threads = Threads(3, "few")
    at_once, most, lock = 0, 0, threading.Lock()

    def work(value: int) -> int:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.002)
        with lock:
            at_once -= 1
        return value

    try:
        done = await asyncio.gather(*(threads.run(lambda value=value: work(value)) for value in range(50)))  # type: ignore[misc]
    finally:
        threads.close()
    assert done == list(range(50))
    assert 1 <= most <= 3


async def test_a_thread_that_is_free_is_used_again() -> None:
    """One call after another needs one thread."""
    threads = Threads(8, "one")
    try:
        names = {await threads.run(lambda: threading.current_thread().name) for _ in range(20)}
    finally:
        threads.close()
    assert len(names) <= 2  # the first may be still on its way back when the second call comes


async def test_what_is_raised_reaches_who_asked() -> None:
    """And the thread lives on."""
    threads = Threads(1, "raise")
    try:
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 / 0)
        assert await threads.run(lambda: 5) == 5
    finally:
        threads.close()


async def test_who_waits_for_a_thread_is_told_of_the_end() -> None:
    """With an error, not with a cancellation that nobody asked for."""
    threads, go = Threads(1, "end"), threading.Event()
    first = asyncio.create_task(threads.run(lambda: go.wait(20)))
    second = asyncio.create_task(threads.run(lambda: None))
    await asyncio.sleep(0)
    threads.close()
    with pytest.raises(ThreadsClosed):
        await second
    go.set()
    assert await first
    with pytest.raises(ThreadsClosed):
        await threads.run(lambda: None)


async def test_who_gave_up_waiting_is_not_told_of_the_end() -> None:
    """A job that was cancelled in the queue must not keep the others from hearing of it."""
    threads, go = Threads(1, "cancelled"), threading.Event()
    first = asyncio.create_task(threads.run(lambda: go.wait(20)))
    second = asyncio.create_task(threads.run(lambda: None))
    third = asyncio.create_task(threads.run(lambda: None))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.sleep(0)
    threads.close()
    go.set()
    with pytest.raises(ThreadsClosed):
        await third
    assert await first
    assert second.cancelled()


def test_a_call_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    """An API server that is gone must not turn a restart into a wait."""
    code = """
import asyncio, threading, time
from gpufair.service.backends.kubernetes.threads import Threads
async def main():
    threads = Threads(1, "hung")
    try:
        await asyncio.wait_for(threads.run(lambda: time.sleep(600)), 0.2)
    except TimeoutError:
        print("left")
    threads.close()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "left\n"
