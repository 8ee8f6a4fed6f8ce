"""What counts as a workload's memory, and when its owner hears of it."""

from __future__ import annotations

import asyncio
import mmap
import multiprocessing
import os
from pathlib import Path

import pytest

from gpufair.node import memory_limit
from gpufair.node.memory_limit import MemoryLimit, MemoryWatch, limit_of, used
from gpufair.node.processes import Proc, identify

MIB = 1 << 20
LARGE = 64 * MIB


def me() -> Proc:
    found = identify(os.getpid())
    assert found is not None
    return found


def test_what_is_taken_counts_and_what_is_only_mapped_does_not(tmp_path: Path) -> None:
    """Address space without pages, and pages of files, can be had by others at any time."""
    before = used([me()])
    with (tmp_path / "data").open("wb+") as file:
        file.write(b"x" * LARGE)
        file.flush()
        mapped = mmap.mmap(file.fileno(), LARGE, prot=mmap.PROT_READ)
        assert sum(mapped[at] for at in range(0, LARGE, 4096)) > 0  # all of it is there
        wide = mmap.mmap(-1, 1 << 33, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        assert used([me()]) - before < LARGE // 2
        taken = bytearray(os.urandom(1)) * LARGE
        assert used([me()]) - before > LARGE * 3 // 4
        mapped.close()
        wide.close()
        del taken


def _wait(connection: object) -> None:
    connection.recv()  # type: ignore[attr-defined]


def test_pages_that_processes_share_count_once() -> None:
    """Loaders that were forked see the data of the one that forked them; they take no more for that."""
    taken = bytearray(os.urandom(1)) * LARGE
    before = used([me()])
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    children = [fork.Process(target=_wait, args=(theirs,)) for _ in range(3)]
    for child in children:
        child.start()
    try:
        every = [me(), *(one for child in children if (one := identify(child.pid or 0)) is not None)]
        assert len(every) == 4
        assert used(every) - before < LARGE
        # The cheap figure is above it, and is given only where even that one is small.
        assert used(every, 1 << 50) > before + 2 * LARGE
    finally:
        for _ in children:
            ours.send(None)
        for child in children:
            child.join()
    assert len(taken) == LARGE


def test_who_has_ended_uses_nothing() -> None:
    assert used([Proc(2**22 + 1, 0)]) == 0


@pytest.mark.parametrize(
    ("asked", "gpus", "node", "limit"),
    [
        (4, 0, 64, MemoryLimit(4)),
        (4, 1, 64, MemoryLimit(4)),
        (0, 0, 64, MemoryLimit(32, asked=False)),
        (0, 1, 64, None),
        (0, 0, 0, None),
    ],
)
def test_who_has_which_limit(asked: int, gpus: int, node: int, limit: MemoryLimit | None) -> None:
    assert limit_of(asked, gpus, node) == limit


def test_the_words_say_what_was_asked_what_is_and_what_to_do() -> None:
    gib = 1 << 30
    assert MemoryLimit(4 * gib).over(gib * 42 // 10) == (
        "over its memory limit: it used 4.2 GiB of the 4.0 GiB that it asked for; free some, or ask for more, "
        "like --memory 7GiB, or by another profile"
    )
    assert "half of the node's" in MemoryLimit(gib // 4, asked=False).near(gib // 5)


def test_it_warns_once_withdraws_that_and_ends_what_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 90 %, below 80 %, above 100 %."""
    sizes = [10, 91, 95, 85, 91, 79, 92, 101, 50, 95]
    said: list[str] = []

    async def over(why: str) -> None:
        said.append("over" if why.startswith("over its memory limit") else why)

    async def main() -> None:
        watch = MemoryWatch(MemoryLimit(100), lambda: 0, "", lambda text: said.append(text and "near"), over)
        all_seen = asyncio.Event()
        loop = asyncio.get_running_loop()

        def measure() -> int:
            if not sizes:
                loop.call_soon_threadsafe(all_seen.set)
                return 95
            return sizes.pop(0)

        monkeypatch.setattr(watch, "_measure", measure)
        task = asyncio.create_task(watch.run())
        await asyncio.wait_for(all_seen.wait(), 30)
        task.cancel()

    for name in ("PAUSE_S", "TIMES", "CLOSE_PAUSE_S", "CLOSE_TIMES"):
        monkeypatch.setattr(memory_limit, name, 0)
    asyncio.run(main())
    assert said == ["near", "", "near", "over", "near"]
