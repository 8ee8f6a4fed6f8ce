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
    shown = ours.outputs(ours.client.execute("from gpufair import cpu\nimport time\ncpu.gather(cpu.map(time.sleep, [2, 2]))"))
    bars = [m["content"]["data"]["text/html"] for m in shown if m["msg_type"] in {"display_data", "update_display_data"}]
    assert "value='0'" in bars[0], "a bar appears while one waits for several"
    assert "value='2'" in bars[-1]
    ours.run("cpu.close()")
