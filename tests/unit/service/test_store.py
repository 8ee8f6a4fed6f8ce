"""What the journal has acknowledged is there, whatever happens to the process, the disk or the file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gpufair.core.model import Allocation
from gpufair.core.tree import Tree
from gpufair.core.units import AllocationPath
from gpufair.service.storage import budget_history, budget_requests
from gpufair.service.storage.budget_requests import BudgetRequest, Decision, Requests, Stage, Trial, UnknownRequest
from gpufair.service.storage.store import (
    SCHEMA_VERSION,
    NewEntry,
    Snapshot,
    Store,
    StoreError,
    StoreUnavailable,
    sqlite_url,
)
from tests.postgres import run


def entry(number: int, size: int = 10) -> NewEntry:
    return NewEntry(1000 + number, f'{{"n":{number},"x":"{"x" * size}"}}', "[]", "p")


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return sqlite_url(tmp_path)


def test_requests_for_budgets_are_kept_with_their_history(url: str) -> None:
    """The last word about each; pages of both, the newest first."""
    store, requests = Store(url, "1.0"), Requests()
    first = requests.put(BudgetRequest(requests.admit("ada"), "ada", 5, {"a": "2"}, "w\n'ü'", shares={"a": "2"}))
    requests.put(BudgetRequest(requests.admit("bo"), "bo", 6, {"b": "2"}, "w", until_ms=9, preview=Trial("bo", 6, {"x": []})))
    before, after = Tree([Allocation(AllocationPath("a"))]), Tree([Allocation(AllocationPath("a"), "2")])
    rows = budget_history.difference(before, after)
    note = partial(budget_history.note, at_ms=7, by="uma", why="w", request=1, rows=rows)
    store.append([], None, (), [*requests.writes(), note])
    done = replace(first, stage=Stage.REFUSED, decision=Decision("uma", 8, accepted=False, words="no"))
    again = store.within(budget_requests.live)
    assert [one.id for one in (again[1], again[2])] == [1, 2]
    again.put(done)
    store.append([], None, (), [*again.writes(), note])
    store.close()
    store = Store(url, "1.0")
    found = store.within(budget_requests.listed)
    assert (found[1], found[0].preview) == (done, Trial("bo", 6, {"x": []}))
    assert store.within(partial(budget_requests.listed, states=["refused"], user="ada", before=2)) == [done]
    with pytest.raises(UnknownRequest, match="request 1 is settled"):
        store.within(budget_requests.live)[1]
    last, earlier = store.within(budget_history.listed)
    assert (last["number"] > earlier["number"], last["at_s"], last["allocations"]) == (True, 0.007, rows)
    assert store.within(partial(budget_history.listed, before=last["number"], limit=5)) == [earlier]
    store.close()


def test_what_is_appended_is_loaded_in_order(url: str) -> None:
    """Numbers go on after a reopening; details are those of the last commit."""
    store = Store(url, "1.0")
    assert store.append([entry(1), entry(2)], {"w": {"a": 1}, "v": {"b": 2}}) == [1, 2]
    assert store.append([], {"w": {"a": 3}, "v": None}) == []
    store.close()
    store = Store(url, "1.1")
    assert store.append([entry(3)]) == [3]
    loaded = store.load()
    assert [(e.seq, e.at_ms, e.core) for e in loaded.tail] == [(1, 1001, "1.0"), (2, 1002, "1.0"), (3, 1003, "1.1")]
    assert loaded.details == {"w": {"a": 3}}
    assert loaded.snapshot is None
    store.close()


def test_a_snapshot_shortens_the_tail(url: str) -> None:
    """Only entries after it are loaded; the last few snapshots are kept; all entries stay for reports."""
    store = Store(url, "1")
    for number in range(1, 11):
        store.append([entry(number)])
        if number % 2 == 0:
            store.save_snapshot(Snapshot(number, 1000 + number, f"state {number}"))
    store.append([entry(11)])
    loaded = store.load()
    assert loaded.snapshot == Snapshot(10, 1010, "state 10")
    assert [e.seq for e in loaded.tail] == [11]
    assert len(store.entries()) == 11
    store.close()


def test_the_last_entry_before_an_instant(url: str) -> None:
    """Found by halving; of several at one instant the first is the first that is not before it."""
    store = Store(url, "1")
    assert store.before(0) == store.before(10**13) == 0
    times = [5, 5, 7, 7, 7, 9, 20]
    store.append([NewEntry(at, "{}", "[]", "p") for at in times])
    for at in range(25):
        assert store.before(at) == sum(one < at for one in times)
    store.close()


def test_a_damaged_snapshot_is_passed_over(url: str) -> None:
    """An older one with a longer tail gives the same state."""
    store = Store(url, "1")
    store.append([entry(1), entry(2), entry(3)])
    store.save_snapshot(Snapshot(1, 1001, "one"))
    store.save_snapshot(Snapshot(2, 1002, "two"))
    store.close()
    _sql(url, "UPDATE snapshots SET state = 'tw0' WHERE seq = 2")
    store = Store(url, "1")
    loaded = store.load()
    assert loaded.snapshot == Snapshot(1, 1001, "one")
    assert [e.seq for e in loaded.tail] == [2, 3]
    assert store.append([entry(4)]) == [4]
    store.close()


def test_a_snapshot_is_packed_and_one_of_before_is_read_as_well() -> None:
    """Compressed in the thread that made it: the one that commits has little to write."""
    text = '{"workloads":[' + ",".join(['{"name":"ä"}'] * 10_000) + "]}"
    packed = Snapshot.of(7, 1000, text)
    assert (packed.text(), Snapshot(7, 1000, text).text()) == (text, text)
    assert len(packed.state) < len(text) / 50
    for broken in ("zlib:x", "zlib:AAAA", packed.state[:-8]):
        with pytest.raises(ValueError, match=r"."):
            Snapshot(7, 1000, broken).text()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE journal SET event = '{}' WHERE seq = 2", "journal entry 2 is damaged"),
        ("UPDATE journal SET actions = '[1]' WHERE seq = 3", "journal entry 3 is damaged"),
        ("UPDATE journal SET at_ms = 5 WHERE seq = 1", "journal entry 1 is damaged"),
        ("DELETE FROM journal WHERE seq = 2", "journal entry 2 is missing"),
    ],
)
def test_damage_is_named(url: str, damage: str, said: str) -> None:
    """A start on a journal that lies would charge somebody wrongly: it is refused, with the entry's number."""
    store = Store(url, "1")
    store.append([entry(1), entry(2), entry(3)])
    store.close()
    _sql(url, damage)
    store = Store(url, "1")
    with pytest.raises(StoreError, match=said):
        store.load()
    store.close()


def test_something_else_is_refused(url: str, tmp_path: Path) -> None:
    """Neither another program's database nor garbage is overwritten."""
    _sql(url, "CREATE TABLE recipes (name TEXT)")
    with pytest.raises(StoreError, match="something else"):
        Store(url, "1")
    other = tmp_path / "b"
    other.mkdir()
    (other / "journal.sqlite").write_bytes(b"not a database, but quite long " * 200)
    with pytest.raises(StoreError, match="damaged"):
        Store(sqlite_url(other), "1")


def test_a_newer_schema_is_refused(url: str) -> None:
    """An older version must not write into what it does not understand."""
    Store(url, "1").close()
    _sql(url, "UPDATE meta SET value = '999' WHERE key = 'schema'")
    with pytest.raises(StoreError, match=rf"schema 999.*knows up to {SCHEMA_VERSION}"):
        Store(url, "1")


def test_only_the_owner_can_read_it(file_url: str, tmp_path: Path) -> None:
    """Submissions may say what somebody works on."""
    store = Store(file_url, "1")
    store.append([entry(1)])
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    store.close()


def test_a_full_database_refuses_and_recovers(file_url: str) -> None:
    """Nothing of a refused append is kept, and appends go on, without a gap, once there is room."""
    store = Store(file_url, "1")
    store.append([entry(1)], {"w": {"a": 1}})
    with store._engine.begin() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreUnavailable, match="full"):
        store.append([entry(2), entry(3, size=100_000)], {"w": {"a": 2}})
    loaded = store.load()
    assert [e.seq for e in loaded.tail] == [1]
    assert loaded.details == {"w": {"a": 1}}
    with store._engine.begin() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert store.append([entry(2, size=100_000)]) == [2]
    assert [e.seq for e in store.load().tail] == [1, 2]
    store.close()


FULL_DISK = """
import resource, signal, sys
from gpufair.service.storage.store import *
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(sys.argv[1], "1")
store.append([NewEntry(1, "first", "[]", "p")])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
kept = 1
for number in range(2, 1000):
    try:
        store.append([NewEntry(number, "x" * 20_000, "[]", "p")])
    except StoreUnavailable as err:
        print("refused", err, file=sys.stderr)
        break
    kept = number
assert len(store.load().tail) == kept, (len(store.load().tail), kept)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append([NewEntry(kept + 1, "after", "[]", "p")])
print(len(store.load().tail) - kept)
"""


def test_writes_that_the_system_refuses(file_url: str) -> None:
    """The same with a real write error (a file size limit) in the middle of the WAL."""
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, file_url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "1", done.stderr
    assert "refused the journal cannot be written" in done.stderr


WRITER = """
import sys
from gpufair.service.storage.store import *
store = Store(sys.argv[1], "1")
number = store.seq
while True:
    size = 1 + number % 7
    last = store.append([NewEntry(number + i, f"event {number + i}", "[]", "p") for i in range(size)], {"w": {"last": number}})
    number = last[-1]
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_kill_9_loses_nothing_that_was_acknowledged(url: str) -> None:
    """A writer is killed at random moments, four times on the same journal."""
    seed = 20261129
    rng = random.Random(seed)
    before = 0
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", WRITER, url], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged = int(process.stdout.readline())  # it is up
        time.sleep(rng.uniform(0.0, 0.15))
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read()
        process.stdout.close()
        process.wait(10)
        whole = rest[: rest.rfind("\n") + 1].split()
        acknowledged = int(whole[-1]) if whole else acknowledged
        store = Store(url, "1")
        loaded = store.load()
        assert loaded.tail[-1].seq >= acknowledged > before
        assert loaded.details["w"]["last"] <= loaded.tail[-1].seq
        before = store.seq
        store.close()


def _sql(url: str, statement: str) -> None:
    """Somebody else writes into it."""
    run(url, statement)
