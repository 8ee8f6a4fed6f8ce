"""Who judges a lab that everything was killed in (``tests.chaos``) has to see what is wrong with it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gpufair.client import Workload
from tests.chaos.judge import Verdict, check_books, held_gpu_ms, look_at
from tests.chaos.lab import Lab
from tests.chaos.load import Batch


def start(incarnation: int, at_s: float = 1.0, *nodes: str) -> dict[str, Any]:
    leases = [{"node": node, "gpus": 2} for node in nodes or ("n1",)]
    return {"at_s": at_s, "kind": "Start", "workload": "b", "held": {"leases": leases, "incarnation": incarnation}}


def event(kind: str, incarnation: int, at_s: float = 2.0, **more: Any) -> dict[str, Any]:
    return {"at_s": at_s, "kind": kind, "workload": "b", "incarnation": incarnation, **more}


def run(incarnation: int, *events: str, rank: int = 0) -> list[dict[str, Any]]:
    return [{"event": one, "incarnation": incarnation, "rank": rank} for one in events]


DONE = Workload("b", "ended", kind="batch", incarnation=1, outcome="completed")
FAILED = Workload("b", "ended", kind="batch", incarnation=1, outcome="failed", reason="signal 9")
ONCE = [start(1), event("Exited", 1, outcome="completed")]
KILLED = frozenset({("b", 1)})
WHOLE = run(1, "begin", "end")


def judged(tmp_path: Path, workload: Workload | None, notes: list[dict[str, Any]], records: list[dict[str, Any]],
           nodes: int = 1, killed: frozenset[tuple[str, int]] = frozenset()) -> Verdict:  # fmt: skip
    lab = Lab(tmp_path, random.Random(0))
    lab.proof.mkdir(parents=True)
    (lab.proof / "b.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    found = Verdict()
    look_at(lab, workload, Batch("b", nodes, tried_again=False), killed, records, found)
    return found


def test_what_ran_once_is_in_order(tmp_path: Path) -> None:
    found = judged(tmp_path, DONE, WHOLE, ONCE)
    assert (found.violations, found.ended, found.lost, found.twice) == ([], {"completed": 1}, 0, 0)


def test_what_was_killed_may_fail_or_run_again(tmp_path: Path) -> None:
    failed = [start(1), event("Exited", 1, outcome="failed")]
    assert judged(tmp_path / "1", FAILED, run(1, "begin"), failed, killed=KILLED).violations == []
    second = Workload("b", "ended", incarnation=2, outcome="completed")
    records = [start(1), event("Released", 1), start(2), event("Exited", 2, outcome="completed")]
    found = judged(tmp_path / "2", second, [*WHOLE, *run(2, "begin", "end")], records, killed=KILLED)
    assert (found.violations, found.repeated) == ([], 1)


@pytest.mark.parametrize(
    ("workload", "notes", "records", "says"),
    [
        (None, [], [], "nobody knows of it"),
        (DONE, run(1, "begin"), ONCE, "and did not"),
        (FAILED, run(1, "begin"), ONCE, "has failed: signal 9"),
        (DONE, [*WHOLE, *run(1, "begin")], ONCE, "began 2 times"),
        (DONE, run(1, "begin", "twice", "end"), ONCE, "'twice'"),
        (DONE, run(1, "begin", "overlap", "end"), ONCE, "'overlap'"),
        (DONE, run(1, "begin", "shared", "end"), ONCE, "'shared'"),
        (DONE, [*WHOLE, *run(2, "begin")], ONCE, "start 2 is unknown"),
        (DONE, WHOLE, [*ONCE, start(1)], "granted again"),
        (DONE, WHOLE, [*ONCE, start(2)], "after it had completed"),
        (
            Workload("b", "ended", incarnation=2, outcome="completed"),
            [*WHOLE, *run(2, "begin", "end")],
            [start(1), event("Released", 1), start(2), event("Exited", 2, outcome="completed")],
            "start 1 had finished undisturbed",
        ),
    ],
)
def test_what_is_wrong_is_seen(
    tmp_path: Path, workload: Workload | None, notes: list[dict[str, Any]], records: list[dict[str, Any]], says: str
) -> None:
    found = judged(tmp_path, workload, notes, records)
    assert len(found.violations) == 1
    assert says in found.violations[0]


def test_a_gang_has_ended_when_each_part_has(tmp_path: Path) -> None:
    found = judged(tmp_path, DONE, WHOLE, ONCE, nodes=2)
    assert "and did not" in found.violations[0]
    both = [*WHOLE, *run(1, "begin", "end", rank=1)]
    assert judged(tmp_path / "1", DONE, both, ONCE, nodes=2).violations == []


def test_the_journal_is_added_up_anew() -> None:
    """A lost node frees its own GPUs; a late word of a former start frees nothing."""
    records = [start(1, 1.0, "n1", "n2"), {"at_s": 3.0, "kind": "NodeLost", "node": "n1"}, event("Released", 1, 4.5),
               start(2, 5.0), event("Released", 1, 5.5), event("Exited", 2, 6.0)]  # fmt: skip
    assert held_gpu_ms(records) == {"b": 2 * 2000 + 2 * 3500 + 2 * 1000}


@pytest.mark.parametrize(("charged", "error", "wrong"), [(2000, 0, 0), (2001, 0, 2), (2000, 1, 1)])
def test_books_are_exact_to_the_millisecond(charged: int, error: int, wrong: int) -> None:
    books = {"charged_gpu_ms": charged, "unallocated_gpu_ms": 0, "error_gpu_ms": error, "protected_preemptions": 0}
    found = Verdict()
    one = Workload("b", "ended", min_runtime_s=1.0, charged_gpu_s=charged / 1000)
    check_books(books, [start(1, 1.0), event("Exited", 1, 2.0)], [one], found)
    assert len(found.violations) == wrong
