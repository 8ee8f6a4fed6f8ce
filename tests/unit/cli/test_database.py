"""`gpufair db`: what an operator sees of a sound journal, of a damaged one, and of an old one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.service.lifecycle.listening import only_service
from gpufair.service.storage.schema import SCHEMA_VERSION
from gpufair.service.storage.store import JOURNAL_FILE, Store, sqlite_url
from tests.postgres import run as sql
from tests.unit.cli.conftest import run
from tests.unit.service.test_schema import version_1
from tests.unit.service.test_upkeep import filled


@pytest.fixture(autouse=True)
def _no_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))


def test_check_backup_restore(tmp_path: Path) -> None:
    filled(sqlite_url(tmp_path)).close()
    state = ("--state-dir", str(tmp_path))
    with only_service(tmp_path):  # while the service runs
        seen = run("db", "check", *state)
        assert seen.code == 0, seen.err
        assert "1 to 2,500" in seen.out
        file = tmp_path / "backup.sqlite"
        made = run("db", "backup", str(file), *state, "--json").json
        assert made == {"file": str(file), "size_bytes": file.stat().st_size}
        refused = run("db", "restore", str(file), *state)
        assert refused.code == 1
        assert "another service" in refused.err
    assert "nothing is ever overwritten" in run("db", "restore", str(file), *state).err
    new = ("--state-dir", str(tmp_path / "new"))
    assert run("db", "restore", str(file), *new).code == 0
    assert run("db", "check", *new, "--json").json["last"] == 2500
    sql(sqlite_url(tmp_path), "DELETE FROM journal WHERE seq = 9")
    seen = run("db", "check", *state)
    assert seen.code == 1
    assert "entries 9 to 9 are missing" in seen.out


def test_upgrade(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    version_1(url, True)
    state = ("--state-dir", str(tmp_path))
    assert "gpufair db upgrade" in run("db", "check", *state).err
    told = run("db", "upgrade", *state, "--json").json
    assert (told["before"], told["after"]) == (1, SCHEMA_VERSION)
    assert "already" in run("db", "upgrade", *state).out
    assert run("db", "check", *state).code == 0
    Store(url, "1").close()


def test_no_journal_there(tmp_path: Path) -> None:
    """Nothing is made where there was nothing."""
    seen = run("db", "check", "--state-dir", str(tmp_path))
    assert seen.code == 1
    assert "there is no journal" in seen.err
    assert not (tmp_path / JOURNAL_FILE).exists()


def test_archive(tmp_path: Path) -> None:
    """Old entries go to a file that a check looks at; what is young, or needed, or asked for wrongly, stays."""
    filled(sqlite_url(tmp_path)).close()
    state = ("--state-dir", str(tmp_path))
    assert "no [store] keep" in run("db", "archive", *state).err
    assert "the last 8 days" in run("db", "archive", "--keep", "1d", *state).err
    assert "is no day" in run("db", "archive", "--before", "soon", *state).err
    assert "Nothing is old enough" in run("db", "archive", "--before", "1970-01-01", *state).out
    file = tmp_path / "journal-archive.jsonl.gz"
    assert not file.exists()
    with only_service(tmp_path):  # while the service runs
        told = run("db", "archive", "--keep", "90d", *state, "--json").json
    assert told == {"moved": 1999, "archived": 1999, "files": [str(file)]}
    seen = run("db", "check", *state)
    assert seen.code == 0, seen.err
    assert "1 to 1,999, in journal-archive.jsonl.gz" in seen.out
    assert "2,000 to 2,500" in seen.out
    file.rename(tmp_path / "away")
    assert run("db", "check", *state).code == 1


def test_archive_as_configured(tmp_path: Path) -> None:
    filled(sqlite_url(tmp_path)).close()
    config = tmp_path / "g.toml"
    config.write_text('[store]\nkeep = "30d"\n')
    told = run("db", "archive", "--config", str(config), "--state-dir", str(tmp_path), "--json").json
    assert told["moved"] == 1999
