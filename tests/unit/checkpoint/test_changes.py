"""What has changed is found, and "unchanged" is never a guess: whoever writes, and however."""

from __future__ import annotations

import ctypes
import gc
import io
import mmap
import os
import random
import struct
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpufair.node import checkpoint
from gpufair.node.checkpoint import Tracker
from gpufair.node.checkpoint.memory import Memory, digest_of, pieces
from gpufair.node.checkpoint.written import PAGE, WrittenPages, address_of
from tests.unit.checkpoint.two_processes import KEY

numpy = pytest.importorskip("numpy")
pandas = pytest.importorskip("pandas")


def save(directory: Path, number: int, session: dict[str, Any], tracker: Tracker | None) -> checkpoint.SaveResult:
    return checkpoint.save(
        session, directory=str(directory), id=f"c{number}", sequence=number, key=KEY, meta={}, tracker=tracker
    )


@pytest.fixture(params=["page tables", "checksums", "neither"])
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Tracker:
    """Each way to know; the first is left out where the kernel cannot (Linux < 6.7, or forbidden)."""
    if request.param == "neither":
        monkeypatch.setattr("gpufair.node.checkpoint.memory.keyed_checksum", lambda: None)
    made = Tracker(track=request.param == "page tables")
    if request.param == "page tables" and not made.memory.tracking:
        pytest.skip("this kernel does not track writes")
    return made


def by_view(array: Any) -> None:
    array[100:200][::3][1:2].view("u8")[:] ^= 1


def by_file(array: Any) -> None:
    assert io.BytesIO(b"12345678").readinto(memoryview(array)[5000:5001].cast("B")) == 8


def by_the_system(array: Any) -> None:
    read, write = os.pipe()
    os.write(write, b"87654321")
    assert os.readv(read, [memoryview(array)[-1:].cast("B")]) == 8
    os.close(read)
    os.close(write)


def by_address(array: Any) -> None:
    address = address_of(memoryview(array).cast("B"))
    ctypes.memmove(address + 3, b"\xaa", 1)


def by_struct(array: Any) -> None:
    struct.pack_into("d", memoryview(array).cast("B"), 123_456, -1.5)


@pytest.mark.parametrize("write", [by_view, by_file, by_the_system, by_address, by_struct])
def test_every_way_to_write_is_seen(write: Callable[[Any], None], tracker: Tracker, tmp_path: Path) -> None:
    session = {f"a{n}": numpy.random.default_rng(n).random(40_000) for n in range(3)}
    save(tmp_path, 1, session, tracker)
    seen = checkpoint.changes(session, tracker)
    assert seen.changed == ()
    write(session["a1"])
    seen = checkpoint.changes(session, tracker)
    assert "a1" in (*seen.changed, *seen.unknown)
    assert "a0" not in seen.changed
    save(tmp_path, 2, session, tracker)
    back: dict[str, Any] = {}
    checkpoint.load(back, directory=str(tmp_path), id="c2", key=KEY)
    assert all((back[name] == session[name]).all() for name in session)


def test_random_writes_against_a_plain_comparison(tracker: Tracker, tmp_path: Path) -> None:
    """Writes, replacements, growth, deletions, overlapping views and memory that is freed and used again."""
    dice = random.Random(11)
    session: dict[str, Any] = {f"a{n}": numpy.arange(20_000.0) + n for n in range(4)}
    for number in range(1, 40):
        name = dice.choice([name for name in session if name != "held"])
        match dice.randrange(7):
            case 0:
                session[name][dice.randrange(len(session[name]))] += 1
            case 1:
                session[name] = session[name].copy()
            case 2:
                session[name] = numpy.zeros(dice.randrange(10_000, 200_000))
            case 3:
                session["held"] = [session[name][5:], session[name][9_000:]]
            case 4 if len(session) > 3:
                del session[name]
                session.setdefault("a0", numpy.ones(9_000))
            case 5:
                session.pop("held", None)
                session["new"] = numpy.random.default_rng(number).random(30_000)
            case _:
                pass
        if "held" in session and number % 2:
            session["held"][0][1] += 1
        save(tmp_path, number, session, tracker)
        back: dict[str, Any] = {}
        checkpoint.load(back, directory=str(tmp_path), id=f"c{number}", key=KEY)
        for key, value in session.items():
            assert all(
                (a == b).all()
                for a, b in zip(*((v if isinstance(v, list) else [v]) for v in (value, back[key])), strict=True)
            ), (number, key)
        checkpoint.prune(str(tmp_path), KEY, keep=1)


def test_small_objects_new_ones_and_those_that_are_gone(tracker: Tracker, tmp_path: Path) -> None:
    session: dict[str, Any] = {"n": 1, "items": [1, {"deep": [2]}], "lock": threading.Lock(), "f": lambda: 1}
    exec("class C: kind = 'class'\nthing = C()\n", session)
    assert checkpoint.changes(session, tracker).changed
    save(tmp_path, 1, session, tracker)
    assert checkpoint.changes(session, tracker).none
    session["items"][1]["deep"].append(3)
    assert checkpoint.changes(session, tracker).changed == ("items",)
    session["items"][1]["deep"].pop()
    assert checkpoint.changes(session, tracker).none
    session["C"].kind = "another"
    assert "C" in checkpoint.changes(session, tracker).changed
    session["C"].kind = "class"
    session["lock"] = 5
    assert checkpoint.changes(session, tracker).changed == ("lock",)
    session["lock"] = threading.Lock()
    del session["n"]
    assert "n" in checkpoint.changes(session, tracker).changed


@pytest.mark.parametrize(
    "cell",
    [
        "import random; random.random()",
        "import numpy; numpy.random.rand()",
        "import torch; torch.rand(1)",
        "import os; os.environ['TASTE'] = 'salt'",
        "import sys; sys.path.append('lib')",
        "import os; os.chdir('..')",
        "import pandas; pandas.set_option('display.max_rows', 7)",
    ],
)
def test_what_assigns_nothing_counts_too(
    cell: str, tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after ``seed()`` or ``chdir()`` depends on it, though no variable has changed."""
    pytest.importorskip(cell.split()[1].rstrip(";"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TASTE", "sweet")
    rows = pandas.get_option("display.max_rows")
    session: dict[str, Any] = {"n": 1}
    exec(cell.split(";", maxsplit=1)[0], {})  # an import is none of it
    save(tmp_path, 1, session, tracker)
    assert checkpoint.changes(session, tracker).none
    exec(cell, {})
    seen = checkpoint.changes(session, tracker)
    assert (seen.changed, seen.unknown, seen.surroundings) == ((), (), True)
    save(tmp_path, 2, session, tracker)
    assert checkpoint.changes(session, tracker).none
    pandas.set_option("display.max_rows", rows)


def test_a_look_keeps_nothing_alive(tmp_path: Path) -> None:
    """What the next cell deletes is freed at once, as without us, and not when the garbage collector comes by."""
    session: dict[str, Any] = {"thing": random.Random(1)}
    kept = Tracker()
    save(tmp_path, 1, session, kept)
    gc.disable()
    try:
        assert checkpoint.changes(session, kept).none
        assert not gc.isenabled()
        gone = weakref.ref(session.pop("thing"))
        assert gone() is None
    finally:
        gc.enable()
        kept.close()


def test_what_cannot_be_looked_at_in_time_is_unknown(tmp_path: Path) -> None:
    tracker, session = Tracker(), {"small": 1, "many": [str(n) for n in range(300_000)]}
    save(tmp_path, 1, session, tracker)
    began = time.monotonic()
    seen = checkpoint.changes(session, tracker, within_s=0.0)
    assert "many" in seen.unknown
    assert not seen.none
    assert not seen.changed
    assert checkpoint.changes(session, tracker).none
    assert seen.taken_s <= time.monotonic() - began


def test_a_restored_session_writes_only_what_it_changes(tmp_path: Path) -> None:
    save(tmp_path, 1, {f"a{n}": numpy.random.default_rng(n).random(1 << 18) for n in range(4)}, None)
    tracker, back = Tracker(), dict[str, Any]()
    checkpoint.load(back, directory=str(tmp_path), id="c1", key=KEY, tracker=tracker)
    back["a2"][7] = 0
    if tracker.memory.tracking:
        known = [
            tracker.memory.digest(p, trusted=True) for a in ("a1", "a2") for p in pieces(memoryview(back[a]).cast("B"))
        ]
        assert bool(known[0])
        assert not known[1]
    assert 2 << 20 < save(tmp_path, 2, back, tracker).written_bytes < (2 << 20) + 100_000


# -- the page tables themselves -----------------------------------------------------------------------------------


@pytest.fixture
def pages() -> WrittenPages:
    try:
        return WrittenPages()
    except OSError as err:
        pytest.skip(f"this kernel does not track writes ({err})")


def test_memory_that_is_given_back_is_not_taken_for_unchanged(pages: WrittenPages) -> None:
    memory = mmap.mmap(-1, 8 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = b"x" * len(memory)
    start = address_of(memoryview(memory))
    assert not pages.untouched(start, start + 8 * PAGE), "before anybody asked for it"
    assert pages.protect(start, start + 8 * PAGE)
    assert pages.untouched(start, start + 8 * PAGE)
    memory.madvise(mmap.MADV_DONTNEED, 2 * PAGE, PAGE)
    assert not pages.untouched(start, start + 8 * PAGE)
    assert pages.untouched(start, start + 2 * PAGE)
    memory.close()
    assert not pages.untouched(start, start + PAGE), "unmapped, or mapped anew"


def test_one_tracker_after_another_tracks(pages: WrittenPages, tmp_path: Path) -> None:
    """Memory that is watched by one is refused to another; the first lets go of it when it is closed."""
    session = {"a": numpy.random.default_rng(1).random(1 << 18)}
    piece = memoryview(session["a"]).cast("B")
    for number in (1, 2, 3):
        tracker = Tracker()
        save(tmp_path, number, session, tracker)
        assert tracker.memory.digest(piece, trusted=True), number
        assert tracker.memory.by_pages(piece), number
        tracker.close()


def test_shared_memory_is_never_trusted(pages: WrittenPages, tmp_path: Path) -> None:
    """Others write to it through page tables of their own."""
    with (tmp_path / "f").open("w+b") as file:
        file.truncate(4 * PAGE)
        for memory in (mmap.mmap(file.fileno(), 4 * PAGE), mmap.mmap(-1, 4 * PAGE)):
            memory[:] = b"y" * len(memory)
            start = address_of(memoryview(memory))
            pages.protect(start, start + 4 * PAGE)
            assert not pages.untouched(start, start + 4 * PAGE)


def test_a_forked_child_knows_nothing(pages: WrittenPages) -> None:
    memory = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[0] = 1
    start = address_of(memoryview(memory))
    assert pages.protect(start, start + PAGE)
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, b"%d%d" % (pages.untouched(start, start + PAGE), pages.trusted))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 9) == b"00"
    assert pages.untouched(start, start + PAGE)
    os.close(read)
    os.close(write)


def test_two_watchers_of_one_page_do_not_deceive_each_other() -> None:
    """Overlapping buffers: the second one's protection must not hide what the first one has missed."""
    memory = Memory()
    array = numpy.zeros(1 << 20, dtype="u1")
    whole, part = (memoryview(array), memoryview(array)[4096 * 3 : 4096 * 50])
    memory.begin()
    for view in (whole, part):
        memory.learn(view, None, trusted=memory.tracking)
    array[4096 * 10] = 1
    assert memory.digest(part, trusted=memory.tracking) in ("", None)
    memory.learn(part, None, trusted=memory.tracking)
    assert memory.digest(whole, trusted=memory.tracking) in ("", None)
    assert memory.digest(part, trusted=memory.tracking) in (digest_of(part), None)


# -- other threads -------------------------------------------------------------------------------------------------


class Scribbler(threading.Thread):
    """A user's thread that goes on changing an array, or (idle) is merely there."""

    def __init__(self, array: Any, *, idle: bool = False) -> None:
        super().__init__(name="scribbler", daemon=True)
        self.array, self.idle, self.over, self.rounds = array, idle, threading.Event(), 0

    def run(self) -> None:
        while not self.over.wait(0.05 if self.idle else 0.0):
            if not self.idle:
                self.rounds += 1
                self.array[:] = self.rounds


def test_a_thread_that_writes_meanwhile_is_told(tracker: Tracker, tmp_path: Path) -> None:
    """Whatever it hits: each piece is what its digest says, and the checkpoint says that it may be torn."""
    session = {"a": numpy.zeros(3 << 20), "b": numpy.ones(50_000), "c": [1]}
    thread = Scribbler(session["a"])
    thread.start()
    try:
        while not thread.rounds:
            time.sleep(0.001)
        torn = 0
        for number in range(1, 100):
            result = save(tmp_path, number, session, tracker)
            back: dict[str, Any] = {}
            restored = checkpoint.load(back, directory=str(tmp_path), id=f"c{number}", key=KEY)
            assert not restored.lost
            assert (back["b"] == 1).all()
            assert checkpoint.verify(str(tmp_path), f"c{number}", KEY).torn == result.torn
            if result.torn:
                assert result.torn.startswith("a changed while it was saved; 1 other threads were running (scribbler)")
                assert "may not belong together" in restored.warnings[-1]
            else:  # the thread had no turn meanwhile, on a busy machine
                assert not restored.warnings
            if (torn := torn + bool(result.torn)) == 5:
                break
        assert torn == 5
    finally:
        thread.over.set()
        thread.join()
    assert not save(tmp_path, 9, session, tracker).torn, "it has ended"


def test_a_thread_that_is_merely_there_is_no_reason(tracker: Tracker, tmp_path: Path) -> None:
    session = {"a": numpy.zeros(1 << 20), "items": [1, 2]}
    thread = Scribbler(session["a"], idle=True)
    thread.start()
    try:
        assert not save(tmp_path, 1, session, tracker).torn
    finally:
        thread.over.set()
        thread.join()


def test_a_thread_that_changes_small_objects_is_told(tmp_path: Path) -> None:
    session: dict[str, Any] = {"log": [], "a": numpy.random.default_rng(1).random(4 << 20)}
    over = threading.Event()

    def write() -> None:
        while not over.wait(0.001):
            session["log"].append(len(session["log"]))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert save(tmp_path, 1, session, Tracker()).torn.startswith("log changed")
    finally:
        over.set()
        thread.join()
