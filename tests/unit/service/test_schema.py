"""Databases of older versions are taken over without loss; those of others and newer ones are left alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from gpufair.service.storage import schema
from gpufair.service.storage.database import Place, metadata, open_engine
from gpufair.service.storage.schema import SCHEMA_VERSION, SchemaOutdated
from gpufair.service.storage.store import Snapshot, Store, StoreError, StoreUnavailable, chained, digest_of, sqlite_url
from tests.postgres import run
from tests.unit.service.test_store import entry

# As services of version 1 made it, the first of them without a table of notices.
VERSION_1 = [
    "CREATE TABLE journal (seq BIGINT NOT NULL, at_ms BIGINT NOT NULL, event TEXT NOT NULL, actions TEXT NOT NULL, "
    "core VARCHAR(64) NOT NULL, policy VARCHAR(64) NOT NULL, digest VARCHAR(64) NOT NULL, PRIMARY KEY (seq))",
    "CREATE TABLE snapshots (seq BIGINT NOT NULL, at_ms BIGINT NOT NULL, state TEXT NOT NULL, digest VARCHAR(64) NOT NULL, "
    "PRIMARY KEY (seq))",
    "CREATE TABLE details (workload VARCHAR(255) NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (workload))",
    'CREATE TABLE meta ("key" VARCHAR(64) NOT NULL, value TEXT NOT NULL, PRIMARY KEY ("key"))',
    "INSERT INTO meta VALUES ('schema', '1')",
    "INSERT INTO details VALUES ('w', '{\"a\": 1}')",
]
OUTBOX_1 = [
    "CREATE TABLE outbox (seq {serial} NOT NULL, id VARCHAR(512) NOT NULL, channel VARCHAR(16) NOT NULL, "
    "notice TEXT NOT NULL, tries INTEGER NOT NULL, due_ms BIGINT NOT NULL, PRIMARY KEY (seq), UNIQUE (id))",
    "INSERT INTO outbox (seq, id, channel, notice, tries, due_ms) VALUES (7, 'x', 'mail', '{{}}', 0, 5)",
]


def version_1(url: str, outbox: bool) -> None:
    serial = "SERIAL" if url.startswith("postgresql") else "INTEGER"
    for statement in VERSION_1 + [one.format(serial=serial) for one in OUTBOX_1 * outbox]:
        run(url, statement)
    digest = ""
    for seq in (1, 2, 3):
        one = entry(seq)
        digest = chained(digest, seq, one)
        run(url, f"INSERT INTO journal VALUES ({seq}, {one.at_ms}, '{one.event}', '[]', '0.9', 'p', '{digest}')")
    run(url, f"INSERT INTO snapshots VALUES (2, 1002, 'two', '{digest_of('two')}')")


def differences(url: str) -> object:
    engine = open_engine(Place(url))
    try:
        with engine.connect() as connection:
            found = compare_metadata(MigrationContext.configure(connection), metadata)
        # Alembic's own note is no table of ours.
        return [one for one in found if not (one[0] == "remove_table" and one[1].name == "alembic_version")]
    finally:
        engine.dispose()


@pytest.mark.parametrize("outbox", [False, True], ids=["first", "last"])
def test_an_old_journal_is_taken_over(url: str, outbox: bool) -> None:
    """Nobody writes into it before it is upgraded; then everything is there, and it goes on where it ended."""
    version_1(url, outbox)
    with pytest.raises(SchemaOutdated, match="gpufair db upgrade"):
        Store(url, "1.0")
    store = Store(url, "1.0", upgrade=True)
    loaded = store.load()
    assert loaded.snapshot == Snapshot(2, 1002, "two")
    assert [(one.seq, one.core) for one in loaded.tail] == [(3, "0.9")]
    assert loaded.details == {"w": {"a": 1}}
    assert store.append([entry(4)]) == [4]
    assert store.meta("schema") == str(SCHEMA_VERSION)
    store.close()
    Store(url, "1.0").close()
    assert differences(url) == []
    engine = open_engine(Place(url))
    with engine.connect() as connection:
        count = connection.exec_driver_sql("SELECT count(*) FROM outbox").scalar_one()
    engine.dispose()
    assert count == int(outbox)


def test_a_new_database_is_as_an_upgraded_one(url: str) -> None:
    """Tables that only one of the two ways makes would be missed much later."""
    Store(url, "1").close()
    assert differences(url) == []


def test_a_file_is_copied_first(tmp_path: Path) -> None:
    """What an upgrade makes of it an older version could not read; the copy it can."""
    url = sqlite_url(tmp_path)
    version_1(url, True)
    Store(url, "1", upgrade=True).close()
    copy = tmp_path / "journal.sqlite.schema1"
    assert copy.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(copy)) as database:
        assert database.execute("SELECT value FROM meta WHERE key = 'schema'").fetchall() == [("1",)]
        assert database.execute("SELECT count(*) FROM journal").fetchone() == (3,)


def test_an_upgrade_that_fails_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All or nothing: also the tables that a migration has made before it failed."""
    version_1(url, False)
    real = schema._migrate

    def fails(connection: sa.Connection, version: int) -> None:
        real(connection, version)
        connection.exec_driver_sql("INSERT INTO journal (seq) VALUES (1)")

    monkeypatch.setattr(schema, "_migrate", fails)
    with pytest.raises(StoreUnavailable):
        Store(url, "1", upgrade=True)
    engine = open_engine(Place(url))
    assert sorted(sa.inspect(engine).get_table_names()) == ["details", "journal", "meta", "snapshots"]
    engine.dispose()
    monkeypatch.undo()
    Store(url, "1", upgrade=True).close()


def test_a_newer_one_is_not_upgraded(url: str) -> None:
    Store(url, "1").close()
    run(url, "UPDATE meta SET value = '999' WHERE key = 'schema'")
    with pytest.raises(StoreError, match="newer gpufair"):
        Store(url, "1", upgrade=True)


def test_migrations_are_one_chain_to_this_version() -> None:
    """Two that were written at the same time need an order, and the last is the version."""
    config = Config()
    config.set_main_option("script_location", str(schema._MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [str(SCHEMA_VERSION)]
    assert [one.revision for one in script.walk_revisions()] == [str(n) for n in range(SCHEMA_VERSION, 0, -1)]
