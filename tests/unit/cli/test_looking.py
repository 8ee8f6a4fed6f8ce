"""Commands that only look: right words for people, stable JSON for scripts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpufair.cli.words import clock, moment
from tests.unit.cli.conftest import NOW, SWEEP, TRAIN, Gpufair, run
from tests.unit.client.fake_service import FakeService, Reply, problem, workload

STATUS = {
    "version": "0.1.0", "api_version": 1, "pid": 42, "started_s": NOW - 7500, "now_s": NOW, "mode": "embedded",
    "state_dir": "/s", "user": "ria", "operator": False, "nodes": 2, "gpus": {"total": 4, "free": 1}, "counts": {"running": 2, "queued": 1, "ended": 0},
    "holders": 0, "linger_s": 900.0, "linger_until_s": NOW + 600,
}  # fmt: skip


def test_status(gpufair: Gpufair, fake: FakeService) -> None:
    """Who, where, how much is free, and when an embedded service will end."""
    fake.routes["GET /api/v1/status"] = Reply(body=STATUS)
    seen = gpufair("status")
    assert seen.code == 0, seen.err
    for text in (
        f"0.1.0 at {fake.url}, embedded",
        "pid 42, up 2 h 5 min",
        "ria",
        "1 free of 4 on 2 nodes",
        "2 running, 1 queued",
        "in 10 min",
    ):
        assert text in seen.out
    assert "ended" not in seen.out
    assert gpufair("status", "--json").json == STATUS
    one = {"id": 3, "state": "current", "severity": "warning", "text": "The storage is\nslow.", "link": "https://x.org/"}
    plan = {"id": "disks", "nodes": ["node-a"], "at_s": NOW + 3600}
    fake.routes["GET /api/v1/announcements"] = Reply(body={"announcements": [one], "maintenance": [plan]})
    told = gpufair("status").out
    assert "\nwarning      The storage is slow. https://x.org/\n" in told
    assert "\nmaintenance  node-a closes for maintenance " in told


def test_queue(gpufair: Gpufair, fake: FakeService) -> None:
    """In the order of service, an estimate marked as one."""
    seen = gpufair("queue")
    header, row = seen.out.splitlines()
    assert header.split()[:3] == ["#", "ID", "NAME"]
    for text in (
        "1",
        SWEEP[:8],
        "sweep",
        "ben",
        "language/digits",
        "2 × 2 A100",
        "~ ",
        "(in 11 min 40 s)",
        "waits for 4 GPUs",
    ):
        assert text in row
    data = gpufair("queue", "--json").json
    assert (data["now_s"], [w["id"] for w in data["workloads"]]) == (NOW, [SWEEP])
    assert set(data["workloads"][0]) >= set(workload())
    promised = workload(SWEEP, estimate_s=NOW + 700, start_by_s=NOW + 900)
    fake.routes["GET /api/v1/queue"] = Reply(body={"now_s": NOW, "workloads": [promised]})
    row = gpufair("queue").out.splitlines()[1]
    assert "by " in row
    assert "(in 15 min)" in row
    assert "~" not in row
    fake.routes["GET /api/v1/queue"] = Reply(body={"now_s": NOW, "workloads": []})
    assert gpufair("queue").out == "nothing is queued\n"


EXPLANATION: dict[str, Any] = {
    "workload": SWEEP, "state": "queued", "sentence": "vision comes first at the top: its metric 0.4 is below 1.2.", "position": 1,
    "queued": 3, "level": "",
    "mine": {"allocation": "language", "occupancy_gpu_s": 7200, "commitment_gpu_s": 900, "budget_gpu_s": 27000, "owed_gpu_s": 3600,
             "due_gpu_s": 6750, "metric": 1.2},
    "other": {"allocation": "vision", "occupancy_gpu_s": 40, "commitment_gpu_s": 0, "budget_gpu_s": 100, "metric": 0.4},
    "holders": [{"workload": TRAIN, "user": "ria", "allocation": "language/digits", "gpus": 1,
                 "leases": [{"node": "node-a", "gpus": 1}], "until_s": NOW + 600, "protected": True}],
    "start": {"kind": "estimate", "at_s": NOW + 700, "because": "when train's protection ends"},
    "change": {"text": "ask for 1 GPU", "fields": {"gpus": 1}},
}  # fmt: skip


def test_why(gpufair: Gpufair, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentence, place, both metrics with their parts, who holds what until when, the way out."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    route = f"GET /api/v1/workloads/{SWEEP}/why"
    fake.routes[route] = Reply(body=EXPLANATION)
    seen = gpufair("why", "sweep").out
    for text in (
        "sweep (3f2b0000) is queued, 1st of 3.",
        "vision comes first at the top",
        "(in 11 min 40 s); this is an estimate, not a promise: when train's protection ends",
        "at the top of the budget tree",
        "2.0 GPU-h", "15.0 GPU-min", "1.9 GPU-h", "1.200 (over-served)", "40 GPU-s", "0.400 (under-served)",
        "train", "node-a", "(in 10 min)",
        "Smallest change that would start it now: ask for 1 GPU",
    ):  # fmt: skip
        assert text in seen
    fake.routes[route] = Reply(
        body=EXPLANATION | {"start": {"kind": "start_by", "at_s": NOW + 5, "because": ""}, "level": "language"}
    )
    seen = gpufair("why", SWEEP).out
    assert "Starts by" in seen
    assert "(in 5 s) at the latest; this is binding" in seen
    assert "below language" in seen
    fake.routes[route] = Reply(
        body=EXPLANATION | {"start": {"kind": "estimate", "at_s": None, "because": "its leaf has no share"}}
    )
    assert "When it may start is not known: its leaf has no share" in gpufair("why", SWEEP).out
    start = {"kind": "estimate", "at_s": None, "because": "no estimate: it starts when others end"}
    fake.routes[route] = Reply(body=EXPLANATION | {"start": start, "sentence": "Held until 1970-01-01 00:00:05Z."})
    seen = gpufair("why", SWEEP).out
    assert "When it may start is not known: it starts when others end\n" in seen
    assert f"Held until {moment(5, NOW)}." in seen
    data = gpufair("why", SWEEP[:4], "--json").json
    assert data["mine"]["metric"] == 1.2
    assert data["holders"][0]["leases"] == [{"node": "node-a", "gpus": 1}]


def test_tour(gpufair: Gpufair, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded, step by step, with moments in local time, what there was none of, and the words it uses."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    line = {"at_s": NOW - 60, "text": "started on node-a, protected until 1970-01-01 00:00:05Z: it was next"}
    step = {"kind": "own", "title": "Yours: it waited for 2 min", "workload": TRAIN, "label": "ada's session 3f2a81c0",
            "name": "train", "allocation": "vision", "mine": True, "lines": [line], "terms": ["landing"]}  # fmt: skip
    terms = {"landing": {"means": "nodes and a time", "where": "docs/policy.md, Landings"}}
    body = {"about": "This lab has no week yet.", "steps": [step], "missing": ["Nobody was preempted."], "terms": terms}
    fake.routes["GET /api/v1/tour"] = Reply(body=body)
    seen = gpufair("tour").out
    for text in (
        "This lab has no week yet.\n",
        "1. Yours: it waited for 2 min\n   train, ada's session 3f2a81c0; vision pays\n",
        f"   {clock(NOW - 60, NOW)}  started on node-a, protected until {moment(5, NOW)}: it was next\n",
        "Nobody was preempted.\n",
        "landing: nodes and a time (docs/policy.md, Landings)",
    ):
        assert text in seen
    assert gpufair("tour", "--json").json["steps"][0]["lines"] == [line]


def test_why_of_an_allocation(gpufair: Gpufair, fake: FakeService) -> None:
    """Level by level, the most under-served first, with the parts of each metric."""
    fake.routes["GET /api/v1/budgets"] = Reply(body={"allocations": [{"path": "language"}, {"path": "language/digits"}]})
    mine = {"allocation": "language/digits", "occupancy_gpu_s": 7200, "due_gpu_s": 3600, "metric": 2.0}
    other = {"allocation": "language/x", "metric": 0.0}
    levels = [
        {"parent": "", "path": "language", "place": 1, "siblings": [{"allocation": "language", "metric": 1.0}]},
        {"parent": "language", "path": "language/digits", "place": 2, "siblings": [other, mine]},
    ]
    body = {"allocation": "language/digits", "pools": [{"pool": "default", "sentence": "In default it is 2nd.", "levels": levels}]}
    fake.routes["GET /api/v1/budgets/why"] = Reply(body=body)
    seen = gpufair("why", "language/digits").out
    assert fake.calls("GET /api/v1/budgets/why")[0].query == {"allocation": ["language/digits"]}
    for text in ("In default it is 2nd.", "At the top; metric", "Below language; metric", "2 ←", "1.0 GPU-h", "2.000 (over-served)"):
        assert text in seen
    assert gpufair("why", "language/digits", "--json").json["pools"][0]["levels"][1]["place"] == 2
    assert gpufair("why", "language/nowhere").code == 4


def test_why_says_who_could_come(gpufair: Gpufair, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs wants to know by when to be done, and what a preemption would cost."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    threat = {"by": SWEEP, "right": "rank", "earliest_s": NOW + 60, "loses_gpu_s": 7200}
    body = {"workload": TRAIN, "state": "running", "sentence": "it fits.", "threat": threat}
    fake.routes[f"GET /api/v1/workloads/{TRAIN}/why"] = Reply(body=body)
    told = gpufair("why", "train").out.splitlines()[-1]
    assert told.startswith("Could have to make room at ")
    assert told.endswith("(in 1 min) at the earliest, for sweep (rank); it would lose 2.0 GPU-h of work")


def test_why_of_a_running_one_is_short(gpufair: Gpufair, fake: FakeService) -> None:
    """Nothing decided against it: no comparison, no holders."""
    fake.routes[f"GET /api/v1/workloads/{TRAIN}/why"] = Reply(
        body={"workload": TRAIN, "state": "running", "sentence": "it fits."}
    )
    assert gpufair("why", "train").out == "train (3f2a81c0) is running, busy.\n  it fits.\n"


def test_preview(gpufair: Gpufair, fake: FakeService) -> None:
    """One line for each thing that happens, and how many of those who wait come to their turn."""
    steps = [
        {"at_s": NOW + 60, "what": "told to leave", "workload": TRAIN, "user": "ria", "allocation": "a", "gpus": 1, "nodes": ["node-a"],
         "why": "its protection ended", "reason": "rank", "beneficiary": SWEEP, "until_s": NOW + 180},
        {"at_s": NOW + 80, "what": "releases", "workload": TRAIN, "user": "ria", "gpus": 1, "why": "free"},
        {"at_s": NOW + 90, "what": "starts", "workload": SWEEP, "user": "ben", "gpus": 4, "why": "it comes first"},
    ]  # fmt: skip
    body = {"now_s": NOW, "until_s": NOW + 7200, "cut": "", "steps": steps, "starts": [{"workload": SWEEP, "at_s": NOW + 90}]}
    fake.routes["GET /api/v1/preview"] = Reply(body=body)
    _, told, starts, summary = gpufair("preview", "--hours", "2").out.splitlines()
    assert fake.calls("GET /api/v1/preview")[0].query == {"hours": ["2"]}
    for text in ("(in 1 min)", TRAIN[:8], "ria", "told to leave", "node-a", SWEEP[:8], "(in 3 min)"):
        assert text in told
    assert "starts" in starts
    assert summary.startswith("Of those who wait now, 1 start by ")
    assert "(in 2 h)" in summary
    assert gpufair("preview", "--all").out.count("releases") == 1
    fake.routes["GET /api/v1/preview"] = Reply(body=body | {"cut": "cut at 2027-01-15 08:00:00Z after 2000 steps"})
    assert gpufair("preview").out.splitlines()[-1].startswith("The preview was cut at ")
    fake.routes["GET /api/v1/preview"] = Reply(body=body | {"steps": [], "starts": []})
    assert gpufair("preview").out == "if nothing new arrives, nothing changes in the next 8 h\n"
    assert gpufair("preview", "--json").json["until_s"] == NOW + 7200
    assert gpufair("preview", "--hours", "1000").code == 2


def test_coach(gpufair: Gpufair, fake: FakeService) -> None:
    """A row for each way to ask, and what to do about it."""
    asked = {"gpus": 4, "nodes": 2, "min_runtime_s": 28800, "outlook": "start by", "at_s": NOW + 7200,
             "committed_gpu_s": 8 * 28800, "of_budget": 0.04, "sentence": "long"}  # fmt: skip
    choices = [
        {"gpus": 1, "min_runtime_s": 0, "outlook": "now"},
        {"gpus": 1, "min_runtime_s": 900, "outlook": "makes room", "at_s": NOW + 20, "right": "debug", "committed_gpu_s": 900, "of_budget": 0.001},
        {"gpus": 8, "min_runtime_s": 900, "outlook": "estimated", "at_s": NOW + 60},
        {"gpus": 9, "min_runtime_s": 900, "outlook": "unknown"},
        {"gpus": 64, "min_runtime_s": 900, "outlook": "refused"},
    ]  # fmt: skip
    body = {"asked": asked, "choices": choices, "advice": "1 GPU starts at once.", "allocation": "a", "now_s": NOW}
    fake.routes["POST /api/v1/coach"] = Reply(body=body)
    seen = gpufair("coach", "--profile", "big", "--gpus", "4", "--nodes", "2", "--min-runtime", "8h").out.splitlines()
    sent = fake.calls("POST /api/v1/coach")[0].json
    assert sent == {"profile": "big", "gpus": 4, "nodes": 2, "min_runtime_s": 28800.0}
    for row, texts in zip(seen[1:7], [
        ("2 × 4 (asked)", "8 h", "by ", "(in 2 h)", "64.0 GPU-h", "4.0 %"),
        ("unallocated", "now"), ("15 min", "by ", "(in 20 s), others leave for it"), ("about ", "(in 1 min)"),
        ("not known",), ("never: refused",),
    ], strict=True):  # fmt: skip
        for text in texts:
            assert text in row
    assert seen[-1] == "1 GPU starts at once."
    fake.routes["POST /api/v1/coach"] = Reply(body=body | {"warnings": ["it cannot be resumed"]})
    assert gpufair("coach").out.splitlines()[-1] == "Take care: it cannot be resumed."
    fake.routes["POST /api/v1/coach"] = Reply(body=body)
    assert fake.calls("POST /api/v1/coach")[1].json == {"gpus": 1, "min_runtime_s": 3600.0}
    assert gpufair("coach", "--json").json["asked"]["of_budget"] == 0.04
    assert "--min-runtime" in gpufair("coach", "--min-runtime", "4").err


DELIVERY: dict[str, Any] = {
    "pool": "default", "start_s": NOW - 7200, "end_s": NOW, "capped": 0.98, "uncapped": 1.03, "capped_hourly": 0.9,
    "worst": {"path": "vision", "ratio": 0.95},
}  # fmt: skip


def test_pyramid(gpufair: Gpufair, fake: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four levels with what was lost where; what nobody measured is unknown."""
    monkeypatch.setattr(time, "time", lambda: NOW)
    level = {"of_gpu_s": 14400, "kept_gpu_s": 7200, "ratio": 0.5, "losses": [{"cause": "idle", "gpu_s": 7200}, {"cause": "held", "gpu_s": 0}]}
    pool = DELIVERY | {"availability": level, "occupancy": level, "impact": level, "utilization": {"ratio": None}, "charged_gpu_s": 3600}
    fake.routes["GET /api/v1/pyramid"] = Reply(body={"pools": [pool]})
    seen = gpufair("pyramid", "--since", "2h").out
    assert fake.calls("GET /api/v1/pyramid")[0].query == {"since_s": [f"{NOW - 7200:.3f}"]}
    for text in ("in default, from ", "(2 h)", "50.0 %", "2.0 GPU-h idle", "unknown", "no node has measured it", "1.0 GPU-h were charged"):
        assert text in seen
    assert "held," not in seen
    used = {"ratio": 0.4, "kept_gpu_s": 1440, "of_gpu_s": 3600, "coverage": 0.25}
    fake.routes["GET /api/v1/pyramid"] = Reply(body={"pools": [pool | {"utilization": used}]})
    seen = gpufair("pyramid").out
    assert "40.0 %" in seen
    assert "measured on 25.0 % of what was held" in seen
    assert fake.calls("GET /api/v1/pyramid")[1].query == {}
    assert gpufair("pyramid", "--json").json["pools"][0]["utilization"]["coverage"] == 0.25
    assert "--since" in gpufair("pyramid", "--since", "2").err


def test_delivered(gpufair: Gpufair, fake: FakeService) -> None:
    """The headline, who got least, and each allocation; researchers on demand."""
    a = {"path": "vision", "entitlement": 0.4, "owed_gpu_s": 7200, "charged_gpu_s": 6840, "capped_gpu_s": 6840, "ratio": 0.95,
         "researchers": [{"user": "ben", "charged_gpu_s": 6840}]}  # fmt: skip
    fake.routes["GET /api/v1/budgets/delivered"] = Reply(body={"pools": [DELIVERY | {"allocations": [a]}]})
    seen = gpufair("budgets", "delivered").out
    assert "Capped 98.0 % of what was owed, uncapped 103.0 %, hour by hour 90.0 %; least to vision: 95.0 %" in seen
    for text in ("40.0 %", "2.0 GPU-h", "1.9 GPU-h", "95.0 %"):
        assert text in seen
    assert "ben" not in seen
    assert "  ben" in gpufair("budgets", "delivered", "--users").out
    assert gpufair("budgets", "delivered", "--json").json["pools"][0]["allocations"][0]["ratio"] == 0.95


def test_history(gpufair: Gpufair, fake: FakeService) -> None:
    """A row for each GPU: a letter for each team, small where it may be interrupted, ! where it had to make room."""
    since = NOW - 7200
    stays = [
        {"workload": "w1", "allocation": "vision/a", "rows": [0], "from_s": since, "protected": [[since, NOW - 3600]]},
        {"workload": "w2", "allocation": "language", "rows": [1], "from_s": since - 60, "to_s": NOW - 3600, "preempted_s": NOW - 3700},
    ]
    node = {"name": "node-a", "gpus": 2, "stays": stays}
    fake.routes["GET /api/v1/history"] = Reply(body={"now_s": NOW, "since_s": since, "nodes": [node]})
    seen = gpufair("history", "--hours", "2").out.splitlines()
    assert fake.calls("GET /api/v1/history")[0].query == {"hours": ["2"]}
    assert seen[1] == "node-a 0 " + "B" * 36 + "b" * 36
    assert seen[2] == "node-a 1 " + "a" * 35 + "!" + "·" * 36
    assert seen[3:5] == ["A  language", "B  vision"]
    assert "no more is known" in gpufair("history", "--hours", "6", "--node", "node-a").out
    assert gpufair("history", "--json").json["nodes"][0]["stays"][1]["preempted_s"] == NOW - 3700
    node["gpus"] = 500
    assert "… and 300 more GPUs" in gpufair("history").out
    fake.routes["GET /api/v1/history"] = Reply(body={"now_s": NOW, "nodes": []})
    assert "there is no node x" in gpufair("history", "--node", "x").out


def test_budgets_over_time(gpufair: Gpufair, fake: FakeService) -> None:
    """All allocations at a glance, one of them part by part."""
    course = {"path": "vision", "owed_gpu_s": [7200, 3600, 0], "charged_gpu_s": [7200, 60, 0]}
    pool = {"pool": "default", "start_s": NOW - 10800, "end_s": NOW, "bin_s": 3600, "allocations": [course]}
    fake.routes["GET /api/v1/budgets/over-time"] = Reply(body={"pools": [pool]})
    seen = gpufair("budgets", "over-time").out
    for text in ("in default, from ", "each part 1 h", "3.0 GPU-h", "2.0 GPU-h", "█▁"):
        assert text in seen
    assert fake.calls("GET /api/v1/budgets/over-time")[0].query == {"bins": ["28"]}
    *_, first, second, third = gpufair("budgets", "over-time", "vision", "--bins", "3").out.rstrip().splitlines()
    assert first.endswith("100.0 %")
    assert second.endswith("1.7 %")
    assert third.endswith("–")
    assert fake.calls("GET /api/v1/budgets/over-time")[1].query == {"bins": ["3"], "allocation": ["vision"]}
    assert gpufair("budgets", "over-time", "--json").json["pools"][0]["allocations"][0]["charged_gpu_s"] == [7200, 60, 0]


def test_kernels(gpufair: Gpufair, fake: FakeService) -> None:
    """Profiles, with what they cost."""
    profiles = [
        {"name": "big", "display_name": "Big", "gpus": 8, "nodes": 2, "gpu_type": "H100", "allocation": "a/b", "min_runtime_s": 7200, "kind": "session", "priority": 1},
        {"name": "cpu", "gpus": 0},
        {"name": "free", "gpus": 1},
    ]  # fmt: skip
    fake.routes["GET /api/v1/profiles"] = Reply(body={"profiles": profiles})
    big, cpu, free = gpufair("kernels", "list").out.splitlines()[1:]
    assert "2 × 8 H100" in big
    assert "2 h" in big
    assert "cpu" in cpu
    assert "unallocated" in free
    assert gpufair("kernels", "list", "--json").json["profiles"][0].items() >= profiles[0].items()
    fake.routes["GET /api/v1/profiles"] = Reply(body={"profiles": []})
    assert "[[profile]]" in gpufair("kernels", "list").out


def test_list_sessions(gpufair: Gpufair) -> None:
    """Live ones unless all are asked for."""
    seen = gpufair("sessions", "list").out
    for text in ("running, busy", "queued, 1st", "node-a", "sweep"):
        assert text in seen
    assert "old" not in seen
    assert "ended, failed" in gpufair("sessions", "list", "--all").out
    assert [w["name"] for w in gpufair("sessions", "list", "--state", "ended", "--json").json["workloads"]] == ["old"]


def test_names_cannot_steer_the_terminal(gpufair: Gpufair, fake: FakeService) -> None:
    """A notebook's name is somebody else's text: no escape sequence, no markup."""
    evil = workload(TRAIN, name="\x1b[2J[red]x[/red]\n", state="parked")
    fake.routes["GET /api/v1/workloads"] = Reply(body={"workloads": [evil]})
    seen = gpufair("sessions", "list")
    assert "\x1b" not in seen.out
    assert "[2J[red]x[/red]" in seen.out


def test_a_pipe_cuts_nothing_off(gpufair: Gpufair, fake: FakeService) -> None:
    """What a script greps must be whole, however narrow the terminal was."""
    name = "n" * 250
    fake.routes["GET /api/v1/workloads"] = Reply(body={"workloads": [workload(TRAIN, name=name, reason="r")]})
    assert name in gpufair("sessions", "list", COLUMNS="40").out


def test_a_narrow_terminal_drops_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The least important ones first; what stays is not cut while it fits."""
    from rich.console import Console

    from gpufair.cli import output

    monkeypatch.setattr(output, "console", lambda: Console(width=30, force_terminal=False))
    columns = [output.Column("ID"), output.Column("NAME", 1), output.Column("STATE"), output.Column("MORE", 2)]
    output.table(columns, [("3f2a81c0", "a long name here", "running", "m" * 40)], "none")
    seen = capsys.readouterr()
    assert seen.out.split() == ["ID", "STATE", "3f2a81c0", "running"]
    # Who misses a column must not think that there is none.
    assert seen.err == "(no room for NAME, MORE; widen the terminal, or use --json)\n"


def test_colour_is_for_terminals_only(gpufair: Gpufair) -> None:
    """And NO_COLOR is honoured by what draws them (rich)."""
    assert "\x1b" not in gpufair("sessions", "list").out


def test_nothing_is_there(gpufair: Gpufair, fake: FakeService) -> None:
    """An empty table is a sentence."""
    fake.routes["GET /api/v1/workloads"] = Reply(body={"workloads": []})
    assert gpufair("sessions", "list").out.startswith("there are no live workloads")
    assert gpufair("sessions", "list", "--json").json == {"workloads": []}


@pytest.mark.parametrize(
    "args",
    [
        ["status"],
        ["queue"],
        ["why", "train"],
        ["sessions", "list"],
        ["nodes", "list"],
        ["budgets", "show"],
        ["kernels", "list"],
        ["preview"],
        ["pyramid"],
        ["budgets", "delivered"],
        ["coach"],
    ],
)
def test_no_service_is_exit_3_with_a_next_step(tmp_path: Path, args: list[str]) -> None:
    """In words or, for scripts, as JSON; standard output stays empty either way."""
    seen = run(*args, GPUFAIR_STATE_DIR=str(tmp_path), GPUFAIR_URL="")
    assert (seen.code, seen.out, seen.err.count("\n")) == (3, "", 1)
    assert "gpufair serve" in seen.err
    seen = run(*args, "--json", "--state-dir", str(tmp_path), GPUFAIR_URL="http://127.0.0.1:9")
    assert (seen.code, seen.out) == (3, "")
    told = json.loads(seen.err)
    assert (told["error"], told["exit"]) == ("Unavailable", 3)


def test_a_wrong_token_is_exit_1(gpufair: Gpufair) -> None:
    """Reached, but refused."""
    seen = gpufair("status", "--json", GPUFAIR_TOKEN="wrong")
    assert (seen.code, json.loads(seen.err)["status"]) == (1, 401)


def test_a_failing_service_is_exit_1(gpufair: Gpufair, fake: FakeService) -> None:
    """Its own sentence, one line."""
    fake.routes["GET /api/v1/status"] = problem(500, "Inconsistent", "two leases on one GPU; please report this")
    seen = gpufair("status")
    assert (seen.code, seen.err) == (1, "gpufair: two leases on one GPU; please report this\n")


@pytest.mark.parametrize(("text", "code", "says"), [
    ("nope", 4, "there is no workload 'nope'"), ("trian", 4, "did you mean 'train'"), ("3f2", 4, "too short"), ("", 4, "there is no"),
])  # fmt: skip
def test_an_unknown_id_is_exit_4(gpufair: Gpufair, text: str, code: int, says: str) -> None:
    """With a hint where there is one."""
    seen = gpufair("why", text)
    assert seen.code == code
    assert says in seen.err


def test_an_ambiguous_id_lists_the_candidates(gpufair: Gpufair, fake: FakeService) -> None:
    """A guess could stop somebody's work."""
    several = [
        workload("abcd1111", name="x"),
        workload("abcd2222", name="x"),
        workload("abcd3333", name="y", state="ended"),
    ]
    fake.routes["GET /api/v1/workloads"] = Reply(body={"workloads": several})
    for text in ("abcd", "x"):
        seen = gpufair("sessions", "stop", text)
        assert seen.code == 2
        assert "abcd1111" in seen.err
        assert "abcd2222" in seen.err
        assert "abcd3333" not in seen.err
    assert not [a for a in fake.asked if a.method == "DELETE"]


def test_usage_errors_are_one_line(gpufair: Gpufair) -> None:
    """Exit 2, JSON with --json."""
    seen = gpufair("queeue")
    assert (seen.code, seen.err.count("\n")) == (2, 1)
    assert "queue" in seen.err
    assert json.loads(gpufair("why", "--json").err)["exit"] == 2
    assert gpufair("status", "--sate-dir", "/x").code == 2


def test_an_unexpected_error_is_a_sentence(gpufair: Gpufair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback helps nobody who only wanted a list; GPUFAIR_DEBUG has it."""
    from gpufair.client import Client

    def broken(_: Client) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(Client, "nodes", broken)
    seen = gpufair("nodes", "list")
    assert (seen.code, seen.err) == (
        1,
        "gpufair: unexpected RuntimeError: boom. This is a bug; GPUFAIR_DEBUG=1 shows where\n",
    )
    assert "Traceback" in gpufair("nodes", "list", GPUFAIR_DEBUG="1").err


def test_help_documents_the_exit_codes(gpufair: Gpufair) -> None:
    """Scripts are written from it."""
    seen = gpufair("--help")
    assert seen.code == 0
    for text in ("0 done", "1 refused", "2 wrong usage", "3 the service", "4 no such", "GPUFAIR_URL", "--json"):
        assert text in " ".join(seen.out.split())


def test_help_is_quick() -> None:
    """Nothing heavy is loaded for help: bounded by what is imported, which no slow machine can blur."""
    code = (
        "import sys\nfrom gpufair.cli import main\nsys.argv = ['gpufair', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'httpx', 'sqlalchemy', 'fastapi', 'pydantic', 'uvicorn', 'gpufair.client.sync', 'gpufair.cli.demo'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"


def test_completion_asks_the_live_service(gpufair: Gpufair, fake: FakeService) -> None:
    """Ids, names and nodes on Tab; silence when there is no service."""
    fake.routes["GET /api/v1/nodes"] = Reply(body={"nodes": [{"name": "node-a"}, {"name": "other"}]})

    def complete(line: str, **env: str) -> str:
        return gpufair(
            _GPUFAIR_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split(" ")) - 1), **env
        ).out

    assert complete("gpufair why 3f2a").split() == [TRAIN]
    assert complete("gpufair sessions park swe").split() == ["sweep"]
    assert complete("gpufair nodes cordon no").split() == ["node-a"]
    fake.routes["GET /api/v1/profiles"] = Reply(body={"profiles": [{"name": "big"}, {"name": "small"}]})
    fake.routes["GET /api/v1/budgets"] = Reply(body={"allocations": [{"path": "a", "leaf": False}, {"path": "a/b"}]})
    assert complete("gpufair coach --profile b").split() == ["big"]
    assert complete("gpufair coach --allocation a").split() == ["a/b"]
    assert complete("gpufair why 3f2a", GPUFAIR_URL="http://127.0.0.1:9").split() == []
