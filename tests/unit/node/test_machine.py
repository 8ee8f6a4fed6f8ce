"""Processors and memory of a machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpufair.node.machine import cpus, memory_bytes


def test_only_processors_that_may_be_used_count() -> None:
    """Offering more than a container has would let workloads crowd each other."""
    before = os.sched_getaffinity(0)
    one = {min(before)}
    os.sched_setaffinity(0, one)
    try:
        assert cpus() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert cpus() == len(before)


def test_memory_is_what_the_kernel_says(tmp_path: Path) -> None:
    """In bytes; where there is no such file, what the C library says."""
    (tmp_path / "meminfo").write_text("MemFree:  1 kB\nMemTotal:       65536 kB\nMemAvailable: 2 kB\n")
    assert memory_bytes(tmp_path / "meminfo") == 64 << 20
    known = memory_bytes(tmp_path / "absent")
    assert known == pytest.approx(memory_bytes(), rel=0.05)
    assert known > 0
