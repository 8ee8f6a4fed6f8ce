"""What the API says about the future, and what it costs to ask."""

from __future__ import annotations

from pathlib import Path

from gpufair.client.insight import Coaching, Preview
from gpufair.client.reading import read
from gpufair.client.types import Workload
from tests.unit.service.rig import LAUNCH, START, bearer, service_at

API = "/api/v1"


def wanted(name: str, **fields: object) -> dict[str, object]:
    """A submission of ada's."""
    return {"id": name, "gpus": 2, "min_runtime_s": 3600, "user": "ada", "allocation": "a", "launch": LAUNCH} | fields


async def test_the_preview_names_who_runs_next_and_who_leaves(tmp_path: Path) -> None:
    """The next team's turn comes when the protection of the first ends, and anybody may know it; it changes nothing."""
    async with service_at(tmp_path) as (it, client):
        await client.post(f"{API}/workloads", json=wanted("first"))
        await client.post(f"{API}/workloads", json=wanted("second", user="bo", allocation="b"))
        before = (await client.get(f"{API}/timeline")).json()
        answer = await client.get(f"{API}/preview?hours=2", headers=bearer(it.secrets.user_token("ada")))
        seen = read(Preview, answer.json())
        assert (seen.now_s, seen.until_s, seen.cut) == (START / 1000, START / 1000 + 7200, "")
        told, start = (next(step for step in seen.steps if step.what == what) for what in ("told to leave", "starts"))
        assert (told.workload, told.beneficiary, told.reason) == ("first", "second", "landing")
        assert START / 1000 + 3600 <= told.at_s == start.at_s - 10
        assert (start.workload, start.user, start.gpus, start.nodes) == ("second", "bo", 2, ("n1",))
        assert [(one.workload, one.at_s) for one in seen.starts] == [("second", start.at_s)]
        assert (await client.get(f"{API}/timeline")).json() == before
        for hours in ("0", "-1", "169", "nan", "x"):
            assert (await client.get(f"{API}/preview?hours={hours}")).status_code == 422, hours


async def test_a_slice_is_asked_for_by_its_owner(tmp_path: Path) -> None:
    """Little protection is had sooner, so whoever waits may ask for less; nobody may do that for somebody else."""
    async with service_at(tmp_path) as (it, client):
        await client.post(f"{API}/workloads", json=wanted("old", gpus=1, min_runtime_s=60))
        await client.post(f"{API}/workloads", json=wanted("other", gpus=1, min_runtime_s=60))
        await client.post(f"{API}/workloads", json=wanted("mine", gpus=1))
        assert (await it.runtime.views(lambda record: record.id == "mine"))[0]["state"] == "queued"
        resume = f"{API}/workloads/mine/resume"
        refused = await client.post(resume, json={"slice_s": 900}, headers=bearer(it.secrets.user_token("bo")))
        assert refused.status_code == 403
        for part in (0, -1, "15m", True):
            assert (await client.post(resume, json={"slice_s": part})).status_code == 422, part
        answer = await client.post(resume, json={"slice_s": 0.0001})
        assert (answer.status_code, answer.json()["error"]) == (422, "InvalidSpec")
        answered = read(Workload, (await client.post(resume, json={"slice_s": 900})).json())
        assert (answered.state, answered.min_runtime_s) == ("queued", 3600.0)
        record = await it.runtime.read(lambda state: state.facts.records[answered.id])  # type: ignore[index]
        assert (record.min_runtime, record.slice) == (900_000, 900_000)


async def test_the_coach_says_what_would_start_now_and_it_does(tmp_path: Path) -> None:
    """Whoever follows the advice starts at once; asking leaves no trace; only for oneself."""
    async with service_at(tmp_path) as (it, client):
        await client.post(f"{API}/workloads", json=wanted("old", gpus=1))
        before = (await client.get(f"{API}/timeline")).json()
        body = {"gpus": 2, "min_runtime_s": 3600, "allocation": "b", "user": "bo", "min_runtimes_s": [900.0, 3600.0]}
        answer = await client.post(f"{API}/coach", json=body)
        seen = read(Coaching, answer.json())
        assert seen.asked.outlook in ("estimated", "unknown", "start by")
        assert {(one.gpus, one.min_runtime_s) for one in seen.choices} == {(2, 900), (2, 3600), (1, 900), (1, 3600)}
        now = [one for one in seen.choices if one.outlook == "now"]
        assert {one.gpus for one in now} == {1}
        assert now[0].committed_gpu_s == now[0].min_runtime_s
        assert (await client.get(f"{API}/timeline")).json() == before
        taken = wanted("try", gpus=1, min_runtime_s=now[0].min_runtime_s, user="bo", allocation="b")
        assert (await client.post(f"{API}/workloads", json=taken)).json()["state"] == "starting"
        ada = bearer(it.secrets.user_token("ada"))
        assert (await client.post(f"{API}/coach", json=body, headers=ada)).status_code == 403
        many = body | {"min_runtimes_s": [60.0] * 17}
        for bad in (many, body | {"launch": LAUNCH}, body | {"min_runtimes_s": []}, body | {"gpus": -1}):
            assert (await client.post(f"{API}/coach", json=bad)).status_code == 422
        refused = read(Coaching, (await client.post(f"{API}/coach", json=body | {"gpus": 64})).json())
        assert refused.asked.outlook == "refused"


async def test_who_would_lose_everything_is_warned(tmp_path: Path) -> None:
    """At submission, in a repeated one and by the coach; nothing is refused."""
    async with service_at(tmp_path) as (_, client):
        risky = wanted("w1", min_runtime_s=60, resumable=False, expected_s=86_400)
        for status in (201, 200):
            answer = await client.post(f"{API}/workloads", json=risky)
            assert answer.status_code == status
            (warning,) = read(Workload, answer.json()).warnings
            assert "it cannot be resumed and is expected to need 1 d" in warning
        wish = {key: value for key, value in risky.items() if key not in ("id", "launch")}
        assert read(Coaching, (await client.post(f"{API}/coach", json=wish)).json()).warnings == (warning,)
        fine = await client.post(f"{API}/workloads", json=wanted("w2", min_runtime_s=60))
        assert read(Workload, fine.json()).warnings == ()
