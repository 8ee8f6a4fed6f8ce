"""A save that does not end well leaves the earlier checkpoints whole and nothing of itself."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpufair.node import checkpoint
from gpufair.node.checkpoint import CheckpointFailed
from gpufair.node.checkpoint.folder import LocalStore
from tests.unit.checkpoint.conftest import file_of
from tests.unit.checkpoint.two_processes import KEY

numpy = pytest.importorskip("numpy")

SESSION = {"text": "x" * 1000, "a": numpy.arange(40_000.0), "b": numpy.ones(30_000), "many": list(range(50_000))}


def _save(
    directory: Path, name: str, sequence: int, store: LocalStore | None = None, **more: Any
) -> checkpoint.SaveResult:
    return checkpoint.save(
        {**SESSION, **more}, directory=str(directory), id=name, sequence=sequence, key=KEY, meta={}, store=store
    )


class SmallDisk(LocalStore):
    """A store whose disk is full after so many bytes, or after so many calls that make something durable."""

    def __init__(self, root: Path, room: int, durable_calls: int = 1000) -> None:
        super().__init__(root)
        self.room, self.durable_calls = room, durable_calls

    def put(self, name: str, data: memoryview | bytes) -> None:
        self.room -= len(data)
        if self.room < 0:
            self._full()
        super().put(name, data)

    def publish(self, checkpoint: str, manifest: bytes) -> None:
        if self.room < len(manifest):
            self._full()
        super().publish(checkpoint, manifest)
        self.durable_calls -= 1
        if self.durable_calls <= 0:
            self._full()

    @staticmethod
    def _full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _checkpoints(directory: Path) -> list[str]:
    """The folders of checkpoints that are there, finished or not."""
    return LocalStore(directory).ids()


def _nothing_but(directory: Path, name: str) -> None:
    """One whole checkpoint is all that is there: no folder and no file of another one."""
    assert _checkpoints(directory) == [name]
    info = checkpoint.verify(str(directory), name, KEY)
    assert sum(path.stat().st_size for path in (directory / "buffers").iterdir()) == info.stored_bytes


def _fresh(number: int) -> dict[str, Any]:
    """Arrays that are in no store yet."""
    return {"a": numpy.arange(40_000.0) + number, "b": numpy.full(30_000, float(number))}


def test_a_full_disk_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    _save(tmp_path, "good", 1)
    needed = SmallDisk(tmp_path, 1 << 30)
    _save(tmp_path, "measure", 2, needed, **_fresh(0))
    size = (1 << 30) - needed.room
    needed.remove("measure")
    rooms = [0, 1, 37, size // 2, size - 100, *random.Random(1).sample(range(size), 25)]
    for number, room in enumerate(rooms, 1):
        with pytest.raises(CheckpointFailed, match=r"no space left in .*; free space there") as caught:
            _save(tmp_path, "bad", 2, SmallDisk(tmp_path, room), **_fresh(number))
        assert "earlier checkpoints are untouched" in str(caught.value)
        _nothing_but(tmp_path, "good")
    with pytest.raises(CheckpointFailed):  # full after the manifest got its name
        _save(tmp_path, "bad", 2, SmallDisk(tmp_path, 1 << 30, durable_calls=1))
    _nothing_but(tmp_path, "good")
    _save(tmp_path, "bad", 2)  # the name can be used once there is room again


_LIMITED = """
import resource, sys, numpy
from gpufair.node import checkpoint
directory, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    checkpoint.save({"a": numpy.random.default_rng(1).random(1 << 20), "l": list(range(1 << 20))}, directory=directory, id="big", sequence=2,
                    key=bytes.fromhex(sys.argv[3]), meta={})
except checkpoint.CheckpointFailed as err:
    print(err)
"""


@pytest.mark.parametrize("limit", [100, 10_000, 3 << 20, 6 << 20])
def test_a_real_limit_of_the_system_is_a_clear_error(limit: int, tmp_path: Path) -> None:
    """The kernel refuses the write, in the stream (3 MB) or in the buffer (8 MB)."""
    _save(tmp_path, "good", 1)
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path), str(limit), KEY.hex()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "checkpoint 'big' was not written: there is no space left" in done.stdout
    assert not done.stderr
    _nothing_but(tmp_path, "good")


def test_an_unwritable_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointFailed, match=r"Not a directory|File exists"):
        _save(tmp_path / "file" / "x", "c", 1)
    with pytest.raises(CheckpointFailed, match="its name may hold"):
        _save(tmp_path, "../c", 1)


_SAVER = """
import sys, numpy
from gpufair.node import checkpoint
directory, key, first = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
session = {f"a{i}": numpy.full(100_000, float(i)) for i in range(6)} | {"l": list(range(100_000))}
print("ready", flush=True)
for sequence in range(first, first + 1000):
    session["sequence"] = sequence
    checkpoint.save(session, directory=directory, id=f"{sequence:06d}", sequence=sequence, key=key, meta={})
    print(sequence, flush=True)
    checkpoint.prune(directory, key)
"""


def test_a_kill_at_any_moment_keeps_the_last_good_one(tmp_path: Path) -> None:
    """kill -9 at random moments of save and prune. What the dead process had acknowledged is still there."""
    dice = random.Random(7)
    done = 0
    for attempt in range(8):
        told: list[str] = []
        saver = subprocess.Popen(
            [sys.executable, "-c", _SAVER, str(tmp_path), KEY.hex(), str(done + 1)], stdout=subprocess.PIPE, text=True
        )
        assert saver.stdout is not None
        try:
            assert saver.stdout.readline() == "ready\n"
            began = time.monotonic()
            told = [saver.stdout.readline() for _ in range(attempt % 3)]
            # Somewhere in the next save or the sweep before it, whatever they take on this machine now.
            time.sleep(dice.uniform(0.0, (time.monotonic() - began) / len(told) if told else 0.05))
        finally:
            saver.send_signal(signal.SIGKILL)
            acknowledged = [int(line) for line in [*told, *saver.stdout.read().split()]]
            saver.wait(timeout=30)
            saver.stdout.close()
        newest = checkpoint.latest(str(tmp_path), KEY)
        expected = acknowledged[-1] if acknowledged else done
        if newest is None:
            assert expected == 0
            continue
        assert newest.sequence in (expected, expected + 1)  # the last may have been finished and not yet told
        checkpoint.verify(str(tmp_path), newest.id, KEY)
        back: dict[str, Any] = {}
        result = checkpoint.load(back, directory=str(tmp_path), id=newest.id, key=KEY)
        assert not result.lost
        assert back["sequence"] == newest.sequence
        done = newest.sequence
    assert done > 0, "no save was ever finished; the test shows nothing"
    checkpoint.prune(str(tmp_path), KEY)
    kept = checkpoint.listing(str(tmp_path), KEY)
    assert [info.id for info in kept] == _checkpoints(tmp_path), "remains of killed saves are cleared away"
    assert len(kept) <= 2


def test_a_finished_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    _save(tmp_path, "c", 1)
    with pytest.raises(CheckpointFailed, match="already there"):
        _save(tmp_path, "c", 2)
    assert checkpoint.verify(str(tmp_path), "c", KEY).sequence == 1


def test_latest_and_prune(tmp_path: Path) -> None:
    """The newest by number, whatever the names; never the newest valid one, nor what the key cannot judge."""
    directory = str(tmp_path)
    assert checkpoint.latest(directory, KEY) is None
    for name, sequence in (("z", 1), ("a", 4), ("m", 3), ("t", 9)):
        _save(tmp_path, name, sequence, large=numpy.full(20_000, float(sequence)))
    large = file_of(tmp_path, numpy.full(20_000, 9.0).tobytes())
    large.write_bytes(large.read_bytes()[:-1])
    checkpoint.save({}, directory=directory, id="foreign", sequence=50, key=b"f" * 32, meta={})
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "manifest.json.partial").write_bytes(b"half")
    (tmp_path / "writing").mkdir()
    lock = os.open(tmp_path / "writing", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        assert [info.id for info in checkpoint.listing(directory, KEY)] == ["z", "m", "a"]
        newest = checkpoint.latest(directory, KEY)
        assert newest is not None
        assert (newest.id, newest.sequence) == ("a", 4)
        assert set(newest.saved) == {*SESSION, "large"}
        assert sorted(checkpoint.prune(directory, KEY, keep=2)) == ["dead", "z"]
        assert checkpoint.prune(directory, KEY, keep=0) == ["m"]
        assert checkpoint.prune(directory, KEY, keep=0) == []
        assert _checkpoints(tmp_path) == ["a", "foreign", "t", "writing"]
        assert large.exists(), "it may be of use to somebody who has the rest of it"
    finally:
        os.close(lock)


def test_two_writers_of_one_name_do_not_mix(tmp_path: Path) -> None:
    first = LocalStore(tmp_path)
    first.create("c")
    try:
        with pytest.raises(CheckpointFailed, match="another process is writing"):
            _save(tmp_path, "c", 1)
    finally:
        first.release("c")
    _save(tmp_path, "c", 1)


def test_any_store_of_fsspec_will_do() -> None:
    """Here the one in memory; S3 and others have the same interface."""
    from fsspec.implementations.memory import MemoryFileSystem

    directory = "memory://gpufair-test/sessions/s1"
    MemoryFileSystem.clear_instance_cache()
    try:
        for sequence in (1, 2, 3):
            result = checkpoint.save(
                SESSION, directory=directory, id=f"c{sequence}", sequence=sequence, key=KEY, meta={"s": sequence}
            )
            assert not result.lost
        with pytest.raises(CheckpointFailed, match="already there"):
            checkpoint.save({}, directory=directory, id="c3", sequence=4, key=KEY, meta={})
        newest = checkpoint.latest(directory, KEY)
        assert newest is not None
        assert newest.id == "c3"
        back: dict[str, Any] = {}
        assert checkpoint.load(back, directory=directory, id="c3", key=KEY).meta == {"s": 3}
        assert numpy.array_equal(back["a"], SESSION["a"])
        assert checkpoint.prune(directory, KEY, keep=1) == ["c1", "c2"]
        assert [info.id for info in checkpoint.listing(directory, KEY)] == ["c3"]
        assert checkpoint.verify(directory, "c3", KEY).sequence == 3
    finally:
        MemoryFileSystem.store.clear()
        MemoryFileSystem.pseudo_dirs[:] = [""]


def test_an_unknown_store_is_a_clear_error() -> None:
    with pytest.raises(CheckpointFailed, match="nonsense"):
        checkpoint.save({}, directory="nonsense://x", id="c", sequence=1, key=KEY, meta={})
