"""The demo's own bookkeeping: it must be able to contradict the ledger, so it is checked by hand-made journals."""

from __future__ import annotations

from typing import Any

from gpufair.cli.demo.history import History
from gpufair.cli.demo.timeline import Mark, Span, as_html, as_text


def _start(workload: str, at_s: float, node: str, protected_s: float, checkpoint: str | None = None) -> dict[str, Any]:
    held = {"leases": [{"node": node, "gpus": 2}], "granted_at": round(at_s * 1000),
            "protected_until": round((at_s + protected_s) * 1000)}  # fmt: skip
    return {
        "at_s": at_s,
        "type": "action",
        "kind": "Start",
        "workload": workload,
        "held": held,
        "checkpoint": checkpoint,
    }


def _event(kind: str, workload: str, at_s: float, **more: Any) -> dict[str, Any]:
    return {"at_s": at_s, "type": "event", "kind": kind, "workload": workload, **more}


JOURNAL = [
    _start("a", 10.0, "n1", 5.0),
    _event("Started", "a", 11.0),
    _event("BeginCheckpoint", "a", 15.0, beneficiary="b"),
    _event("Released", "a", 15.5),
    _start("b", 15.5, "n1", 5.0),
    _start("a", 16.0, "n2", 5.0, checkpoint="000001-1"),
    _event("Started", "a", 18.0),
    _event("Stop", "a", 19.0),
    _event("Released", "a", 19.25),
]


def test_time_on_the_nodes_is_added_up_over_all_stays() -> None:
    """Two stays of 5.5 s and 3.25 s on 2 GPUs, and one that is not over yet."""
    history = History.read(JOURNAL)
    assert history.held_gpu_ms("a", until_ms=20_000) == 2 * (5_500 + 3_250)
    assert history.held_gpu_ms("b", until_ms=20_000) == 2 * 4_500


def test_only_a_preemption_before_the_end_of_the_protection_counts() -> None:
    """At the very end is right; a stop by the owner is none; a millisecond early is one."""
    assert History.read(JOURNAL).protected_preemptions() == 0
    early = [dict(r, at_s=14.999) if r["kind"] == "BeginCheckpoint" else r for r in JOURNAL]
    assert History.read(early).protected_preemptions() == 1


def test_the_page_shows_each_phase_and_escapes_names() -> None:
    """Names come from users, so none may become markup."""
    history = History.read(JOURNAL)
    names = {"a": "<b>Ria</b>", "b": "Ben"}
    spans = history.spans(names, {"a": "x", "b": "y"}, until_ms=20_000)
    assert [span.phase for span in spans if span.workload == names["a"]] == [
        "starting", "running", "checkpointing", "restoring", "running", "stopping",
    ]  # fmt: skip
    page = as_html("T", spans, history.marks(JOURNAL, names), {"wall": "1"})
    assert "<b>Ria" not in page
    assert "&lt;b&gt;Ria" in page
    assert "http" not in page


def test_times_are_told_from_the_first_mark() -> None:
    """People count from the beginning, not from 1970."""
    assert as_text([Mark(12.5, "later"), Mark(10.0, "first")]).splitlines() == ["   0.00 s  first", "   2.50 s  later"]


def test_a_name_reaches_over_the_phases_of_a_stay() -> None:
    """A session that is restored and then runs is one bar to those who look, and has its name once."""
    spans = [
        Span("n1", "Ria", "language", "restoring", 0.0, 10.0, 100.0),
        Span("n1", "Ria", "language", "running", 10.0, 100.0, 100.0),
        Span("n2", "Ben", "vision", "running", 0.0, 1.0, 1.0),
    ]
    page = as_html("T", spans, [], {})
    assert page.count(">Ria</text>") == 1
    assert ">Ben</text>" not in page  # too narrow for it
    assert page.index(">Ria</text>") > page.rindex("<rect")
