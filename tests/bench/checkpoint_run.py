"""The process that ``checkpoint`` measures: prints its figures as JSON."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import cloudpickle
import numpy as np
import pandas as pd

from gpufair.node import checkpoint
from tests.bench.checkpoint import ARRAY_BYTES, ARRAYS, ROUNDS, ROWS, SMALL, VARIABLES
from tests.bench.result import CALIBRATED_S, calibration

KEY = bytes(range(32))
BLOCK = 8 << 20


def namespace() -> dict[str, Any]:
    """See ``checkpoint``."""
    rng = np.random.default_rng(1)
    made: dict[str, Any] = {f"array{n}": rng.random(ARRAY_BYTES // 8) for n in range(ARRAYS)}
    made["frame"] = pd.DataFrame(rng.random((ROWS, 10)), columns=list("abcdefghij"))
    made["small"] = [(n, f"name {n}") for n in range(SMALL // 2)]
    return made


def many() -> dict[str, Any]:
    """Variables as notebooks have them."""
    cells = """
import math, json, collections
def f{n}(x, y={n}): return x + y
class C{n}:
    value = {n}
number{n} = {n}; text{n} = 'x' * {n}; items{n} = list(range({n})); table{n} = {{'a': {n}, 'b': [1.5, None]}}
pair{n} = ({n}, 'two'); thing{n} = C{n}(); floats{n} = [0.5 * {n}] * 20; names{n} = {{'p', 'q'}}
"""
    found: dict[str, Any] = {"__name__": "__main__"}
    for n in range(VARIABLES // 10):
        exec(cells.format(n=n), found)
    return found


def status(name: str) -> float:
    """A line of /proc/self/status, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


class Watch:
    """Seconds, and the memory at its height beyond what there was before."""

    def __enter__(self) -> Self:
        os.sync()
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
        self.before = status("VmRSS")
        self.began = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds = time.perf_counter() - self.began
        self.extra_mib = status("VmHWM") - self.before
        self.kept_mib = status("VmRSS") - self.before


def raw_write(path: Path, parts: list[memoryview]) -> None:
    digest = hashlib.sha256()
    with path.open("wb", buffering=0) as file:
        for part in parts:
            for at in range(0, part.nbytes, BLOCK):
                file.write(part[at : at + BLOCK])
                digest.update(part[at : at + BLOCK])
        os.fsync(file.fileno())


def raw_read(path: Path) -> None:
    digest, block = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])


def quickest(work: Callable[[], object], rounds: int = 5) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def run(folder: Path) -> dict[str, Any]:
    session = namespace()
    where, raw = folder / "ours", folder / "raw"
    number = 0

    def save(session: dict[str, Any], tracker: checkpoint.Tracker) -> checkpoint.SaveResult:
        nonlocal number
        number += 1
        return checkpoint.save(
            session, directory=str(where), id=f"c{number}", sequence=number, key=KEY, meta={}, tracker=tracker
        )

    size = save({"small": session["small"]}, checkpoint.Tracker()).size_bytes  # warms up, and says how large they are
    parts = [memoryview(v).cast("B") for n, v in session.items() if n.startswith("array")]
    parts += [memoryview(session["frame"].to_numpy().T).cast("B"), memoryview(bytes(size))]
    times: dict[str, list[float]] = {"raw_write_s": [], "raw_read_s": [], "dump_s": [], "restore_s": []}
    extra, back_extra = [], []
    for _ in range(ROUNDS):
        shutil.rmtree(where, ignore_errors=True)
        raw.unlink(missing_ok=True)
        with Watch() as watch:
            raw_write(raw, parts)
        times["raw_write_s"].append(watch.seconds)
        with Watch() as watch:
            raw_read(raw)
        times["raw_read_s"].append(watch.seconds)
        raw.unlink()
        tracker = checkpoint.Tracker()
        with Watch() as watch:
            full = save(session, tracker)
        tracker.close()
        times["dump_s"].append(watch.seconds)
        extra.append(watch.extra_mib)
        back: dict[str, Any] = {}
        with Watch() as watch:
            result = checkpoint.load(back, directory=str(where), id=full.id, key=KEY)
        assert not result.lost
        assert np.array_equal(back["array3"], session["array3"])
        assert back["small"] == session["small"]
        times["restore_s"].append(watch.seconds)
        back_extra.append(watch.extra_mib - watch.kept_mib)
        del back, result
    figures: dict[str, Any] = {name: min(taken) for name, taken in times.items()}
    figures |= {"dump_extra_mib": max(extra), "restore_extra_mib": max(back_extra), "mib": full.size_bytes / 2**20}
    for what in ("dump", "restore"):
        taken = times[f"{what}_s"]
        figures[f"spread_{what}"] = (max(taken) - min(taken)) / min(taken)
    figures |= increments(session, save)
    shutil.rmtree(where)
    return figures | others(session, folder)


def increments(session: dict[str, Any], save: Callable[..., checkpoint.SaveResult]) -> dict[str, Any]:
    """A second checkpoint after changes large and small, and what it costs to see that there are none."""
    large = {name: value for name, value in session.items() if name != "small"}
    tracker = checkpoint.Tracker()
    save(large, tracker)
    taken = []
    for change in range(5):
        large["array4"][1000 * change] = change
        with Watch() as watch:
            result = save(large, tracker)
        taken.append(watch.seconds)
    figures: dict[str, Any] = {"increment_s": min(taken), "increment_mib": result.written_bytes / 2**20}
    figures["by"] = (
        "page tables" if tracker.memory.by_pages(memoryview(large["array0"]).cast("B")[:BLOCK]) else "checksums"
    )
    large["note"] = 1
    with Watch() as watch:
        save(large, tracker)
    figures["small_increment_s"] = watch.seconds
    with Watch() as watch:
        save(large, tracker)
    figures["nothing_s"] = watch.seconds
    varied = {**many(), **large}
    save(varied, tracker)
    seen = checkpoint.changes(varied, tracker)
    assert seen.none, (seen.changed[:9], seen.unknown[:9])
    looks, spins = [], []
    for _ in range(25):  # in turn: others use the machine too, and not always as much
        spins.append(calibration(rounds=1))
        looks.append(quickest(lambda: checkpoint.changes(varied, tracker), rounds=1))
    slow = statistics.median(spins) / CALIBRATED_S
    figures["after_cell_ms"] = 1000 * statistics.median(looks) / max(slow, 1.0)
    figures["after_cell_slowness"] = slow
    figures["after_cell_variables"] = len(varied)
    varied["small"] = session["small"]
    save(varied, tracker)
    figures["whole_look_ms"] = 1000 * quickest(lambda: checkpoint.changes(varied, tracker))
    within_s = (5 + len(varied) / 100) / 1000
    figures["bounded_look_ms"] = 1000 * quickest(lambda: checkpoint.changes(varied, tracker, within_s=within_s))
    seen = checkpoint.changes(varied, tracker, within_s=within_s)
    figures["bounded_found"] = f"{len(seen.changed)} changed, {len(seen.unknown)} unknown"
    return figures


def others(session: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Once each: they take long."""
    import dill

    figures: dict[str, Any] = {}
    for library in (dill, cloudpickle):
        name, path = library.__name__, folder / "other"
        with Watch() as watch, path.open("wb") as file:
            library.dump(session, file, protocol=5)
            file.flush()
            os.fsync(file.fileno())
        figures[f"{name}_dump_s"], figures[f"{name}_extra_mib"] = watch.seconds, watch.extra_mib
        with Watch() as watch, path.open("rb") as file:
            library.load(file)
        figures[f"{name}_load_s"] = watch.seconds
        path.unlink()
    return figures


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
