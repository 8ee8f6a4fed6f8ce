"""The short form of ``make chaos``: whatever is killed, nothing is lost, nothing runs twice, and the books are exact."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest

KILLS = 12


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_lab_survives_the_death_of_each_of_its_parts() -> None:
    seed = os.environ.get("GPUFAIR_SEED") or str(random.SystemRandom().randrange(1 << 30))
    command = [sys.executable, "-m", "tests.chaos", "--kills", str(KILLS), "--seed", seed, "--sessions", "1", "--live", "4", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=540)
    print(ran.stdout, ran.stderr)  # the seed too
    assert ran.returncode == 0, ran.stdout
    found = json.loads(ran.stdout)
    assert (found["lost"], found["twice"], found["orphans"], found["leaked_gpus"], found["violations"]) == (0, 0, 0, 0, [])
    assert found["charged_gpu_ms"] == found["implied_gpu_ms"] > 0
    assert sum(found["kills"].values()) == KILLS
    assert all(found["kills"][kind] >= 2 for kind in ("service", "agent", "supervisor"))
    assert found["kills"]["kernel"] + found["kills"]["process"] >= 2
    assert found["acknowledged"] >= 4
    assert found["ended"].get("completed", 0) >= 1
