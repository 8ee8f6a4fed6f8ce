"""Who may write to a cluster: one at a time, whatever hangs, breaks or lies; and the next one soon."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpufair.service.backends.kubernetes.api import Api
from gpufair.service.backends.kubernetes.connection import Place, connect
from gpufair.service.backends.kubernetes.lease import GROUP, Lease
from gpufair.service.backends.kubernetes.marks import ANNOTATION
from gpufair.service.backends.kubernetes.problems import Missing
from gpufair.service.storage.database import StoreUnavailable
from tests.kube.fake_api import FakeApi

LEASES = f"{GROUP}/namespaces/default/leases"
QUICK: dict[str, Any] = {"duration_s": 2.0, "renew_deadline_s": 1.0, "retry_s": 0.1}


@pytest.fixture
def api(fake: FakeApi, tmp_path: Path) -> Iterator[Api]:
    api = Api(connect(Place(fake.kubeconfig(tmp_path / "kubeconfig")), 30))
    yield api
    asyncio.run(api.close())


class Candidate:
    def __init__(self, api: Api, identity: str, **options: float) -> None:
        self.told: list[bool] = []
        self.lease = Lease(api, "default", "leader", identity, changed=self.told.append, **{**QUICK, **options})
        self.task = asyncio.create_task(self.lease.hold())

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def until_held(self) -> None:
        async with asyncio.timeout(20):
            await self.lease.wait_held()


@asynccontextmanager
async def candidates(api: Api, *names: str) -> AsyncIterator[list[Candidate]]:
    all_of_them = [Candidate(api, name) for name in names]
    try:
        yield all_of_them
    finally:
        for one in all_of_them:
            await one.leave()


async def until(true: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
    ends = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < ends, what
        await asyncio.sleep(0.005)


async def spec(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = (await api.call("GET", f"{LEASES}/leader"))["spec"]
    return found


async def write(api: Api, **fields: Any) -> None:
    """As somebody else would, with a clock of their own."""
    body: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}}
    try:
        body = await api.call("GET", f"{LEASES}/leader")
    except Missing:
        await api.call("POST", LEASES, body | {"spec": fields})
    else:
        await api.call("PUT", f"{LEASES}/leader", body | {"spec": body["spec"] | fields})


async def test_one_holds_it_and_gives_it_back(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """The next one takes it at once then, not after the time that a dead holder is waited for."""
    caplog.set_level(logging.INFO)
    async with candidates(api, "first") as [first]:
        await first.until_held()
        async with candidates(api, "second") as [second]:
            await until(lambda: second.lease.holder == "first", "the second one looks")
            assert not second.lease.held
            before = await spec(api)
            assert (before["holderIdentity"], before["leaseDurationSeconds"]) == ("first", 2)
            assert before["leaseTransitions"] == 0
            await asyncio.sleep(0.3)
            renewed = await spec(api)
            assert renewed["renewTime"] > before["renewTime"]
            assert renewed["acquireTime"] == before["acquireTime"]
            await first.leave()
            left = time.monotonic()
            assert not first.lease.held
            await second.until_held()
            assert time.monotonic() - left < 1.9
            after = await spec(api)
            assert (after["holderIdentity"], after["leaseTransitions"]) == ("second", 1)
        assert first.told == [True, False]
        assert "(first) gives the Lease default/leader back" in caplog.text
        assert "any more" not in caplog.text


async def test_one_that_dies_is_waited_for_and_then_replaced(api: Api) -> None:
    """It did not give it back, so its promise is kept to the end, counted from when it was last seen to renew."""
    await write(
        api, holderIdentity="dead", leaseDurationSeconds=1, renewTime="2001-01-01T00:00:00.000000Z", leaseTransitions=4
    )
    began = time.monotonic()
    async with candidates(api, "next") as [one]:
        await one.until_held()
        assert time.monotonic() - began >= 0.95  # though its renewTime is years ago: clocks of others are not trusted
        assert (await spec(api))["leaseTransitions"] == 5


async def test_a_clock_that_is_ahead_gives_no_longer_lease(api: Api) -> None:
    """Only what is written anew counts as alive."""
    await write(api, holderIdentity="dead", leaseDurationSeconds=1, renewTime="2101-01-01T00:00:00.000000Z")
    async with candidates(api, "next") as [one]:
        async with asyncio.timeout(10):
            await one.until_held()


async def test_one_that_renews_keeps_it_whatever_its_clock_says(api: Api) -> None:
    """Its record changes, that is enough."""
    await write(api, holderIdentity="other", leaseDurationSeconds=1)
    async with candidates(api, "next") as [one]:
        for n in range(15):
            await write(api, renewTime=f"1999-01-01T00:00:{n:02}.000000Z")
            await asyncio.sleep(0.1)
            assert not one.lease.held


async def test_a_holder_knows_in_time_that_it_is_none_though_the_server_hangs(fake: FakeApi, api: Api) -> None:
    """The call that hangs does not hold up the news; and nobody else was sooner."""
    async with candidates(api, "first") as [first]:
        await first.until_held()
        fake.delay(None, "leases", delay_s=3.0, count=100)
        hung = time.monotonic()
        await until(lambda: first.told == [True, False], "it is told")
        assert not first.lease.held
        assert time.monotonic() - hung < 1.0 + 0.7  # renew_deadline_s, and a loaded machine
        fake.mend()
        await first.until_held()
        assert first.told == [True, False, True]


async def test_short_trouble_costs_nothing(fake: FakeApi, api: Api) -> None:
    """Errors and cut connections of less than the deadline are renewals a little later."""
    async with candidates(api, "first") as [first]:
        await first.until_held()
        fake.fail(None, "leases", status=503, count=2)
        await asyncio.sleep(0.4)
        fake.cut("PUT", "leases", carried_out=True, count=1)
        await asyncio.sleep(0.4)
        fake.restart(0.2)
        await asyncio.sleep(0.4)
        assert first.lease.held
        assert first.told == [True]


async def test_who_is_put_out_stops_at_its_next_look(api: Api) -> None:
    """An administrator, or a bug, wrote somebody else in."""
    async with candidates(api, "first") as [first]:
        await first.until_held()
        await write(api, holderIdentity="thief", leaseDurationSeconds=1)
        await until(lambda: not first.lease.held, "it sees", 0.9)
        assert first.lease.holder == "thief"
        await first.until_held()  # the thief never renewed
        assert first.told == [True, False, True]


async def test_a_lease_that_is_deleted_is_made_anew_by_its_holder(api: Api) -> None:
    """Others wait: the holder may not have seen yet that it is gone."""
    async with candidates(api, "first", "second") as both:
        await until(lambda: any(one.lease.held for one in both), "one holds it")
        holder, other = sorted(both, key=lambda one: not one.lease.held)
        await until(lambda: other.lease.holder == holder.lease.identity, "the other one knows")
        await api.call("DELETE", f"{LEASES}/leader")
        await asyncio.sleep(0.5)
        assert holder.lease.held
        assert not other.lease.held
        assert (await spec(api))["holderIdentity"] == holder.lease.identity


async def test_never_two_at_a_time(fake: FakeApi, api: Api, tmp_path: Path) -> None:
    """Three that want it, while connections break, answers come late or not, and the server restarts."""
    apis = [await Api.open(tmp_path / "kubeconfig") for _ in range(3)]
    everybody = [Candidate(one, f"c{number}") for number, one in enumerate(apis)]
    at_once, held_by = 0, set[str]()
    ends, step = time.monotonic() + 9.0, 0
    next_step = time.monotonic() + 0.5

    def trouble(step: int) -> None:
        match step % 5:
            case 0:
                fake.delay("PUT", "leases", delay_s=1.5, count=3)
            case 1:
                fake.cut("PUT", "leases", carried_out=True, count=4)
            case 2:
                fake.fail(None, "leases", status=500, count=12)
            case 3:
                fake.cut("PUT", "leases", carried_out=False, count=4)
            case _:
                fake.restart()

    while time.monotonic() < ends:
        holding = [one.lease.identity for one in everybody if one.lease.held]
        at_once = max(at_once, len(holding))
        held_by.update(holding)
        if time.monotonic() > next_step:
            await asyncio.to_thread(trouble, step)
            step, next_step = step + 1, time.monotonic() + 0.7
            if step == 7:
                await next((one for one in everybody if one.lease.held), everybody[0]).leave()
        await asyncio.sleep(0.003)
    fake.mend()
    await until(lambda: any(one.lease.held for one in everybody), "somebody holds it in the end")
    for one in everybody:
        await one.leave()
    for client in apis:
        await client.close()
    assert at_once == 1
    assert held_by


async def test_a_missing_right_is_said_once_and_mended_later(
    fake: FakeApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With the rule that is missing; when it is granted nothing has to be restarted."""
    caplog.set_level(logging.WARNING)
    admin = await Api.open(fake.kubeconfig(tmp_path / "admin"))
    weak = await Api.open(fake.kubeconfig(tmp_path / "weak", fake.token("weak")))
    async with candidates(weak, "weak") as [one]:
        await until(lambda: "grant" in caplog.text, "it says what is missing")
        await asyncio.sleep(0.3)
        assert caplog.text.count("'get' on 'leases' in API group 'coordination.k8s.io'") == 1
        rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        await admin.call("POST", f"{rbac}/clusterroles", {"metadata": {"name": "lease"}, "rules": [rule]})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lease"}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "weak"}
        await admin.call(
            "POST",
            f"{rbac}/clusterrolebindings",
            {"metadata": {"name": "lease"}, "roleRef": reference, "subjects": [subject]},
        )
        await one.until_held()
    await admin.close()
    await weak.close()


async def test_leaving_while_the_server_is_away_does_not_take_long(fake: FakeApi, api: Api) -> None:
    """A shutdown must not wait for a cluster."""
    async with candidates(api, "first") as [first]:
        await first.until_held()
        fake.delay(None, "leases", delay_s=30.0, count=100)
        began = time.monotonic()
        await first.leave()
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("bad", [{"retry_s": 1.0}, {"renew_deadline_s": 2.0}, {"retry_s": 0.0}])
async def test_times_that_make_no_sense_are_refused(api: Api, bad: dict[str, float]) -> None:
    """A holder that learns of its end after the others is two holders."""
    with pytest.raises(ValueError, match="needs 0 < retry_s < renew_deadline_s < duration_s"):
        Lease(api, "default", "leader", "x", **{**QUICK, **bad})
    with pytest.raises(ValueError, match="identity"):
        Lease(api, "default", "leader", "")


class Notes:
    """Marks of a journal that knows some."""

    def __init__(self, now: str, *known: str) -> None:
        self.mark, self.known = now, {now, *known}

    def now(self) -> str:
        return self.mark

    async def strange(self, mark: str) -> str:
        return "" if mark in self.known else "it is another one"


async def test_one_of_another_journal_is_left_alone(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """Free, or deleted since it was seen: who does not know what the holder knew does not write after it."""
    first = Lease(api, "default", "leader", "first", marks=Notes("7-x"), **QUICK)
    task = asyncio.create_task(first.hold())
    async with asyncio.timeout(20):
        await first.wait_held()
    other = Lease(api, "default", "leader", "other", marks=Notes("3-y"), **QUICK)
    waiting = asyncio.create_task(other.hold())
    await until(lambda: other.holder == "first", "the other one looks")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: "7-x" in other.refused, "it refuses")
    await api.call("DELETE", f"{LEASES}/leader")
    await asyncio.sleep(0.5)
    assert not other.held
    with pytest.raises(Missing):
        await api.call("GET", f"{LEASES}/leader")
    assert caplog.text.count("cannot be had") == 1
    heir = Lease(api, "default", "leader", "heir", marks=Notes("9-x", "7-x"), **QUICK)
    inheriting = asyncio.create_task(heir.hold())
    async with asyncio.timeout(20):
        await heir.wait_held()
    assert (heir.refused, other.held) == ("", False)
    for one in (waiting, inheriting):
        one.cancel()
    await asyncio.gather(waiting, inheriting, return_exceptions=True)


class Away(Notes):
    """Marks of a journal whose database is away twice."""

    asked = 0

    async def strange(self, mark: str) -> str:
        self.asked += 1
        if self.asked < 3:
            raise StoreUnavailable("it is away")
        return ""


async def test_a_journal_that_cannot_be_asked_does_not_end_it(api: Api) -> None:
    """The database may be away for a while: nothing is taken meanwhile, and it is looked at again."""
    await write(api, holderIdentity="", leaseDurationSeconds=1)
    lease = await api.call("GET", f"{LEASES}/leader")
    lease["metadata"]["annotations"] = {ANNOTATION: "7-x"}
    await api.call("PUT", f"{LEASES}/leader", lease)
    notes = Away("8-x")
    one = Lease(api, "default", "leader", "one", marks=notes, **QUICK)
    task = asyncio.create_task(one.hold())
    async with asyncio.timeout(20):
        await one.wait_held()
    assert notes.asked == 3
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
