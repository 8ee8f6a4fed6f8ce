"""What checkpoints share survives everything that happens to one of them: faults, kills, sweeps, limits, other users."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpufair.node import checkpoint
from gpufair.node.checkpoint import BadOptions, CheckpointFailed, CheckpointRejected, StoreOptions, catalogue
from gpufair.node.checkpoint.folder import LocalStore
from tests.unit.checkpoint.conftest import file_of
from tests.unit.checkpoint.two_processes import KEY

numpy = pytest.importorskip("numpy")

OTHER = b"the key of another user, as long"


def noise(seed: int, size: int = 200_000) -> Any:
    """Bytes that no compression makes smaller."""
    return numpy.frombuffer(random.Random(seed).randbytes(size), dtype="u1").copy()


def save(directory: Path | str, number: int, session: dict[str, Any], **more: Any) -> checkpoint.SaveResult:
    return checkpoint.save(
        session, directory=str(directory), id=f"c{number}", sequence=number, key=more.pop("key", KEY), meta={}, **more
    )


def restored(directory: Path | str, number: int, key: bytes = KEY) -> dict[str, Any]:
    back: dict[str, Any] = {}
    result = checkpoint.load(back, directory=str(directory), id=f"c{number}", key=key)
    assert not result.lost
    return back


def test_a_second_checkpoint_writes_what_changed_and_no_more(tmp_path: Path) -> None:
    session = {f"a{n}": noise(n, 1 << 20) for n in range(4)} | {"big": noise(9, 20 << 20), "n": 1}
    first = save(tmp_path, 1, session)
    assert first.written_bytes > 24 << 20
    session["n"] = 2
    assert save(tmp_path, 2, session).written_bytes < 20_000
    session["big"][-1] ^= 1
    assert 4 << 20 <= save(tmp_path, 3, session).written_bytes < (4 << 20) + 20_000, "one piece of three: the last"
    session["copy"] = session["a0"].copy()
    assert save(tmp_path, 4, session).written_bytes < 20_000, "the same content is there already"
    for number, n in ((1, 1), (2, 2), (3, 2)):
        assert restored(tmp_path, number)["n"] == n
    assert (restored(tmp_path, 4)["big"] == session["big"]).all()
    assert restored(tmp_path, 2)["big"][-1] == session["big"][-1] ^ 1


class Fault(OSError):
    """What a store may raise at any moment."""


class Faulty(LocalStore):
    """A store that fails at its so-manieth operation, before or after it."""

    def __init__(self, root: Path, at: int, *, after: bool) -> None:
        super().__init__(root)
        self.at, self.after, self.count, self.broken = at, after, itertools.count(1), False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("create", "buffers", "put", "publish", "remove", "sweep", "manifest", "used_bytes"):
            return found

        def operation(*args: Any, **named: Any) -> Any:
            number = next(self.count)
            if number == self.at and not self.after:
                raise Fault(5, f"before {name}")
            done = found(*args, **named)
            if number == self.at:
                self.broken = True
                raise Fault(5, f"after {name}")
            return done

        return operation


@pytest.mark.parametrize("after", [False, True])
def test_a_fault_of_any_operation_costs_no_checkpoint(tmp_path: Path, after: bool) -> None:
    """Saves, prunings and sweeps through a store that fails at the first, second, ... operation, until none fails."""
    session = {"a": noise(0), "b": noise(1), "n": 1}
    save(tmp_path, 1, session)
    good, failures = 1, 0
    for at in range(1, 40):
        number = at + 1
        session = session | {"b": noise(number), "n": number}
        try:
            save(tmp_path, number, session, store=Faulty(tmp_path, at, after=after))
        except (CheckpointFailed, Fault):
            failures += 1
        else:
            good = number
        try:
            checkpoint.prune(str(tmp_path), KEY, keep=1, store=Faulty(tmp_path, at, after=after))
        except Fault:
            failures += 1
        newest = checkpoint.latest(str(tmp_path), KEY)
        assert newest is not None
        assert newest.sequence == good, "a save that failed may be there in full only if its last step did it"
        checkpoint.verify(str(tmp_path), newest.id, KEY)
        assert restored(tmp_path, newest.sequence)["n"] == newest.sequence
    assert failures >= 6, "the store was used"
    checkpoint.prune(str(tmp_path), KEY, keep=1)
    info = checkpoint.verify(str(tmp_path), f"c{good}", KEY)
    assert sum(path.stat().st_size for path in (tmp_path / "buffers").iterdir()) == info.stored_bytes


_KILLED = """
import os, random, signal, sys, numpy
from gpufair.node import checkpoint
from gpufair.node.checkpoint import coding, deposit, memory, written
directory, key, step = sys.argv[1], bytes.fromhex(sys.argv[2]), int(sys.argv[3])
def run(at, number):
    calls = 0
    def counted(real):
        def call(*args, **named):
            nonlocal calls
            calls += 1
            if calls == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **named)
        return call
    for name in ("open", "write", "fsync", "fdatasync", "close", "unlink", "rename", "mkdir", "rmdir"):
        setattr(os, name, counted(getattr(os, name)))
    fresh = numpy.frombuffer(random.Random(number).randbytes(150_000), dtype="u1")
    session = {"a": numpy.arange(50_000), "b": fresh, "n": number}
    checkpoint.save(session, directory=directory, id=f"c{number}", sequence=number, key=key, meta={})
    print("saved", flush=True)
    checkpoint.prune(directory, key, keep=1)
for number in range(2, 1000):
    child = os.fork()
    if not child:
        run(1 + (number - 2) * step, number)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(number, status, flush=True)
    if sys.stdin.readline() != "go on\\n" or status == 0:
        break
"""


def test_a_kill_at_any_call_of_the_system_costs_no_checkpoint(tmp_path: Path) -> None:
    """kill -9 just before the first, sixth, eleventh, ... call that touches the disk, in a save and the pruning after it."""
    save(tmp_path, 1, {"n": 1, "a": numpy.arange(50_000)})
    good, killed, status = 1, 0, -signal.SIGKILL
    driver = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path), KEY.hex(), "5"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    try:
        while status != 0:
            told = driver.stdout.readline().split()
            saved = told == ["saved"]
            number, status = map(int, driver.stdout.readline().split() if saved else told)
            assert status in (0, -signal.SIGKILL)
            killed += status != 0
            newest = checkpoint.latest(str(tmp_path), KEY)
            assert newest is not None
            assert newest.sequence >= (number if saved else good)
            checkpoint.verify(str(tmp_path), newest.id, KEY)
            assert restored(tmp_path, newest.sequence)["n"] == newest.sequence
            good = newest.sequence
            driver.stdin.write("go on\n")
            driver.stdin.flush()
    finally:
        driver.kill()
        driver.communicate()
    assert killed > 8
    checkpoint.prune(str(tmp_path), KEY, keep=1)
    info = checkpoint.verify(str(tmp_path), f"c{good}", KEY)
    assert sum(path.stat().st_size for path in (tmp_path / "buffers").iterdir()) == info.stored_bytes, "no remains"


_SAVER = """
import sys, numpy, pathlib, random, time
from gpufair.node import checkpoint
directory, key, name, other = sys.argv[1], bytes.fromhex(sys.argv[2]), sys.argv[3], sys.argv[4]
done = lambda who: pathlib.Path(directory).with_name(f"done-{who}")
for number in range(1, 16):
    while number > 2 and done(other).stat().st_size < number - 2:
        time.sleep(0.001)  # what it saved last must be among the newest of both when it verifies it
    # Half of it comes back again and again: files that a sweep would like to remove while a save counts on them.
    session = {"a": numpy.full(100_000, number % 3), "b": numpy.frombuffer(random.Random(number).randbytes(100_000), dtype="u1")}
    checkpoint.save(session, directory=directory, id=f"{name}{number}", sequence=number, key=key, meta={})
    checkpoint.verify(directory, f"{name}{number}", key)
    done(name).open("a").write("x")
"""


def test_a_sweep_never_takes_what_a_save_counts_on(tmp_path: Path) -> None:
    """Two processes save, and everything is pruned all the time: each checkpoint is whole when its save returns."""
    store = tmp_path / "store"
    for name in "xy":
        (tmp_path / f"done-{name}").touch()
    savers = [
        subprocess.Popen([sys.executable, "-c", _SAVER, store, KEY.hex(), *names], stderr=subprocess.PIPE, text=True)
        for names in ("xy", "yx")
    ]
    swept = 0
    try:
        while any(saver.poll() is None for saver in savers) and not any(saver.poll() for saver in savers):
            # Not the newest two: one of each saver's may just be verified.
            checkpoint.prune(str(store), KEY, keep=6)
            swept += len(checkpoint.sweep(str(store), KEY))
            time.sleep(0.005)
        for saver in sorted(savers, key=lambda saver: not saver.poll()):  # one that failed first: the other waits for it
            assert saver.stderr is not None
            assert saver.wait() == 0, saver.stderr.read()
    finally:
        for saver in savers:
            saver.kill()
            saver.wait()
            saver.stderr.close()  # type: ignore[union-attr]
    kept = checkpoint.listing(str(store), KEY)
    assert len(kept) >= 2
    for info in kept:
        checkpoint.verify(str(store), info.id, KEY)


def test_nothing_is_swept_while_somebody_saves(tmp_path: Path) -> None:
    save(tmp_path, 1, {"a": noise(1)})
    (tmp_path / "buffers" / ("0" * 64)).write_bytes(b"nobody's")
    store = LocalStore(tmp_path)
    store.create("c2")
    assert checkpoint.sweep(str(tmp_path), KEY) == []
    store.release("c2")
    assert checkpoint.sweep(str(tmp_path), KEY) == ["0" * 64]


def test_what_another_users_checkpoint_needs_is_left(tmp_path: Path) -> None:
    """The key tells nothing about it; its manifest says what it needs, or (encrypted) nothing may be removed."""
    save(tmp_path, 1, {"a": noise(1)})
    save(tmp_path, 2, {"a": noise(2)}, key=OTHER)
    assert checkpoint.prune(str(tmp_path), KEY) == []
    assert (restored(tmp_path, 2, OTHER)["a"] == noise(2)).all()
    save(tmp_path, 3, {"a": noise(3)}, key=OTHER, options=StoreOptions(encryption=True))
    (tmp_path / "buffers" / ("0" * 64)).write_bytes(b"nobody's")
    checkpoint.prune(str(tmp_path), KEY)
    assert (tmp_path / "buffers" / ("0" * 64)).exists()
    assert (restored(tmp_path, 3, OTHER)["a"] == noise(3)).all()


def test_limits_of_a_session_and_of_a_user(tmp_path: Path) -> None:
    mine, beside = tmp_path / "ada" / "s1", tmp_path / "ada" / "s2"
    save(beside, 1, {"a": noise(1, 1 << 20)})
    save(mine, 1, {"a": noise(2, 1 << 20)})
    session = {"a": noise(2, 1 << 20), "b": noise(3, 1 << 20)}
    with pytest.raises(CheckpointFailed, match=r"of this session may take 2 MiB.*delete large variables"):
        save(mine, 2, session, options=StoreOptions(session_bytes=2 << 20))
    with pytest.raises(CheckpointFailed, match=r"of this user may take 3 MiB"):
        save(mine, 2, session, options=StoreOptions(session_bytes=3 << 20, user_bytes=3 << 20))
    assert [info.id for info in checkpoint.listing(str(mine), KEY)] == ["c1"]
    assert len(list((mine / "buffers").iterdir())) == len(checkpoint.verify(str(mine), "c1", KEY).saved) + 1
    save(mine, 2, session, options=StoreOptions(session_bytes=3 << 20, user_bytes=5 << 20))
    assert (restored(mine, 2)["b"] == session["b"]).all()


def test_how_many_stay_and_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    for number, age_s in ((1, 9000), (2, 7000), (3, 5000), (4, 3000)):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda made=now - age_s: made)
            save(tmp_path, number, {"n": number, "a": noise(number)})
    assert checkpoint.prune(str(tmp_path), KEY, keep=3) == ["c1"]
    assert checkpoint.prune(str(tmp_path), KEY, keep=3, keep_s=6000) == ["c2"]
    assert checkpoint.prune(str(tmp_path), KEY, keep=3, keep_s=10) == ["c3"], "the newest stays, however old"
    assert restored(tmp_path, 4)["n"] == 4


@pytest.mark.parametrize(
    "bad",
    [
        {"keep": 0},
        {"compression": "best"},
        {"session_bytes": -1},
        {"keep_s": float("nan")},
        {"keep_s": True},
        {"no": 1},
        {"encryption": 1},
    ],
)
def test_options_that_make_no_sense_are_named(bad: dict[str, Any]) -> None:
    with pytest.raises(BadOptions, match=next(iter(bad))):
        StoreOptions.from_dict(bad)
    assert StoreOptions.from_dict(StoreOptions(keep=5).as_dict()) == StoreOptions(keep=5)


@pytest.mark.parametrize("library", ["zstandard", "zlib"])
def test_what_compresses_well_is_compressed_and_noise_is_not(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "zlib":
        monkeypatch.setattr("gpufair.node.checkpoint.coding.zstandard", lambda: None)
    monkeypatch.setattr("gpufair.node.checkpoint.coding.ASSUMED_WRITE_BYTES_S", 1e3)  # a disk for which all pays
    plain, noisy = numpy.zeros(9 << 20, dtype="u1"), noise(1, 9 << 20)
    result = save(tmp_path, 1, {"plain": plain, "noisy": noisy})
    assert 9 << 20 < result.written_bytes < 10 << 20
    assert file_of(tmp_path, plain[: 8 << 20].tobytes()).suffix == (".zlib" if library == "zlib" else ".zstd")
    assert file_of(tmp_path, noisy[: 8 << 20].tobytes()).suffix == ""
    back = restored(tmp_path, 1)
    assert (back["plain"] == plain).all()
    assert (back["noisy"] == noisy).all()
    assert save(tmp_path, 2, {"plain": plain.copy()}).written_bytes < 100_000, "found under its compressed name"
    assert save(tmp_path, 3, {"p": plain + 1}, options=StoreOptions(compression="never")).written_bytes > 9 << 20


def test_a_library_that_is_missing_here_is_named_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpufair.node.checkpoint.coding.ASSUMED_WRITE_BYTES_S", 1e3)
    save(tmp_path, 1, {"plain": numpy.zeros(1 << 20)})
    monkeypatch.setattr("gpufair.node.checkpoint.coding.zstandard", lambda: None)
    with pytest.raises(CheckpointRejected, match="install the package zstandard"):
        restored(tmp_path, 1)


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[], Iterator[bytes]]:
    """An encrypted checkpoint, and all that is on the disk."""
    session = {"a_telling_name": "a telling text", "data": noise(1)}
    save(tmp_path, 1, session, options=StoreOptions(encryption=True))
    return lambda: (path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_an_encrypted_checkpoint_tells_nothing(secret: Callable[[], Iterator[bytes]], tmp_path: Path) -> None:
    """Neither content nor names, nor by the names of files whether some content is there."""
    for data in secret():
        assert b"telling" not in data
        assert noise(1).tobytes()[:64] not in data
    with pytest.raises(ValueError, match="not enough"):
        file_of(tmp_path, noise(1).tobytes())
    assert restored(tmp_path, 1)["a_telling_name"] == "a telling text"
    assert checkpoint.verify(str(tmp_path), "c1", KEY).encrypted
    session = {"a_telling_name": "another", "data": noise(1)}
    assert save(tmp_path, 2, session, options=StoreOptions(encryption=True)).written_bytes < 20_000
    with pytest.raises(CheckpointRejected, match=r"does not decrypt.*another user"):
        restored(tmp_path, 1, OTHER)
    assert checkpoint.latest(str(tmp_path), OTHER) is None


def test_an_altered_encrypted_file_costs_its_variable(secret: Callable[[], Iterator[bytes]], tmp_path: Path) -> None:
    largest = max((tmp_path / "buffers").iterdir(), key=lambda path: path.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[1000] ^= 1
    largest.write_bytes(data)
    back: dict[str, Any] = {}
    result = checkpoint.load(back, directory=str(tmp_path), id="c1", key=KEY)
    assert [name for name, _ in result.lost] == ["data"]
    assert "does not decrypt" in result.lost[0][1]
    assert back["a_telling_name"] == "a telling text"


def test_encryption_that_cannot_be_had_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpufair.node.checkpoint.coding.cipher", lambda _: None)
    with pytest.raises(CheckpointFailed, match=r"needs the package cryptography; .*pip install"):
        save(tmp_path, 1, {}, options=StoreOptions(encryption=True))


def test_a_checkpoint_of_the_first_format_is_refused_by_name(tmp_path: Path) -> None:
    from gpufair.node.checkpoint.manifest import _canonical, _sign

    body = {"format": 1, "id": "c1", "sequence": 1}
    (tmp_path / "c1").mkdir()
    (tmp_path / "c1" / "manifest.json").write_text(
        json.dumps({"signature": _sign(_canonical(body), KEY), "body": body})
    )
    with pytest.raises(CheckpointRejected, match="format 1 and this version reads format 2"):
        restored(tmp_path, 1)


def test_a_damaged_part_of_the_stream_costs_the_variables_in_it_only(tmp_path: Path) -> None:
    """Lists of texts, about 1 MiB each, that refer to what the first and the second of them have made."""
    shared = [["early"], {"also": "early"}]
    session: dict[str, Any] = {"shared": shared}
    dice = random.Random(1)
    for n in range(6):
        session[f"list{n}"] = [dice.randbytes(50).hex() for _ in range(9_000)] + [shared[0], n]
    session["last"] = {"own": session["list4"], "both": [shared, shared[1]]}
    save(tmp_path, 1, session, options=StoreOptions(compression="never"))
    stream = json.loads((tmp_path / "c1" / "manifest.json").read_bytes())["body"]["stream"]
    assert len(stream) == 7
    file = tmp_path / "buffers" / stream[2]
    file.write_bytes(file.read_bytes().replace(b"]", b")"))
    back: dict[str, Any] = {}
    result = checkpoint.load(back, directory=str(tmp_path), id="c1", key=KEY)
    assert [name for name, _ in result.lost] == ["list2"]
    assert "damaged" in result.lost[0][1]
    assert {name: value for name, value in back.items() if name in session} == {
        name: value for name, value in session.items() if name != "list2"
    }
    assert back["last"]["own"] is back["list4"]
    assert back["last"]["both"][1] is back["shared"][1]
    assert back["list5"][-2] is back["shared"][0]


def test_needed_knows_what_it_cannot_know(tmp_path: Path) -> None:
    save(tmp_path, 1, {"a": noise(1)})
    (tmp_path / "c1" / "manifest.json").write_bytes(b"no manifest at all")
    assert catalogue._needed(LocalStore(tmp_path), KEY) == set()
    assert any((tmp_path / "buffers").iterdir())
