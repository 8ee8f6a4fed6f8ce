"""An operator reads what is wrong with a machine, and nothing where all is well."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpufair.node import health
from gpufair.node.gpus import virtual


class NvmlError(Exception):
    pass


class Nvml:
    """Stands in for ``pynvml``: which GPUs answer, and (pending, failed) of their rows of memory."""

    NVMLError = NvmlError

    def __init__(self, rows: dict[str, tuple[int, int] | None]) -> None:
        self.rows = rows

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.rows:
            raise NvmlError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Nothing was opened."""

    def nvmlDeviceGetHandleByUUID(self, gpu: str) -> str:  # noqa: N802
        if gpu not in self.rows:
            raise NvmlError("GPU is lost")
        return gpu

    def nvmlDeviceGetMemoryInfo(self, gpu: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=1)

    def nvmlDeviceGetRemappedRows(self, gpu: str) -> tuple[int, int, int, int]:  # noqa: N802
        if (found := self.rows[gpu]) is None:
            raise NvmlError("Not Supported")
        return (0, 0, *found)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"GPU-a": (0, 0), "GPU-b": None}, []),
        ({"GPU-a": (0, 0)}, ["GPU-b does not answer (GPU is lost)"]),
        ({"GPU-a": (1, 0), "GPU-b": (0, 1)}, ["GPU-a has memory that fails, which a reset", "GPU-b has memory that fails and cannot"]),
        ({}, ["GPU-a cannot be asked", "GPU-b cannot be asked"]),
    ],
)
def test_gpus_that_fail_are_named(rows: dict[str, Any], said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(rows))
    found = health.problems(("GPU-a", "GPU-b"), ())
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True)), found
    assert health.problems(virtual(2), ()) == []


def test_a_disk_that_is_full_read_only_or_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert health.problems((), (tmp_path / "gone",)) == [f"{tmp_path / 'gone'} cannot be looked at: No such file or directory"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=1 << 29))
    assert ["only 0.5 GiB are free" in text for text in health.problems((), (tmp_path,))] == [True]
    monkeypatch.setattr(os, "statvfs", lambda _folder: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert ["read-only" in text for text in health.problems((), (tmp_path,))] == [True]
    monkeypatch.undo()
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: SimpleNamespace(free=1 << 40))
    assert health.problems((), (tmp_path,)) == []
