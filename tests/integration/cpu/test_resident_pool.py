"""The pool that outlives kernels, as ``gpufair cpu`` starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpufair import cpu
from gpufair.cpu import resident

WAIT_S = 60.0
KERNEL = """
import os, pathlib, sys, time
from gpufair import cpu

def long(begun):
    begun.write_text(str(os.getpid()))
    try:
        for _ in range(6_000):
            time.sleep(0.01)
    finally:
        begun.with_name("ended").touch()

cpu.connect()
task = cpu.submit(long, pathlib.Path(sys.argv[1]))
task.result()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder, in which no pool is left."""
    monkeypatch.setenv("GPUFAIR_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("GPUFAIR_CPU_POOL", raising=False)
    yield tmp_path
    cpu.close()
    resident.stop()


def command(*words: str) -> Any:
    """What ``gpufair cpu WORDS --json`` prints."""
    argv = [sys.executable, "-m", "gpufair.cli", "cpu", *words, "--json"]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, timeout=WAIT_S).stdout)


def until(what: Any, told: str) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, told
        time.sleep(0.05)


def test_a_pool_outlives_the_kernel_and_is_replaced_when_it_died(folder: Path) -> None:
    """The whole life: found by a notebook that is killed, used by the next one, killed itself, started anew, stopped."""
    assert command("status") == {"running": False, "notebooks_use": "process", "service": None}
    first = command("start", "--workers", "2", "--memory", "1GiB")
    assert first["started"]
    assert (first["workers"], first["memory_bytes"]) == (2, 1 << 30)
    assert "key" not in first
    again = command("start", "--workers", "1")
    assert (again["started"], again["pid"], again["workers"]) == (False, first["pid"], 2)

    begun = folder / "begun"
    kernel = subprocess.Popen([sys.executable, "-c", KERNEL, str(begun)], start_new_session=True)
    try:
        until(lambda: begun.exists() and begun.read_text(), "its task never began")
        assert command("status")["now"]["clients"] == 1
    finally:
        os.killpg(kernel.pid, signal.SIGKILL)
        kernel.wait()

    until((folder / "ended").exists, "the killed kernel's task goes on, for nobody")

    pool = cpu.connect()
    assert pool.address == first["address"]
    worker = psutil.Process(pool.submit(os.getpid).result())
    assert first["pid"] in {parent.pid for parent in worker.parents()}
    assert pool.submit(lambda: os.environ.get("CUDA_VISIBLE_DEVICES")).result() == "", "it was given no GPU"

    os.kill(first["pid"], signal.SIGKILL)
    until(lambda: resident.found() is None, "a killed pool is still believed in")
    until(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE, "its worker goes on")
    assert resident.place(None, "json").exists(), "nobody could clean up"
    cpu.close()
    second = command("start", "--workers", "1")
    assert second["started"]
    assert second["pid"] != first["pid"]
    assert cpu.connect().submit(len, "abc").result() == 3
    cpu.close()
    assert command("stop") == {"stopped": True}
    assert command("stop") == {"stopped": False}
    assert not resident.place(None, "json").exists()


def test_a_pool_that_does_not_come_up_says_why(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log is where nobody looks."""
    broken = folder / "code"
    broken.mkdir()
    (broken / "distributed.py").write_text("raise RuntimeError('broken on purpose')\n")
    monkeypatch.setenv("PYTHONPATH", f"{broken}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    argv = [sys.executable, "-m", "gpufair.cli", "cpu", "start"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 1
    assert "it ended at once" in done.stderr
    assert "broken on purpose" in done.stderr


def test_settings_of_dask_around_the_first_use_take_nothing_away(folder: Path) -> None:
    """``dask.config.set`` removes on leaving what it found missing: all of ``distributed``, which we import only when used."""
    code = """
import dask
from gpufair import cpu
with dask.config.set({"distributed.scheduler.allowed-failures": 1}):
    assert cpu.connect(workers=1).submit(len, "ab").result() == 2
    cpu.close()
print(cpu.connect(workers=1).submit(len, "abc").result())
"""
    done = subprocess.run([sys.executable, "-c", f"if __name__ == '__main__':\n{textwrap.indent(code, '    ')}"],
                          capture_output=True, text=True, timeout=2 * WAIT_S, check=False)  # fmt: skip
    assert done.stdout == "3\n", done.stderr
