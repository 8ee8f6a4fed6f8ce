"""The short form of ``python -m tests.preemptions``: the result never depends on when a notebook was preempted or killed."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_random_preemptions_change_nothing() -> None:
    seed = os.environ.get("GPUFAIR_SEED") or str(random.SystemRandom().randrange(1 << 30))
    command = [sys.executable, "-m", "tests.preemptions", "--count", "50", "--seed", seed]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    print(ran.stdout, ran.stderr)  # the seed too
    assert ran.returncode == 0, ran.stdout
    counts = {name: int(count) for count, name in re.findall(r"(\d+) ([a-z ]+)", ran.stdout.splitlines()[1])}
    assert sum(counts.get(kind, 0) for kind in ("preemptions", "kills at work", "kills at restore")) >= 40, counts
    assert counts["restores"] >= 20, counts
    assert counts["cells"] >= 30, counts
