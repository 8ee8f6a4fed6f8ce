"""The table that says as whom workloads run: refused where it cannot be trusted, or could not be carried out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpufair.cli import owners_file
from gpufair.cli.exits import CommandError, Wrong

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs workloads as others")


def table(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "owners.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


@as_root
def test_root_runs_workloads_as_their_owners_unless_told_otherwise(tmp_path: Path) -> None:
    assert owners_file.owners("", None) == {"least_uid": 1000, "users": {}, "environment": {}}
    assert owners_file.owners("agent", None) is None
    found = owners_file.owners("owner", table(tmp_path, 'least_uid = 500\n[users]\n"a@lab" = "ada"\nbo = { uid = 2000 }'))
    assert found == {"least_uid": 500, "users": {"a@lab": "ada", "bo": {"uid": 2000}}, "environment": {}}


@as_root
@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("[users", 0o600, "cannot be read"),
        ("[users]\nada = 7", 0o600, "has to be its name"),
        ("least_uid = 0", 0o600, "from 1 to"),
        ("[users]", 0o620, "chmod go-w"),
        ("[users]", 0o602, "chmod go-w"),
    ],
)
def test_a_table_that_cannot_be_trusted_is_refused(tmp_path: Path, text: str, mode: int, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        owners_file.owners("", table(tmp_path, text, mode))


def test_who_is_not_root_runs_all_as_himself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert owners_file.owners("", None) is None
    for run_as, path in (("owner", None), ("", table(tmp_path, ""))):
        with pytest.raises(CommandError, match="only root"):
            owners_file.owners(run_as, path)
    with pytest.raises(Wrong, match="says that none do"):
        owners_file.owners("agent", table(tmp_path, ""))


@as_root
def test_a_place_that_others_cannot_use_is_named(tmp_path: Path) -> None:
    """pytest's folders are closed to others, so no workload could run in one."""
    said = owners_file.unusable(tmp_path)
    assert "cannot be run by other accounts" in said or f"pass through {tmp_path}" in said
