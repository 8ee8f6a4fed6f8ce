"""The database under the journal, SQLite or PostgreSQL: opened so that a commit is durable, its errors told as ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gpufair.core.errors import GpufairError

JOURNAL_FILE: Final = "journal.sqlite"
SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
LEADER_LOCK: Final = 0x67706C64  # PostgreSQL's advisory lock of the service that leads; "gpld"
_DRIVER: Final = "postgresql+psycopg"
# A server whose machine has gone says nothing: after so long it counts as gone.
_PATIENCE_S: Final = 8

metadata = sa.MetaData()  # of every table of the journal's database (``schema`` says how one is added)


class StoreUnavailable(GpufairError):
    """The store cannot be written (or read) now. Nothing of what was asked has happened, unless it is ``in_doubt``."""

    def __init__(self, why: str, in_doubt: bool = False) -> None:
        super().__init__(why, in_doubt)
        self.why, self.in_doubt = why, in_doubt

    def __str__(self) -> str:
        if self.in_doubt:
            return f"the journal's database is gone ({self.why}), so whether this was done is not known; ask again soon"
        return f"the journal cannot be written ({self.why}), so nothing was changed; make room or mend it and try again"


class StoreError(GpufairError):
    """The store cannot be used at all: damaged, or of another version."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a journal is kept. ``password``: what reads the password, if there is one; it is never part of the URL."""

    url: str
    password: Callable[[], str] | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The URL, fit for logs."""
        try:
            return sa.make_url(self.url).render_as_string(hide_password=True)
        except SQLAlchemyError:
            return "(not an URL)"

    @property
    def in_a_file(self) -> bool:
        """Whether it is this machine's alone."""
        return self.url.startswith(SQLITE)


def sqlite_url(state_dir: Path) -> str:
    """The URL of the journal in a state folder; the file is made (0600) if there is none.

    Raises:
        StoreUnavailable: It can't be made.
    """
    path = state_dir / JOURNAL_FILE
    try:
        # SQLite gives its -wal and -shm files the mode of this one.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as err:
        raise StoreUnavailable(f"{path}: {err.strerror or err}") from err
    return f"sqlite:///{path}"


def open_engine(place: Place, *, reading: bool = False, name: str = "gpufair") -> sa.Engine:
    """An engine of one connection, which comes back by itself after it was lost. Nothing is connected yet.

    ``reading``: whoever uses it writes nothing, so that a file need not be made durable. ``name``: how a server calls it.

    Raises:
        StoreError: There is no such kind of database here.
    """
    try:
        url = sa.make_url(place.url)
        if url.get_backend_name() == POSTGRESQL:
            url = url.set(drivername=_DRIVER)
        elif url.get_backend_name() != SQLITE:
            raise StoreError(f"{place.shown} is neither sqlite:///… nor postgresql://…; name one of these")
        engine = sa.create_engine(url, poolclass=sa.pool.StaticPool, connect_args=_connect_args(url, name))
    except (SQLAlchemyError, ImportError) as err:
        remedy = "; pip install 'jupyter-gpufair[postgresql]'" if isinstance(err, ImportError) else ""
        raise StoreError(f"the database {place.shown} cannot be used: {reason(err)}{remedy}") from err
    if engine.dialect.name == SQLITE:
        sa.event.listen(engine, "begin", _begin)
        if not reading:
            sa.event.listen(engine, "connect", _durable_sqlite)
    else:
        sa.event.listen(engine, "connect", _durable_postgresql)
    if (password := place.password) is not None:

        def tell_password(_dialect: object, _record: object, _args: object, parameters: dict[str, Any]) -> None:
            parameters["password"] = password()

        sa.event.listen(engine, "do_connect", tell_password)
    return engine


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Errors of the database as ours. ``shown``: what it is called."""
    try:
        yield
    except DBAPIError as err:
        if "file is not a database" in str(err.orig) or "malformed" in str(err.orig):
            raise StoreError(f"{shown} is damaged: {reason(err)}; restore a backup") from err
        raise StoreUnavailable(reason(err), err.connection_invalidated) from err
    except SQLAlchemyError as err:
        raise StoreUnavailable(reason(err)) from err


def reason(err: BaseException) -> str:
    """What a database says, in one line."""
    return str(getattr(err, "orig", None) or err).strip().splitlines()[0]


def _connect_args(url: sa.URL, name: str) -> dict[str, Any]:
    if url.get_backend_name() == SQLITE:
        # One thread uses it, but not the one that opened it.
        # Transactions are begun by us (``_begin``): Python's module would leave changes of tables out of them.
        return {"check_same_thread": False, "timeout": 5.0, "isolation_level": None}
    return {
        "connect_timeout": _PATIENCE_S,
        "keepalives_idle": 2,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": _PATIENCE_S * 1000,
        "application_name": name,
        # Plans of statements that are kept by name get in the way of poolers such as PgBouncer.
        "prepare_threshold": None,
    }


def _durable_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _begin(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _durable_postgresql(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('fsync'), current_setting('full_page_writes')")
        if cursor.fetchone() != ("on", "on"):
            raise StoreError(
                "the PostgreSQL server runs with fsync or full_page_writes off, so that a power cut would lose what was "
                "acknowledged; set both to on"
            )
        cursor.execute("SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')")  # fmt: skip
    connection.commit()
