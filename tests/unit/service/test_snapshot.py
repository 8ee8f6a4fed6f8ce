"""The live state is handed to those who plan with it, and holds nothing that is not theirs to know."""

from __future__ import annotations

import json
from pathlib import Path

from gpufair.clock import VirtualClock
from gpufair.core import events as ev
from gpufair.core.snapshot import restore, snapshot
from gpufair.core.units import CauseId, Instant
from gpufair.service.archives.archive import open_archive
from gpufair.service.archives.replayed import replay
from gpufair.service.insight.handed_out import KEPT_ENDED, snapshot_text
from tests.unit.service.rig import LAUNCH, START, bearer, cluster, runtime_at, service_at, spec, submit

API = "/api/v1"
SECRET = "a name that tells what ada works on"


async def test_who_may_read_it_and_what_is_in_it(tmp_path: Path) -> None:
    """Operators all but arguments; budget owners no names either; others nothing."""
    async with service_at(tmp_path) as (it, client):
        for name in ("w1", "w2", "w3"):
            body = {"id": name, "gpus": 1, "min_runtime_s": 3600, "user": "ada", "allocation": "a", "name": SECRET,
                    "launch": LAUNCH | {"env": {"PASSWORD": "hunter2"}}}  # fmt: skip
            assert (await client.post(f"{API}/workloads", json=body)).status_code == 201
        await client.delete(f"{API}/workloads/w3")
        before = (await client.get(f"{API}/timeline")).json()
        for user, allowed in (("olga", True), ("uma", True), ("ada", False), ("bo", False)):
            answer = await client.get(f"{API}/snapshot", headers=bearer(it.secrets.user_token(user)))
            assert answer.status_code == (200 if allowed else 403), user
            if not allowed:
                assert "budget owners" in answer.json()["detail"]
                continue
            assert "hunter2" not in answer.text
            assert "argv" not in answer.text
            assert (SECRET in answer.text) == (user == "olga")
            told = answer.json()
            assert told["seq"] == it.journal.seq
            state = restore(told["state"])
            live = await it.runtime.read(lambda state: (state.now, state.queue(), dict(snapshot(state)["ledgers"])))
            assert (state.now, state.queue(), dict(snapshot(state)["ledgers"])) == live
            assert told["at_s"] == state.now / 1000 <= told["now_s"]
            state.validate()
        assert (await client.get(f"{API}/timeline")).json() == before
        assert (await client.get(f"{API}/snapshot", headers=bearer("x"))).status_code == 401
        # uma may plan, not operate.
        cordon = await client.post(f"{API}/nodes/n1/cordon", headers=bearer(it.secrets.user_token("uma")))
        assert cordon.status_code == 403


async def test_a_replay_begins_with_it(tmp_path: Path) -> None:
    """What was handed out is the state at that entry: all that was decided later follows from it."""
    async with service_at(tmp_path) as (_, client):
        body = {"gpus": 1, "min_runtime_s": 3600, "user": "ada", "allocation": "a", "launch": LAUNCH}
        await client.post(f"{API}/workloads", json=body | {"id": "w1"})
        told = (await client.get(f"{API}/snapshot")).json()
        await client.post(f"{API}/workloads", json=body | {"id": "w2"})
        await client.delete(f"{API}/workloads/w1")
    with open_archive(tmp_path) as archive:
        found = replay(archive.entries(told["seq"]), told["state"], told["seq"])
        assert found.same
        assert found.events == archive.last - told["seq"] == 2


async def test_what_ended_long_ago_is_not_in_it(tmp_path: Path) -> None:
    """A service that runs for months has ended very many; of late ones a report may still come."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime, gpus=2)
        await submit(runtime, "old", spec())
        await runtime.do(lambda turn: turn.handle(ev.Cancelled(turn.now, CauseId("x"), "old")))  # type: ignore[arg-type]
        await runtime.do(lambda turn: turn.handle(ev.Released(turn.now, CauseId("x"), "old", 1)))  # type: ignore[arg-type]
        await clock.advance(KEPT_ENDED)
        await submit(runtime, "late", spec())

        def told(state, seq):
            return json.loads(snapshot_text(state, seq, START, "test", names=True))["state"]["workloads"]

        assert sorted(one["id"] for one in await runtime.write_down(told)) == ["late", "old"]
        await clock.advance(Instant(1000))  # type: ignore[arg-type]
        await submit(runtime, "later", spec())
        assert sorted(one["id"] for one in await runtime.write_down(told)) == ["late", "later"]
        assert await runtime.read(lambda state: len(state.facts.records)) == 3
