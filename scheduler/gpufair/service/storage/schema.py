"""The tables of the journal's database, their version, and how an older database becomes a new one.

A new database is made at once with all tables that ``metadata`` knows. An older one is taken over by the migrations in
``migrations/versions`` (alembic), all in one transaction; a test compares what comes of both ways. ``meta.schema`` is the
version; the core's state and events, which are JSON texts in these tables, have versions of their own.

To add a table: define it with ``database.metadata`` in the module that uses it, name that module in ``_MODULES``, raise
``SCHEMA_VERSION``, and write ``migrations/versions/rN_what.py`` that creates it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from gpufair.service.storage import announcements, audit, budget_history, budget_requests, ended, outbox, stays, tokens
from gpufair.service.storage.database import LEADER_LOCK, POSTGRESQL, SQLITE, StoreError, metadata

SCHEMA_VERSION: Final = 9
_MODULES: Final = (audit, outbox, stays, budget_requests, budget_history, tokens, announcements, ended)  # they define tables
_CREATION: Final = 0x67707566  # PostgreSQL's advisory lock of whoever creates or upgrades; "gpuf"
_MIGRATIONS: Final = Path(__file__).with_name("migrations")
_upgrading = threading.Lock()  # alembic keeps what it works on in a global

journal = sa.Table(
    "journal",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("actions", sa.Text, nullable=False),
    sa.Column("core", sa.String(64), nullable=False),  # version of the core that decided
    sa.Column("policy", sa.String(64), nullable=False),  # digest of the options it decided by
    sa.Column("digest", sa.String(64), nullable=False),
)
snapshots = sa.Table(
    "snapshots",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
)
details = sa.Table(
    "details",  # what the service knows of a workload beside the core's facts
    metadata,
    sa.Column("workload", sa.String(255), primary_key=True),
    sa.Column("detail", sa.Text, nullable=False),
)
meta = sa.Table(
    "meta",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

leaders = sa.Table(
    "leaders",  # one row; see ``leadership``
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("renewed_ms", sa.BigInteger, nullable=False),  # by the database's clock
)


class SchemaOutdated(StoreError):
    """The database was written by an older version, and nobody has upgraded it yet."""

    def __init__(self, shown: str, version: int) -> None:
        super().__init__(shown, version)
        self.shown, self.version = shown, version

    def __str__(self) -> str:
        return (
            f"{self.shown} has schema {self.version}, this version of gpufair needs {SCHEMA_VERSION}; "
            "stop every service that uses it and run `gpufair db upgrade`"
        )


def version_of(connection: sa.Connection, shown: str) -> int:
    """The version of a database; 0: it is empty.

    Raises:
        StoreError: It is no journal.
    """
    names = set(sa.inspect(connection).get_table_names())
    if not names:
        return 0
    if "meta" not in names:
        raise StoreError(f"{shown} holds something else ({', '.join(sorted(names)[:4])})")
    found = connection.scalar(sa.select(meta.c.value).where(meta.c.key == "schema"))
    if found is None or not found.isdigit():
        raise StoreError(f"{shown} names no schema version; it is no journal of ours")
    return int(found)


def prepare(engine: sa.Engine, shown: str) -> None:
    """Make the tables of an empty database; of any other see that it has this version.

    Raises:
        SchemaOutdated: It is older.
        StoreError: It is newer, or no journal.
    """
    with engine.begin() as connection:
        _alone(connection)
        version = version_of(connection, shown)
        if version == 0:
            metadata.create_all(connection)
            connection.execute(sa.insert(meta), {"key": "schema", "value": str(SCHEMA_VERSION)})
        elif version < SCHEMA_VERSION:
            raise SchemaOutdated(shown, version)
        elif version > SCHEMA_VERSION:
            raise _newer(shown, version)


def upgrade(engine: sa.Engine, shown: str) -> tuple[int, int]:
    """Make it a database of this version, in one transaction. Returns the version before and after.

    A SQLite file is copied first, to ``….schemaN`` beside it.

    Raises:
        StoreError: It is newer, or no journal.
    """
    with engine.connect() as connection:
        version = version_of(connection, shown)
    if version == 0:
        prepare(engine, shown)
    elif version > SCHEMA_VERSION:
        raise _newer(shown, version)
    elif version < SCHEMA_VERSION:
        if engine.dialect.name == SQLITE and (file := engine.url.database):
            _copied(Path(file), version)
        with engine.begin() as connection, _upgrading:
            _alone(connection)
            if not _leaderless(connection):
                raise StoreError(f"a service is using {shown}; stop every service that does, and try again")
            if version_of(connection, shown) == version:  # nobody else was quicker
                _migrate(connection, version)
    return version, SCHEMA_VERSION


def _migrate(connection: sa.Connection, version: int) -> None:
    # Only here: it takes 0.2 s to import, and hardly any start needs it.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.stamp(config, str(version), purge=True)
    command.upgrade(config, str(SCHEMA_VERSION))
    connection.execute(sa.update(meta).where(meta.c.key == "schema").values(value=str(SCHEMA_VERSION)))


def _alone(connection: sa.Connection) -> None:
    """Two services may meet at one new database."""
    if connection.dialect.name == POSTGRESQL:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION)))


def _leaderless(connection: sa.Connection) -> bool:
    """Whether no service of any version works on it, nor will before this transaction ends."""
    if connection.dialect.name != POSTGRESQL:
        return True
    return bool(connection.scalar(sa.select(sa.func.pg_try_advisory_xact_lock(LEADER_LOCK))))


def _copied(file: Path, version: int) -> None:
    copy = file.with_name(f"{file.name}.schema{version}")
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        copy.chmod(0o600)
        source.backup(target)


def _newer(shown: str, version: int) -> StoreError:
    return StoreError(
        f"{shown} has schema {version}, this version of gpufair knows up to {SCHEMA_VERSION}; "
        "use the newer gpufair that wrote it, or another --state-dir"
    )
