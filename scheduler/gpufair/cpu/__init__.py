"""The CPU pool: functions and cells that need no GPU, run by the workers of a Dask cluster.

``gpufair.cpu.connect``, ``submit``, ``map`` and ``gather``; the cell magic ``%%cpu`` is in ``jupyter_gpufair.cpu``.
Dask is imported when the pool is first used, never before.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpufair.cpu.connection import close, connect, gather, map, submit  # noqa: A004 - as in concurrent.futures
    from gpufair.cpu.pool import Pool
    from gpufair.cpu.task import Task

__all__ = ["Pool", "Task", "close", "connect", "gather", "map", "submit"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        place = {"Pool": "pool", "Task": "task"}.get(name, "connection")
        return getattr(import_module(f"gpufair.cpu.{place}"), name)
    raise AttributeError(f"module 'gpufair.cpu' has no attribute {name!r}")
