"""Budgets as people discuss them: asked for with reasons, decided by whom they belong to, in force exactly when it was said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from gpufair.clock import VirtualClock
from gpufair.core.model import Allocation
from gpufair.core.units import AllocationPath, Instant, Millis, after
from gpufair.service.budgets import budget_changes
from gpufair.service.budgets.budget_changes import Terms
from gpufair.service.identity.auth import Principal, Role
from gpufair.service.runtime.runtime import Runtime
from gpufair.service.settings.budgets import Budgets
from gpufair.service.settings.notification_options import NotificationOptions, WebhookOptions
from gpufair.service.storage import budget_history, budget_requests, outbox
from gpufair.service.storage.store import StoreError
from gpufair.service.web.context import Context
from tests.unit.service.rig import START, bearer, cluster, quiet, runtime_at, service_at

API = "/api/v1/budgets"
OLGA = Principal(Role.OPERATOR, "olga")
TREE = Budgets(
    (
        Allocation(AllocationPath("a"), "1", ("ada",)),
        Allocation(AllocationPath("b"), "1", ("bo", "ada")),
        Allocation(AllocationPath("c/x"), "3"),
        Allocation(AllocationPath("c/y"), "1"),
    )
)


def share(runtime: Runtime, path: str) -> float:
    return float(runtime._state.tree[AllocationPath(path)].share)


async def until(clock: VirtualClock, instant: Instant) -> None:
    await clock.advance(Millis(instant - clock.now()))


async def history(runtime: Runtime) -> list[dict[str, Any]]:
    return await runtime._journal.within(budget_history.listed)


async def request(runtime: Runtime, number: int) -> budget_requests.BudgetRequest:
    found = await runtime._journal.within(lambda connection: budget_requests.one_of(connection, number))
    assert found is not None
    return found


async def ask(client: httpx.AsyncClient, it: Context, who: str, status: int = 201, **body: Any) -> dict[str, Any]:
    answer = await client.post(f"{API}/requests", json={"why": "w"} | body, headers=bearer(it.secrets.user_token(who)))
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def post(
    client: httpx.AsyncClient, it: Context, who: str, path: str, status: int = 200, **body: Any
) -> dict[str, Any]:
    answer = await client.post(f"{API}/{path}", json=body, headers=bearer(it.secrets.user_token(who)))
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_request_is_asked_amended_and_in_force(tmp_path: Path) -> None:
    """The whole way, with its trail: who asked why, who decided in which words, what it was before, and the history."""
    async with service_at(tmp_path) as (it, client):
        asked = await ask(client, it, "bo", shares={"b": 3}, why=" the deadline\nof the paper ")
        assert (asked["id"], asked["state"], asked["user"], asked["why"]) == (
            1,
            "open",
            "bo",
            "the deadline\nof the paper",
        )
        assert asked["may"] == {"decide": False, "withdraw": True}
        seen = (await client.get(f"{API}/requests", headers=bearer(it.secrets.user_token("uma")))).json()
        assert (seen["user"], seen["owner"], seen["requests"][0]["may"]["decide"]) == ("uma", True, True)
        found = {"allocations": [{"path": "b", "verdict": "gains"}]}
        done = await post(client, it, "uma", "requests/1/accept", shares={"b": 2}, words="half of it", preview=found)
        assert (done["state"], done["shares"], done["before"]) == ("in_force", {"b": "2"}, {"b": "1"})
        assert done["wished"] == {"b": "3"}
        assert done["decision"] | {"at_s": 0} == {
            "by": "uma",
            "at_s": 0,
            "accepted": True,
            "words": "half of it",
            "amended": True,
        }
        assert share(it.runtime, "b") == 2
        assert (await client.get(f"{API}/requests/1")).json()["preview"]["found"] == found
        [listed] = (await client.get(f"{API}/requests")).json()["requests"]
        assert listed["preview"] == {"by": "uma", "at_s": START / 1000}
        change, configured = (await client.get(f"{API}/history")).json()["changes"]
        assert (change["by"], change["why"], change["request"]) == ("uma", "the deadline\nof the paper", 1)
        assert change["allocations"] == [
            {
                "path": "b",
                "change": "changed",
                "before": {"share": "1", "entitlement": 0.5, "members": ["bo", "ada"]},
                "after": {"share": "2", "entitlement": pytest.approx(2 / 3), "members": ["bo", "ada"]},
            }
        ]
        assert (configured["by"], configured["request"], configured["count"]) == ("gpufair.toml", None, 2)
        error = await post(client, it, "uma", "requests/1/refuse", 404, words="no")
        assert error["detail"] == "request 1 is settled; `gpufair budgets requests 1` shows how"


async def test_rights_by_role(tmp_path: Path) -> None:
    """Who owns a subtree divides it and no more; an operator who asks for somebody has no more rights than they."""
    owners = {"uma": ("c",), "una": ("",)}
    async with service_at(tmp_path, budgets=TREE, budget_owners=owners) as (it, client):
        await ask(client, it, "bo", shares={"c/x": 1})
        await ask(client, it, "bo", shares={"a": 5})
        await ask(client, it, "ada", shares={"a": 5, "c/x": 2})
        for who, number in (("bo", 1), ("ada", 1), ("uma", 2), ("uma", 3)):
            for verb in ("accept", "refuse"):
                error = await post(client, it, who, f"requests/{number}/{verb}", 403, words="mine")
                assert error["error"] == "Forbidden", (who, number)
        await post(client, it, "uma", "changes", 403, shares={"c": 9}, why="more for us")
        # What is accepted has to be theirs as well, not only what was asked for.
        await post(client, it, "uma", "requests/1/accept", 403, shares={"a": 9})
        assert share(it.runtime, "a") == 1
        assert (await post(client, it, "uma", "requests/1/accept"))["state"] == "in_force"
        assert (await post(client, it, "uma", "changes", 201, shares={"c/y": 7}))["state"] == "in_force"
        assert (share(it.runtime, "c/x"), share(it.runtime, "c/y")) == (1, 7)
        await post(client, it, "olga", "requests/2/accept", 403, user="bo")
        assert (await post(client, it, "olga", "requests/2/refuse", user="una", words="no"))["decision"]["by"] == "una"
        await post(client, it, "bo", "requests/3/withdraw", 403)
        assert (await post(client, it, "ada", "requests/3/withdraw", words="well"))["state"] == "withdrawn"
        await ask(client, it, "bo", 403, shares={"a": 2}, user="ada")
        assert (await ask(client, it, "olga", shares={"a": 2}, user="ada"))["user"] == "ada"
        headers = bearer(it.secrets.user_token("bo"))
        assert (await client.put(API, json={"allocation": [{"path": "a"}]}, headers=headers)).status_code == 403


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"shares": {"nowhere": 1}}, "there is no allocation 'nowhere'"),
        ({"shares": {"a": -1}}, "is negative"),
        ({"shares": {"a": 0, "b": 0}}, "all shares at the top are 0"),
        ({"shares": {"a": 1}}, "a = 1 is what is in force"),
        ({"allocation": "a"}, 'give either "shares", or "allocation" and "gpus"'),
        ({"allocation": "a", "gpus": 2}, "less than the 2.0 GPUs of the whole tree"),
        ({"shares": {"a": 2}, "until_s": 5}, "it would end before it begins"),
        ({"shares": {"a": 2}, "why": ""}, "why"),
        ({"shares": {"a": 2}, "preview": {"x": "y" * 70_000}}, "at most 65,536 are kept"),
    ],
)
async def test_what_makes_no_sense_is_refused(tmp_path: Path, body: dict[str, Any], said: str) -> None:
    async with service_at(tmp_path) as (it, client):
        answer = await client.post(f"{API}/requests", json={"why": "w"} | body)
        assert answer.status_code in {400, 404, 422}, answer.text
        assert said in answer.json()["detail"]
        assert (await client.get(f"{API}/requests")).json()["requests"] == []
        assert share(it.runtime, "a") == 1


async def test_gpus_become_the_share_that_gives_them(tmp_path: Path) -> None:
    """1.5 of 2 GPUs are three quarters: three times what the siblings have."""
    async with service_at(tmp_path) as (it, client):
        asked = await ask(client, it, "ada", allocation="a", gpus=1.5)
        assert (asked["gpus"], asked["shares"]) == (1.5, {"a": "3"})
        done = await post(client, it, "uma", "requests/1/accept")
        assert (done["decision"]["amended"], share(it.runtime, "a")) == (False, 3)
        done = await ask(client, it, "ada", allocation="b", gpus=1)
        assert (await post(client, it, "uma", "requests/2/accept", gpus=0.5))["shares"] == {"b": "1"}


async def test_two_who_decide_and_one_who_asks_twice(tmp_path: Path) -> None:
    """The first decision stands; the same key is the same request; and nobody fills the list."""
    async with service_at(tmp_path) as (it, client):
        first = await ask(client, it, "ada", shares={"a": 2}, key="k1")
        assert (await ask(client, it, "ada", shares={"a": 2}, key="k1"))["id"] == first["id"]
        assert (await ask(client, it, "bo", shares={"a": 2}, key="k1"))["id"] == 2
        later = it.runtime.now() / 1000 + 60
        await post(client, it, "uma", "requests/1/accept", from_s=later)
        error = await post(client, it, "olga", "requests/1/refuse", 409, words="no")
        assert error["detail"] == "request 1 was accepted already by uma"
        for _ in range(budget_requests.MOST_OPEN_OF_ONE - 1):
            await ask(client, it, "bo", shares={"a": 2})
        error = await ask(client, it, "bo", 429, shares={"a": 2})
        assert "withdraw one of them first" in error["detail"]
        page = (await client.get(f"{API}/requests", params={"state": "open", "limit": 5})).json()
        assert ([one["id"] for one in page["requests"]], page["more"]) == ([21, 20, 19, 18, 17], True)
        page = (await client.get(f"{API}/requests", params={"user": "ada", "before": 5})).json()
        assert ([one["state"] for one in page["requests"]], page["more"]) == (["accepted"], False)
        # What somebody else has changed meanwhile is not overwritten.
        seen = {"a": "1", "b": "1"}
        assert (await post(client, it, "uma", "changes", 201, shares={"b": 4}, seen=seen))["id"] == 22
        await post(client, it, "uma", "changes", 409, shares={"b": 5}, seen=seen)


async def test_a_dated_change_comes_and_goes(tmp_path: Path) -> None:
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime)
        begin, end = after(START, Millis(90_500)), after(START, Millis(200_000))
        terms = Terms({"a": "3", "b": "2"}, from_ms=begin, until_ms=end)
        made = await runtime.do(lambda turn: budget_changes.plan(turn, OLGA, terms, "a workshop"))
        assert (made.stage.value, share(runtime, "a")) == ("accepted", 1)
        await until(clock, Instant(begin - 1))
        await quiet(runtime)
        assert share(runtime, "a") == 1
        await until(clock, begin)
        await quiet(runtime)
        assert (share(runtime, "a"), share(runtime, "b"), (await request(runtime, 1)).stage.value) == (3, 2, "in_force")
        # One of the two is changed meanwhile, and stays: the end takes back only what it has given.
        await runtime.do(lambda turn: budget_changes.plan(turn, OLGA, Terms({"b": "5"}), "more"))
        await until(clock, end)
        await quiet(runtime)
        one = await request(runtime, 1)
        assert (share(runtime, "a"), share(runtime, "b"), one.stage.value, one.over_ms) == (1, 5, "over", end)
        assert one.problem == "b was changed meanwhile, and stays as it is"
        told = [(entry["at_s"] * 1000, entry["by"], entry["why"], entry["request"]) for entry in await history(runtime)]
        assert told[:3] == [
            (end, "olga", "the time of request 1 is over", 1),
            (begin, "olga", "more", 2),
            (begin, "olga", "a workshop", 1),
        ]


async def test_what_was_decided_for_a_time_when_the_service_was_down(tmp_path: Path) -> None:
    """It is in the journal at its own time, before the passes that were due after it, once; and as often as it is started."""
    clock = VirtualClock(START)
    begin, end = after(START, Millis(100_500)), after(START, Millis(7_000_500))
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime)
        terms = Terms({"a": "3"}, from_ms=begin, until_ms=end)
        await runtime.do(lambda turn: budget_changes.ask(turn, "ada", terms, "a workshop"))
        await runtime.do(lambda turn: budget_changes.accept(turn, 1, OLGA, Terms(), "yes"))
    await until(clock, after(START, Millis(3_600_000)))
    for _ in range(2):
        async with runtime_at(tmp_path, clock) as (runtime, _):
            await quiet(runtime)
            assert (share(runtime, "a"), (await request(runtime, 1)).in_force_ms) == (3, begin)
            events = [entry for entry in await runtime._journal.entries() if "BudgetsApplied" in entry.event]
            assert [entry.at_ms for entry in events] == [START, begin]
    await until(clock, after(START, Millis(8_000_000)))
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await quiet(runtime)
        assert (share(runtime, "a"), (await request(runtime, 1)).stage.value) == (1, "over")
        assert [entry["at_s"] * 1000 for entry in await history(runtime)] == [end, begin]


async def test_one_that_cannot_come_into_force_says_so(tmp_path: Path) -> None:
    """The tree has changed since; nothing of it is done, and both who asked and who decided are told."""
    clock = VirtualClock(START)
    told = NotificationOptions(
        webhook=WebhookOptions(users=dict.fromkeys(("ada", "olga"), "https://chat.example.org/"))
    )
    async with runtime_at(tmp_path, clock, channels=told.channels) as (runtime, _):
        await cluster(runtime)
        terms = Terms({"b": "3"}, from_ms=after(START, Millis(50_000)))
        await runtime.do(lambda turn: budget_changes.ask(turn, "ada", terms, "w", owners=["olga", "ada"]))
        await runtime.do(lambda turn: budget_changes.accept(turn, 1, OLGA, Terms(), "yes"))
        alone = [Allocation(AllocationPath("a"))]
        await runtime.do(lambda turn: budget_changes.change(turn, alone, "olga", "b has left"))
        await clock.advance(Millis(60_000))
        await quiet(runtime)
        one = await request(runtime, 1)
        assert (one.stage.value, one.problem) == ("failed", "there is no allocation 'b' any more")
        letters = await runtime._journal.within(lambda c: outbox.due(c, "webhook", 1 << 60, 100))
        assert sorted((letter.notice["user"], letter.notice["kind"]) for letter in letters) == [
            ("ada", "budget-change"),
            ("ada", "budget-decision"),
            ("olga", "budget-change"),
            ("olga", "budget-request"),
        ]
        asked = next(letter.notice["text"] for letter in letters if letter.notice["kind"] == "budget-request")
        assert asked == "ada asks for b = 3 (request 1): w"


async def test_what_could_not_be_written_down_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision, event and history are one transaction: where one of them fails, none of them is there."""
    async with service_at(tmp_path) as (it, client):
        await ask(client, it, "ada", shares={"a": 2})

        def full(*_: object, **__: object) -> None:
            raise OperationalError("insert", {}, OSError("disk full"))

        with monkeypatch.context() as patched:
            patched.setattr(budget_history, "note", full)
            await post(client, it, "uma", "requests/1/accept", 503)
        assert await it.runtime.read(lambda state: state.tree[AllocationPath("a")].share) == 1
        assert (await client.get(f"{API}/requests/1")).json()["state"] == "open"
        assert (await post(client, it, "uma", "requests/1/accept"))["state"] == "in_force"
        assert len((await client.get(f"{API}/history")).json()["changes"]) == 2


async def test_a_damaged_request_is_named_at_the_start(tmp_path: Path) -> None:
    """Rather no service than one that forgets what was decided."""
    clock = VirtualClock(START)
    async with runtime_at(tmp_path, clock) as (runtime, _):
        await cluster(runtime)
        await runtime.do(lambda turn: budget_changes.ask(turn, "ada", Terms({"a": "3"}), "w"))
        wrong = budget_requests._requests.update().values(document='{"id": 1}')
        await runtime._journal.within(lambda connection: connection.execute(wrong))
    with pytest.raises(StoreError, match="a request for budgets in the journal is damaged"):
        async with runtime_at(tmp_path, clock):
            pass
