"""A journal is decided anew to the byte; what was tampered with, or is decided otherwise, is named."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import shutil
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.units import HOUR, MINUTE, Millis, WorkloadId
from gpufair.service.archives.archive import ArchiveError, open_archive, write_export
from gpufair.service.archives.replayed import Replayed, replay
from gpufair.service.storage.store import JOURNAL_FILE
from gpufair.service.storage.timeline import records
from gpufair.service.workloads.turn import Turn
from tests.unit.service.rig import START, cluster, quiet, runtime_at, spec, submit


async def a_day(folder: Path, snapshot_every: int = 5) -> None:
    """Two teams on two GPUs: sessions of the one leave for those of the other as their protection ends."""
    clock = VirtualClock(START)
    async with runtime_at(folder, clock, snapshot_every=snapshot_every) as (runtime, backend):
        await cluster(runtime, gpus=2)
        for name in ("a1", "a2", "a3"):
            await submit(runtime, name, spec("a", min_runtime=Millis(10 * MINUTE)))
        await submit(runtime, "b1", spec("b", gpus=2, min_runtime=HOUR))
        told: set[tuple[str, int]] = set()
        for _ in range(40):
            await clock.advance(MINUTE)
            await quiet(runtime)
            for workload, incarnation in backend.started():
                if (workload, incarnation) not in told:
                    told.add((workload, incarnation))
                    await runtime.do(partial(_up, workload=workload, incarnation=incarnation))
            leaving = [one.workload for one in backend.actions if type(one).__name__ == "BeginCheckpoint"]
            for workload in leaving:
                await runtime.do(partial(_gone, workload=workload))
        await runtime.snapshot()


def _up(turn: Turn, workload: str, incarnation: int) -> None:
    turn.handle(ev.Started(turn.now, turn.cause(), WorkloadId(workload), incarnation))


def _gone(turn: Turn, workload: str) -> None:
    record = turn.state.facts.records[WorkloadId(workload)]
    if record.held is not None and record.phase == "checkpointing":
        turn.handle(ev.Released(turn.now, turn.cause(), record.id, record.incarnation, busy=True))


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a journal in which somebody was preempted."""
    folder = tmp_path_factory.mktemp("journal")
    asyncio.run(a_day(folder))
    return folder


def replayed(path: Path, seq: int = 0) -> Replayed:
    with open_archive(path) as archive:
        snapshot = archive.snapshot(seq) if seq else None
        assert not seq or snapshot is not None
        return replay(archive.entries(seq), json.loads(snapshot.text()) if snapshot else None, seq)


def files(folder: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(folder.iterdir())}


def test_all_is_decided_as_it_was(journal: Path) -> None:
    """From the beginning and from each snapshot; the folder is as it was."""
    before = files(journal)
    found = replayed(journal)
    assert found.same
    assert found.events > 12
    assert found.protected_preemptions == 0
    assert list(found.cores) == ["test"]
    assert list(found.policies.values()) == [found.events]
    with open_archive(journal) as archive:
        kinds = {action["type"] for kept in archive.entries() for action in json.loads(kept.entry.actions)}
        assert {"Start", "BeginCheckpoint", "Requeue", "GrantLanding"} <= kinds
        snapshots = archive.snapshots()
        assert archive.last == found.events
    assert len(snapshots) >= 2
    for seq in snapshots:
        part = replayed(journal, seq)
        assert part.same
        assert part.events == found.events - seq
    assert files(journal) == before


def test_a_tampered_decision_is_found(journal: Path, tmp_path: Path) -> None:
    """Both sides are told, the digest does not fit, and what follows is compared all the same."""
    copy = Path(shutil.copytree(journal, tmp_path / "copy"))
    with sqlite3.connect(copy / JOURNAL_FILE) as db:
        seq, actions = db.execute("SELECT seq, actions FROM journal WHERE actions LIKE '%BeginCheckpoint%'").fetchone()
        forged = json.loads(actions)
        at = next(i for i, one in enumerate(forged) if one["type"] == "BeginCheckpoint")
        forged[at]["deadline"] += 1
        db.execute("UPDATE journal SET actions = ? WHERE seq = ?", (json.dumps(forged, separators=(",", ":")), seq))
    db.close()
    found = replayed(copy)
    assert not found.same
    assert (found.damaged, found.differing, found.differences[0].entry.seq) == ([seq], 1, seq)
    recorded, decided = found.differences[0].pair
    assert recorded["deadline"] == decided["deadline"] + 1
    assert found.events == replayed(journal).events


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE journal SET event = '{}' WHERE seq = 5", "entry 5 holds no event"),
        ("UPDATE journal SET actions = '[{}]' WHERE seq = 5", "what entry 5 records does not fit"),
        (
            "UPDATE journal SET actions = replace(actions, '\"n1\"', '\"n9\"') WHERE actions LIKE '%\"n1\"%'",
            "does not fit",
        ),
    ],
)
def test_what_cannot_be_followed_ends_it(journal: Path, tmp_path: Path, change: str, said: str) -> None:
    """An entry that fits nothing is named; nothing is claimed about those behind it."""
    copy = Path(shutil.copytree(journal, tmp_path / "copy"))
    with sqlite3.connect(copy / JOURNAL_FILE) as db:
        db.execute(change)
    db.close()
    found = replayed(copy)
    assert not found.same
    assert found.damaged
    assert said in found.stopped


def test_a_missing_entry_is_an_error(journal: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(journal, tmp_path / "copy"))
    with sqlite3.connect(copy / JOURNAL_FILE) as db:
        db.execute("DELETE FROM journal WHERE seq = 4")
    db.close()
    with pytest.raises(ArchiveError, match="entry 4 is missing"):
        replayed(copy)


async def test_a_running_service_is_read_beside_its_writer(tmp_path: Path) -> None:
    """While entries are in the write-ahead log, and of a copy of both files; neither is changed, and the writer goes on."""
    live = tmp_path / "live"
    live.mkdir()
    async with runtime_at(live, VirtualClock(START)) as (runtime, _):
        await cluster(runtime)
        await submit(runtime, "a1", spec("a"))
        written = {name: digest for name, digest in files(live).items() if not name.endswith("-shm")}
        assert f"{JOURNAL_FILE}-wal" in written
        found = replayed(live)
        assert found.same
        assert found.events == 4
        assert {name: digest for name, digest in files(live).items() if not name.endswith("-shm")} == written
        with open_archive(live) as archive:
            begun = archive.entries()
            next(begun)
            await submit(runtime, "a2", spec("a"))  # a reader in the middle of it holds nobody up
            assert len(list(begun)) >= 3
        copy = tmp_path / "copy"
        copy.mkdir()
        for name in (JOURNAL_FILE, f"{JOURNAL_FILE}-wal"):
            shutil.copyfile(live / name, copy / name)
        before = files(copy)
        assert replayed(copy / JOURNAL_FILE).events == 5
        assert files(copy) == before


def test_what_was_exported_replays_alike(journal: Path, tmp_path: Path) -> None:
    """An export holds no arguments; the timeline is one too."""
    with open_archive(journal) as archive:
        entries = [kept.entry for kept in archive.entries()]
    out = io.StringIO()
    assert write_export(entries, out) == len(entries)
    (tmp_path / "export.json").write_text(out.getvalue())
    assert '"argv"' not in out.getvalue()
    (tmp_path / "timeline.json").write_text(json.dumps({"records": records(entries)}))
    for name in ("export.json", "timeline.json"):
        found = replayed(tmp_path / name)
        assert found.same, found.differences
        assert found.events == len(entries)
    half = {"records": records(entries[5:])}
    (tmp_path / "half.json").write_text(json.dumps(half))
    with pytest.raises(ArchiveError, match="it begins with entry 6"):
        replayed(tmp_path / "half.json")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a journal",
        b"[]",
        b'{"format": "x", "entries": []}',
        b'{"format": "gpufair-journal", "version": 1, "entries": [{"seq": 1}]}',
        b"SQLite format 3\x00" + bytes(200),
    ],
)
def test_what_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ArchiveError, match=r"; name "):
        replayed(path)
    with pytest.raises(ArchiveError, match="cannot be read"):
        replayed(tmp_path / "missing")
