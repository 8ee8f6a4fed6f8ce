"""`gpufair simulate` and `gpufair compare` on a small trace: figures for people, the agreed JSON for scripts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpufair.cli.exits import _wants_json
from gpufair.cli.scenarios import complete_format, complete_policy, complete_world
from gpufair.sim import CONTENDERS
from tests.unit.cli.conftest import Outcome, run

QUANTILES = {"p50", "p90", "p99", "max"}
KINDS = {"all", "debug", "session", "batch", "largest_gang"}
# Issue 4: the contract of `gpufair simulate`.
KEYS = {
    "jobs", "gpus", "span_s", "wall_s", "events", "decisions", "starts", "completions", "preemptions",
    "protected_preemptions", "occupancy", "unallocated_share", "delivered_over_owed", "wait_s", "lost_gpu_s", "switching_gpu_s",
}  # fmt: skip
DELIVERED = {"capped", "uncapped", "hourly", "worst", "by_allocation"}


def rows(count: int = 40, seed: int = 1) -> str:
    """A morning of three projects on more GPUs than there are."""
    rng = Random(seed)
    lines = ["job_id,submit_s,duration_s,gpus,user,project,kind,status"]
    for number in range(count):
        project = rng.choice(("language", "vision", "science"))
        kind = rng.choice(("batch", "batch", "debug", "session"))
        duration, gpus = (300, 1) if kind == "debug" else (rng.randrange(600, 14_400), rng.choice((1, 2, 4, 8)))
        lines.append(f"j{number},{number * 300},{duration},{gpus},{project[0]}{number % 3},{project},{kind},completed")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "morning.csv"
    path.write_text(rows())
    return path


def simulate(trace: Path, *args: str) -> Outcome:
    return run("simulate", str(trace), "--cluster", "2x4", "--oversize", "clip", *args)


def without_wall(told: dict[str, Any]) -> dict[str, Any]:
    for one in told["policies"].values():
        assert one.pop("wall_s") >= 0
    return told


def test_the_figures_for_people(trace: Path) -> None:
    seen = simulate(trace)
    assert seen.code == 0, seen.err
    assert "morning.csv: 8 GPUs on 2 nodes" in seen.out
    assert "FAIR-SHARE" in seen.out
    for figure in (
        "delivered of owed, capped",
        "occupancy of available GPU time",
        "wait of debug jobs, p90",
        "preemptions of protected work",
    ):
        assert figure in seen.out
    assert "- morning.csv: 40 jobs read as csv" in seen.out


def test_the_agreed_json(trace: Path) -> None:
    """Every key of the contract, with numbers where numbers belong."""
    told = simulate(trace, "--policy", "fair-share", "--policy", "fifo", "--json", "-").json
    assert told["trace"] == "morning.csv"
    assert list(told["policies"]) == ["fair-share", "fifo"]
    for one in told["policies"].values():
        assert set(one) >= KEYS
        assert set(one["delivered_over_owed"]) >= DELIVERED
        assert set(one["wait_s"]) >= KINDS
        for kind in KINDS:
            assert set(one["wait_s"][kind]) >= QUANTILES
        numbers = KEYS - {"delivered_over_owed", "wait_s"}
        assert all(isinstance(one[key], int | float) and not isinstance(one[key], bool) for key in numbers)
        assert (one["jobs"], one["gpus"], one["protected_preemptions"]) == (40, 8, 0)
        assert set(one["delivered_over_owed"]["by_allocation"]) == {"language", "vision", "science"}
        assert 0 < one["occupancy"] <= 1
    assert told["policies"]["fair-share"]["preemptions"] > 0 == told["policies"]["fifo"]["preemptions"]


def test_the_same_twice(trace: Path, tmp_path: Path) -> None:
    """Equal but for the time it took; in processes of their own too, and from a file that is packed."""
    args = ("--policy", "fair-share", "--policy", "plain", "--seed", "3", "--demand", "2", "--json", "-")
    first = without_wall(simulate(trace, *args).json)
    assert without_wall(simulate(trace, *args).json) == first
    assert without_wall(simulate(trace, *args, "--jobs", "2").json) == first
    packed = tmp_path / "morning.csv.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    again = without_wall(simulate(packed, *args).json)
    assert again["policies"] == first["policies"]
    other = without_wall(simulate(trace, *args[:-3], "3", "--json", "-").json)
    assert other["policies"] != first["policies"]


def test_options_reach_the_policy_and_the_scenario(trace: Path, tmp_path: Path) -> None:
    plain = simulate(trace, "--json", "-").json["policies"]["fair-share"]
    for args in (
        ("--set", "landings=false", "--set", "take_limit=off"),
        ("--max-min-runtime", "20m"),
        ("--unallocated", "0.5"),
        ("--closed-loop", "1"),
        ("--days", "0.1"),
        ("--warm-up", "1h"),
        ("--debug-share", "1", "--session-share", "1"),
    ):
        seen = simulate(trace, *args, "--json", "-")
        assert seen.code == 0, (args, seen.err)
        if args[0] not in ("--debug-share", "--set"):  # the trace names its kinds
            assert seen.json["policies"]["fair-share"] != plain, args
    (tmp_path / "b.toml").write_text(
        '[[allocation]]\npath = "lab/language"\nshare = 3\n[[allocation]]\npath = "other"\n'
    )
    (tmp_path / "a.toml").write_text("[costs]\nlaunch_s = [1, 2]\n")
    seen = simulate(
        trace, "--budgets", str(tmp_path / "b.toml"), "--assumptions", str(tmp_path / "a.toml"), "--json", "-"
    )
    assert set(seen.json["policies"]["fair-share"]["delivered_over_owed"]["by_allocation"]) == {"lab/language", "other"}


def test_files_are_written(trace: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out.json", tmp_path / "out.html"
    seen = run("compare", str(trace), "--cluster", "2x8", "--json", str(out), "--report", str(report), "--jobs", "2")
    assert seen.code == 0, seen.err
    assert list(json.loads(out.read_text())["policies"]) == list(CONTENDERS)
    assert "FIFO" in seen.out
    page = report.read_text()
    assert "morning.csv on 16 GPUs" in page
    assert all(name in page for name in CONTENDERS)
    assert f"report: {report}" in seen.err


def test_a_constructed_world(tmp_path: Path) -> None:
    seen = run("simulate", "world:steady", "--cluster", "2x8", "--days", "0.2", "--demand", "1.5", "--json", "-")
    assert seen.code == 0, seen.err
    assert seen.json["policies"]["fair-share"]["gpus"] == 16
    assert seen.json["scenario"]["demand"] == 1.5


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["{tmp}/none.csv", "--cluster", "2x4"], "there is no such file"),
        (["{tmp}/bad.csv", "--cluster", "2x4", "--strict"], "line 3: "),
        (["{tmp}/text", "--cluster", "2x4"], "known formats: csv"),
        (["{tmp}/good.csv", "--cluster", "2x4", "--format", "x"], "the format 'x' is not known"),
        (
            ["{tmp}/good.csv", "--cluster", "big"],
            "is no cluster: 'big' is not NODESxGPUS; write NODESxGPUS, like 128x8",
        ),
        (["{tmp}/good.csv", "--cluster", "1x4"], "can never run on 1x4"),
        (
            ["{tmp}/good.csv", "--cluster", "2x4", "--policy", "magic"],
            "there is no policy 'magic'; choose one of: fair-share",
        ),
        (
            ["{tmp}/good.csv", "--cluster", "2x4", "--policy", "fifo", "--policy", "fifo"],
            "--policy fifo is there twice",
        ),
        (["{tmp}/good.csv", "--cluster", "2x8", "--demand", "-1"], "use one above 0, like 2.5"),
        (["{tmp}/good.csv", "--cluster", "2x8", "--days", "900"], "take fewer days"),
        (["{tmp}/good.csv", "--cluster", "2x8", "--window", "week"], "is no duration; write one like"),
        (
            ["{tmp}/good.csv", "--cluster", "2x8", "--set", "landing=1"],
            "there is no option \"landing\"; did you mean 'landings'",
        ),
        (["{tmp}/good.csv", "--cluster", "2x8", "--set", "banking=0", "--set", "banking=1"], "banking is there twice"),
        (["{tmp}/good.csv", "--cluster", "2x8", "--window", "2d", "--set", "window=3d"], "window is there twice"),
        (["world:steady", "--cluster", "2x8", "--demand", "1e9"], "use one above 0, like 2.5, and at most 1,000"),
        (["{tmp}/good.csv", "--cluster", "2x8", "--budgets", "{tmp}/none.toml"], "cannot be read"),
        (["{tmp}/good.csv", "--cluster", "2x8", "--budgets", "{tmp}/b.toml"], "no leaf of the budget tree"),
        (["{tmp}/good.csv", "--cluster", "2x8", "--assumptions", "{tmp}/b.toml"], "unknown table"),
        (
            ["{tmp}/good.csv", "--cluster", "2x8", "--warm-up", "90d"],
            "leaves nothing of what is played; make it shorter",
        ),
        (["{tmp}/good.csv", "--cluster", "2x8", "--json", "{tmp}/no/x.json"], "there is no folder"),
        (["{tmp}/good.csv", "--cluster", "2x8", "--report", "{tmp}/no/x.html"], "there is no folder"),
        (["world:none", "--cluster", "2x8"], "there is no world 'world:none'; there are "),
        (["world:steady", "--cluster", "2x8", "--strict"], "--strict is for traces"),
        (["world:steady", "--cluster", "2x8", "--days", "0"], "0 days are no time to play"),
    ],
)
def test_bad_input_is_a_sentence(tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "good.csv").write_text(rows(6))
    (tmp_path / "bad.csv").write_text(rows(2).replace("j1,300", "j1,soon"))
    (tmp_path / "text").write_text("once upon a time\n")
    (tmp_path / "b.toml").write_text('[[allocation]]\npath = "somebody"\n')
    seen = run("simulate", *(arg.format(tmp=tmp_path) for arg in args))
    assert seen.code == 1
    assert said in seen.err.replace("\n", " ")
    assert "Traceback" not in seen.err
    assert seen.out == ""


def test_wrong_usage_is_told_as_such(trace: Path) -> None:
    assert run("simulate", str(trace)).code == 2
    assert run("simulate", str(trace), "--cluster", "2x4", "--oversize", "x").code == 2
    assert run("simulate", str(trace), "--cluster", "2x4", "--jobs", "0").code == 2


def test_completion_and_where_errors_go() -> None:
    assert "fair-share" in dict(complete_policy("fair"))
    assert not complete_policy("x")
    assert "world:steady" in dict(complete_world("world:st"))
    assert "swf" in dict(complete_format(""))
    assert _wants_json(["simulate", "t", "--json", "-"])
    assert not _wants_json(["simulate", "t", "--json", "out.json"])
    assert _wants_json(["why", "--json", "id"])
