"""Workloads that ended long ago leave the state and its snapshots, and nobody who asks about them notices."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.model import CheckpointRef
from gpufair.core.record import Record
from gpufair.core.units import SECOND, GpuMillis, Instant, Millis, WorkloadId
from gpufair.service.archives.archive import open_archive
from gpufair.service.archives.replayed import replay
from gpufair.service.runtime import attic
from gpufair.service.runtime.recovery import recover
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.storage import ended
from gpufair.service.storage.ended import Ended, Wanted
from gpufair.service.storage.store import JOURNAL_FILE, Store, StoreUnavailable, sqlite_url
from gpufair.service.web.context import Context
from gpufair.service.workloads.details import Detail
from gpufair.service.workloads.turn import Turn
from tests.unit.service.rig import LAUNCH, START, bearer, cluster, runtime_at, service_at, spec, submit
from tests.unit.service.test_agents import API, FakeAgent

NAMES = ("one", "two", "three", "four", "five")
HOLDER = "holder"
CUT = WorkloadId("two")


@pytest.fixture(autouse=True)
def only_the_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attic, "KEPT", 1)
    monkeypatch.setattr(attic, "_AT_ONCE", 2)


async def _pass(it: Context, span_s: int = 10) -> None:
    clock = it.lifetime._clock
    assert isinstance(clock, VirtualClock)
    await clock.advance(Millis(span_s * SECOND))


@asynccontextmanager
async def worked(folder: Path) -> AsyncIterator[tuple[Context, httpx.AsyncClient]]:
    """Five batch workloads of ada's have run one after the other, the second one badly."""
    async with service_at(folder) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        for name in NAMES:
            body = {"id": name, "gpus": 1, "min_runtime_s": 60, "user": "ada", "kind": "batch", "launch": LAUNCH}
            body["launch"] = LAUNCH | {"type": "command"}
            body["notebook"] = f"/home/ada/{name[0]}.ipynb"
            assert (await client.post(f"{API}/workloads", json=body)).status_code == 201
            await _pass(it)
            await agent.report("serving", name, devices=["virtual-0"], generation=1)
            outcome = "failed" if name == CUT else "completed"
            await agent.report("exited", name, outcome=outcome, code=int(name == CUT), reason="so it went")
            await _pass(it)
        yield it, client


async def _asked(client: httpx.AsyncClient) -> dict[str, Any]:
    """All that can be asked about them."""
    told: dict[str, Any] = {}
    for query in ("", "?state=ended", "?user=ada", "?user=bo", "?notebook=/home/ada/t.ipynb", "?holding=true", "?state=queued"):
        told[query] = (await client.get(f"{API}/workloads{query}")).json()["workloads"]
    pages, cursor = [], ""
    while True:
        page = (await client.get(f"{API}/workloads?limit=2{cursor}")).json()
        pages.append([one["id"] for one in page["workloads"]])
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    told["pages"] = pages
    for name in (*NAMES, "none"):
        for what in ("", "/why", "/checkpoints", "/log"):
            answer = await client.get(f"{API}/workloads/{name}{what}")
            told[name + what] = (answer.status_code, answer.json())
    told["counts"] = (await client.get(f"{API}/status")).json()["counts"]
    return told


async def _in_state(runtime: Runtime) -> set[str]:
    return await runtime.read(lambda state: {str(one) for one in state.facts.records} - {HOLDER})


async def test_nobody_notices_that_they_left(tmp_path: Path) -> None:
    """Lists, pages, one by one: as before, after they left, and after a restart; the snapshot holds the last one only."""
    async with worked(tmp_path) as (it, client):
        before = await _asked(client)
        assert [one["id"] for one in before[""]] == list(NAMES)
        assert before["pages"] == [["one", "two"], ["three", "four"], ["five"]]
        assert [one["id"] for one in before["?notebook=/home/ada/t.ipynb"]] == ["two", "three"]
        assert before["counts"]["ended"] == 5
        await it.runtime.snapshot()
        assert await _in_state(it.runtime) == {"five"}
        assert await _asked(client) == before
        assert await _in_state(it.runtime) == set(NAMES), "those that were asked for are there for a while"
        assert (await client.get(f"{API}/status")).json()["counts"]["ended"] == 5
        await _pass(it, 3700)
        await client.post(f"{API}/nodes/n1/cordon")
        await it.runtime.snapshot()
        assert await _in_state(it.runtime) == set()
        before = await _asked(client)  # their remaining time of day
    async with service_at(tmp_path) as (it, client):
        assert await _in_state(it.runtime) == set()
        assert await _asked(client) == before


async def test_they_can_be_acted_on_as_before(tmp_path: Path) -> None:
    """An id stays taken; what has ended cannot be changed, and says so; others can wait for it."""
    async with worked(tmp_path) as (it, client):
        await it.runtime.snapshot()
        body = {"id": "one", "gpus": 1, "min_runtime_s": 60, "user": "ada", "kind": "batch", "launch": LAUNCH | {"type": "command"}}
        again = await client.post(f"{API}/workloads", json=body)
        assert (again.status_code, again.json()["state"]) == (200, "ended")
        bo = bearer(it.secrets.user_token("bo"))
        taken = await client.post(f"{API}/workloads", json=body | {"id": "two", "user": None}, headers=bo)
        assert taken.status_code == 403
        assert (await client.get(f"{API}/workloads/four", headers=bo)).json()["notebook"] == ""
        await it.runtime.snapshot()
        assert (await client.delete(f"{API}/workloads/three")).json()["state"] == "ended"
        assert (await client.post(f"{API}/workloads/four/park")).status_code == 409
        well = await client.post(f"{API}/workloads", json=body | {"id": "well", "after": ["one", "three"], "after_any": ["two"]})
        assert well.json()["state"] in ("queued", "starting")
        badly = await client.post(f"{API}/workloads", json=body | {"id": "badly", "after": ["one", "two"]})
        assert (badly.json()["state"], badly.json()["outcome"]) == ("ended", "cancelled")
        assert "which was to end well before it, has failed" in badly.json()["reason"]
        none = await client.post(f"{API}/workloads", json=body | {"id": "x", "after": ["one", "none"]})
        assert none.status_code == 404


async def _begin(runtime: Runtime) -> None:
    """One holds the only GPU, so that nobody else starts."""
    await cluster(runtime)
    await submit(runtime, HOLDER, spec("b"))


async def _ends(runtime: Runtime, clock: VirtualClock, name: str) -> None:
    workload = WorkloadId(name)
    await submit(runtime, name, spec())
    await clock.advance(Millis(SECOND))

    def step(turn: Turn) -> None:
        turn.set_detail(workload, Detail(checkpoints=({"id": f"c-{name}"},)))
        turn.handle(ev.Cancelled(turn.now, turn.cause(), workload))

    await runtime.do(step)
    await clock.advance(Millis(SECOND))


def _known(folder: Path) -> dict[str, tuple[Record, Detail]]:
    """All that a service which starts there would know, by id; nothing twice."""
    store = Store(sqlite_url(folder), "test")
    try:
        back = recover(store.load(), validate=True)
        found = {str(one.id): (one, back.details.get(one.id, Detail())) for one in back.state.facts.records.values()}
        away = store.within(partial(ended.page, wanted=Wanted()))
        assert not found.keys() & {str(one.record.id) for one in away}
        return found | {str(one.record.id): (one.record, Detail.from_dict(dict(one.detail))) for one in away}
    finally:
        store.close()


async def test_a_crash_at_any_step_loses_none(tmp_path: Path) -> None:
    """The file as it is after each transaction of the move holds all of them, each once, with their details."""
    clock = VirtualClock(START)
    copies: list[Path] = []

    def copied(work: Callable[..., Any], *args: Any) -> Any:
        result = work(*args)
        copies.append(tmp_path / f"copy-{len(copies)}")
        copies[-1].mkdir()
        with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as one, closing(sqlite3.connect(copies[-1] / JOURNAL_FILE)) as other:
            one.backup(other)
        return result

    async with runtime_at(tmp_path, clock) as (runtime, _):
        await _begin(runtime)
        await runtime.snapshot()
        for number in range(6):
            await _ends(runtime, clock, f"w{number}")
        known = {str(one.id): (one, runtime.detail(one.id)) for one in await runtime.read(lambda state: tuple(map(replace, state.facts.records.values())))}
        store = runtime._journal._store
        store.put_away = partial(copied, store.put_away)  # type: ignore[method-assign]
        store.save_snapshot = partial(copied, store.save_snapshot)  # type: ignore[method-assign]
        await runtime.snapshot()
        assert await _in_state(runtime) == {"w5"}
    assert len(known) == 7
    assert len(copies) == 4, "three pieces and the snapshot"
    for copy in copies:
        assert _known(copy) == known, copy.name
    # The newest snapshot is damaged: the one before it holds those that have left since.
    with closing(sqlite3.connect(tmp_path / JOURNAL_FILE)) as db:
        assert db.execute("SELECT count(*) FROM snapshots").fetchone() == (2,)
        db.execute("UPDATE snapshots SET state = '{}' WHERE seq = (SELECT max(seq) FROM snapshots)")
        db.commit()
    assert _known(tmp_path) == known


async def test_what_could_not_be_moved_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk in the middle: what was written has left, the rest is as before, and leaves later."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await _begin(runtime)
        for number in range(6):
            await _ends(runtime, clock, f"w{number}")
        store, calls = runtime._journal._store, []
        put_away = store.put_away

        def full(seq: int, those: list[Ended]) -> int:
            calls.append(seq)
            if len(calls) > 1:
                raise StoreUnavailable("no room")
            return put_away(seq, those)

        with monkeypatch.context() as patch:
            patch.setattr(store, "put_away", full)
            await runtime.snapshot()
        assert await _in_state(runtime) == {"w2", "w3", "w4", "w5"}
        assert runtime.past_count == 2
        assert len(_known(tmp_path)) == 7
        await runtime.snapshot()
        assert await _in_state(runtime) == {"w5"}
        assert runtime.past_count == 5
        assert len(_known(tmp_path)) == 7


async def test_a_state_that_is_read_anew_meanwhile_keeps_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No snapshot is saved without those of which the recovered state knows, for its journal may go on to name them."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await _begin(runtime)
        for number in range(6):
            await _ends(runtime, clock, f"w{number}")
        put_away = runtime._journal.put_away

        async def read_anew(seq: int, those: list[Ended]) -> int:
            new = await put_away(seq, those)
            await runtime._rebuild()
            return new

        with monkeypatch.context() as patch:
            patch.setattr(runtime._journal, "put_away", read_anew)
            await runtime.snapshot()
        assert (await runtime._journal.load()).snapshot is None
        assert await _in_state(runtime) == {"w2", "w3", "w4", "w5"}, "two were written before"
        assert runtime.past_count == 2
        assert len(_known(tmp_path)) == 7
        await runtime.snapshot()
        assert await _in_state(runtime) == {"w5"}
        assert runtime.past_count == 5
        assert len(_known(tmp_path)) == 7


async def test_a_late_report_about_one_that_was_asked_for_is_not_journalled(tmp_path: Path) -> None:
    """No snapshot has the workload: an entry that names it could not be recovered. What it adds to the detail is kept."""
    clock = VirtualClock(START)

    def late(turn: Turn) -> None:
        saved = CheckpointRef("c9", 9, turn.now, 1, Millis(1))
        turn.handle(ev.CheckpointDone(turn.now, turn.cause(), WorkloadId("w0"), 0, saved))
        turn.set_detail(WorkloadId("w0"), replace(turn.detail(WorkloadId("w0")), stays=True))

    async with runtime_at(tmp_path, clock) as (runtime, _):
        await _begin(runtime)
        for number in range(3):
            await _ends(runtime, clock, f"w{number}")
        await runtime.snapshot()
        assert (await runtime.view(WorkloadId("w0")))["outcome"] == "cancelled"
        seq = runtime._journal.seq
        await runtime.do(late)
        assert runtime._journal.seq == seq
        await submit(runtime, "next", spec())
    async with runtime_at(tmp_path, clock) as (runtime, _):
        assert "w0" not in await _in_state(runtime)
        await runtime.view(WorkloadId("w0"))
        assert runtime.detail(WorkloadId("w0")).stays
        assert runtime.detail(WorkloadId("w0")).checkpoints == ({"id": "c-w0"},)
        assert runtime.past_count == 1, "one of the two is in the state, for whoever asked"


async def test_the_journal_is_replayed_to_the_byte(tmp_path: Path) -> None:
    """From the beginning and from each snapshot, though they lack what had ended."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock, snapshot_every=4) as (runtime, _):
        await _begin(runtime)
        for number in range(12):
            await _ends(runtime, clock, f"w{number}")
            await runtime.view(WorkloadId(f"w{number // 2}"))
        await runtime.snapshot()
        assert runtime.past_count > 3
    with open_archive(tmp_path) as archive:
        assert replay(archive.entries()).same
        assert len(archive.snapshots()) == 3
        for seq in archive.snapshots():
            kept = archive.snapshot(seq)
            assert kept is not None
            assert replay(archive.entries(seq), json.loads(kept.text()), seq).same


async def test_those_of_an_older_service_leave_at_its_first_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its snapshot holds all that ever ended."""
    clock = VirtualClock(START)
    with monkeypatch.context() as patch:
        patch.setattr(attic, "KEPT", 1000)
        async with runtime_at(tmp_path, clock) as (runtime, _):
            await _begin(runtime)
            for number in range(8):
                await _ends(runtime, clock, f"w{number}")
            await runtime.snapshot()
            assert len(await _in_state(runtime)) == 8
    async with runtime_at(tmp_path, clock, snapshot_every=4) as (runtime, _):
        assert runtime._saving is not None
        await runtime._saving
        assert await _in_state(runtime) == {"w7"}
        assert [view["id"] for view in await runtime.past(Wanted(most=3))] == ["w0", "w1", "w2"]
        assert len(_known(tmp_path)) == 9


def test_the_table_is_the_same_in_every_database(url: str) -> None:
    """Written anew in the place of what was there; found by id, by user, by document, in pages."""
    store = Store(url, "test")
    store.append([], {"w1": {"stays": True}, "other": {"stays": True}})
    rows = []
    for number in range(7):
        wanted = replace(spec(), user="ab"[number % 2], launch={"notebook": f"/{'x' * 4000}{number % 3}"})
        record = Record(WorkloadId(f"w{number}"), wanted, Instant(100 + number // 2), settled=GpuMillis(number))
        rows.append(Ended(record, 5, {"generation": number}))
    rows.append(Ended(Record(WorkloadId("s"), replace(spec(), launch={"stands_in_for": "w1"}), Instant(100)), 1, {}, listed=False))
    assert store.put_away(7, rows[:4]) == 4
    assert store.put_away(8, rows[2:]) == 6 - 2
    assert store.put_away(8, []) == 0
    assert store.load().details == {"other": {"stays": True}}
    assert sorted(store.load().gone) == ["s", *(f"w{number}" for number in range(7))]
    assert store.within(ended.count) == 8
    assert dict(store.within(lambda connection: dict(ended.since(connection, 8)))).keys() == {"s", "w2", "w3", "w4", "w5", "w6"}
    assert store.within(partial(ended.find, workloads=["w3", "none", "w0"])) == [rows[0], rows[3]]

    def listed(**wanted: Any) -> list[str]:
        return [one.record.id for one in store.within(partial(ended.page, wanted=Wanted(**wanted)))]

    assert listed() == [f"w{number}" for number in range(7)]
    assert listed(most=3) == ["w0", "w1", "w2"]
    assert listed(most=3, after=(101, "w2")) == ["w3", "w4", "w5"]
    assert listed(user="b") == ["w1", "w3", "w5"]
    assert listed(user="b", notebook=f"/{'x' * 4000}1") == ["w1"]
    store.close()
