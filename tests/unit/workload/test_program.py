"""A program under `gpufair submit` leaves when it is told to: at a safe point if it has some, else at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LEAVES = 128 + signal.SIGTERM
BEGIN = """
import gpufair, sys, time
@gpufair.on_preempt
def save():
    print("saved at", step, flush=True)
step = 0
"""
STEPS = """
print("up", flush=True)
while True:
    step += 1
    %s
    time.sleep(0.01)
"""


class Run:
    """The program, its notice file, and what it says."""

    def __init__(self, folder: Path, code: str) -> None:
        self.notice = folder / "notice.json"
        env = {**os.environ, "GPUFAIR_NOTICE_FILE": str(self.notice), "PYTHONPATH": f"{ROOT / 'scheduler'}"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def await_line(self, text: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == text

    def announce(self, text: str = "language is under-served.") -> None:
        self.notice.write_text(json.dumps({"deadline_s": time.time() + 20, "text": text}))

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Run]]:
    runs: list[Run] = []
    yield runs
    for run in runs:
        run.process.kill()
        run.process.communicate()


def test_it_leaves_at_the_next_safe_point(tmp_path: Path, started: list[Run]) -> None:
    """Not in the middle of a step, although the signal comes there."""
    run = Run(tmp_path, BEGIN + STEPS % "gpufair.safe_point(); half = True; time.sleep(0.3); half = False")
    started.append(run)
    run.await_line("up")
    time.sleep(0.1)  # inside the first step
    run.announce()
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == (LEAVES, "saved at 2\n", "gpufair: language is under-served.\n")


def test_without_safe_points_it_leaves_at_the_signal(tmp_path: Path, started: list[Run]) -> None:
    """Whoever registers a function wants it called, wherever the program is."""
    run = Run(tmp_path, BEGIN + "step = 7\nprint('up', flush=True)\ntime.sleep(60)")
    started.append(run)
    run.await_line("up")
    run.announce()
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == (LEAVES, "saved at 7\n", "gpufair: language is under-served.\n")


def test_a_notice_alone_is_enough_at_a_safe_point(tmp_path: Path, started: list[Run]) -> None:
    """The signal may be blocked, or be the program's own."""
    mine = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    run = Run(tmp_path, mine + BEGIN + STEPS % "gpufair.safe_point()")
    started.append(run)
    run.await_line("up")
    run.announce()
    code, out, _ = run.end()
    assert (code, out[:8]) == (LEAVES, "saved at")


def test_a_stop_without_notice_ends_a_program_with_safe_points_too(tmp_path: Path, started: list[Run]) -> None:
    """A stop is followed by SIGKILL at once; whoever handles the signal must not swallow that of a terminal."""
    run = Run(tmp_path, BEGIN + STEPS % "gpufair.safe_point()")
    started.append(run)
    run.await_line("up")
    run.process.send_signal(signal.SIGTERM)
    code, _, err = run.end()
    assert (code, err) == (LEAVES, "gpufair: It was told to stop.\n")


def test_what_a_function_raises_is_told_and_costs_the_others_nothing(tmp_path: Path, started: list[Run]) -> None:
    broken = "@gpufair.on_preempt\ndef bad():\n    raise OSError('disk full')\n"
    run = Run(tmp_path, "import gpufair\n" + broken + BEGIN + STEPS % "gpufair.safe_point()")
    started.append(run)
    run.await_line("up")
    run.announce()
    code, out, err = run.end()
    assert (code, out[:8]) == (LEAVES, "saved at")
    assert "on_preempt bad: OSError: disk full" in err


def test_outside_of_gpufair_nothing_is_touched() -> None:
    """A laptop's SIGTERM stays what it is."""
    code = BEGIN + "import signal; assert gpufair.safe_point() is False\nprint(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'scheduler'}"}
    env.pop("GPUFAIR_NOTICE_FILE", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "True\n"
