"""What it costs to read a trace: 500,000 jobs in the simulator's own format."""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path

from gpufair.sim.traces import read_trace
from tests.bench.core import result
from tests.bench.result import Result

JOBS = 500_000


def read_csv() -> Result:
    """A plain file of half a million jobs, read as a command does it."""
    draw = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="gpufair-bench-") as folder:
        path = Path(folder) / "trace.csv"
        with path.open("w", encoding="utf-8") as file:
            file.write("job_id,submit_s,duration_s,gpus,user,project,kind,status\n")
            for number in range(JOBS):
                shape = f"{draw.randrange(1, 100_000)},{draw.choice((1, 2, 4, 8))}"
                whose = f"u{draw.randrange(300)},p{draw.randrange(15)}"
                file.write(f"j{number},{number * 7},{shape},{whose},batch,completed\n")
        begun = time.process_time()
        trace = read_trace(path, strict=True)
        taken = time.process_time() - begun
    if len(trace.rows) != JOBS:
        raise ValueError(f"{len(trace.rows):,} of {JOBS:,} jobs were read")
    return result(taken, "s CPU to read 500,000 jobs", 5.0, jobs_per_s=JOBS / taken)


CASES = {"sim_trace_csv": read_csv}
