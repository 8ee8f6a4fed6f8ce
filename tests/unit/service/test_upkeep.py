"""Checks find what is wrong, backups hold one moment and everything, and go into either kind of database."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from gpufair.service.archives.upkeep import InTheWay, backup, check, restore
from gpufair.service.storage.database import Place, StoreError
from gpufair.service.storage.outbox import Letter
from gpufair.service.storage.store import Snapshot, Store, sqlite_url
from tests.postgres import Postgres, run
from tests.unit.service.test_store import entry


def letter(number: int) -> Letter:
    return Letter("mail", {"id": f"n{number}"})


def filled(url: str) -> Store:
    store = Store(url, "1.0")
    store.append([entry(number) for number in range(1, 2501)], {"w": {"a": 1}}, [letter(1), letter(2)])
    store.save_snapshot(Snapshot(2000, 3000, "state"))
    return store


def test_a_backup_of_a_running_service(url: str, tmp_path: Path, server_or_none: Postgres | None) -> None:
    """It is taken beside a writer, passes its check, and becomes either kind of database, which goes on from there."""
    store = filled(url)
    file = tmp_path / "b" / "backup.sqlite"
    file.parent.mkdir()
    going, begun = threading.Event(), threading.Event()

    def write() -> None:
        while not going.is_set():
            number = store.seq + 1
            store.append([entry(number)], {"last": {"seq": number}})
            begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(30)
        assert backup(Place(url), file) == file.stat().st_size
    finally:
        going.set()
        writer.join()
    store.close()
    assert file.stat().st_mode & 0o077 == 0
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    found = check(Place(f"sqlite:///{file}"))
    assert found.problems == ()
    assert (found.first, found.snapshots, found.rows["outbox"]) == (1, (2000,), 2)
    assert found.cores == {"1.0": found.last}
    targets = [sqlite_url(file.parent)] + ([server_or_none.database()] if server_or_none else [])
    for target in targets:
        assert restore(file, Place(target)).last == found.last
        again = Store(target, "1.1")
        loaded = again.load()
        # One moment: the detail that was committed with the last entry, and no other.
        assert loaded.details == {"w": {"a": 1}, "last": {"seq": found.last}}
        assert loaded.snapshot == Snapshot(2000, 3000, "state")
        assert again.append([entry(found.last + 1)], letters=[letter(3)]) == [found.last + 1]
        again.close()
        assert check(Place(target)).rows["outbox"] == 3
        with pytest.raises(InTheWay):
            restore(file, Place(target))
    with pytest.raises(InTheWay):
        backup(Place(url), file)


@pytest.fixture
def server_or_none(request: pytest.FixtureRequest, url: str) -> Postgres | None:
    """Where PostgreSQL is tested, what was taken from it goes back there, too."""
    return request.getfixturevalue("server") if url.startswith("postgresql") else None


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("UPDATE journal SET event = '{}' WHERE seq = 7", ["entry 7 is damaged"]),
        ("DELETE FROM journal WHERE seq IN (7, 8, 11)", ["entries 7 to 8 are missing", "entries 11 to 11 are missing"]),
        ("UPDATE snapshots SET state = 'x'", ["the snapshot after entry 2000 is damaged; an older one serves"]),
        ("DELETE FROM journal WHERE seq > 1000", ["there is a snapshot after entry 2000, but the journal ends with entry 1000"]),
    ],
)
def test_a_check_names_what_is_wrong(url: str, damage: str, said: list[str], tmp_path: Path) -> None:
    """One damaged entry is one problem, not all that follow; and such a backup is not put in place."""
    filled(url).close()
    assert check(Place(url)).problems == ()
    run(url, damage)
    assert list(check(Place(url)).problems) == said
    backup(Place(url), tmp_path / "b.sqlite")
    (tmp_path / "new").mkdir()
    with pytest.raises(StoreError, match="is damaged"):
        restore(tmp_path / "b.sqlite", Place(sqlite_url(tmp_path / "new")))


def test_pages_that_cannot_be_read(tmp_path: Path) -> None:
    """A disk that returns garbage in the middle of the file is a sentence."""
    url = sqlite_url(tmp_path)
    filled(url).close()
    path = tmp_path / "journal.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(20 * 4096)
        file.write(b"\xa5" * 40 * 4096)
    try:
        problems: object = check(Place(url)).problems
    except StoreError as err:
        problems = str(err)
    assert "damaged" in str(problems)


def test_nothing_there(url: str, tmp_path: Path) -> None:
    """An empty database is no journal, and asking does not make it one."""
    for _ in range(2):
        with pytest.raises(StoreError, match="is empty"):
            check(Place(url))
    with pytest.raises(StoreError, match="not there"):
        restore(tmp_path / "none.sqlite", Place(url))
