"""Old entries move to a file: none is lost at any moment, the chain goes on, and everybody reads over both."""

from __future__ import annotations

import asyncio
import gzip
import shutil
from pathlib import Path

import pytest

from gpufair.clock import VirtualClock
from gpufair.core.units import DAY, Instant, Millis
from gpufair.service.archives import archive_file
from gpufair.service.archives.archive import ArchiveError, open_archive
from gpufair.service.archives.archive_file import ARCHIVE_FILE
from gpufair.service.archives.archiving import Archiver
from gpufair.service.archives.keeping import Keeper
from gpufair.service.archives.replayed import replay
from gpufair.service.archives.upkeep import backup, check, restore
from gpufair.service.storage.database import Place, StoreError
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.store import JOURNAL_FILE, Snapshot, Store, sqlite_url
from gpufair.sim import read_trace
from tests.postgres import run
from tests.unit.service.rig import service_at
from tests.unit.service.test_replay import a_day
from tests.unit.service.test_store import entry
from tests.unit.service.test_upkeep import filled

LATE = 10**12


def archive(archiver: Archiver, before_ms: int = LATE) -> int:
    """All that is old enough. Returns how many."""
    last, count = archiver.last(before_ms), 0
    while last and (moved := archiver.step(last)) is not None:
        archiver.delete(moved)
        count += moved.entries
    return count


def problems(url: str, folder: Path) -> list[str]:
    return list(check(Place(url), folder).problems)


def test_the_chain_goes_on_in_the_database(url: str, tmp_path: Path) -> None:
    """Moved, checked over both, moved again; beside a service that has the journal open and writes on."""
    store = filled(url)
    archiver = Archiver(Place(url), tmp_path)
    assert archive(archiver, 1000 + 501) == 500
    file = tmp_path / ARCHIVE_FILE
    assert file.stat().st_mode & 0o077 == 0
    begun = file.read_bytes()
    assert store.first() == (501, 1501)
    assert store.append([entry(2501)]) == [2501]
    # The snapshot after 2000 is needed, and the entry that it was taken after.
    assert archive(archiver) == 1499
    assert file.read_bytes().startswith(begun)
    assert archive(archiver) == 0
    assert (store.before(1000), store.before(1000 + 2100), store.before(LATE)) == (1999, 2099, 2501)
    assert len(store.load().tail) == 501
    store.close()
    found = check(Place(url), tmp_path)
    assert (found.problems, found.first, found.last, found.archived, found.archives) == ((), 2000, 2501, 1999, (ARCHIVE_FILE,))
    with gzip.open(file, "rt") as lines:
        assert len(lines.readlines()) == 2000  # and the head
    # Whoever takes a backup takes the file along.
    copy = tmp_path / "b.sqlite"
    backup(Place(url), copy)
    other = tmp_path / "other"
    other.mkdir()
    restore(copy, Place(sqlite_url(other)))
    assert "which is not there" in problems(sqlite_url(other), other)[-1] or "cannot be read" in problems(sqlite_url(other), other)[0]
    shutil.copy(file, other)
    assert problems(sqlite_url(other), other) == []
    again = Store(sqlite_url(other), "1.0")
    again.save_snapshot(Snapshot(2501, 9, "s"))
    run(sqlite_url(other), "DELETE FROM snapshots WHERE seq = 2000")
    assert archive(Archiver(Place(sqlite_url(other)), other)) == 501
    assert problems(sqlite_url(other), other) == []
    again.close()


def test_what_is_cut_off_is_repeated(url: str, tmp_path: Path) -> None:
    """Kill -9 or a power cut before the deletion: whatever of a step is in the file, the next one ends the same."""
    filled(url).close()
    archiver, file = Archiver(Place(url), tmp_path), tmp_path / ARCHIVE_FILE
    whole = b""
    for step in range(2):
        begin = file.stat().st_size if step else 0
        moved = archiver.step(1999)
        assert moved is not None
        moved.close()  # and never deleted
        whole = file.read_bytes()
        head = begin or len(archive_file.head(0, ""))
        middle = (head + len(whole)) // 2
        for cut, rubbish in ((head, b""), (head + 1, b""), (middle, b""), (middle, b"\0" * 5000), (len(whole), b"\0" * 5000)):
            file.write_bytes(whole[:cut] + rubbish)
            moved = archiver.step(1999)
            assert moved is not None
            assert file.read_bytes() == whole
            moved.close()
        assert check(Place(url), tmp_path).problems == ()
        file.unlink() if not step else None  # before anything of it counted
        moved = archiver.step(1999)
        assert moved is not None
        archiver.delete(moved)
    assert file.read_bytes() == whole
    assert problems(url, tmp_path) == []
    assert check(Place(url)).first == 2000


def test_only_one_at_a_time(url: str, tmp_path: Path) -> None:
    """A command beside the service: one of them waits, and none deletes what the other wrote."""
    filled(url).close()
    one, other = Archiver(Place(url), tmp_path), Archiver(Place(url), tmp_path)
    moved = one.step(1999)
    assert moved is not None
    with pytest.raises(StoreError, match="at the same time"):
        other.step(1999)
    moved.close()
    second = Archiver(Place(url), tmp_path, tmp_path / "b.jsonl.gz").step(1999)
    assert second is not None
    other.delete(second)
    with pytest.raises(StoreError, match="at the same time"):
        one.delete(moved)
    assert check(Place(url)).first == 1001
    assert archive(one) == 999  # into the one that was used last
    assert problems(url, tmp_path) == []


def test_another_file_each(url: str, tmp_path: Path) -> None:
    """Files follow one another, wherever they are; the chain goes through all."""
    filled(url).close()
    assert archive(Archiver(Place(url), tmp_path, tmp_path / "a.jsonl.gz"), 1301) == 300
    assert archive(Archiver(Place(url), tmp_path), 1401) == 100
    assert archive(Archiver(Place(url), tmp_path, tmp_path / "b.jsonl.gz"), 1501) == 100
    with pytest.raises(StoreError, match="was followed by"):
        archive(Archiver(Place(url), tmp_path, tmp_path / "a.jsonl.gz"))
    assert check(Place(url), tmp_path).archives == (str(tmp_path / "a.jsonl.gz"), str(tmp_path / "b.jsonl.gz"))
    assert problems(url, tmp_path) == []
    (tmp_path / "b.jsonl.gz").rename(tmp_path / "elsewhere")
    assert any("b.jsonl.gz" in one for one in problems(url, tmp_path))
    with pytest.raises(StoreError, match="is not there"):
        archive(Archiver(Place(url), tmp_path))
    assert check(Place(url)).first == 501


def test_what_is_not_ours_is_left_alone(url: str, tmp_path: Path) -> None:
    """No file of somebody else's is written to, no damaged entry moved, nothing moved without a snapshot."""
    store = Store(url, "1.0")
    store.append([entry(number) for number in range(1, 30)])
    assert Archiver(Place(url), tmp_path).last(LATE) == 0
    store.save_snapshot(Snapshot(20, 3000, "state"))
    file = tmp_path / "mine.gz"
    for content in (b"letters\n", gzip.compress(b"letters"), b""):
        file.write_bytes(content)
        with pytest.raises(StoreError, match="is no archive"):
            archive(Archiver(Place(url), tmp_path, file))
        assert file.read_bytes() == content
    # As of an older backup: what it has forgotten is in the file.
    archiver = Archiver(Place(url), tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    shorter = Store(sqlite_url(other), "1.0")
    shorter.append([entry(number) for number in range(1, 10)])
    shorter.save_snapshot(Snapshot(9, 3000, "state"))
    shorter.close()
    assert archive(archiver) == 19
    known = (tmp_path / ARCHIVE_FILE).read_bytes()
    with pytest.raises(StoreError, match="knows nothing"):
        archive(Archiver(Place(sqlite_url(other)), other, tmp_path / ARCHIVE_FILE))
    assert (tmp_path / ARCHIVE_FILE).read_bytes() == known
    store.append([entry(number) for number in range(30, 40)])
    store.save_snapshot(Snapshot(39, 3000, "state"))
    store.close()
    run(url, "DELETE FROM snapshots WHERE seq < 39")
    run(url, "UPDATE journal SET event = '{}' WHERE seq = 25")
    with pytest.raises(StoreError, match="entry 25 is damaged"):
        archive(archiver)
    assert check(Place(url)).first == 20


def test_changes_are_found(tmp_path: Path) -> None:
    """An entry that somebody wrote anew in the archive, with a digest of its own, breaks the chain behind it."""
    url = sqlite_url(tmp_path)
    filled(url).close()
    assert archive(Archiver(Place(url), tmp_path)) == 1999
    file = tmp_path / ARCHIVE_FILE
    with gzip.open(file, "rt") as lines:
        found = lines.read()
    changed = gzip.compress(found.replace('\\"n\\":7,', '\\"n\\":8,').encode())
    file.write_bytes(changed + b"\0" * (file.stat().st_size - len(changed)))
    said = problems(url, tmp_path)
    assert any("entry 7 is damaged in the archive" in one for one in said), said


def test_it_is_replayed_over_both(tmp_path: Path) -> None:
    """The whole journal is decided anew, archived entries too; without the file it says what is missing."""
    asyncio.run(a_day(tmp_path))
    url = sqlite_url(tmp_path)
    run(url, "DELETE FROM snapshots WHERE seq < (SELECT max(seq) FROM snapshots)")
    with open_archive(tmp_path) as before:
        all_of_it = [kept.entry for kept in before.entries()]
        kept_snapshots = before.snapshots()
    trace = read_trace(tmp_path, "journal")
    assert archive(Archiver(Place(url), tmp_path), 1 << 60) == kept_snapshots[0] - 1 > 3
    with open_archive(tmp_path / JOURNAL_FILE) as after:
        assert [kept.entry for kept in after.entries()] == all_of_it
        found = replay(after.entries())
        assert (found.same, found.events) == (True, len(all_of_it))
        late = all_of_it[-1].at_ms
        assert [entry.at_ms for entry in after.since(late)] == [one.at_ms for one in all_of_it if one.at_ms == late]
    with open_archive(tmp_path / ARCHIVE_FILE) as alone:
        assert (replay(alone.entries()).same, alone.last) == (True, kept_snapshots[0] - 1)
    assert [row.job_id for row in read_trace(tmp_path / ARCHIVE_FILE).rows] == [row.job_id for row in trace.rows]
    (tmp_path / ARCHIVE_FILE).unlink()
    with open_archive(tmp_path) as after:
        with pytest.raises(ArchiveError, match="which is not there; put it back"):
            list(after.entries())
        assert [one.entry for one in after.entries(kept_snapshots[0])] == all_of_it[kept_snapshots[0] :]
        assert list(after.since(late + 1)) == []


def test_a_service_does_it_by_itself(url: str, tmp_path: Path) -> None:
    """A thread reads and writes, the journal deletes in its turn; the end waits for the step in progress."""
    filled(url).close()

    async def main() -> None:
        journal = await Journal.open(Place(url), "1.0")
        clock = VirtualClock(Instant(1000 + 101 + 30 * DAY))
        keeper = Keeper(journal, Place(url), tmp_path, clock, Millis(30 * DAY))
        assert await keeper.round() == 100
        assert await journal.first() == (101, 1101)
        await clock.advance(Millis(100))
        keeper.start()
        async with asyncio.timeout(30):
            while await journal.first() != (201, 1201):
                await asyncio.sleep(0.01)
        await keeper.close()
        await journal.close()

    asyncio.run(main())
    assert problems(url, tmp_path) == []


def test_the_timeline_says_from_when_on_it_knows(tmp_path: Path) -> None:
    async def main() -> None:
        async with service_at(tmp_path) as (it, client):
            whole = (await client.get("/api/v1/timeline")).json()
            assert whole["archived_until_s"] is None
            await it.runtime.snapshot()
            url = sqlite_url(tmp_path)
            count = await asyncio.to_thread(archive, Archiver(Place(url), tmp_path), 1 << 60)
            assert count == whole["last"] - 1
            rest = (await client.get("/api/v1/timeline")).json()
            assert rest["records"] == [one for one in whole["records"] if one["seq"] > count]
            assert rest["archived_until_s"] == rest["records"][0]["at_s"]

    asyncio.run(main())
