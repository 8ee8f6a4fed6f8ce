"""The bench's verdicts: CI trusts its exit code and reads its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench import __main__ as runner
from tests.bench.result import Result


def failing() -> Result:
    raise OSError("no such device")


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "relay.rate": lambda: Result(80.0, "%", 70.0, at_least=True),
        "relay.trip": lambda: Result(2.5, "ms", 1.0, notes={"runs": 500}),
        "start": failing,
    }
    monkeypatch.setattr(runner, "discover", lambda: known)


@pytest.mark.usefixtures("cases")
def test_one_missed_limit_fails_the_run_and_all_figures_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A case that raises stops no other."""
    target = tmp_path / "bench.json"
    monkeypatch.setenv("BENCH_JSON", str(target))
    monkeypatch.delenv("CASE", raising=False)
    assert runner.main() == 1
    figures = json.loads(target.read_text(encoding="utf-8"))
    assert figures["relay.rate"] == {"value": 80.0, "unit": "%", "limit": 70.0, "ok": True}
    assert figures["relay.trip"] == {"value": 2.5, "unit": "ms", "limit": 1.0, "ok": False, "runs": 500}
    assert figures["start"]["ok"] is False
    assert "no such device" in figures["start"]["error"]


@pytest.mark.usefixtures("cases")
@pytest.mark.parametrize(("prefix", "code"), [("relay.rate", 0), ("relay", 1), ("nothing", 1)])
def test_a_prefix_picks_cases(monkeypatch: pytest.MonkeyPatch, prefix: str, code: int) -> None:
    """A prefix that fits nothing is a mistake, not a success."""
    monkeypatch.delenv("BENCH_JSON", raising=False)
    monkeypatch.setenv("CASE", prefix)
    assert runner.main() == code
