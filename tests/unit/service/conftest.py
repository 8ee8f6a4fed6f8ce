"""An empty database of each kind that a journal can be kept in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpufair.service.storage.database import sqlite_url
from tests.postgres import Postgres, postgres


@pytest.fixture(scope="session")
def server() -> Iterator[Postgres]:
    """A real PostgreSQL. No test of those that share it may end it."""
    with postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new journal is kept."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path)
    url: str = request.getfixturevalue("server").database()
    return url
