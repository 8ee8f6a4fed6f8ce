"""What must be true of a lab in which all is over: nothing lost, nothing twice, books exact, nothing left behind."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpufair.client import Client, Workload
from tests.chaos.killer import Kill
from tests.chaos.lab import NODES, Broken, Lab, read_notes, until
from tests.chaos.load import Batch

DRAIN_S = 180.0
LEFT_S = 30.0
PROBE_S = 60.0
LEAVING = frozenset({"BeginCheckpoint", "Stop"})
LEFT_BEHIND = ("supervisor", "kernel", "process")
FREEING = frozenset({"Released", "Exited", "StartFailed"})


@dataclass
class Verdict:
    """Figures, and what is wrong: ``violations`` is empty, or the lab has failed."""

    acknowledged: int = 0
    ended: dict[str, int] = field(default_factory=dict)  # by outcome
    lost: int = 0
    twice: int = 0
    repeated: int = 0  # had finished, and were killed before anybody could know it
    charged_gpu_ms: int = 0
    implied_gpu_ms: int = 0
    orphans: int = 0
    leaked_gpus: int = 0
    entries: int = 0  # of the journal
    preemptions: int = 0
    nodes_lost: int = 0
    violations: list[str] = field(default_factory=list)

    def has_ended(self, workload: Workload) -> None:
        """Count it."""
        outcome = str(workload.outcome)
        self.ended[outcome] = self.ended.get(outcome, 0) + 1


def judge(lab: Lab, client: Client, batch: Mapping[str, Batch], sessions: Iterable[str], kills: Iterable[Kill]) -> Verdict:
    """Wait until all is over, and look at everything. Nothing is killed any more."""
    found = Verdict()
    _drain(client, found)
    known = {one.id: one for one in client.workloads()}
    records = client.timeline()
    found.entries = max((record["seq"] for record in records), default=0)
    found.preemptions = sum(record["kind"] == "BeginCheckpoint" for record in records)
    found.nodes_lost = sum(record["kind"] == "NodeLost" for record in records)
    killed = {(one.workload, one.incarnation) for one in kills}
    for one in batch.values():
        found.acknowledged += 1
        look_at(lab, known.get(one.id), one, killed, records, found)
    for name in sessions:
        found.acknowledged += 1
        if name not in known:
            found.lost += 1
            found.violations.append(f"{name} was acknowledged, and nobody knows of it")
        else:
            found.has_ended(known[name])
    check_books(client.conservation(), records, known.values(), found)
    _left(lab, client, found)
    _journal(lab, found)
    return found


def _drain(client: Client, found: Verdict) -> None:
    try:
        until(lambda: not [one for one in client.workloads() if one.live], DRAIN_S, "all work has ended")
    except Broken:
        for one in client.workloads():
            if one.live:
                found.lost += 1
                found.violations.append(f"{one.id} never ends: it is {one.state}; {client.why(one.id).sentence}")


def look_at(lab: Lab, workload: Workload | None, one: Batch, killed: AbstractSet[tuple[str, int]],
             records: list[dict[str, Any]], found: Verdict) -> None:  # fmt: skip
    if workload is None:
        found.lost += 1
        found.violations.append(f"{one.id} was acknowledged, and nobody knows of it")
        return
    if workload.live:
        return  # said already
    found.has_ended(workload)
    notes = read_notes(lab.proof / f"{one.id}.jsonl")
    last, ranks = workload.incarnation, range(one.nodes)
    ended = {(note["incarnation"], note["rank"]) for note in notes if note["event"] == "end"}
    whole = all((last, rank) in ended for rank in ranks)
    again = {n for n, _ in ended if n != last and all((n, rank) in ended for rank in ranks)}
    found.repeated += len(again)
    own = [record for record in records if record.get("workload") == one.id]
    told = {record["incarnation"] for record in own if record["kind"] in LEAVING} | {n for name, n in killed if name == one.id}
    if wrong := [*_doubled(own, notes, last), *(f"start {n} had finished undisturbed" for n in sorted(again - told))]:
        found.twice += 1
        found.violations.append(f"{one.id} ran twice: {wrong}; notes {notes}")
    if workload.outcome == "completed":
        if not whole:
            found.lost += 1
            found.violations.append(f"{one.id} is said to have completed in its start {last}, and did not: {notes}")
    elif one.stopped:
        if workload.outcome != "cancelled" and (one.id, last) not in killed:
            found.violations.append(f"{one.id} was stopped, and has {workload.outcome}: {workload.reason}")
    elif one.tried_again or not {n for name, n in killed if name == one.id}:
        # Whose process is killed, and who did not ask to be tried again, has failed. Nobody else may.
        found.lost += 1
        found.violations.append(f"{one.id} has {workload.outcome}: {workload.reason}; notes {notes}")


def _doubled(own: list[dict[str, Any]], notes: list[dict[str, Any]], last: int) -> list[str]:
    """Signs that a start was made twice, that two ran at the same time, or that one came after the end."""
    found = [str(note) for note in notes if note["event"] in ("twice", "overlap", "shared")]
    begun = Counter((note["incarnation"], note["rank"]) for note in notes if note["event"] == "begin")
    found += [f"start {n} began {count} times as rank {rank}" for (n, rank), count in begun.items() if count > 1]
    found += [f"start {n} is unknown" for n, _ in begun if n > last]
    granted = [record["held"]["incarnation"] for record in own if record["kind"] == "Start"]
    found += [f"start {n} was granted again" for n, count in Counter(granted).items() if count > 1]
    kinds = ["completed" if record.get("outcome") == "completed" else record["kind"] for record in own]
    if "completed" in kinds and "Start" in kinds[kinds.index("completed") :]:
        found.append("it was started after it had completed")
    return found


def check_books(books: Mapping[str, Any], records: Iterable[Mapping[str, Any]], workloads: Iterable[Workload],
                found: Verdict) -> None:  # fmt: skip
    """The ledger to the millisecond, against what the journal says of who held what, added up by itself."""
    held = held_gpu_ms(records)
    charged = free = 0
    for one in workloads:
        implied = held.get(one.id, 0)
        if one.min_runtime_s == 0:
            free += implied
            continue
        charged += implied
        if round(one.charged_gpu_s * 1000) != implied:
            found.violations.append(f"{one.id} was charged {one.charged_gpu_s} GPU-s, and held {implied / 1000}")
    found.charged_gpu_ms, found.implied_gpu_ms = books["charged_gpu_ms"], charged
    if (books["charged_gpu_ms"], books["unallocated_gpu_ms"], books["error_gpu_ms"]) != (charged, free, 0):
        found.violations.append(f"the ledger is not exact: {dict(books)}; the journal implies {charged} and {free} unallocated")
    if books["protected_preemptions"]:
        found.violations.append(f"{books['protected_preemptions']} protections were cut")


def held_gpu_ms(records: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """GPU-milliseconds that each workload held, by the journal; all of them have to be over."""
    now: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {}  # incarnation; on each node since when how many
    total: dict[str, int] = Counter()
    for record in records:
        at, kind, name = round(record["at_s"] * 1000), record["kind"], record.get("workload", "")
        if kind == "Start":
            leases = {lease["node"]: (at, lease["gpus"]) for lease in record["held"]["leases"]}
            now[name] = (record["held"]["incarnation"], leases)
        elif kind in FREEING and name in now and now[name][0] == record["incarnation"]:
            total[name] += sum(gpus * (at - since) for since, gpus in now.pop(name)[1].values())
        elif kind == "NodeLost":
            for holder, (_, leases) in list(now.items()):
                since, gpus = leases.pop(record["node"], (at, 0))
                total[holder] += gpus * (at - since)
                if not leases:
                    del now[holder]
    return dict(total)


def _left(lab: Lab, client: Client, found: Verdict) -> None:
    """Processes and GPUs: by what is there, and by using all of it once."""
    try:
        until(lambda: not lab.parts(*LEFT_BEHIND), LEFT_S, "no process of a workload is left")
    except Broken:
        left = lab.parts(*LEFT_BEHIND)
        found.orphans = len(left)
        found.violations.append(f"orphans: {[(one.kind, one.process.pid, one.workload, one.incarnation) for one in left]}")
    for node in client.nodes():
        if node.state != "ready" or node.free_gpus != NODES[node.name]:
            found.leaked_gpus += NODES[node.name] - node.free_gpus
            found.violations.append(f"{node.name} is {node.state}, and {node.free_gpus} of its GPUs are free: {node.workloads}")
            continue
        # The agent, too, has to know that all of them are free.
        others = [name for name in NODES if name != node.name]
        probe = client.submit({"type": "command", "argv": [sys.executable, "-c", ""], "cwd": str(lab.folder)}, kind="batch",
                              allocation="a", gpus=node.gpus, min_runtime_s=0.0, exclude=others)  # fmt: skip
        try:
            until(partial(_ended, client, probe.id), PROBE_S, f"{node.name} takes work on all of its GPUs")
        except Broken as err:
            found.leaked_gpus += node.gpus
            found.violations.append(f"{err}; {client.why(probe.id).sentence}")
        else:
            done = client.workload(probe.id)
            if done.outcome != "completed" or done.starts != 1:
                found.leaked_gpus += node.gpus
                found.violations.append(f"all GPUs of {node.name} at once: {done.outcome} after {done.starts} starts, {done.reason}")


def _ended(client: Client, name: str) -> bool:
    return not client.workload(name).live


def _journal(lab: Lab, found: Verdict) -> None:
    """Every entry as it was written, and the same decisions again from a copy, with all invariants checked."""
    place = ("--config", str(lab.folder / "gpufair.toml"), "--state-dir", str(lab.state))
    copy = lab.folder / "copy.sqlite"
    try:
        lab.gpufair("db", "check", "--json", *place)
        lab.gpufair("db", "backup", str(copy), *place)
        told = json.loads(lab.gpufair("replay", str(copy), "--json"))
    except Broken as err:
        found.violations.append(str(err))
    else:
        if not told["identical"]:
            found.violations.append(f"the journal is decided otherwise today: {told}")
