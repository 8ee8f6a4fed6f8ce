"""Kill -9 of everything, under load: ``python -m tests.chaos --kills 500 --seed N``.

A real service with real agents, supervisors, kernels and batch programs; each of them is killed at random moments. At the
end no acknowledged work is lost, none has run twice, the ledger is exact, and no process and no GPU is left behind; else
this exits with 1 and names the seed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos.judge import Verdict, judge
from tests.chaos.killer import Killer
from tests.chaos.lab import Lab
from tests.chaos.load import Load
from tests.chaos.somebody import Somebody
from tests.chaos.visitor import Visitor
from tests.postgres import postgres

TOLD_EVERY = 10


def play(lab: Lab, seed: int, kills: int, live: int, sessions: int) -> tuple[Verdict, dict[str, Any]]:
    """Load, kills, and what came of it; the figures beside the verdict."""
    seeds = random.Random(seed)
    load = Load(lab, seeds.randrange(1 << 30), live)
    visitors = [Visitor(lab, seeds.randrange(1 << 30), number) for number in range(sessions)]
    killer = Killer(lab, random.Random(seeds.randrange(1 << 30)), kills)
    everybody: list[Somebody] = [load, *visitors]
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:4.0f} s: {text}", file=sys.stderr, flush=True)

    def told(done: int) -> None:
        if done % TOLD_EVERY == 0:
            by_kind = ", ".join(f"{count} {kind}" for kind, count in killer.by_kind.items())
            cells = sum(one.cells for one in visitors)
            say(f"{done} of {kills} kills: {by_kind}; {len(load.acknowledged)} batch workloads, {cells} cells")

    for one in everybody:
        one.start()
    try:
        killer.run(told, lambda: not any(one.failure or one.violations for one in everybody))
    finally:
        for one in everybody:
            one.over.set()
        for one in everybody:
            one.join()
    say("nothing is submitted any more; until all is over")
    with lab.client() as client:
        known = [one.id for one in visitors if one.acknowledged]
        verdict = judge(lab, client, load.acknowledged, known, killer.kills)
    for one in everybody:
        verdict.violations += [*one.violations, *([f"{one.name}: {one.failure!r}"] if one.failure else [])]
    if len(killer.kills) < kills and not verdict.violations:
        verdict.violations.append(f"only {len(killer.kills)} kills: there was nothing more to kill")
    figures = {
        "kills": killer.by_kind,
        "submissions_sent_again": sum(one.sent_again for one in everybody),
        "cells": sum(one.cells for one in visitors),
        "saves_promised": sum(one.promises for one in visitors),
        "returns_after_a_loss": sum(one.returns for one in visitors),
        "wall_s": round(time.monotonic() - begun, 1),
    }
    return verdict, figures


def main() -> int:
    """Play, and say how it went."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--live", type=int, default=6, help="batch workloads that are queued or run at the same time")
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--postgresql", action="store_true", help="two services on one PostgreSQL server of its own")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if asked.seed is None else asked.seed
    print(f"seed {seed}", file=sys.stderr, flush=True)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="gpufair-chaos-"))
        database = stack.enter_context(postgres()).database() if asked.postgresql else ""
        lab = stack.enter_context(Lab(folder / "lab", random.Random(seed), database))
        verdict, figures = play(lab, seed, asked.kills, asked.live, asked.sessions)
    summary = {"seed": seed, "store": "postgresql" if database else "sqlite", **figures, **asdict(verdict)}
    if verdict.violations:
        print(f"what is left of it is in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder, ignore_errors=True)
    if asked.json:
        print(json.dumps(summary))
    else:
        print("\n".join(sentences(summary)))
    return 1 if verdict.violations else 0


def sentences(summary: dict[str, Any]) -> list[str]:
    """The summary for people."""
    kinds = ", ".join(f"{count} of {kind}" for kind, count in summary["kills"].items())
    ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(summary["ended"].items()))
    exact = "exact" if summary["charged_gpu_ms"] == summary["implied_gpu_ms"] else "NOT exact"
    lines = [
        f"{sum(summary['kills'].values())} kills in {summary['wall_s']:.0f} s ({summary['store']}): {kinds}",
        f"{summary['acknowledged']} workloads acknowledged: {ended}; {summary['lost']} lost, {summary['twice']} ran twice"
        f" ({summary['repeated']} had finished when they were killed, and were done again)",
        f"{summary['cells']} cells, {summary['saves_promised']} saves, {summary['returns_after_a_loss']} times back after a loss",
        f"{summary['charged_gpu_ms'] / 1000:,.3f} GPU-s by the ledger, {summary['implied_gpu_ms'] / 1000:,.3f} by the journal"
        f" ({summary['entries']:,} entries): {exact}; {summary['preemptions']} preemptions, {summary['nodes_lost']} nodes lost",
        f"{summary['orphans']} orphan processes, {summary['leaked_gpus']} GPUs leaked",
    ]
    wrong = [f"VIOLATION: {one}" for one in summary["violations"]]
    return [*lines, *wrong, *([f"again with --seed {summary['seed']}"] if wrong else [])]


if __name__ == "__main__":
    sys.exit(main())
