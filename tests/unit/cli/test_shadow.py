"""`gpufair shadow`: reads, keeps, compares, and rewrites its report; touches nothing."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpufair.sim import read_trace
from tests.unit.cli.conftest import Gpufair, Outcome, run
from tests.unit.cli.test_looking import STATUS
from tests.unit.client.fake_service import FakeService, Reply
from tests.unit.sim.test_whatif import START, batch, played

HEADER = "JobID|Submit|Start|End|Elapsed|State|AllocTRES|User|Account|NNodes\n"
MONDAY = datetime(2027, 3, 1, 8, tzinfo=UTC)


def job(number: int, hours: int = 2, state: str = "COMPLETED") -> str:
    """A line of sacct: every twenty minutes somebody of two accounts wants 4 GPUs."""
    submit = MONDAY + timedelta(minutes=20 * number)
    moment = submit.strftime("%Y-%m-%dT%H:%M:%S")
    account = ("language", "vision")[number % 2]
    return (
        f"{number}|{moment}|{moment}|Unknown|{hours:02d}:00:00|{state}|billing=4,gres/gpu=4|u{number % 3}|{account}|1\n"
    )


def shadow(tmp_path: Path, *args: str, input: str | None = None) -> Outcome:  # noqa: A002  # as CliRunner has it
    given = ("--cluster", "2x4", "--report", str(tmp_path / "r.html"), "--json", str(tmp_path / "o.json"), "--once")
    return run("shadow", *given, "-p", "fair-share", "-p", "fifo", *args, input=input)


def told(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "o.json").read_text())["policies"]
    return found


def test_a_growing_file_over_restarts(tmp_path: Path) -> None:
    """Each time what is new is added; what sacct tells no more of is remembered; a job that ran on has run longer."""
    source = tmp_path / "sacct.txt"
    source.write_text(HEADER + "".join(job(number) for number in range(12)))
    seen = shadow(tmp_path, "--sacct", str(source))
    assert seen.code == 0, seen.err
    assert "12 of 12 jobs new or changed; 12 played" in seen.out
    assert told(tmp_path)["fifo"]["jobs"] == 12
    page = (tmp_path / "r.html").read_text()
    assert "Shadow: the last 7 days on 8 GPUs" in page
    before = source.read_bytes()
    # Tomorrow sacct tells of the last hours only.
    source.write_text(HEADER + "".join(job(number, 3, "RUNNING") for number in range(10, 15)))
    seen = shadow(tmp_path, "--sacct", str(source))
    assert "5 of 15 jobs new or changed; 15 played" in seen.out
    assert told(tmp_path)["fair-share"]["jobs"] == 15
    assert (tmp_path / "r.html").read_text() != page
    kept = read_trace(tmp_path / "r.jobs.csv.gz")
    assert [row.duration // 3_600_000 for row in kept.rows] == [2] * 10 + [3] * 5
    assert before != source.read_bytes()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["o.json", "r.html", "r.jobs.csv.gz", "sacct.txt"]


def test_from_standard_input_and_from_a_command(tmp_path: Path) -> None:
    text = HEADER + "".join(job(number) for number in range(6))
    assert "6 of 6 jobs" in shadow(tmp_path, "--sacct", "-", input=text).out
    script = tmp_path / "sacct.py"
    script.write_text(f"print({text!r}, end='')")
    assert "0 of 6 jobs" in shadow(tmp_path, "--run", f"{sys.executable} {script}").out


def test_from_the_service_itself(gpufair: Gpufair, fake: FakeService, tmp_path: Path) -> None:
    """Its submissions, on its nodes, with its budgets."""
    engine = played(
        [batch(f"{leaf}{number}", number * 600_000, 3_600_000, 4, leaf) for number in range(9) for leaf in "ab"],
        18_000_000,
    )
    shift = datetime.now(UTC).timestamp() - 43_200 - START / 1000  # this morning: the service's clock is the real one
    records = [one | {"at_s": one["at_s"] + shift} for one in engine.timeline]

    def timeline(asked: Any) -> Reply:
        kinds, after = asked.query["kinds"][0].split(","), int(asked.query["after"][0])
        page = [one for one in records if one["seq"] > after][:200]
        last = page[-1]["seq"] if page else after
        return Reply(
            body={
                "records": [one for one in page if one["kind"] in kinds],
                "last": last,
                "more": last < records[-1]["seq"],
            }
        )

    fake.routes |= {
        "GET /api/v1/timeline": timeline,
        "GET /api/v1/status": Reply(body=STATUS | {"now_s": records[-1]["at_s"] + 1}),
        "GET /api/v1/nodes": Reply(body={"nodes": [{"name": "n1", "gpus": 8}, {"name": "n2", "gpus": 8}, {"name": "cpu", "gpus": 0}]}),
        "GET /api/v1/budgets": Reply(body={"allocations": [{"path": "a", "share": "3"}, {"path": "b", "share": "1"}]}),
    }  # fmt: skip
    args = (
        "--from-live",
        "--report",
        str(tmp_path / "r.html"),
        "--json",
        str(tmp_path / "o.json"),
        "--once",
        "-p",
        "fair-share",
    )
    seen = gpufair("shadow", *args)
    assert seen.code == 0, seen.err
    figures = told(tmp_path)["fair-share"]
    assert figures["gpus"] == 16
    assert set(figures["delivered_over_owed"]["by_allocation"]) == {"a", "b"}
    started = {one["workload"] for one in records if one["kind"] == "Started"}
    assert figures["jobs"] == len(started) > 8  # what runs is there with what it has had; who had nothing yet is not


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        ([], 2, "give one of --sacct, --run and --from-live, not none"),
        (["--sacct", "x", "--from-live"], 2, "not --sacct and --from-live"),
        (["--sacct", "{tmp}/none"], 1, "there is no such file"),
        (["--sacct", "{tmp}/csv"], 1, "the trace"),
        (["--run", "/no/such/sacct"], 1, "cannot be run: No such file or directory; give a command"),
        (["--run", "'"], 1, "is no command"),
        (["--run", "false"], 1, "ended with 1: it said nothing"),
        (["--sacct", "{tmp}/good", "--every", "soon"], 2, "is no duration"),
        (["--sacct", "{tmp}/good", "--policy", "x"], 1, "there is no policy 'x'"),
        (["--sacct", "{tmp}/good", "--state", "{tmp}/csv"], 1, "the trace"),
        (["--sacct", "{tmp}/good", "--state", "{tmp}/no/s.csv"], 1, "there is no folder"),
        (["--sacct", "{tmp}/good", "--set", "x=1"], 1, "there is no option"),
    ],
)
def test_bad_input_is_a_sentence(tmp_path: Path, args: list[str], code: int, said: str) -> None:
    (tmp_path / "good").write_text(HEADER + job(1))
    (tmp_path / "csv").write_text("a,b\n1,2\n")
    seen = shadow(tmp_path, *(arg.format(tmp=tmp_path) for arg in args))
    assert seen.code == code
    assert said in seen.err.replace("\n", " ")
    assert "Traceback" not in seen.err
    assert not (tmp_path / "r.html").exists()


def test_a_cluster_is_asked_for(tmp_path: Path) -> None:
    assert "Give --cluster" in run("shadow", "--sacct", "x", "--report", str(tmp_path / "r.html")).err
