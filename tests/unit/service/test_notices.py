"""What people are told: what they chose, of their own workloads, once it is certain, and written down with what happened."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.clock import VirtualClock
from gpufair.core.model import Kind
from gpufair.core.units import HOUR, SECOND, Millis
from gpufair.service.delivery.budget_watch import BudgetWatch, used_up
from gpufair.service.settings.notification_options import NotificationOptions, WebhookOptions
from gpufair.service.storage import outbox
from gpufair.service.storage.journal import Journal
from gpufair.service.storage.outbox import Letter
from gpufair.service.workloads.notices import wanted
from tests.unit.service.rig import START, cluster, quiet, runtime_at, service_at, spec, submit
from tests.unit.service.test_agents import API, FakeAgent, session
from tests.unit.service.test_runtime import started
from tests.unit.service.test_time_limit import COMMAND, _pass, _up

TOLD = NotificationOptions(default=("failed",), webhook=WebhookOptions(users={"ada": "https://chat.example.org/ada"}))


async def letters(journal: Journal) -> list[dict[str, Any]]:
    """What waits to be sent, in order."""
    found = await journal.within(partial(outbox.due, channel="webhook", now_ms=1 << 60, limit=100))
    return [letter.notice for letter in found]


async def run(client: httpx.AsyncClient, *notify: str, **fields: Any) -> dict[str, Any]:
    """Batch work of ada's that says what she wants to hear."""
    body = {"id": "w", "user": "ada", "kind": "batch", "gpus": 1, "min_runtime_s": 60, "name": "train", "launch": COMMAND}
    answer = await client.post(f"{API}/workloads", json=body | {"notify": list(notify)} | fields)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_life_of_two_starts(tmp_path: Path) -> None:
    async with service_at(tmp_path, notifications=TOLD) as (it, client):
        clock, agent = it.lifetime._clock, FakeAgent(it, client)
        await agent.hello()
        answer = await run(client, "all", gpus=2, allocation="a", min_runtime_s=60)
        assert answer["warnings"] == []
        await _up(agent)
        await _pass(clock, 61)
        await session(client, "v", gpus=2, user="bo", allocation="b", min_runtime_s=30)
        deadline_s = it.runtime.now() / 1000 + 5
        await agent.report("released", "w", 1, busy=True)
        await client.delete(f"{API}/workloads/v")
        await agent.report("start_failed", "v", 1, reason="it was stopped")
        await agent.commands()
        await agent.report("serving", "w", 2, generation=1, connection={}, devices=[], lost=[])
        await agent.report("exited", "w", 2, outcome="completed", code=0, reason="")
        found = await letters(it.journal)
        assert [one["kind"] for one in found] == ["start", "preempted", "restored", "end"]
        assert [one["id"] for one in found] == ["w.1.start", "w.1.preempted", "w.2.restored", "w.2.end"]
        assert {(one["user"], one["workload"], one["name"], one["allocation"]) for one in found} == {("ada", "w", "train", "a")}
        assert found[1]["deadline_s"] == deadline_s
        assert found[1]["text"].startswith("train has to leave by ")
        assert "(within 5 s)" in found[1]["text"]
        assert found[2]["text"] == "train runs again, start 2"
        assert (found[3]["text"], found[3]["outcome"]) == ("train has completed", "completed")


@pytest.mark.parametrize(("notify", "told"), [(["end"], ["failed"]), (["failed"], ["failed"]), (["start"], ["start"]), ([], [])])
async def test_only_what_was_chosen(tmp_path: Path, notify: list[str], told: list[str]) -> None:
    """A failure is an end too; who chose nothing on purpose hears nothing, whatever is usual."""
    async with service_at(tmp_path, notifications=TOLD) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await run(client, *notify)
        await _up(agent)
        await agent.report("exited", "w", 1, outcome="failed", code=3, reason="exit code 3")
        assert [one["kind"] for one in await letters(it.journal)] == told


async def test_a_start_that_is_tried_again_is_no_failure_yet(tmp_path: Path) -> None:
    async with service_at(tmp_path, notifications=TOLD) as (it, client):
        clock, agent = it.lifetime._clock, FakeAgent(it, client)
        await agent.hello()
        await session(client, "w", kind="batch", launch=COMMAND, retries=1)  # what is usual: failures
        await _up(agent)
        await agent.report("exited", "w", 1, outcome="failed", code=3, reason="exit code 3")
        assert await letters(it.journal) == []
        await _pass(clock, 31)
        await _up(agent, 2)
        await agent.report("exited", "w", 2, outcome="timed out", code=0, reason="its time is over")
        (only,) = await letters(it.journal)
        assert (only["kind"], only["outcome"]) == ("failed", "timed out")


async def test_nobody_is_told_what_he_does_himself(tmp_path: Path) -> None:
    async with service_at(tmp_path, notifications=TOLD) as (it, client):
        agent = FakeAgent(it, client)
        await agent.hello()
        await run(client, "all")
        await client.delete(f"{API}/workloads/w")
        await session(client, "s")  # a session tells nothing by default
        await agent.commands()
        await agent.report("serving", "s", 1, generation=1, connection={}, devices=[], lost=[])
        await client.post(f"{API}/workloads/s/park")
        assert await letters(it.journal) == []


async def test_who_cannot_be_reached_is_warned(tmp_path: Path) -> None:
    async with service_at(tmp_path, notifications=TOLD) as (it, client):
        await FakeAgent(it, client).hello()
        body = {"id": "w", "user": "bo", "kind": "batch", "gpus": 1, "launch": COMMAND, "notify": ["end"]}
        answer = (await client.post(f"{API}/workloads", json=body)).json()
        assert answer["warnings"][-1] == "nobody is told anything: [notifications] of the service knows no address of bo"
        assert (await client.post(f"{API}/workloads", json=body | {"id": "u", "notify": ["ended"]})).status_code == 422
        await client.delete(f"{API}/workloads/w")
        assert await letters(it.journal) == []


async def test_a_budget_that_is_used_up_is_told_once(tmp_path: Path) -> None:
    """A restart tells nothing twice."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock, channels=TOLD.channels) as (runtime, _):
        await cluster(runtime)
        await submit(runtime, "w", replace(spec("a", kind=Kind.BATCH), launch={"type": "command", "notify": ["budget"]}))
        await started(runtime, "w")
        journal = runtime._journal
        for span, told in ((HOUR, []), (96 * HOUR, ["budget"])):  # then it had more than half of a week of all that there is
            await clock.advance(Millis(span))
            await quiet(runtime)
            for _ in range(2):
                await BudgetWatch(runtime, journal, clock).look()
            assert [one["kind"] for one in await letters(journal)] == told
        (only,) = await letters(journal)
        assert (only["user"], only["allocation"]) == ("ada", "a")
        assert (await runtime.think(used_up)).keys() == {"a"}


async def test_what_is_not_taken_is_tried_later_and_later_and_not_for_ever(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, _):
        notice = {"id": "w.1.end", "user": "ada", "text": "t"}
        await it.journal.append([], None, [Letter("mail", notice, due_ms=0)] * 2)
        pauses, now = [], 0
        while found := await it.journal.within(partial(outbox.due, channel="mail", now_ms=now, limit=9)):
            (letter,) = found
            await it.journal.within(partial(outbox.postpone, letter=letter, now_ms=now))
            then = await it.journal.within(partial(outbox.next_due, channel="mail"))
            if then is not None:
                pauses.append((then - now) / SECOND)
                now = then
        assert pauses[:4] == [5, 10, 20, 40]
        assert max(pauses) == 3600
        assert len(pauses) == outbox.MOST_TRIES - 1


async def test_a_channel_that_is_down_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST_WAITING", 3)
    async with service_at(tmp_path) as (it, _):
        for at in range(5):
            await it.journal.append([], None, [Letter("webhook", {"id": str(at)}, due_ms=at)])
        assert [one["id"] for one in await letters(it.journal)] == ["2", "3", "4"]


def test_words() -> None:
    assert wanted("failed", ("end",))
    assert not wanted("end", ("failed",))
    assert wanted("preempted", ("all",))
