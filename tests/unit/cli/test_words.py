"""Figures for people: short, with their unit, and never more exact than they are."""

from __future__ import annotations

import doctest
import time
from dataclasses import replace

import pytest

from gpufair.cli import words
from gpufair.client import Workload


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local time is the machine's; the tests' is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_examples_hold() -> None:
    """Docstrings are read first."""
    assert doctest.testmod(words).failed == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.04, "0.0 s"), (9.99, "10.0 s"), (59.6, "1 min"), (60, "1 min"), (3599, "59 min 59 s"), (3600, "1 h"),
     (3620, "1 h"), (86400 * 3 + 20, "3 d"), (86400 + 3600, "1 d 1 h"), (-90, "-1 min 30 s")],
)  # fmt: skip
def test_span(seconds: float, text: str) -> None:
    """Two units at most, next to each other."""
    assert words.span(seconds) == text


def test_moment() -> None:
    """How far it is; the date only where it is another day."""
    assert words.moment(3600, 0) == "01:00:00 (in 1 h)"
    assert words.moment(0, 3600) == "00:00:00 (1 h ago)"
    assert words.moment(0.5, 0) == "00:00:00 (now)"
    assert words.moment(None, 0) == "–"
    assert words.moment(86400 * 2, 0) == "Sat 03 Jan 00:00 (in 2 d)"


def test_other_figures() -> None:
    """Sizes, places, counts."""
    assert [words.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 101, 111)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "101st",
        "111th",
    ]
    assert (words.plural(1, "GPU"), words.plural(0, "GPU")) == ("1 GPU", "0 GPUs")
    assert words.size(3e15) == "3000.0 TB"
    assert words.metric(1.0) == "1.000"
    batch = Workload(id="b", state="running", kind="batch")
    assert (words.what(batch), words.what(replace(batch, kind="session"))) == ("running", "running, idle")
    assert words.what(Workload(id="b", state="running", kernel_died=True)) == "running, kernel died"
    assert words.clean("a\x1b[0m\x00b\u202ec", 5) == "a [0…"
