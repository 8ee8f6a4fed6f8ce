"""The first process of a container: orphans are reaped, signals passed on, and its own status is that of the work."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Orphans come to the first process of a container, and here to who has asked for them.
BESIDE = """
import ctypes, os, signal, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
from gpufair.node.first_process import PASSED_ON, beside
def work():
    {work}
sys.exit(beside(work))
"""


def run(work: str) -> subprocess.Popen[str]:
    code = BESIDE.format(work=work.replace("\n", "\n    "))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("work", "status"),
    [
        ("return 0", 0),
        ("return 14", 14),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9),
        ("raise ValueError('broken')", 1),
    ],
)
def test_its_status_is_that_of_the_work(work: str, status: int) -> None:
    process = run(work)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == status
    assert ("broken" in errors) == ("broken" in work)


def test_orphans_are_reaped() -> None:
    """A user's daemons end after their parents: nobody else would ever wait for them, and their entries fill the table."""
    work = """
for _ in range(5):
    subprocess.run(["sh", "-c", "sleep 0.2 & sleep 0.2 & exit 0"], check=True)
parent, deadline = os.getppid(), time.monotonic() + 20
def children():
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = open(f"/proc/{entry}/stat").read().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(entry))
    return found
while children() != [os.getpid()]:
    if time.monotonic() > deadline:
        print("left:", children())
        return 1
    time.sleep(0.05)
own = subprocess.Popen(["sh", "-c", "exit 7"])
return 0 if own.wait() == 7 else 2"""
    process = run(work)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 0, said + errors


def test_signals_reach_the_work(tmp_path: Path) -> None:
    """Also one that came before it could take it."""
    ready = tmp_path / "ready"
    work = f"""
open({str(ready)!r}, "w").close()
time.sleep(1)
got = []
signal.signal(signal.SIGTERM, lambda number, _: got.append(number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
while not got:
    time.sleep(0.01)
return 5"""
    process = run(work)
    deadline = time.monotonic() + 30
    while not ready.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 5
