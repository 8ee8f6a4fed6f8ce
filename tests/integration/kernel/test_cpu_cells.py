"""``%%cpu`` in a real kernel of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_a_kernel_has_the_magic_and_loads_dask_when_it_is_used(kernel: Callable[[], Any]) -> None:
    """Each start of a kernel would pay most of a second for what few cells need."""
    ours = kernel()
    assert ours.run("import sys\nprint('distributed' in sys.modules)")[1] == "False\n"
    ours.run("x = 6")
    reply, printed = ours.run("%%cpu\nimport os\ny, there = x * 7, os.getpid()\nprint('on a worker')")
    assert reply["status"] == "ok", reply
    assert "on a worker" in printed
    assert ours.run("import os\nprint(y, there != os.getpid())")[1] == "42 True\n"
    ours.run("from gpufair import cpu; cpu.close()")
