"""`gpufair submit` and `gpufair logs`: the right request, what was written, and a truthful end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpufair.cli import submitting
from tests.unit.cli.conftest import SWEEP, TRAIN, Gpufair
from tests.unit.client.fake_service import Asked, FakeService, Reply, problem, workload

LOG = f"GET /api/v1/workloads/{TRAIN}/log"


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Following is tested by what is asked, not by how long it takes."""
    monkeypatch.setattr(submitting, "_POLL_S", 0.01)


def accepted(asked: Asked) -> Reply:
    """What the service makes of a submission."""
    body: Any = asked.json
    return Reply(201, workload(body["id"], name=body["name"], kind="batch") | {"warnings": ["it is not resumable"]})


def pages(text: str, *, ended: bool = True) -> Any:
    """A log, in pieces of at most 40 bytes."""
    data = text.encode()

    def page(asked: Asked) -> Reply:
        after = int(asked.query["after"][0])
        start = max(0, len(data) + after) if after < 0 else min(after, len(data))
        part = data[start : start + 40] if after >= 0 else data[start:]
        while after >= 0 and part.decode("utf-8", "ignore").encode() != part:
            part = part[:-1]  # pages end with a whole character
        told = {"text": part.decode("utf-8", "replace"), "after": start + len(part), "size_bytes": len(data), "ranks": [0], "ended": ended}
        return Reply(body=told)

    return page


def test_a_command_as_it_is(gpufair: Gpufair, fake: FakeService, tmp_path: Path) -> None:
    """Everything after `--` is the program's, braces and options included."""
    fake.routes["POST /api/v1/workloads"] = accepted
    seen = gpufair(
        *("submit", "--gpus", "8", "--nodes", "2", "--allocation", "vision", "--min-runtime", "2h", "--resumable"),
        *("--timeout", "90m", "--retries", "3", "--retry-after", "2m"),
        *("--env", "A=1=2", "--env", "GPUFAIR_TEST_HERE", "--cwd", str(tmp_path)),
        *("--", "python", "train.py", "--lr", "{lr}", "-v"),
        GPUFAIR_TEST_HERE="yes",
    )
    assert seen.code == 0, seen.err
    (sent,) = (one.json for one in fake.calls("POST /api/v1/workloads"))
    assert isinstance(sent, dict)
    assert sent.pop("id")
    assert sent == {
        "name": "train.py",
        "allocation": "vision",
        "gpus": 8,
        "nodes": 2,
        "min_runtime_s": 7200.0,
        "timeout_s": 5400.0,
        "retries": 3,
        "retry_after_s": 120.0,
        "kind": "batch",
        "resumable": True,
        "launch": {
            "type": "command",
            "argv": ["python", "train.py", "--lr", "{lr}", "-v"],
            "cwd": str(tmp_path),
            "env": {"A": "1=2", "GPUFAIR_TEST_HERE": "yes"},
        },
    }
    assert seen.out.startswith("train.py (")
    assert "Take care: it is not resumable." in seen.out


def test_a_parameter_that_the_notebook_does_not_have_is_told(gpufair: Gpufair, fake: FakeService, tmp_path: Path) -> None:
    """A typing error would else show after hours. Without a cell of parameters nothing is known."""
    fake.routes["POST /api/v1/workloads"] = accepted
    for source, tags, told in (
        ("lr: float = 1\nseed = depth = 3\n", ["parameters"], "do not include dept, sed."),
        ("lr = 1", [], ""),
        ("%time x", ["parameters"], ""),
    ):
        cell = {"cell_type": "code", "source": source.splitlines(keepends=True), "metadata": {"tags": tags}, "outputs": []}
        (tmp_path / "in.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
        seen = gpufair("submit", str(tmp_path / "in.ipynb"), "-p", "lr", "2", "-p", "sed", "1", "--array", "dept=1,2")
        assert seen.code == 0, seen.err
        assert ("Take care" in seen.err) == bool(told)
        assert told in seen.err


def test_code_on_the_command_line_is_no_name(gpufair: Gpufair, fake: FakeService) -> None:
    fake.routes["POST /api/v1/workloads"] = accepted
    for command, name in (("python -u -c pass", "python"), ("torchrun train.py -c x", "train.py"), ("bash -c true", "bash")):
        gpufair("submit", "--", *command.split())
        assert fake.calls("POST /api/v1/workloads")[-1].json["name"] == name


def test_an_array_is_one_submission_for_each_value(gpufair: Gpufair, fake: FakeService) -> None:
    fake.routes["POST /api/v1/workloads"] = accepted
    seen = gpufair("submit", "--array", "seed=0-6", "--name", "sweep", "--", "./run", "--seed={seed}")
    assert seen.code == 0, seen.err
    sent: list[Any] = sorted((one.json for one in fake.calls("POST /api/v1/workloads")), key=lambda one: one["name"])
    assert [one["name"] for one in sent] == [f"sweep[seed={seed}]" for seed in range(7)]
    assert [one["launch"]["argv"][1] for one in sent] == [f"--seed={seed}" for seed in range(7)]
    assert sent[3]["launch"]["env"] == {"GPUFAIR_ARRAY_INDEX": "3", "GPUFAIR_ARRAY_SIZE": "7"}
    assert len({one["id"] for one in sent}) == 7
    assert "… 7 runs in all" in seen.out


def test_work_that_waits_for_other_work(gpufair: Gpufair, fake: FakeService) -> None:
    """Each of an array does; by ids, their beginnings, and names."""
    fake.routes["POST /api/v1/workloads"] = accepted
    seen = gpufair(
        *("submit", "--after", f"train,{SWEEP}", "--after", "train", "--after-any", "9999a", "--array", "k=1,2"),
        *("--", "./run"),
    )
    assert seen.code == 0, seen.err
    for one in fake.calls("POST /api/v1/workloads"):
        assert one.json["after"] == [TRAIN, SWEEP]
        assert one.json["after_any"] == ["9999aaaa-0000-4000-8000-000000000003"]


def test_the_name_of_an_array_means_all_of_it(gpufair: Gpufair, fake: FakeService) -> None:
    """One of its runs is meant by its own name, commas and all."""
    runs = [workload(f"id-{k}", name=f"sweep[k={k},s=0]", state="ended" if k == 3 else "running") for k in range(4)]
    fake.routes["GET /api/v1/workloads"] = Reply(body={"workloads": runs})
    fake.routes["POST /api/v1/workloads"] = accepted
    for asked, ids in (("sweep", ["id-0", "id-1", "id-2"]), ("sweep[k=3,s=0],id-1", ["id-3", "id-1"])):
        assert gpufair("submit", "--after", asked, "--", "./run").code == 0
        assert fake.calls("POST /api/v1/workloads")[-1].json["after"] == ids


def test_an_array_that_is_over_already_is_found(gpufair: Gpufair, fake: FakeService) -> None:
    """Quick runs end before the next line of a script. Of runs with one name the newest is meant."""
    ended: Any = {"state": "ended", "outcome": "completed", "position": None}
    runs = [workload(f"id-{n}", name=f"sweep[k={n % 2}]", submitted_s=float(n), **ended) for n in (3, 0, 1, 2)]
    fake.routes["GET /api/v1/workloads"] = Reply(body={"workloads": runs})
    fake.routes["POST /api/v1/workloads"] = accepted
    assert gpufair("submit", "--after", "sweep", "--", "./run").code == 0
    assert sorted(fake.calls("POST /api/v1/workloads")[-1].json["after"]) == ["id-2", "id-3"]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("--after", "nobody"), 4, "there is no workload 'nobody'"),
        (("--after", "train,"), 2, "write it as ID or ID,ID"),
        (("--after", "train", "--after-any", TRAIN), 2, "is in --after and in --after-any"),
    ],
)
def test_waiting_for_what_is_not_there(
    gpufair: Gpufair, fake: FakeService, args: tuple[str, ...], code: int, says: str
) -> None:
    seen = gpufair("submit", *args, "--", "./run")
    assert (seen.code, says in seen.err) == (code, True), seen.err
    assert not fake.calls("POST /api/v1/workloads")


def test_what_it_waits_for_is_told(gpufair: Gpufair, fake: FakeService) -> None:
    """And what had gone wrong before it was submitted."""
    waits = {"state": "parked", "position": None, "after": ["3f2a81c0-x"], "after_any": []}
    over = {"state": "ended", "outcome": "cancelled", "position": None, "reason": "never started, as x has failed"}
    for fields, says in (
        (waits, "is waiting for 3f2a81c0 to end"),
        (waits | {"after_any": ["9999aaaa"]}, "is waiting for 2 others to end"),
        (
            {"state": "parked", "position": None, "retry_at_s": 1e9, "attempt": 1, "retries": 2},
            "is failed, attempt 2 of 3 follows",
        ),
        (over, "is ended, cancelled: never started, as x has failed"),
    ):
        fake.routes["POST /api/v1/workloads"] = Reply(201, workload("abcd", kind="batch", **fields))
        assert says in gpufair("submit", "--", "./run").out


def test_a_refused_array_is_refused_once(gpufair: Gpufair, fake: FakeService) -> None:
    """What is wrong with one is wrong with all."""
    fake.routes["POST /api/v1/workloads"] = problem(422, "invalid-spec", "no node has 9 GPUs")
    seen = gpufair("submit", "--array", "seed=0-99", "--gpus", "9", "--", "./run")
    assert (seen.code, len(fake.calls("POST /api/v1/workloads"))) == (1, 1)
    assert "no node has 9 GPUs" in seen.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("submit",), "Missing argument"),
        (("submit", "--env", "NOT_SET_ANYWHERE", "--", "x"), "there is no such variable here; write NOT_SET_ANYWHERE=VALUE"),
        (("submit", "-f", "--array", "a=1,2", "--", "x"), "--follow shows one run"),
        (("submit", "--array", "a", "--", "x"), "write it as NAME=VALUE,VALUE"),
        (("submit", "--min-runtime", "soon", "--", "x"), "soon"),
    ],
)
def test_wrong_usage(gpufair: Gpufair, fake: FakeService, args: tuple[str, ...], says: str) -> None:
    seen = gpufair(*args)
    assert seen.code == 2
    assert says in seen.err
    assert not fake.calls("POST /api/v1/workloads")


def test_logs_to_the_end(gpufair: Gpufair, fake: FakeService) -> None:
    """Whatever the pieces; nothing is added to what the command wrote."""
    text = "".join(f"step {number}\n" for number in range(30)) + "no newline at the end: ü"
    fake.routes[LOG] = pages(text)
    assert gpufair("logs", "train").out == text
    assert gpufair("logs", "train", "--tail", "3").out == "step 28\nstep 29\nno newline at the end: ü"
    assert gpufair("logs", "train", "--tail", "99").out == text


def test_following_ends_with_the_run_and_says_how(gpufair: Gpufair, fake: FakeService) -> None:
    running = workload(TRAIN, state="running", position=None)
    failed = workload(TRAIN, state="ended", outcome="failed", position=None, reason="exit code 3")
    fake.routes[f"GET /api/v1/workloads/{TRAIN}"] = [Reply(body=running), Reply(body=running), Reply(body=failed)]
    fake.routes[LOG] = pages("last words\n")
    seen = gpufair("logs", TRAIN, "-f")
    assert (seen.code, seen.out) == (1, "last words\n")
    assert seen.err.splitlines()[0].startswith("gpufair: train is running")
    assert "train has failed: exit code 3" in seen.err


def test_a_node_that_it_does_not_have(gpufair: Gpufair, fake: FakeService) -> None:
    seen = gpufair("logs", "sweep", "--rank", "2")
    assert (seen.code, "--rank 2: sweep has 2 nodes, counted from 0" in seen.err) == (2, True)
