"""``[store]`` of the configuration: where the journal is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from gpufair.core.units import DAY, Millis
from gpufair.service.settings.notification_options import SecretPlace, read_secret
from gpufair.service.settings.tables import Table
from gpufair.service.storage.database import JOURNAL_FILE, POSTGRESQL, Place, StoreError, sqlite_url

LEAST_KEPT: Final = Millis(8 * DAY)  # the tour and the history of GPUs look back a week
MOST_KEPT: Final = Millis(36_500 * DAY)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """``url`` "": SQLite in the state folder. ``password``: of a PostgreSQL server, if not libpq itself knows it.

    ``keep``: entries of the journal that are older are moved to an archive file; 0: none are.
    """

    url: str = ""
    password: SecretPlace = field(default_factory=SecretPlace)
    keep: Millis = Millis(0)

    def place(self, state_dir: Path) -> Place:
        """Where the journal of a service is kept.

        Raises:
            StoreUnavailable: The file of the journal can't be made.
        """
        if not self.url:
            return Place(sqlite_url(state_dir))
        return Place(self.url, self.password.reader() if self.password else None)

    def existing(self, state_dir: Path) -> Place:
        """The same, and no file is made.

        Raises:
            StoreError: There is none.
        """
        if not self.url and not (state_dir / JOURNAL_FILE).is_file():
            raise StoreError(f"there is no journal in {state_dir}; name the --state-dir or --config of the service")
        return self.place(state_dir)


def read_store(table: Table, folder: Path) -> StoreOptions:
    """The table as options. ``folder``: what relative paths count from.

    Raises: ConfigError: Something in it is not valid.
    """
    keep = table.duration("keep", Millis(0), LEAST_KEPT, MOST_KEPT)
    options = StoreOptions(table.text("url", "", longest=2048), read_secret(table, "password", folder), keep)
    if options.url:
        try:
            url = sa.make_url(options.url)
        except ArgumentError:
            table.fail("url is no database URL; expected one like postgresql://gpufair@db.example.org/gpufair", "url")
        if url.get_backend_name() != POSTGRESQL:
            table.fail("url: only postgresql://… can stand here; without it the journal is SQLite in the state folder", "url")
        if url.password is not None or "password" in url.query:
            # Whoever may read the file of options may not be meant to read this; and URLs end up in logs.
            table.fail("url has a password in it; use password_file or password_env, or libpq's own ~/.pgpass", "url")
    elif options.password:
        table.fail("a password is given, but no url that it is for", None)
    table.finish()
    return options
