"""Tasks in a CPU pool that outlives its kernels: what a checkpoint mentions is there for the kernel that restores it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest

from gpufair import cpu
from gpufair.cpu import kept, resident
from tests.integration.kernel.conftest import LiveKernel

WAIT_S = 60.0
Start = Callable[[], LiveKernel]
SENT = """
from gpufair import cpu
import pathlib, time

def long(folder, name):
    folder.joinpath(name).write_text("begun")
    try:
        while not folder.joinpath("go").exists():
            time.sleep(0.02)
        return name.upper()
    finally:
        folder.joinpath(name).write_text("ended")

folder = pathlib.Path({folder!r})
a, b, c = (cpu.submit(long, folder, name) for name in "abc")
held = {{"deep": [cpu.submit(len, "xyz")]}}
total = cpu.submit(lambda parts: parts, [a, b])
"""


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[resident.Resident]:
    """The machine's, in a state folder of its own."""
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("GPUFAIR_CPU_POOL", raising=False)
    yield resident.start(workers=4, wait_s=WAIT_S)[0]
    cpu.close()
    resident.stop()


def until(what: Callable[[], Any], told: str) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, told
        time.sleep(0.05)


def said(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def saved(live: LiveKernel, place: dict[str, Any], name: str, sequence: int) -> None:
    reply = live.ask("gpufair_checkpoint_request", id=name, sequence=sequence, **place)
    assert (reply["status"], reply["lost"]) == ("ok", []), reply


def ok(live: LiveKernel, code: str) -> str:
    reply, printed = live.run(code)
    assert reply["status"] == "ok", reply
    return printed


def test_they_come_back_with_a_checkpoint(kernel: Start, place: dict[str, Any], pool: resident.Resident, tmp_path: Path) -> None:
    """Through kill -9, while they run; those that the checkpoint does not mention stop, and so do those that nobody has any more."""
    live = kernel()
    ok(live, SENT.format(folder=str(tmp_path)))
    until(lambda: all(said(tmp_path / name) == "begun" for name in "abc"), "they never began")
    ok(live, "c.cancel()")
    saved(live, place, "c1", 1)
    ok(live, "late = cpu.submit(long, folder, 'late')")
    until(lambda: said(tmp_path / "late"), "it never began")
    live.kill()
    until(lambda: said(tmp_path / "late") == "ended", "a task that no checkpoint mentions goes on for nobody")
    assert (said(tmp_path / "a"), said(tmp_path / "b"), said(tmp_path / "c")) == ("begun", "begun", "ended")

    second = kernel()
    assert second.ask("gpufair_restore_request", id="c1", **place)["lost"] == []
    assert ok(second, "print(repr(a), a.done(), repr(a))") == (
        "<long in the CPU pool: not looked for since the restore> False <long in the CPU pool: pending>\n"
    )
    assert ok(second, "print(held['deep'][0].result())") == "3\n"
    ok(second, "b.cancel()")
    until(lambda: said(tmp_path / "b") == "ended", "a cancelled task goes on")
    for name, told in (("b", "was cancelled"), ("c", "was cancelled")):
        reply, _ = second.run(f"{name}.result()")
        assert (reply["ename"], told in reply["evalue"]) == ("Cancelled", True), reply
    (tmp_path / "go").touch()
    assert ok(second, "print(a.result(), cpu.submit(str.lower, a).result())") == "A a\n"

    (tmp_path / "go").unlink()
    ok(second, "d = cpu.submit(long, folder, 'd')")
    until(lambda: said(tmp_path / "d") == "begun", "it never began")
    saved(second, place, "c2", 2)
    ok(second, "del d")
    time.sleep(0.3)  # a moment in which it would be stopped
    assert said(tmp_path / "d") == "begun", "the checkpoint that a crash goes back to mentions it"
    saved(second, place, "c3", 3)
    until(lambda: said(tmp_path / "d") == "ended", "no checkpoint mentions it, and it goes on")
    ok(second, "e = cpu.submit(long, folder, 'e')")
    until(lambda: said(tmp_path / "e") == "begun", "it never began")
    saved(second, place, "c4", 4)
    second.client.shutdown()
    until(lambda: said(tmp_path / "e") == "ended", "its session was ended for good, and it goes on")


def test_what_is_gone_says_why(kernel: Start, place: dict[str, Any], pool: resident.Resident) -> None:
    """A pool of the kernel's own, one that forgot, and one that was stopped."""
    live = kernel()
    ok(live, "from gpufair import cpu\nown = cpu.connect(workers=1).submit(len, 'ab')\nown.result()")
    ok(live, "cpu.connect(); one, two = cpu.map(len, ['a', 'bc'])")
    saved(live, place, "c1", 1)
    ok(live, "one.cancel()")
    live.kill()

    live = kernel()
    live.ask("gpufair_restore_request", id="c1", **place)
    for gone, told in (("own", "ended with it"), ("one", "lets go of it"), ("two", "is not to be found")):
        if gone == "two":
            ok(live, "cpu.close()")
            resident.stop()
        reply, _ = live.run(f"{gone}.result()")
        assert (reply["ename"], told in reply["evalue"]) == ("ResultGone", True), reply
        assert "run the cell again" in reply["evalue"]
        assert ok(live, f"print({gone}.done()); {gone}.cancel()") == "True\n"


def test_a_scheduler_lets_go_of_what_is_too_old_or_too_much(pool: resident.Resident) -> None:
    """Only of what no kernel wants, the oldest first."""

    def there(dask_scheduler: Any) -> set[str]:
        return set(dask_scheduler.tasks)

    client = distributed.Client(pool.address, security=pool.security(), set_as_default=False)
    first = cpu.connect()
    big, small = (first.submit(os.urandom, size) for size in (3_000_000, 2))
    tickets = {big.ticket, small.ticket}
    for task in (big, small):  # in this order
        task.result()
        assert kept.keep(first.client, [task.ticket], kept_for_s=6.0, share=2e6 / (4 * pool.memory_bytes)) == []
    time.sleep(2)  # more than one look
    assert client.run_on_scheduler(there) == tickets, "a kernel wants them"
    first.client.close()  # as a kernel that ends without a word
    until(lambda: client.run_on_scheduler(there) == {small.ticket}, "it fills the workers' memory")
    until(lambda: not client.run_on_scheduler(there), "it is kept for ever")
    client.close()
