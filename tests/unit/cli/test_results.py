"""What commands write never destroys what they read, nor each other, nor a database, nor what was there if they fail."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from gpufair.cli.exits import CommandError
from gpufair.cli.results import check_writable, whole
from gpufair.service.storage.store import JOURNAL_FILE
from tests.unit.cli.conftest import run
from tests.unit.cli.test_shadow import HEADER, job
from tests.unit.cli.test_simulating import rows
from tests.unit.service.test_replay import a_day

BUDGETS = '[[allocation]]\npath = "language"\nshare = 1\n'
SIMULATE = ("simulate", "{tmp}/t.csv", "--cluster", "2x8", "--budgets", "{tmp}/b.toml", "--assumptions", "{tmp}/a.toml")
SWEEP = ("sweep", "{tmp}/t.csv", "--cluster", "2x8", "--budgets", "{tmp}/b.toml", "--vary", "banking=0")
SHADOW = ("shadow", "--sacct", "{tmp}/s.txt", "--cluster", "2x8", "--budgets", "{tmp}/b.toml", "--once", "-p", "fifo")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(rows())
    (tmp_path / "b.toml").write_text(BUDGETS)
    (tmp_path / "a.toml").write_text("")
    (tmp_path / "s.txt").write_text(HEADER + job(1))
    (tmp_path / "way").symlink_to(tmp_path / "t.csv")
    os.link(tmp_path / "t.csv", tmp_path / "twin")
    return tmp_path


@pytest.mark.parametrize(
    "args",
    [
        *((*SIMULATE, option, name) for option in ("--json", "--report") for name in ("t.csv", "b.toml", "a.toml")),
        *((*SIMULATE, "--json", name) for name in ("way", "twin", "sub/../t.csv")),
        *((*SWEEP, option, name) for option in ("--json", "--report") for name in ("t.csv", "b.toml")),
        *((*SHADOW, "--report", name) for name in ("s.txt", "b.toml")),
        *((*SHADOW, "--report", "r.html", option, name) for option in ("--json", "--state") for name in ("s.txt", "b.toml")),
    ],
)
def test_what_is_read_is_not_written(files: Path, args: tuple[str, ...]) -> None:
    (files / "sub").mkdir()
    before = {path: path.read_bytes() for path in files.iterdir() if path.is_file()}
    *most, name = args
    seen = run(*(arg.format(tmp=files) for arg in most[:-1]), most[-1].format(tmp=files), str(files / name))
    assert (seen.code, "which this command reads: it would be lost; name another file" in seen.err) == (1, True), seen
    assert {path: path.read_bytes() for path in files.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("named", ["folder", "file"])
@pytest.mark.parametrize("name", [JOURNAL_FILE, f"{JOURNAL_FILE}-wal", f"{JOURNAL_FILE}-shm"])
def test_an_export_never_takes_the_place_of_its_journal(tmp_path: Path, named: str, name: str) -> None:
    asyncio.run(a_day(tmp_path))
    target = tmp_path / name
    if not target.exists():
        target.write_bytes(b"pages")
    before = target.read_bytes()
    seen = run("replay", str(tmp_path if named == "folder" else tmp_path / JOURNAL_FILE), "--export", str(target))
    assert (seen.code, "it would be lost" in seen.err) == (1, True)
    assert target.read_bytes() == before


def test_nor_that_of_any_other_database(files: Path) -> None:
    with sqlite3.connect(files / "x.json") as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    seen = run(*(arg.format(tmp=files) for arg in SIMULATE), "--json", str(files / "x.json"))
    assert (seen.code, "which is a database: it would be lost" in seen.err) == (1, True)
    assert run("snapshot", str(files / "x.json")).err.startswith("gpufair: FILE names")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--json", "{tmp}/x", "--report", "{tmp}/x"), "--json and --report both name"),
        (("--json", "{tmp}/new", "--report", "{tmp}/sub/../new"), "--json and --report both name"),
        (("--json", "{tmp}"), "it is a folder; name a file in it"),
        (("--report", "-"), "--report takes a file, and - is none"),
    ],
)
def test_refused_before_anything_is_played(files: Path, given: tuple[str, ...], said: str) -> None:
    (files / "sub").mkdir()
    (files / "t.csv").write_text("not read yet\n")
    seen = run(*(arg.format(tmp=files) for arg in (*SIMULATE, *given)))
    assert (seen.code, said in seen.err) == (1, True), seen


def test_what_was_there_is_kept_if_writing_fails(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("good")

    def fail() -> None:
        with whole(old) as fresh:
            fresh.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(CommandError, match="old cannot be written: No space left on device; name another file"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert old.read_text() == "good"


def test_a_link_and_a_device_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "to").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "to")
    with whole(tmp_path / "link") as fresh:
        fresh.write_text("new")
    assert (tmp_path / "to").read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    check_writable({"--json": Path(os.devnull)})
    with whole(Path(os.devnull)) as fresh:
        fresh.write_text("gone")
    assert not Path(os.devnull).is_file()
