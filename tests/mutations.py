"""Each rule broken by hand, and the laws that must notice: ``python -m tests.mutations [WORD...]``.

A mutation is one exact replacement in one file of the core. The runner makes it in a temporary copy, runs the named
laws there, and says whether they failed (killed) or not (survived). Words choose mutations by number or by what they
say. Exits 1 when one survives or does not apply any more. ``tests/property/MUTATIONS.md`` is the list for readers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CORE = Path("scheduler/gpufair/core")
# Several draws: a law that fails once in a hundred runs guards nothing.
SEEDS = (1, 2)


class Mutation(NamedTuple):
    """A rule, how it is broken, and what must fail. ``laws`` is an expression for ``pytest -k``."""

    rule: str
    file: str
    old: str
    new: str
    laws: str


MUTATIONS: tuple[Mutation, ...] = (
    Mutation(
        "P1 a protection lasts until start + min_runtime",
        "running.py",
        "while self._ends and self._ends[0][0] <= now:",
        "while self._ends and self._ends[0][0] <= now + 500:",
        "p01",
    ),
    Mutation(
        "P1 a cordon waits for the end of the protection",
        "facts.py",
        "self.now >= record.held.protected_until",
        "self.now + 500 >= record.held.protected_until",
        "scenario or p01",
    ),
    Mutation(
        "P1 the clock of protection restarts at every start",
        "running.py",
        "if held.protected_until > now:",
        "if held.protected_until > now and record.starts < 2:",
        "p01 or scenario",
    ),
    Mutation(
        "P1 it is preemptible exactly when its protection ends, not at the next grid",
        "wakeup.py",
        "            moments.append(end)\n        if running.exposed",
        "            moments.append((end // policy.grid + 1) * policy.grid)\n        if running.exposed",
        "p01 or p23",
    ),
    Mutation(
        "P2 leaving workloads still hold their GPUs",
        "facts.py",
        "used = sum(node.holders.values())",
        "used = sum(n for one, n in node.holders.items() if self.records[one].phase not in LEAVING)",
        "p02",
    ),
    Mutation(
        "P2 GPUs that are kept for somebody are not free",
        "facts.py",
        "free = gpus - used - claimed",
        "free = gpus - used",
        "p02 or p06 or p07 or scenario",
    ),
    Mutation(
        "P3 a gang that lost a node stops whole",
        "settle.py",
        "if len(held.leases) < record.spec.shape.nodes:",
        "if len(held.leases) < record.spec.shape.nodes - 1:",
        "p03 or scenario",
    ),
    Mutation(
        "P4 min_runtime above the cap is rejected",
        "admission.py",
        "if spec.min_runtime > facts.policy.max_min_runtime:",
        "if spec.min_runtime > 2 * facts.policy.max_min_runtime:",
        "p04",
    ),
    Mutation(
        "P4 unallocated work is not charged",
        "facts.py",
        "if spec.allocated:\n            self._charge_weighted(",
        "if spec:\n            self._charge_weighted(",
        "p04 or p07",
    ),
    Mutation(
        "P5 hysteresis: a rank must be clearly better",
        "share.py",
        "return mine_m < inf and mine_m <= (1 - hysteresis) * theirs_m",
        "return mine_m < inf and mine_m <= theirs_m",
        "p05 or p01",
    ),
    Mutation(
        "P5 the asker's own commitment counts against it",
        "share.py",
        "mine_m = self.metric_with(sides[0], own)",
        "mine_m = self.metric_with(sides[0], 0)",
        "p05 or p01",
    ),
    Mutation(
        "P5 in the own leaf only a strictly higher priority preempts",
        "preemption.py",
        "if record.spec.priority > victim.spec.priority}",
        "if record.spec.priority >= victim.spec.priority}",
        "p05",
    ),
    Mutation(
        "P5 debug victims are at most one GPU larger",
        "debug.py",
        "return gpus + 1",
        "return gpus + 9",
        "p05 or debug or plain_pass",
    ),
    Mutation(
        "P5 GPUs under the debug right are bounded",
        "debug.py",
        "return gpus <= self._left + handed_over and gpus <=",
        "return gpus <=",
        "p05 or debug or plain_pass",
    ),
    Mutation(
        "P5 the take limit moves only what is beyond it",
        "take.py",
        "self._over[leaf] = gpus - limit",
        "self._over[leaf] = gpus",
        "p05 or take or plain_pass",
    ),
    Mutation(
        "P5 a leaf starts nothing beyond the take limit while another one is hungry",
        "take.py",
        "return self.is_beyond(leaf, gpus) and self._others_hunger(leaf)",
        "return False",
        "p05 or take or plain_pass",
    ),
    Mutation(
        "P5 what a running workload was promised counts once",
        "share.py",
        "had += self._commitment[path]\n",
        "had += 2 * self._commitment[path]\n",
        "p05 or p12 or plain_pass or owed",
    ),
    Mutation(
        "P6 nobody leaves whom the chosen nodes do not need",
        "plan.py",
        "return Plan(leases, tuple(sorted(victims, key=cost_of)))",
        "return Plan(leases, tuple(found))",
        "p06",
    ),
    Mutation(
        "P6 freed GPUs are kept for the beneficiary",
        "facts.py",
        "            self.nodes[lease.node].claims[record.id] = lease.gpus\n",
        "",
        "p06 or p02 or p07 or scenario or state_machine",
    ),
    Mutation(
        "P7 GPUs are charged until they are really free",
        "transitions.py",
        "    facts.told_to_leave(record)\n",
        "    facts.told_to_leave(record)\n    facts._charge(record, record.held.leases, -1)\n",
        "p07",
    ),
    Mutation(
        "P7 a new start is charged from the grant on",
        "facts.py",
        "        self._charge(record, held.leases, +1)\n",
        "        self._charge(record, held.leases[:1], +1)\n",
        "p07",
    ),
    Mutation(
        "P8 usage leaves the window after exactly W",
        "ledger.py",
        "offset, begins = self._total[-1] - slope * at[-1] - self._total[head], at[head] + window",
        "offset, begins = self._total[-1] - slope * at[-1] - self._total[head], at[head] + window + 1",
        "p08",
    ),
    Mutation(
        "P9 the smaller metric comes first",
        "order.py",
        "if metric < least or (metric == least and child < best):",
        "if metric > least or (metric == least and child < best):",
        "p09 or plain_pass or p12",
    ),
    Mutation(
        "P9 within a leaf whoever has had less comes first",
        "order.py",
        "sorted([(shares.had(leaf, user), user) for user in users])",
        "sorted([(0, user) for user in users])",
        "burst or plain_pass",
    ),
    Mutation(
        "P9 shares are weights among siblings",
        "tree.py",
        "entitlement = above.entitlement * shares[path] / total",
        "entitlement = above.entitlement * shares[path] / max(total, 1)",
        "p07 or p09 or tree",
    ),
    Mutation(
        "P10 usage of a divided allocation stays with it",
        "tree.py",
        "        while path not in self._nodes:\n            path = parent_of(path)\n        return path",
        "        return path if path in self._nodes else ROOT",
        "p10",
    ),
    Mutation(
        "P11 more past usage never improves a rank",
        "share.py",
        "had = self._occupancy[path]\n",
        "had = -self._occupancy[path]\n",
        "p11 or p12",
    ),
    Mutation(
        "P13 whoever fits starts at once",
        "sizes.py",
        "each, missing, only = shape.gpus_per_node, shape",
        "each, missing, only = shape.gpus_per_node + 1, shape",
        "p13",
    ),
    Mutation(
        "P13 only whoever waits alone is spared the walk",
        "alone.py",
        "if len(lines) != 1 or facts.waiting.unallocated.lines:",
        "if not lines:",
        "alone or plain_pass",
    ),
    Mutation(
        "P13 a lone start says the metric that its leaf has",
        "metrics.py",
        "        had += running.commitment_of(tree, leaf, now)\n",
        "        pass\n",
        "alone or plain_pass",
    ),
    Mutation(
        "P13 GPUs that are free elsewhere earlier are taken",
        "decide.py",
        "                if rooms is None or not rooms.fits(shape, mine, until):",
        "                if rooms is None or True:",
        "p13 or scenario",
    ),
    Mutation(
        "P14 at the time of a landing everybody who is ready leaves, whatever the ranks",
        "touchdown.py",
        "for victim in found.victims:\n            why",
        "for victim in found.victims[1:]:\n            why",
        "p14 or p25 or scenario",
    ),
    Mutation(
        "P14 nobody else's protection is waited for longer than the longest there is",
        "landing.py",
        "self._latest = after(facts.now, facts.policy.max_min_runtime)",
        "self._latest = after(facts.now, Millis(2 * facts.policy.max_min_runtime))",
        "p14 or p25",
    ),
    Mutation(
        "P25 guests end their protection by the time of the landing",
        "horizon.py",
        "        elif until > bound.at:\n",
        "        elif until > bound.at + 2_000:\n",
        "p14 or p25 or scenario",
    ),
    Mutation(
        "one landing per leaf",
        "touchdown.py",
        "turn, _is_large, have)",
        "turn, _is_large)",
        "landing",
    ),
    Mutation(
        "landings hold at most half the pool together",
        "touchdown.py",
        "return facts.policy.landing_share * facts.capacity(pool) - sum(held)",
        "return facts.capacity(pool) - sum(held)",
        "landing",
    ),
    Mutation(
        "P15 a stop has time to kill",
        "facts.py",
        "return after(self.now, max(self.grace(record), self.policy.grid_checkpoint))",
        "return after(self.now, self.grace(record))",
        "scenario",
    ),
    Mutation(
        "P16 GPUs that come free anyway spare a victim",
        "decide.py",
        "        if not here.is_coming(shape, until):\n            return False\n",
        "        return False\n",
        "plain_pass",
    ),
    Mutation(
        "P20 a preempted workload is queued again once, with its first submission time",
        "facts.py",
        "ticket(record.submitted_at, record.id), record.min_runtime)\n        demand",
        "ticket(self.now, record.id), record.min_runtime)\n        demand",
        "p20 or state_machine or p09",
    ),
    Mutation(
        "P20 an idle session is parked, not queued",
        "settle.py",
        "if session and not record.interrupted and record.notice not in MOVES:",
        "if session and record.busy:",
        "p20 or session",
    ),
    Mutation(
        "P21 nothing new starts on a cordoned node",
        "record.py",
        "return not self.cordoned and not self.lost",
        "return not self.lost",
        "p21",
    ),
    Mutation(
        "P21 workloads leave a cordoned node as their protection ends",
        "wakeup.py",
        "    moments += draining.moments(facts) if facts.closed else ()\n",
        "",
        "p21 or p23",
    ),
    Mutation(
        "P22 sets do not decide",
        "draining.py",
        "return sorted({holder for",
        "return list({holder for",
        "p22 or plain_pass",
    ),
    Mutation(
        "P22 every change is an action",
        "decide.py",
        "        # What was kept for it was counted as committed when this pool's metrics were made.\n",
        "        record.lost = (('x', 'y'),)\n",
        "p22",
    ),
    Mutation(
        "P22 nothing is left out of a snapshot",
        "snapshot.py",
        'facts.reservations = int(plain["reservations"])',
        "facts.reservations = 0",
        "p22 or state_machine",
    ),
    Mutation(
        "P23 time that passes in between decides nothing",
        "engine.py",
        ".run(touched) if decides else []",
        ".run(touched)",
        "p23",
    ),
    Mutation(
        "P23 the grid is skipped only where nobody could act",
        "wakeup.py",
        "        if running.exposed:\n",
        "        if len(running.exposed) > 1:\n",
        "p23 or p01",
    ),
    Mutation(
        "victims: unallocated work goes first",
        "preemption.py",
        "PreemptReason.UNALLOCATED, 0)",
        "PreemptReason.UNALLOCATED, 9)",
        "plain_pass or unallocated",
    ),
    Mutation(
        "victims: the most over-served leaves go first, in bands of a quarter",
        "preemption.py",
        "sorted(outranked, key=lambda pair: (-pair[0], pair[1]))",
        "sorted(outranked, key=lambda pair: (pair[0], pair[1]))",
        "plain_pass or band or over_served",
    ),
    Mutation(
        "victims: inside a band the least work lost",
        "preemption.py",
        "return GpuMillis(record.gpus * (at - held.granted_at))",
        "return GpuMillis(0)",
        "resum or loss or cheap",
    ),
    Mutation(
        "placement: best fit",
        "placement.py",
        "found.sort(key=lambda one: (bool(one[1].bounds), one[0], one[1].node.name))",
        "found.sort(key=lambda one: (bool(one[1].bounds), -one[0], one[1].node.name))",
        "fit or tight or plain_pass",
    ),
    Mutation(
        "P2 CPUs and memory are never over-allocated",
        "amount.py",
        "    cpus, memory = held(node, records)\n    for owner",
        "    cpus, memory = 0, 0\n    for owner",
        "p02",
    ),
    Mutation(
        "P3 a gang that demands one block lies in one",
        "placement.py",
        'value = labels.get(shape.block, "") if shape.block else "", labels',
        'value = "", labels',
        "p03 or block or labels",
    ),
    Mutation(
        "P3 an excluded node is not taken",
        "placement.py",
        "node.name not in shape.exclude",
        "bool(node.name)",
        "p03 or scenario",
    ),
    Mutation(
        "placement: the tightest block",
        "placement.py",
        "key=lambda block: (sum(room for room, _ in enough[block]), block)",
        "key=lambda block: (-sum(room for room, _ in enough[block]), block)",
        "block or plain_pass",
    ),
    Mutation(
        "P6 a plan counts the CPUs of its victims",
        "plan.py",
        "    if shape.counted:\n        return cheapest(",
        "    if not shape.nodes:\n        return cheapest(",
        "p02 or cpus or memory",
    ),
    Mutation(
        "P21 a drain cuts no protection unless it is forced",
        "draining.py",
        "node.drain is not None and node.drain.force), None)",
        "node.drain is not None), None)",
        "p01 or p21 or drain",
    ),
    Mutation(
        "P21 a forced drain is over at its deadline",
        "draining.py",
        "    return min(until, drain.deadline)",
        "    return until",
        "p21 or drain",
    ),
    Mutation(
        "P21 only whose owner allows it is moved",
        "draining.py",
        "if held is None or not record.spec.movable or record.phase",
        "if held is None or record.phase",
        "p01 or drain",
    ),
    Mutation(
        "whoever came by the debug right makes way whatever his size",
        "debug.py",
        "victim.gpus <= largest_victim(gpus) or victim.id in self._under",
        "victim.gpus <= largest_victim(gpus)",
        "p05 or debug or plain_pass or place",
    ),
    Mutation(
        "P5 in its own bound of the debug right a leaf takes only the places of its own",
        "debug.py",
        "if instead_of is not None and instead_of.spec.allocation == leaf else 0",
        "if instead_of is not None else 0",
        "p05 or debug or plain_pass or bound",
    ),
    Mutation(
        "P5 whoever leaves for a debug run counts no more, as long as that one waits for him",
        "debug.py",
        "_pool_of(record) == pool and record.id not in replaced",
        "_pool_of(record) == pool and (record.phase in STAYING or record.held is None)",
        "p05 or debug or plain_pass or place",
    ),
    Mutation(
        "a place under the debug right that is handed over is not taken twice",
        "debug.py",
        "_pool_of(record) == pool and record.id not in replaced",
        "_pool_of(record) == pool",
        "p05 or debug or plain_pass or place",
    ),
    Mutation(
        "P9 what was granted in this pass counts for the next CPUs",
        "cpu_work.py",
        "            shares.grant(leaf, record.cpu_part * SPAN, record.spec.user)\n",
        "",
        "cpu",
    ),
    Mutation(
        "P9 what was had within the last hour counts for CPUs, not only what is held",
        "cpu_use.py",
        "account.occupancy(now, SPAN) if account is not None else 0",
        "0",
        "cpu",
    ),
    Mutation(
        "P8 of what an amended workload waited for no more stays owed than for what it starts with",
        "demand.py",
        "beyond = asked.shape.gpus * turn.weight - kept",
        "beyond = 0 if kept else asked.shape.gpus * turn.weight",
        "stays_owed",
    ),
    Mutation(
        "P25 whoever asks for something else gives up the landing that was for what he asked before",
        "amending.py",
        "        facts.drop_landing(record)\n        if",
        "        if",
        "landing_was",
    ),
)


def text_of(mutation: Mutation, root: Path = ROOT) -> str:
    """The file that it changes."""
    return (root / CORE / mutation.file).read_text(encoding="utf-8")


def applies(mutation: Mutation) -> bool:
    """Whether the line that it breaks is still there, once or more."""
    return mutation.old in text_of(mutation)


def killed_by(mutation: Mutation) -> list[str]:
    """The tests that fail with it; none if it survives."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for part in ("scheduler", "docs", "tests/unit/core", "tests/property", "tests/long", "tests/data"):
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        for file in (ROOT / "tests").glob("*.py"):
            shutil.copy(file, root / "tests" / file.name)
        (root / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\n")
        path = root / CORE / mutation.file
        path.write_text(text_of(mutation).replace(mutation.old, mutation.new, 1), encoding="utf-8")
        paths = os.pathsep.join((str(root / "scheduler"), str(root)))
        environment = {**os.environ, "PYTHONPATH": paths, "HYPOTHESIS_PROFILE": "hunt"}
        for seed in SEEDS:
            # Not the test that compares this list with the source: it would notice every mutation.
            asked = [
                "tests/property",
                "tests/unit/core",
                "--ignore=tests/unit/core/test_core_mutations.py",
                "-q",
                "-x",
                "-k",
                mutation.laws,
                f"--hypothesis-seed={seed}",
            ]
            # It fails in the copy in any case, and the names of rules match the names of laws.
            asked.append("--ignore=tests/unit/core/test_core_mutations.py")
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *asked, "--timeout=120"],
                cwd=root,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            failed = [line.split()[1].split("::")[-1] for line in done.stdout.splitlines() if line.startswith("FAILED")]
            if failed:
                return failed
            if done.returncode not in {0, 1}:
                return [f"pytest ended with {done.returncode}: {done.stdout.strip().splitlines()[-1:]}"]
    return []


def _means(word: str, number: int, mutation: Mutation) -> bool:
    return word == str(number) if word.isdecimal() else word.lower() in mutation.rule.lower()


def main(words: list[str]) -> int:
    """Try them all, or those that the words choose."""
    chosen = [
        (number, one)
        for number, one in enumerate(MUTATIONS, 1)
        if not words or any(_means(word, number, one) for word in words)
    ]
    survived = 0
    for number, mutation in chosen:
        begun = time.perf_counter()
        failed = killed_by(mutation) if applies(mutation) else []
        said = f"killed by {failed[0]}" if failed else "SURVIVED" if applies(mutation) else "DOES NOT APPLY"
        survived += not failed
        print(f"{number:>3} {mutation.rule:<80} {said}   [{time.perf_counter() - begun:.0f} s]", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} killed")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
