"""Random preemptions of running notebooks: ``python -m tests.preemptions --count 1000 --seed N``.

Real supervisors and kernels under a real agent, with kill -9s of kernels and supervisors at work, during checkpoints and
during restores. Exits 1, and names the seed, if a result differs from the undisturbed run or a checkpoint does not restore.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.integration.node.rig import Rig
from tests.preemptions.play import Broken, Play


def play_all(folder: Path, count: int, seed: int, notebooks: int, each: int = 25) -> Counter[str]:
    """At least ``count`` stays that end by a preemption or a kill, of ``each`` per notebook. Raises: Broken."""
    rig = Rig(folder)
    rig.service.start()
    rig.start_agent()
    rig.service.wait_hello(1)
    seeds = random.Random(seed)
    plays = [Play(rig, f"n{number}", seeds.randrange(1 << 30)) for number in range(-(-count // each))]
    due = list(plays)
    failures: list[BaseException] = []
    sums: Counter[str] = Counter()

    def work() -> None:
        while due and not failures:
            try:
                play = due.pop()
                play.run(each)
                rig.service.command("stop", play.workload, play._incarnation)
                sums.update(play.counts)
            except BaseException as err:
                failures.append(err)

    try:
        threads = [threading.Thread(target=work) for _ in range(notebooks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        rig.close()
    if failures:
        raise failures[0]
    return sums


def main() -> int:
    """Play, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.preemptions", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--notebooks", type=int, default=2, help="that run at the same time")
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gpufair-preemptions-") as folder:
        try:
            sums = play_all(Path(folder), asked.count, seed, asked.notebooks)
        except Broken as err:
            print(f"BROKEN with --seed {seed}: {err}")
            return 1
    print(", ".join(f"{count} {name}" for name, count in sorted(sums.items())))
    print(f"every result equals that of the undisturbed run; {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
