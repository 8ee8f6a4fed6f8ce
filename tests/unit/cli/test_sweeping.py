"""`gpufair sweep`: every combination, every seed, the same in whatever processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufair.cli.sweeping import complete_vary
from tests.unit.cli.conftest import Outcome, run
from tests.unit.cli.test_simulating import rows


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    path.write_text(rows(20))
    return path


def sweep(trace: Path, *args: str) -> Outcome:
    return run("sweep", str(trace), "--cluster", "2x8", *args)


def test_every_combination_and_seed(trace: Path) -> None:
    """What is varied is what the figures are of; a figure that depends on it differs."""
    args = ("--vary", "landings=true,false", "--vary", "demand=0.5,2", "--seeds", "2", "--json", "-")
    told = sweep(trace, *args).json
    assert told["policy"] == "fair-share"
    points = [(one["values"]["landings"], one["values"]["demand"], one["seed"]) for one in told["runs"]]
    assert points == [(x, y, seed) for x in ("true", "false") for y in ("0.5", "2") for seed in (0, 1)]
    occupied = {one["values"]["demand"]: one["figures"]["occupancy"] for one in told["runs"]}
    assert occupied["2"] > occupied["0.5"]
    again = sweep(trace, *args, "--jobs", "2").json
    for one in (*told["runs"], *again["runs"]):
        one["figures"].pop("wall_s")
    assert again == told


def test_the_table_and_the_page(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "s.html"
    seen = sweep(trace, "--vary", "take_limit=1.5,off", "--vary", "window=1d", "--seeds", "2", "--report", str(page))
    assert seen.code == 0, seen.err
    assert "2 points, means over 2 seeds (the worst one in brackets)" in seen.out
    lines = [line.split() for line in seen.out.splitlines()]
    assert ["take_limit", "window"] in [line[:2] for line in lines]
    assert {("1.5", "1d"), ("off", "1d")} <= {tuple(line[:2]) for line in lines}
    text = page.read_text()
    assert text.count("<svg") >= 5
    assert "http" not in text.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--vary", "banking"], 2, "is no NAME=A,B,…, like banking=0,0.25,1"),
        (["--vary", "banking=1,1"], 2, "names a value twice"),
        (["--vary", "banking=1", "--vary", "banking=0"], 1, "names something twice"),
        (["--vary", "banking=2"], 1, "out of range"),
        (["--vary", "bankin=2"], 1, "did you mean 'banking'"),
        (["--vary", "demand=x"], 2, "demand takes numbers, like demand=1,2"),
        (["--vary", "closed_loop=1.5"], 2, "closed_loop takes whole numbers, like closed_loop=1,2"),
        (["--vary", "take_limit=a"], 1, "--vary"),
        (["--vary", "demand=-1"], 1, "use one above 0, like 2.5, and at most 1,000"),
        (["--vary", "banking=0,1", "--seeds", "1000", "--vary", "hysteresis=0,0.1,0.2,0.3,0.4,0.5"], 1, "vary less"),
        (["--vary", "banking=0", "--policy", "x"], 1, "there is no policy 'x'"),
        (["--vary", "banking=0", "--report", "/none/x.html"], 1, "there is no folder"),
    ],
)
def test_bad_input_is_a_sentence(trace: Path, args: list[str], code: int, said: str) -> None:
    seen = sweep(trace, *args)
    assert seen.code == code
    assert said in seen.err.replace("\n", " ")


def test_completion() -> None:
    assert {"demand=", "debug_share="} <= dict(complete_vary("de")).keys()
