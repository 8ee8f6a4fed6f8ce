"""The CPU pool beside bare Dask, on the same workers and in turn."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import distributed
import numpy as np
from IPython.core.interactiveshell import InteractiveShell

from gpufair import cpu
from gpufair.cpu import local, plan, resident, served
from gpufair.cpu.cell import send, take
from gpufair.cpu.pool import Pool
from gpufair.node.files import try_lock
from tests.bench.result import Result

ROUNDS, ARRAYS = 50, 7
ARRAY_BYTES = 100_000_000


def _double(array: Any) -> Any:
    return array * 2


def _taken(run: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _in_turn(bare: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of each; the first two rounds are not counted."""
    pairs = [(_taken(bare), _taken(ours)) for _ in range(rounds + 2)][2:]
    return [bare for bare, _ in pairs], [ours for _, ours in pairs]


def cpu_pool_roundtrip() -> Result:
    """A ``%%cpu`` cell with a variable in, a result out and its function, beside ``client.submit(...).result()``."""
    pool = cpu.connect(workers=2)
    shell = InteractiveShell()
    try:
        shell.run_line_magic("load_ext", "jupyter_gpufair.cpu")
        shell.run_cell("x = 20\ndef double(n):\n    return n * 2")

        def ours() -> None:
            shell.run_cell_magic("cpu", "", "y = double(x)")
            assert shell.user_ns.pop("y") == 40

        bare, cells = _in_turn(lambda: pool.client.submit(_double, 20, pure=False).result(), ours, ROUNDS)
    finally:
        cpu.close()
    plain_ms, cell_ms = statistics.median(bare) * 1000, statistics.median(cells) * 1000
    return Result(
        cell_ms - plain_ms, "ms over a bare Dask submit", 50.0,
        notes={"dask_ms": plain_ms, "cell_ms": cell_ms, "rounds": ROUNDS, "worst_ms": max(cells) * 1000},
    )  # fmt: skip


def cpu_pool_turns() -> Result:
    """As ``cpu_pool_roundtrip``, but the cell waits for its turn in a pool that several users share."""
    with tempfile.TemporaryDirectory() as place, local.cluster(2, local.new_key()) as plain:
        folder = Path(place)
        lock = try_lock(folder / "service.lock")
        assert lock is not None
        plan.write(folder, plan.Plan({"a": (3, 4), "b": (1, 4)}, tasks_per_user=8, service_lock=str(folder / "service.lock")))
        living, _ = resident.start(folder, workers=2, memory_bytes=1 << 30)
        client = distributed.Client(living.address, security=living.security(), set_as_default=False)
        try:
            served.introduce(client, "a", "ada")
            pool = Pool(client, None, "service")

            def ours() -> None:
                names = {"x": 20, "double": _double}
                assert take(pool.outcome(send("y = double(x)", names, pool)), names) is None
                assert names["y"] == 40

            with distributed.Client(plain, set_as_default=False) as dask:
                bare, cells = _in_turn(lambda: dask.submit(_double, 20, pure=False).result(), ours, ROUNDS)
        finally:
            client.close()
            resident.stop(folder)
            os.close(lock)
    plain_ms, cell_ms = statistics.median(bare) * 1000, statistics.median(cells) * 1000
    return Result(
        cell_ms - plain_ms, "ms over a bare Dask submit", 50.0,
        notes={"dask_ms": plain_ms, "cell_ms": cell_ms, "rounds": ROUNDS, "worst_ms": max(cells) * 1000},
    )  # fmt: skip


def cpu_pool_array() -> Result:
    """100 MB to a worker and 100 MB back, beside the same through ``client.submit(...).result()``."""
    pool = cpu.connect(workers=2, warn_bytes=2 * ARRAY_BYTES)
    array = np.random.default_rng(1).random(ARRAY_BYTES // 8)
    try:
        with_dask = lambda: pool.client.submit(_double, array, pure=False).result()  # noqa: E731
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")  # bare Dask's, each time
            bare, ours = _in_turn(with_dask, lambda: pool.submit(_double, array).result(), ARRAYS)
    finally:
        cpu.close()
    return Result(
        statistics.median(ours) / statistics.median(bare), "times bare Dask", 1.3,
        notes={"dask_s": statistics.median(bare), "ours_s": statistics.median(ours), "rounds": ARRAYS, "worst_s": max(ours)},
    )  # fmt: skip


CASES = {"cpu_pool_roundtrip": cpu_pool_roundtrip, "cpu_pool_turns": cpu_pool_turns, "cpu_pool_array": cpu_pool_array}
