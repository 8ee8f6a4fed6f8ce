"""The long run: ``python -m tests.long``, with ``EVENTS=1000000``, ``SEED=0`` and ``JOBS``; ``WORLD=n`` runs one again.

Exits 1 when a law is broken, and says which world shows it.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from itertools import count
from multiprocessing import get_context

from tests.long.hand import EACH, Hand, explore_whole, last_events
from tests.long.watch import BrokenLawError


def main() -> int:
    """Run worlds until enough events have happened."""
    if "WORLD" in os.environ:
        return one(int(os.environ["WORLD"]))
    wanted = int(os.environ.get("EVENTS", "1000000"))
    seed = int(os.environ.get("SEED", "0"))
    jobs = int(os.environ.get("JOBS", str(min(8, os.cpu_count() or 1))))
    sums: Counter[str] = Counter()
    parts: dict[str, Counter[str]] = {"actions": Counter(), "preemptions": Counter()}
    broken: list[tuple[int, str]] = []
    begun = said = time.perf_counter()
    # A world of its own for each seed and number: two long runs share none unless their seeds are near.
    numbers = (seed * 1_000_000 + number for number in count())
    with get_context("spawn").Pool(jobs) as pool:
        for found in pool.imap_unordered(explore_whole, numbers_until(wanted, numbers)):
            sums.update(
                {key: found[key] for key in ("events", "commands", "refused", "restarts", "replays", "validated")}
            )
            sums["worlds"] += 1
            for name, part in parts.items():
                part.update(found[name])
            if found["broken"]:
                broken.append((found["seed"], found["broken"]))
                print(f"BROKEN in world {found['seed']}: {found['broken']}", flush=True)
            if time.perf_counter() - said > 10:
                said = time.perf_counter()
                print(f"{sums['events']:>10,} events, {sums['events'] / (said - begun):,.0f}/s", flush=True)
    report(sums, parts, broken, time.perf_counter() - begun)
    return 1 if broken or sums["events"] < wanted else 0


def numbers_until(wanted: int, numbers):
    """World numbers for at least so many events."""
    for _, number in zip(range(-(-wanted // EACH)), numbers, strict=False):
        yield number


def report(sums: Counter, parts: dict[str, Counter], broken: list, took: float) -> None:
    """Say what happened."""
    print(
        f"{sums['events']:,} events in {sums['worlds']:,} worlds, {took:.0f} s, {sums['events'] / took:,.0f} events/s"
    )
    print(
        f"{sums['commands']:,} commands ({sums['refused']:,} refused), {sums['restarts']:,} restarts, {sums['replays']:,} replays"
    )
    print("actions: " + ", ".join(f"{name} {number:,}" for name, number in sorted(parts["actions"].items())))
    print("preempted by: " + ", ".join(f"{name} {number:,}" for name, number in sorted(parts["preemptions"].items())))
    print(f"whole state validated {sums['validated']:,} times; conservation exact at each")
    if broken:
        print(f"{len(broken)} BROKEN worlds; WORLD={broken[0][0]} runs the first one again")
    else:
        print(
            "0 protected preemptions, 0 over-allocations, 0 livelocks, 0 GPU-ms unaccounted for, every replay the same"
        )


def one(number: int) -> int:
    """Run one world again and show how it ended."""
    hand = Hand(number)
    try:
        hand.run(EACH)
    except BrokenLawError as err:
        for entry in last_events(hand, 12):
            print(entry.event, *(f"\n    {action}" for action in entry.actions))
        print(f"BROKEN after {hand.world.watch.events} events: {err}")
        return 1
    print(f"world {number}: {hand.world.watch.events} events, no law broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
