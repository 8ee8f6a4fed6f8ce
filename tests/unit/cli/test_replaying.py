"""`gpufair replay` and `gpufair snapshot`: the exit code says whether all is the same, the text what is not."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from gpufair.service.storage.store import JOURNAL_FILE, Snapshot
from gpufair.sim import read_trace
from tests.unit.cli.conftest import Gpufair, run
from tests.unit.client.fake_service import FakeService, Reply, problem
from tests.unit.service.test_replay import a_day


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    asyncio.run(a_day(folder))
    return folder


def test_identical(journal: Path) -> None:
    seen = run("replay", str(journal))
    assert seen.code == 0, seen.err
    assert "Identical: all 8 decisions are the recorded ones" in seen.out
    assert "gpufair test (13)" in seen.out
    told = run("replay", str(journal / JOURNAL_FILE), "--from", "last", "--json").json
    assert told["identical"] is True
    assert told["from"] + told["events"] == 13
    assert (told["protected_preemptions"], told["first_difference"]) == (0, None)


def test_a_difference_is_shown_with_both_sides(journal: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(journal, tmp_path / "copy"))
    with sqlite3.connect(copy / JOURNAL_FILE) as db:
        db.execute("UPDATE journal SET actions = '[]' WHERE seq = 4")
        assert db.execute("SELECT changes()").fetchone() == (1,)
    db.close()
    seen = run("replay", str(copy))
    assert seen.code == 1
    assert "The first difference is at entry 4" in seen.out
    assert "recorded  no (further) decision" in seen.out
    assert 'now       {"type": "Start"' in seen.out
    assert "digests do not fit): 4." in seen.out
    told = run("replay", str(copy), "--json")
    assert told.code == 1
    assert told.json["first_difference"]["recorded"] == "[]"
    assert told.json["damaged"] == [4]


def test_an_export_and_a_snapshot_file_are_read_back(journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert run("replay", str(journal), "--export", str(out)).code == 0
    assert run("replay", str(out)).code == 0
    with sqlite3.connect(journal / JOURNAL_FILE) as db:
        kept = Snapshot(*db.execute("SELECT seq, at_ms, state FROM snapshots ORDER BY seq LIMIT 1").fetchone())
    db.close()
    (tmp_path / "snapshot.json").write_text(json.dumps({"seq": kept.seq, "at_s": 1.0, "state": json.loads(kept.text())}))
    seen = run("replay", str(out), "--from", str(tmp_path / "snapshot.json"), "--json").json
    assert (seen["identical"], seen["from"]) == (True, kept.seq)


def test_an_export_as_a_trace(journal: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.csv.gz"
    seen = run("replay", str(journal), "--export", str(out))
    assert seen.code == 0, seen.err
    assert f"jobs written to {out}" in seen.err
    assert {row.project for row in read_trace(out).rows} == {"a"}  # the others' run had only just begun


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["{journal}", "--from", "3"], "keeps no whole snapshot after entry 3; it keeps them after: "),
        (["{journal}", "--from", "{tmp}/none"], "cannot be read: No such file or directory; `gpufair snapshot FILE` writes one"),
        (["{journal}", "--from", "{tmp}/bad"], "holds no snapshot; `gpufair snapshot FILE` writes one"),
        (["{journal}", "--from", "{tmp}/odd"], "the snapshot cannot be read: snapshot: its version is 99"),
        (["{tmp}/bad"], "is no exported journal; name a journal.sqlite"),
        (["{tmp}/none"], "cannot be read: No such file or directory; name a journal"),
        (["{journal}", "--export", "{tmp}/no/folder"], "there is no folder"),
    ],
)
def test_bad_input_is_a_sentence(journal: Path, tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "bad").write_text("[1]")
    (tmp_path / "odd").write_text('{"seq": 3, "state": {"version": 99}}')
    seen = run("replay", *(arg.format(journal=journal, tmp=tmp_path) for arg in args))
    assert seen.code == 1
    assert said in seen.err
    assert "Traceback" not in seen.err


def test_the_live_state_is_written_to_a_file(gpufair: Gpufair, fake: FakeService, tmp_path: Path) -> None:
    state = {"seq": 7, "at_s": 1.5, "version": "0.1.0", "state": {"version": 1}}
    fake.routes["GET /api/v1/snapshot"] = Reply(body=state)
    seen = gpufair("snapshot", str(tmp_path / "s.json"))
    assert seen.code == 0
    assert "after entry 7" in seen.err
    assert json.loads((tmp_path / "s.json").read_text()) == state
    fake.routes["GET /api/v1/snapshot"] = problem(403, "Forbidden", "only budget owners and operators may")
    assert "only budget owners" in gpufair("snapshot", str(tmp_path / "s.json")).err
