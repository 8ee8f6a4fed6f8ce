"""Commands that change something: the right request, a truthful sentence, an exit code for scripts."""

from __future__ import annotations

import datetime as dt
import json
import time
from pathlib import Path
from typing import Any

import pytest

from gpufair.cli import waiting
from tests.unit.cli.conftest import NOW, SWEEP, TRAIN, Gpufair, Outcome, run
from tests.unit.client.fake_service import FakeService, Reply, problem, workload

ONE = f"/api/v1/workloads/{TRAIN}"
POINT = {
    "id": "c2",
    "sequence": 5,
    "at_s": NOW,
    "size_bytes": 3_000_000,
    "duration_s": 0.5,
    "lost": [["sock", "a socket"]],
}


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting is tested by what is asked, not by how long it takes."""
    monkeypatch.setattr(waiting, "_POLL_S", 0.01)


@pytest.mark.parametrize(
    ("verb", "says"), [("checkpoint", "is being saved"), ("park", "is being parked"), ("resume", "is checkpointing")]
)
def test_session_verbs(gpufair: Gpufair, fake: FakeService, verb: str, says: str) -> None:
    """By name; the answer is the service's Workload."""
    fake.routes[f"POST {ONE}/{verb}"] = Reply(202, workload(TRAIN, state="checkpointing", position=None))
    seen = gpufair("sessions", verb, "train")
    assert (seen.code, seen.out) == (0, f"train (3f2a81c0) {says}\n")
    assert gpufair("sessions", verb, TRAIN[:6], "--json").json["state"] == "checkpointing"
    assert len(fake.calls(f"POST {ONE}/{verb}")) == 2


def test_resume_fresh(gpufair: Gpufair, fake: FakeService) -> None:
    """Without the variables, when they are what broke it."""
    fake.routes[f"POST {ONE}/resume"] = Reply(202, workload(TRAIN))
    assert gpufair("sessions", "resume", "train", "--fresh").out == "train (3f2a81c0) is queued, 1st\n"
    assert fake.calls(f"POST {ONE}/resume")[0].json == {"from_checkpoint": False}
    gpufair("sessions", "resume", "train")
    assert fake.calls(f"POST {ONE}/resume")[1].json == {"from_checkpoint": True}


def test_a_session_is_opened_on_a_cpu(gpufair: Gpufair, fake: FakeService) -> None:
    """It says where it is, and what it waits for; nothing that belongs to GPUs can be asked for with it."""
    fake.routes[f"POST {ONE}/resume"] = Reply(202, workload(TRAIN, state="running", on_cpu=True, position=None))
    told = gpufair("sessions", "resume", "train", "--on-cpu", "--wait")
    assert told.out == "train (3f2a81c0) is open on a CPU node\n"
    assert fake.calls(f"POST {ONE}/resume")[0].json == {"on_cpu": True}
    fake.routes[f"POST {ONE}/resume"] = Reply(202, workload(TRAIN, state="running", on_cpu=True, position=2))
    assert gpufair("sessions", "resume", "train").out == "train (3f2a81c0) is open on a CPU node, queued 2nd\n"
    assert gpufair("sessions", "resume", "train", "--on-cpu", "--fresh").code == 2


def test_a_running_session_is_moved_to_a_cpu_or_says_why_not(gpufair: Gpufair, fake: FakeService) -> None:
    """Who waits for it is not left waiting for what will not come."""
    moving = {"state": "running", "position": None, "move": {"at_s": NOW, "failed": None}}
    fake.routes[f"POST {ONE}/resume"] = Reply(202, workload(TRAIN, **moving))
    assert gpufair("sessions", "resume", "train", "--on-cpu").out == (
        "train (3f2a81c0) is running, moving to a CPU node\n"
    )
    failed = moving | {"move": {"at_s": NOW, "failed": "gen (a generator) cannot be saved"}}
    fake.routes[f"GET {ONE}"] = Reply(200, workload(TRAIN, **failed))
    waited = gpufair("sessions", "resume", "train", "--on-cpu", "--wait")
    assert (waited.code, "train stays where it is: gen (a generator)" in waited.err) == (1, True), waited.err


def test_a_suggestion_is_shown_and_can_be_dismissed(gpufair: Gpufair, fake: FakeService) -> None:
    told = {"kind": "move_to_cpu", "since_s": NOW - 7200, "text": "This notebook has not used its GPU for 2 h: move it?"}
    running = workload(TRAIN, state="running", position=None)
    fake.routes["GET /api/v1/workloads"] = Reply(200, {"workloads": [running | {"suggestion": told}]})
    assert "running, idle, GPUs not used" in gpufair("sessions", "list").out
    fake.routes[f"POST {ONE}/dismiss"] = Reply(202, running)
    assert gpufair("sessions", "dismiss", "train").out == "train (3f2a81c0) is running, idle\n"
    assert len(fake.calls(f"POST {ONE}/dismiss")) == 1


def test_resume_with_a_slice(gpufair: Gpufair, fake: FakeService) -> None:
    """Less protection than the session asked for is had sooner."""
    fake.routes[f"POST {ONE}/resume"] = Reply(202, workload(TRAIN))
    assert gpufair("sessions", "resume", "train", "--slice", "15m").code == 0
    assert fake.calls(f"POST {ONE}/resume")[0].json == {"from_checkpoint": True, "slice_s": 900.0}
    wrong = gpufair("sessions", "resume", "train", "--slice", "15")
    assert (wrong.code, "--slice" in wrong.err, '"15m"' in wrong.err) == (2, True, True)


def test_extend(gpufair: Gpufair, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """In both places where people look for it; less than was asked for is said to be less."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    running = {"state": "running", "position": None}
    fake.routes[f"POST {ONE}/extend"] = Reply(202, workload(TRAIN, **running, protected_until_s=NOW + 3600))
    told = gpufair("extend", "train", "1h").out
    assert told.startswith("train (3f2a81c0) is protected until ")
    assert told.endswith("(in 1 h)\n")
    assert gpufair("sessions", "extend", "train", "1h").out == told
    assert fake.calls(f"POST {ONE}/extend")[1].json == {"min_runtime_s": 3600.0}
    assert "others were promised its GPUs" in gpufair("extend", "train", "2h").out
    assert "DURATION" in gpufair("extend", "train", "2").err
    fake.routes[f"POST {ONE}/extend"] = problem(409, "ExtensionRefused", "ben's run comes first")
    assert (gpufair("extend", "train", "1h").code, gpufair("extend", "train", "1h").out) == (1, "")


def test_amend(gpufair: Gpufair, fake: FakeService) -> None:
    """Only what is named is sent; what `why` suggests is sent as it is; several are amended one after the other."""
    route = f"PATCH {ONE}"
    fake.routes[route] = Reply(body=workload(TRAIN))
    told = gpufair("amend", "train", "--gpus", "1", "--min-runtime", "15m", "--memory", "2GiB", "--gpu-type", "")
    assert told.out == "train (3f2a81c0) is queued, 1st\n"
    assert fake.calls(route)[0].json == {"gpus": 1, "gpu_type": "", "min_runtime_s": 900.0, "memory_bytes": 2 << 30}
    fake.routes[f"PATCH /api/v1/workloads/{SWEEP}"] = Reply(body=workload(SWEEP, name="sweep"))
    both = gpufair("amend", "train", "sweep", "--allocation", "vision", "--json").json
    assert [one["id"] for one in both["workloads"]] == [TRAIN, SWEEP]
    change = {"text": "1 GPU would start now", "amend": {"gpus": 1, "priority": 0}, "costs": ["it gives up its landing"]}
    why = {"workload": TRAIN, "sentence": "It waits.", "change": change}
    fake.routes[f"GET {ONE}/why"] = Reply(body=why)
    assert gpufair("amend", "train", "--suggested", "--json").json["id"] == TRAIN
    assert fake.calls(route)[-1].json == {"gpus": 1, "priority": 0}
    seen = gpufair("why", "train").out
    assert "  But it gives up its landing.\n  Its owner makes it with: gpufair amend 3f2a81c0 --suggested\n" in seen
    fake.routes[f"GET {ONE}/why"] = Reply(body=why | {"change": None})
    nothing = gpufair("amend", "train", "--suggested")
    assert (nothing.code, nothing.out) == (1, "")
    assert "no change is known that would start 3f2a81c0 now" in nothing.err
    for words in ((), ("--suggested", "--gpus", "1")):
        assert "say what to change" in gpufair("amend", "train", *words).err
    fake.routes[route] = problem(409, "WrongPhase", "it is running")
    assert gpufair("amend", "train", "--gpus", "1").code == 1


def test_drain(gpufair: Gpufair, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """By when it is empty, and who is protected for longer than the deadline."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    node = {
        "name": "node-a", "gpus": 4, "state": "cordoned", "cordoned": True, "workloads": [TRAIN], "empty_by_s": NOW + 7320,
        "drain": {"deadline_s": NOW + 3600, "force": False}, "protected": [{"workload": TRAIN, "until_s": NOW + 7200}],
    }  # fmt: skip
    fake.routes |= {"POST /api/v1/nodes/node-a/drain": Reply(body=node), "GET /api/v1/nodes": Reply(body={"nodes": [node]})}
    seen = gpufair("node", "drain", "node-a", "--deadline", "1h").out
    assert fake.calls("POST /api/v1/nodes/node-a/drain")[0].json == {"force": False, "within_s": 3600.0}
    assert "1 workload will leave; it is empty by " in seen
    assert f"1 workload protected beyond the deadline: {TRAIN[:8]} until " in seen
    assert "--force cuts protections" in seen
    assert "cordoned, drained by " in gpufair("nodes", "list").out
    gpufair("nodes", "drain", "node-a")
    assert fake.calls("POST /api/v1/nodes/node-a/drain")[1].json == {"force": False}
    forced = node | {"drain": {"deadline_s": NOW, "force": True}}
    fake.routes["POST /api/v1/nodes/node-a/drain"] = Reply(body=forced)
    assert "beyond the deadline" not in gpufair("nodes", "drain", "node-a", "--deadline", "0s", "--force").out
    wrong = gpufair("nodes", "drain", "node-a", "--force")
    assert (wrong.code, "--deadline" in wrong.err) == (2, True)
    empty = node | {"workloads": [], "protected": []}
    fake.routes["POST /api/v1/nodes/node-a/drain"] = Reply(body=empty)
    assert gpufair("nodes", "drain", "node-a").out.endswith("; it is empty\n")


def test_maintenance(gpufair: Gpufair, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned for a span or a clock time, for some nodes or all; listed; taken back."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    plan = {"id": "disks", "nodes": ["node-a", "node-b"], "at_s": NOW + 3600}
    none, one = Reply(body={"plans": []}), Reply(body={"plans": [plan]})
    route = "GET /api/v1/maintenance"
    fake.routes |= {
        "GET /api/v1/nodes": Reply(body={"nodes": [{"name": "node-a"}, {"name": "node-b", "closes_at_s": NOW + 3600}]}),
        "POST /api/v1/maintenance": Reply(201, {"plans": [plan]}),
        "DELETE /api/v1/maintenance/disks": none,
        route: none,
    }
    assert gpufair("maintenance", "list").out == "no maintenance is planned\n"
    told = gpufair("maintenance", "plan", "--all", "--in", "1h", "--id", "disks").out
    assert told.startswith("disks: node-a, node-b close ")
    assert "(in 1 h); until then only what is done by then starts there" in told
    sent = [call.json for call in fake.calls("POST /api/v1/maintenance")]
    assert sent == [{"nodes": ["node-a", "node-b"], "at_s": NOW + 3600, "id": "disks"}]
    assert gpufair("maintenance", "plan", "node-a", "--at", "00:00", "--json").json == plan
    at_s = fake.calls("POST /api/v1/maintenance")[1].json["at_s"]
    assert NOW < at_s <= NOW + 86_400
    assert (dt.datetime.fromtimestamp(at_s).astimezone().hour, at_s % 60) == (0, 0)
    for wrong in (["node-a"], ["--all", "node-a", "--in", "1h"], ["--in", "1h"], ["node-a", "--in", "1h", "--at", "08:00"],
                  ["node-a", "--in", "1"], ["node-a", "--at", "noon"]):  # fmt: skip
        assert gpufair("maintenance", "plan", *wrong).code == 2, wrong
    fake.routes[route] = one
    assert "disks" in gpufair("maintenance", "list").out
    assert gpufair("maintenance", "list", "--json").json == {"plans": [plan]}
    assert "ready, closes " in gpufair("nodes", "list").out
    assert gpufair("maintenance", "cancel", "disks").out == "disks is off; 0 plans left\n"


def test_pools(gpufair: Gpufair, fake: FakeService) -> None:
    """Listed, and taken out of service as a whole."""
    far = {"name": "far", "backend": "agents", "nodes": 3, "cordoned": 1, "gpus": 24, "free_gpus": 8, "held_gpus": 8, "gpu_types": ["H200"]}
    fake.routes |= {
        "GET /api/v1/pools": Reply(body={"pools": [far]}),
        "GET /api/v1/nodes": Reply(body={"nodes": [{"name": "n1"}, {"name": "far-1", "pool": "far"}]}),
        "POST /api/v1/maintenance": Reply(201, {"plans": [{"id": "p", "nodes": ["far-1"], "at_s": NOW}]}),
        "GET /api/v1/maintenance": Reply(body={"plans": []}),
        **{f"POST /api/v1/pools/far/{verb}": Reply(body=far) for verb in ("cordon", "uncordon", "drain")},
    }
    row = gpufair("pools", "list").out.splitlines()[1]
    for text in ("far", "3 (1 cordoned)", "8 of 24", "H200", "agents"):
        assert text in row
    assert gpufair("pools", "list", "--json").json["pools"][0]["free_gpus"] == 8
    assert gpufair("pools", "cordon", "far").out == "far (3 nodes) is cordoned: nothing new starts there; 8 GPUs held\n"
    assert gpufair("pools", "uncordon", "far", "--json").json["name"] == "far"
    assert gpufair("pools", "drain", "far", "--force").code == 2
    assert "is being drained" in gpufair("pools", "drain", "far", "--force", "--deadline", "1h").out
    assert fake.calls("POST /api/v1/pools/far/drain")[0].json == {"within_s": 3600, "force": True}
    assert gpufair("maintenance", "plan", "--pool", "far", "--in", "1h", "--id", "p").code == 0
    assert fake.calls("POST /api/v1/maintenance")[0].json["nodes"] == ["far-1"]
    assert gpufair("maintenance", "plan", "--pool", "fra", "--in", "1h").code != 0


def test_announcements(gpufair: Gpufair, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said at once or for a time; listed with what is coming; taken back."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    one = {"id": 3, "state": "current", "severity": "info", "text": "slow", "from_s": NOW, "until_s": NOW + 3600, "by": "olga"}
    old = one | {"id": 2, "state": "withdrawn", "text": "old"}
    route = "POST /api/v1/announcements"
    fake.routes |= {
        route: Reply(201, one),
        "GET /api/v1/announcements": Reply(body={"announcements": [one, old]}),
        "DELETE /api/v1/announcements/3": Reply(body=one | {"state": "withdrawn"}),
    }
    assert gpufair("announce", "say", "slow", "--for", "1h").out.startswith("announcement 3, shown now until ")
    assert gpufair("announce", "say", "slow", "--severity", "warning", "--link", "https://x.org", "--from", "00:00", "--for", "1h", "--json").code == 0  # fmt: skip
    first, second = (call.json for call in fake.calls(route))
    assert (first["text"], first["until_s"], "from_s" in first) == ("slow", NOW + 3600, False)
    assert (second["severity"], second["link"], second["until_s"]) == ("warning", "https://x.org", second["from_s"] + 3600)
    assert first["key"] != second["key"]
    for wrong in (["--for", "1h", "--until", "08:00"], ["--until", "noon"], ["--severity", "loud"]):
        assert gpufair("announce", "say", "slow", *wrong).code == 2, wrong
    told = gpufair("announce", "list").out
    assert ("slow" in told, "old" in told) == (True, False)
    assert "old" in gpufair("announce", "list", "--all").out
    assert [found["id"] for found in gpufair("announce", "list", "--json").json["announcements"]] == [3]
    assert gpufair("announce", "withdraw", "3").out == "announcement 3 is withdrawn\n"


def test_stop(gpufair: Gpufair, fake: FakeService) -> None:
    """At once for a queued one, in a moment for one that runs."""
    fake.routes[f"DELETE {ONE}"] = [
        Reply(202, workload(TRAIN, state="stopping")),
        Reply(body=workload(TRAIN, state="ended")),
    ]
    assert gpufair("sessions", "stop", "train").out == "train (3f2a81c0) is being stopped\n"
    assert gpufair("sessions", "stop", "train").out == "train (3f2a81c0) has ended\n"


def test_a_refusal_is_exit_1_in_the_services_words(gpufair: Gpufair, fake: FakeService) -> None:
    """Or as JSON with the error's class and status."""
    fake.routes[f"POST {ONE}/park"] = problem(409, "WrongPhase", "cannot park: it is ended; start a new one")
    seen = gpufair("sessions", "park", "train")
    assert (seen.code, seen.out, seen.err) == (1, "", "gpufair: cannot park: it is ended; start a new one\n")
    told = json.loads(gpufair("sessions", "park", "train", "--json").err)
    assert told == {
        "error": "WrongPhase",
        "detail": "cannot park: it is ended; start a new one",
        "status": 409,
        "exit": 1,
    }


def then(fake: FakeService, verb: str, *states: dict[str, Any]) -> None:
    """``verb`` is accepted, and the workload goes through ``states``."""
    fake.routes[f"POST {ONE}/{verb}"] = Reply(202, workload(TRAIN, state="checkpointing", position=None))
    fake.routes[f"GET {ONE}"] = [Reply(body=workload(TRAIN, **{"position": None, **fields})) for fields in states]


def test_waiting_for_park(gpufair: Gpufair, fake: FakeService) -> None:
    """Done means parked; the way there goes to standard error."""
    then(
        fake,
        "park",
        {"state": "checkpointing", "progress": {"step": "checkpointing", "fraction": 0.5}},
        {"state": "stopping"},
        {"state": "parked"},
    )
    seen = gpufair("sessions", "park", "train", "--wait")
    assert (seen.code, seen.out) == (0, "train (3f2a81c0) is parked\n")
    assert seen.err.splitlines() == ["train: checkpointing", "train: checkpointing, 50%", "train: stopping"]
    then(fake, "park", {"state": "parked"})
    seen = gpufair("sessions", "park", "train", "--wait", "--json")
    assert (seen.json["state"], seen.err) == ("parked", "")


def test_waiting_for_a_checkpoint_waits_for_a_new_one(gpufair: Gpufair, fake: FakeService) -> None:
    """The old one was there before; what could not be saved is named."""
    old = {"id": "c1", "sequence": 4, "at_s": 1.0}
    then(fake, "checkpoint", {"state": "running", "checkpoint": old}, {"state": "running", "checkpoint": POINT})
    seen = gpufair("sessions", "checkpoint", "train", "--wait")
    assert (seen.code, seen.out) == (0, "train (3f2a81c0) is saved: 3.0 MB in 0.5 s; not saved: sock\n")
    assert len(fake.calls(f"GET {ONE}")) == 2


def test_waiting_for_a_checkpoint_ends_when_it_fails(gpufair: Gpufair, fake: FakeService) -> None:
    """A failure from before counts for nothing."""
    failed = {"at_s": 7.0, "reason": "the disk is full"}
    then(fake, "checkpoint", {"state": "running"}, {"state": "running"}, {"state": "running", "not_saved": failed})
    seen = gpufair("sessions", "checkpoint", "train", "--wait")
    assert (seen.code, seen.out) == (1, "")
    assert seen.err.endswith("gpufair: train was not saved: the disk is full\n")


def test_waiting_for_resume(gpufair: Gpufair, fake: FakeService) -> None:
    """Queued, restoring, running; what could not be restored is named."""
    then(
        fake,
        "resume",
        {"state": "queued", "position": 2},
        {"state": "restoring"},
        {"state": "running", "lost": [["gen", "a generator"]]},
    )
    seen = gpufair("sessions", "resume", "train", "--wait")
    assert (seen.code, seen.out) == (0, "train (3f2a81c0) is running, idle; 1 variable could not be restored: gen\n")
    assert "train: queued, 2nd" in seen.err


def test_a_wait_ends_when_its_time_is_over(gpufair: Gpufair, fake: FakeService) -> None:
    """Exit 1, and the text says that it goes on by itself."""
    then(fake, "resume", {"state": "queued", "position": 2, "reason": "others come first"})
    seen = gpufair("sessions", "resume", "train", "--wait", "--timeout", "50ms")
    assert (seen.code, seen.out) == (1, "")
    assert (
        "is not running after 0.1 s but queued, 2nd (others come first); it goes on: `gpufair why 3f2a81c0`" in seen.err
    )


def test_a_wait_ends_when_nothing_can_come_of_it(gpufair: Gpufair, fake: FakeService) -> None:
    """Somebody stopped it meanwhile."""
    then(fake, "park", {"state": "ended", "outcome": "cancelled", "reason": "stopped by its owner"})
    seen = gpufair("sessions", "park", "train", "--wait")
    assert seen.code == 1
    assert "train has ended (cancelled) (stopped by its owner)" in seen.err


def test_a_wrong_duration_is_refused_before_anything_is_asked(gpufair: Gpufair, fake: FakeService) -> None:
    """Parking and then complaining would be too late."""
    seen = gpufair("sessions", "park", "train", "--wait", "--timeout", "5")
    assert (seen.code, fake.asked) == (2, [])
    assert "did you mean" in seen.err


def test_nodes(gpufair: Gpufair, fake: FakeService) -> None:
    """What is free where; what a cordon means for those who run there."""
    node = {
        "name": "node-a",
        "pool": "default",
        "gpus": 4,
        "gpu_type": "A100",
        "free_gpus": 1,
        "state": "ready",
        "cordoned": False,
        "workloads": [TRAIN],
        "last_seen_s": 1.0,
        "labels": {"rack": "r1"},
        "cpus": 32,
        "memory_bytes": 64 << 30,
        "drain": None,
        "protected": [],
        "empty_by_s": None,
        "closes_at_s": None,
        "guest_gpus": 2,
        "problems": ["a full disk"],
        "clock_skew_s": 0.5,
        "agent_version": "0.1.0",
        "landings": [{"workload": SWEEP, "gpus": 2, "at_s": NOW, "start_by_s": NOW + 60}],
    }
    lost = node | {"name": "node-b", "state": "lost", "cordoned": True, "workloads": [], "gpus": 0, "landings": []}
    fake.routes |= {
        "GET /api/v1/nodes": Reply(body={"nodes": [node, lost]}),
        "POST /api/v1/nodes/node-a/cordon": Reply(body=node | {"state": "cordoned", "cordoned": True}),
        "POST /api/v1/nodes/node-b/cordon": Reply(body=lost),
        "POST /api/v1/nodes/node-a/uncordon": Reply(body=node),
        "DELETE /api/v1/nodes/node-b": Reply(body=lost),
        "DELETE /api/v1/nodes/node-a": problem(409, "NodeNotLost", "node 'node-a' cannot be removed: it is there"),
        "POST /api/v1/nodes/x/cordon": problem(404, "UnknownNode", "there is no node 'x'; known nodes: node-a"),
    }  # fmt: skip
    first, second, said = gpufair("nodes", "list").out.splitlines()[1:]
    assert said == "node-a, node-b: a full disk", "the same of several is said once"
    assert "1 of 4 (+ 2 for a while)" in first
    assert TRAIN[:8] in first
    assert f"{SWEEP[:8]} by " in first
    assert "lost, cordoned" in second
    assert gpufair("nodes", "list", "--json").json == {"nodes": [node, lost]}
    assert "1 workload will leave as protection ends" in gpufair("nodes", "cordon", "node-a").out
    assert "it is empty" in gpufair("nodes", "cordon", "node-b").out
    assert gpufair("nodes", "uncordon", "node-a").out == "node-a takes workloads again (1 of 4 GPUs free)\n"
    assert gpufair("nodes", "uncordon", "node-a", "--json").json == node
    assert gpufair("nodes", "remove", "node-b").out.startswith("node-b is removed; ")
    assert gpufair("nodes", "remove", "node-b", "--json").json == lost
    assert gpufair("nodes", "remove", "node-a").err == "gpufair: node 'node-a' cannot be removed: it is there\n"
    seen = gpufair("nodes", "cordon", "x")
    assert (seen.code, seen.err) == (4, "gpufair: there is no node 'x'; known nodes: node-a\n")


def allocation(path: str, share: str, entitlement: float, members: list[str]) -> dict[str, Any]:
    return {
        "path": path, "share": share, "members": members, "leaf": True, "entitlement": entitlement, "budget_gpu_s": 7200.0,
        "occupancy_gpu_s": 3600.0, "commitment_gpu_s": 60.0, "owed_gpu_s": 5400.0, "due_gpu_s": 7200.0,
        "gpus_wanted": 1, "metric": 0.5083, "gpus_held": 1, "gpus_queued": 0, "pools": [],
    }  # fmt: skip


BEFORE = {
    "window_s": 604800.0,
    "banking": 0.25,
    "capacity_gpu_s": 14400.0,
    "allocations": [allocation("a", "1", 0.5, ["ria"]), allocation("b", "1", 0.5, [])],
}
AFTER = BEFORE | {"allocations": [allocation("a", "3", 0.75, ["ria", "ben"]), allocation("c", "1", 0.25, [])]}


def test_budgets_show(gpufair: Gpufair, fake: FakeService) -> None:
    """Entitled, charged, committed, and the metric that decides."""
    fake.routes["GET /api/v1/budgets"] = Reply(body=BEFORE)
    seen = gpufair("budgets", "show").out
    assert seen.startswith("Over the last 7 d; the whole budget is 4.0 GPU-h\n")
    for text in (
        "50.0 %",
        "2.0 GPU-h",
        "1.0 GPU-h",
        "1.0 GPU-min",
        "1.5 GPU-h",
        "0.508 (under-served)",
        "1 GPU",
        "ria",
    ):
        assert text in seen
    assert gpufair("budgets", "show", "--json").json == BEFORE
    part = {"pool": "default", "occupancy_gpu_s": 3600.0, "metric": 0.25, "gpus_held": 1}
    parts = [part, part | {"pool": "far", "occupancy_gpu_s": 0.0, "metric": None, "gpus_held": 0}]
    assert "far" not in seen
    fake.routes["GET /api/v1/budgets"] = Reply(body=BEFORE | {"allocations": [allocation("a", "1", 0.5, []) | {"pools": parts}]})
    *_, near, far = gpufair("budgets", "show").out.splitlines()
    assert (near.split()[:2], "0.25" in near, far.split()[:2]) == (["a", "default"], True, ["a", "far"])


def apply(gpufair: Gpufair, fake: FakeService, reply: Reply, *args: str, **more: Any) -> Outcome:
    fake.routes |= {"GET /api/v1/budgets": Reply(body=BEFORE), "PUT /api/v1/budgets": reply}
    return gpufair("budgets", "apply", *args, **more)


def test_budgets_apply_shows_what_changed(gpufair: Gpufair, fake: FakeService, tmp_path: Path) -> None:
    """Each allocation added, removed or changed, before and after."""
    file = tmp_path / "budgets.toml"
    file.write_bytes(b'[[allocation]]\npath = "a"\nshare = 3\n')
    seen = apply(gpufair, fake, Reply(body=AFTER), str(file))
    assert seen.code == 0
    rows = [line.split() for line in seen.out.splitlines()]
    assert ["a", "changed", "share", "1", "3"] in rows
    assert ["a", "changed", "members", "ria", "ria,", "ben"] in rows
    assert ["a", "changed", "entitled", "50.0", "%", "75.0", "%"] in rows
    assert ["b", "removed", "share", "1", "(50.0", "%)", "–"] in rows
    assert ["c", "added", "share", "–", "1", "(25.0", "%)"] in rows
    assert seen.out.endswith("3 allocations changed\n")
    assert fake.calls("PUT /api/v1/budgets")[0].body == file.read_bytes()
    assert "it changes nothing" in apply(gpufair, fake, Reply(body=BEFORE), "-", input="x").out
    data = apply(gpufair, fake, Reply(body=AFTER), "-", "--json", input="x").json
    assert data["budgets"] == AFTER
    assert data["changes"][-1] == {
        "path": "c",
        "change": "added",
        "field": "share",
        "before": "",
        "after": "1 (25.0 %)",
    }


def test_a_bad_budgets_file_names_its_line(gpufair: Gpufair, fake: FakeService, tmp_path: Path) -> None:
    """As a compiler would, so that editors jump there."""
    file = tmp_path / "budgets.toml"
    file.write_text("x")
    bad = problem(422, "BudgetError", "line 7: share = -1 is negative", line=7)
    seen = apply(gpufair, fake, bad, str(file))
    assert (seen.code, seen.err) == (1, f"gpufair: {file}:7: share = -1 is negative; nothing has changed\n")
    told = json.loads(apply(gpufair, fake, bad, str(file), "--json").err)
    assert (told["error"], told["line"], told["file"], told["exit"]) == ("BudgetError", 7, str(file), 1)
    seen = apply(gpufair, fake, problem(422, "BudgetError", "a has live workloads"), str(file))
    assert "was refused: a has live workloads; nothing has changed" in seen.err


def test_a_budgets_file_that_is_none(gpufair: Gpufair, fake: FakeService, tmp_path: Path) -> None:
    """Missing, a folder, or a film: nothing is sent."""
    assert gpufair("budgets", "apply", str(tmp_path / "none")).code == 2
    assert gpufair("budgets", "apply", str(tmp_path)).code == 2
    large = tmp_path / "film"
    large.write_bytes(b"#" * (2 << 20))
    seen = gpufair("budgets", "apply", str(large))
    assert (seen.code, fake.asked) == (1, [])
    assert "is it a budgets file?" in seen.err


def test_budgets_of_a_stranger(gpufair: Gpufair, fake: FakeService) -> None:
    """Who may not apply budgets is told that, not that the file is wrong."""
    seen = apply(gpufair, fake, problem(403, "Forbidden", "only an admin applies budgets"), "-", input="x")
    assert (seen.code, seen.err) == (1, "gpufair: only an admin applies budgets\n")


def test_serve_and_demo_hand_over_their_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And their exit code comes back; neither is imported before."""
    import sys
    from types import ModuleType

    seen: list[Any] = []

    def stand_in(code: int | None) -> Any:
        def start(**given: Any) -> int | None:
            seen.append(given)
            return code

        return start

    service, demo = ModuleType("serve"), ModuleType("demo")
    service.__dict__["run"] = stand_in(None)
    demo.__dict__.update(run=stand_in(1), lab=stand_in(0))
    monkeypatch.setitem(sys.modules, "gpufair.service.serve", service)
    monkeypatch.setitem(sys.modules, "gpufair.cli.demo", demo)
    folder = str(tmp_path)
    args = ["--embedded", "--state-dir", folder, "--port", "8123", "--host", "127.0.0.1", "--linger", "15m"]
    assert run("serve", *args).code == 0
    assert run("demo", "--json", "--html", f"{folder}/x.html").code == 1
    assert run("lab").code == 0
    assert seen == [
        {"config": None, "state_dir": tmp_path, "host": "127.0.0.1", "port": 8123, "embedded": True, "linger": "15m", "insecure": False},
        {"as_json": True, "html": tmp_path / "x.html"},
        {},
    ]
    assert run("serve", "--port", "70000").code == 2


def test_stop_asks_for_the_workload_where_the_answer_is_empty(gpufair: Gpufair, fake: FakeService) -> None:
    """A 204 says nothing of the state."""
    fake.routes[f"DELETE /api/v1/workloads/{SWEEP}"] = Reply(204)
    assert gpufair("sessions", "stop", "sweep").out == "sweep (3f2b0000) is being stopped\n"
