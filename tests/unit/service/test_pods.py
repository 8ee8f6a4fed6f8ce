"""The service's end of pods: who may speak for one, what it is told, and when it hears that what it said is durable."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpufair.core.units import WorkloadId
from gpufair.service.identity.attempts import Attempts
from gpufair.service.nodes import pods as pod_lines
from gpufair.service.nodes.left_behind import left_behind, taken
from gpufair.service.storage.store import StoreUnavailable
from gpufair.service.web.context import Context
from gpufair.wire import AgentHello, Command, NodeInventory, Report, hello_proof, to_json
from tests.unit.service.rig import bearer, service_at

API = "/api/v1"
POD = "gpufair-w-1-0"
START = Command(0, "start", "w", 1, {"launch": {}})


class FakePod:
    """Says over HTTP what the agent in a pod says."""

    def __init__(self, it: Context, client: httpx.AsyncClient, boot: str = "boot-1", pod: str = POD) -> None:
        self.client, self.boot, self.pod = client, boot, pod
        self.headers = bearer(it.secrets.pod_token(pod))
        self.after = self.seq = 0

    async def hello(self, *running: tuple[str, int], **changes: Any) -> httpx.Response:
        message = to_json(AgentHello(1, self.boot, NodeInventory(self.pod), running)) | changes
        answer = await self.client.post(f"{API}/pods/{self.pod}/hello", json=message, headers=self.headers)
        if answer.status_code == 200:
            self.after = answer.json()["after"]
        return answer

    async def ask(self, wait_s: float = 0.05) -> httpx.Response:
        params: dict[str, Any] = {"after": self.after, "boot": self.boot, "wait_s": wait_s}
        return await self.client.get(f"{API}/pods/{self.pod}/commands", params=params, headers=self.headers)

    async def commands(self) -> list[str]:
        """Poll once: the kinds of what it is told."""
        answer = await self.ask()
        assert answer.status_code == 200, answer.text
        found = answer.json()["commands"]
        self.after = max([self.after, *(one["seq"] for one in found)])
        return [one["kind"] for one in found]

    async def report(self, kind: str, workload: str = "w", incarnation: int = 1, **body: Any) -> httpx.Response:
        self.seq += 1
        return await self.again(kind, workload, incarnation, **body)

    async def again(self, kind: str, workload: str = "w", incarnation: int = 1, **body: Any) -> httpx.Response:
        said = to_json(Report(self.seq, 1.0, kind, workload, incarnation, body))
        sent = {"boot": self.boot, "reports": [said]}
        return await self.client.post(f"{API}/pods/{self.pod}/reports", json=sent, headers=self.headers)


class Durable:
    """Who runs pods: keeps what they say, unless its store is away."""

    def __init__(self, it: Context) -> None:
        self.said: list[str] = []
        self.away = False
        it.pods.on_reports = self.take

    async def take(self, pod: str, reports: Sequence[Report]) -> None:
        await asyncio.sleep(0)
        if self.away:
            raise StoreUnavailable("the store does not answer")
        self.said += [report.kind for report in reports]


@pytest.mark.parametrize("boot", ["", "x" * 129, "x" * 100_000, "a\nb", "\ud800"])
async def test_a_boot_id_has_its_bounds_everywhere(tmp_path: Path, boot: str) -> None:
    """What the hello took and no later call can name would be a conversation that nobody can go on with."""
    async with service_at(tmp_path) as (it, client):
        it.pods.expect(POD, START)
        for path, token in ((f"pods/{POD}", it.secrets.pod_token(POD)), ("agents/n1", it.secrets.agent_token("n1"))):
            hello = to_json(AgentHello(1, boot, NodeInventory(path.rpartition("/")[2])))
            refused = await client.post(
                f"{API}/{path}/hello", content=json.dumps(hello), headers=bearer(token) | {"content-type": "application/json"}
            )
            assert refused.status_code in {400, 422}, refused.text
        assert not it.pods.heard(POD)


async def test_a_pods_token_opens_its_own_door_only(tmp_path: Path) -> None:
    """Whoever takes it out of a pod speaks for that pod, and for nothing else."""
    async with service_at(tmp_path) as (it, client):
        it.pods.expect(POD, START)
        it.pods.expect("gpufair-v-1-0", Command(0, "start", "v", 1))
        pod = FakePod(it, client)
        welcome = await pod.hello()
        assert welcome.status_code == 200
        assert welcome.json()["proof"] == hello_proof(it.secrets.pod_token(POD), "boot-1")
        for path in ("pods/gpufair-v-1-0/hello", "agents/n1/hello", "workloads"):
            answer = await client.post(f"{API}/{path}", json={}, headers=pod.headers)
            assert answer.status_code == 401, path
        assert (await client.get(f"{API}/snapshot", headers=pod.headers)).status_code == 401
        # Nor anybody else's at the pod's door: not a node's agent, not an operator.
        agent = bearer(it.secrets.agent_token("n1"))
        assert (await client.post(f"{API}/pods/{POD}/hello", json={}, headers=agent)).status_code == 401
        assert (await client.post(f"{API}/pods/{POD}/hello", json={})).status_code == 403
        # A node that is called as the pod is another thing.
        assert it.secrets.agent_token(POD) != it.secrets.pod_token(POD)
        assert (await client.post(f"{API}/pods/NotAName/hello", json={})).status_code == 404
        assert (await client.post(f"{API}/pods/NotAName/hello", json={}, headers=agent)).status_code == 401


async def test_wrong_tokens_are_counted(tmp_path: Path) -> None:
    """As those of anybody who guesses."""
    async with service_at(tmp_path) as (it, client):
        it.authenticator.attempts = Attempts(3)
        tries = [
            (await client.post(f"{API}/pods/{POD}/hello", json={}, headers=bearer(f"guess-{number}"))).status_code
            for number in range(5)
        ]
        assert tries == [401, 401, 401, 429, 429]


async def test_a_start_waits_for_its_pod(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        pod = FakePod(it, client)
        unknown = await pod.hello()
        assert (unknown.status_code, unknown.json()["error"]) == (503, "UnknownPod")
        assert "say hello again in a moment" in unknown.json()["detail"]
        it.pods.expect(POD, START)
        it.pods.expect(POD, START)
        assert not it.pods.heard(POD)
        assert it.pods.last_seen(POD) is None
        assert (await pod.ask()).json()["error"] == "HelloFirst"
        assert (await pod.hello()).json()["expected"] == []
        assert it.pods.heard(POD)
        assert it.pods.last_seen(POD) is not None
        assert await pod.commands() == ["start"]
        assert await pod.commands() == []
        assert it.pods.send(POD, Command(0, "save", "w", 1))
        assert it.pods.send(POD, Command(0, "preempt", "w", 1, {"deadline_s": 1.0}))
        assert it.pods.send(POD, Command(0, "preempt", "w", 1, {"deadline_s": 2.0}))
        assert await pod.commands() == ["save", "preempt"]
        assert not it.pods.send(POD, Command(0, "stop", "w", 2)), "of another start"
        assert not it.pods.send("another", Command(0, "stop", "w", 1))


async def test_a_poll_waits_and_a_hello_ends_it(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        it.pods.expect(POD, START)
        pod = FakePod(it, client)
        await pod.hello(("w", 1))
        waiting = asyncio.create_task(pod.ask(20.0))
        await asyncio.sleep(0.05)
        it.pods.send(POD, Command(0, "stop", "w", 1))
        assert [one["kind"] for one in (await waiting).json()["commands"]] == ["stop"]
        pod.after += 1
        waiting = asyncio.create_task(pod.ask(20.0))
        await asyncio.sleep(0.05)
        assert (await FakePod(it, client, "boot-2").hello(("w", 1))).json()["expected"] == [["w", 1]]
        assert (await waiting).status_code == 409
        it.pods.close()


@pytest.mark.parametrize("fetched", [False, True])
async def test_what_is_due_is_said_again(tmp_path: Path, fetched: bool) -> None:
    """The pod was cut off: what is said once comes again, what was asked only if it had not come."""
    async with service_at(tmp_path) as (it, client):
        it.pods.expect(POD, START)
        pod = FakePod(it, client)
        await pod.hello(("w", 1))
        it.pods.send(POD, Command(0, "interrupt", "w", 1))
        it.pods.send(POD, Command(0, "preempt", "w", 1, {"deadline_s": 1.0}))
        if fetched:
            assert await pod.commands() == ["interrupt", "preempt"]
            await pod.ask()  # which says that it has them
        await pod.hello(("w", 1))
        assert await pod.commands() == (["preempt"] if fetched else ["preempt", "interrupt"])


async def test_nothing_is_acknowledged_before_it_is_durable(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        durable = Durable(it)
        it.pods.expect(POD, START)
        pod = FakePod(it, client)
        assert (await pod.report("serving")).json()["error"] == "HelloFirst"
        pod.seq = 0
        await pod.hello()
        assert (await pod.report("serving")).json()["acked"] == 1
        durable.away = True
        assert (await pod.report("activity", busy=True)).status_code == 503
        durable.away = False
        assert (await pod.again("activity", busy=True)).json()["acked"] == 2
        assert (await pod.again("activity", busy=True)).json()["acked"] == 2, "its answer was lost"
        await pod.hello(("w", 1))
        assert (await pod.again("activity", busy=True)).json()["acked"] == 2, "and its connection with it"
        both = await asyncio.gather(pod.report("remark", text=""), pod.again("remark", text=""))
        assert [one.json()["acked"] for one in both] == [3, 3]
        assert durable.said == ["serving", "activity", "remark"]
        beat = {"boot": pod.boot, "reports": [], "problems": ["the disk is full"], "now_s": 1.0}
        assert (await client.post(f"{API}/pods/{POD}/reports", json=beat, headers=pod.headers)).json()["acked"] == 3


async def test_a_late_answer_to_a_former_agent_costs_the_next_one_nothing(tmp_path: Path) -> None:
    """Their reports are numbered from 1 each: what is durable of one's says nothing of the other's."""
    async with service_at(tmp_path) as (it, client):
        durable, go = Durable(it), asyncio.Event()

        async def slowly(pod: str, reports: Sequence[Report]) -> None:
            await go.wait()
            await durable.take(pod, reports)

        it.pods.on_reports = slowly
        it.pods.expect(POD, START)
        former, now = FakePod(it, client), FakePod(it, client, "boot-2")
        await former.hello()
        former.seq = 6
        late = asyncio.create_task(former.report("serving"))
        await asyncio.sleep(0.05)
        await now.hello(("w", 1))
        go.set()
        await late
        assert (await now.report("released", busy=False)).json()["acked"] == 1
        assert durable.said == ["serving", "released"]


async def test_a_pod_speaks_of_its_own_workload_only(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        durable = Durable(it)
        it.pods.expect(POD, START)
        pod = FakePod(it, client)
        await pod.hello()
        assert (await pod.report("released", "another", busy=False)).json()["acked"] == 1, "never sent again"
        assert (await pod.report("released", "w", 2, busy=False)).json()["acked"] == 2
        assert durable.said == []


@pytest.mark.parametrize("due", [True, False])
async def test_a_pod_that_was_found_has_its_start_or_ends(tmp_path: Path, due: bool) -> None:
    """The service restarted after it made the pod, and before the pod came up."""
    async with service_at(tmp_path) as (it, client):
        asked = []

        async def start_of(pod: str) -> Command | None:
            asked.append(pod)
            return START if due else None

        it.pods.start_of = start_of
        it.pods.adopt(POD, WorkloadId("w"), 1)
        pod = FakePod(it, client)
        await pod.hello()
        assert await pod.commands() == (["start"] if due else ["stop"])
        assert asked == [POD]
        await pod.hello(("w", 1))
        assert await pod.commands() == ([] if due else ["stop"]), "what it runs is not started again"


async def test_a_pod_that_is_forgotten_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node was away, and the workload has another place by now: it hears so, and may end."""
    monkeypatch.setattr(pod_lines, "FORGOTTEN", 2)
    async with service_at(tmp_path) as (it, client):
        durable = Durable(it)
        it.pods.expect(POD, START)
        pod = FakePod(it, client)
        await pod.hello(("w", 1))
        it.pods.forget(POD)
        assert (await pod.ask()).status_code == 409
        assert not it.pods.send(POD, Command(0, "save", "w", 1))
        assert (await pod.hello(("w", 1))).json()["expected"] == []
        assert (await pod.report("released", busy=False)).json()["acked"] == 1
        assert (await pod.hello()).status_code == 200
        assert await pod.commands() == ["stop"]
        assert durable.said == []
        for number in range(3):
            it.pods.expect(f"p{number}", START)
            it.pods.forget(f"p{number}")
            it.pods.forget(f"p{number}")
        assert (await pod.hello()).status_code == 503
        # The name is used again for the same start: the pod was deleted before it came up.
        it.pods.expect("p2", START)
        other = FakePod(it, client, pod="p2")
        await other.hello()
        assert await other.commands() == ["start"]


async def test_a_hello_of_another_release_or_pod(tmp_path: Path) -> None:
    async with service_at(tmp_path) as (it, client):
        it.pods.expect(POD, START)
        pod = FakePod(it, client)
        answer = await pod.hello(api_version=99)
        assert answer.status_code == 400
        assert "the kernel's image and the service have to be of the same release" in answer.json()["detail"]
        assert (await pod.hello(node=to_json(NodeInventory("n1")))).status_code == 400
        assert (await pod.hello(boot="")).status_code == 400
        assert not it.pods.heard(POD)


def test_what_a_pod_left_behind_is_read(tmp_path: Path) -> None:
    """The workload can write there, too: nothing but reports of its own counts, and no trick at the name."""
    records = tmp_path / "records"
    records.mkdir()
    file = records / f"unreported.{POD}.json"
    assert left_behind(records, POD, "w", 1) == []
    own = Report(3, 2.0, "released", "w", 1, {"busy": False})
    file.write_text(f'{{"reports": [{_text(own)}, {_text(Report(4, 2.0, "released", "v", 1))}]}}')
    assert left_behind(records, POD, "w", 1) == [own]
    taken(records, POD)
    taken(records, POD)
    assert left_behind(records, POD, "w", 1) == []
    for broken in ("", "[]", '{"reports": 1}', '{"reports": [1]}', '{"reports": [{"seq": "x"}]}', "[" * 100_000):
        file.write_text(broken)
        assert left_behind(records, POD, "w", 1) == []
    file.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(f'{{"reports": [{_text(own)}]}}')
    file.symlink_to(elsewhere)
    assert left_behind(records, POD, "w", 1) == []


def _text(report: Report) -> str:
    return json.dumps(to_json(report))
