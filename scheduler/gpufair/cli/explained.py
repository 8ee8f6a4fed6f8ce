"""An explanation as a page of text: the sentence, the place in the queue, both metrics, who holds the GPUs, the way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpufair.cli.output import Column, line, table
from gpufair.cli.words import NOTHING, clean, gpu_time, localised, metric, moment, ordinal, what

if TYPE_CHECKING:
    from gpufair.client.reasons import AllocationExplanation, Explanation, HolderView, Side, StartTime
    from gpufair.client.types import Workload


def print_explanation(explanation: Explanation, known: Mapping[str, Workload], now: float) -> None:
    """Print ``explanation``; ``known`` gives names to the workloads it mentions."""
    subject = known.get(explanation.workload)
    state = what(subject) if subject is not None else explanation.state
    label = clean(subject.label) if subject is not None else explanation.workload[:8]
    where = f" in {clean(explanation.pool)}" if explanation.pool else ""
    line(f"{label} ({explanation.workload[:8]}) is {state}{where}{_place(explanation)}.")
    line(f"  {localised(clean(explanation.sentence, 1000), now)}")
    if explanation.start is not None and (explanation.start.at_s is not None or explanation.start.because):
        line("")
        line(_start(explanation.start, explanation.sentence, now))
    if explanation.mine is not None:
        _comparison(explanation, explanation.mine)
    _threat(explanation, known, now)
    if explanation.holders:
        line("\nThe GPUs are held by")
        _holders(explanation.holders, known, now)
    if explanation.change is not None and explanation.change.text:
        line(f"\nSmallest change that would start it now: {localised(clean(explanation.change.text, 1000), now)}")
        for cost in explanation.change.costs:
            line(f"  But {localised(clean(cost, 500), now)}.")
        if explanation.change.amend:
            line(f"  Its owner makes it with: gpufair amend {explanation.workload[:8]} --suggested")


def _place(explanation: Explanation) -> str:
    if explanation.position is None or explanation.queued is None:
        return ""
    # The state already says which place; how many there are in all is the news.
    return f" of {explanation.queued}" if explanation.state == "queued" else f", {ordinal(explanation.position)}"


def _start(start: StartTime, said: str, now: float) -> str:
    if start.at_s is None:
        return f"When it may start is not known: {clean(start.because, 500).removeprefix('no estimate: ')}"
    when = moment(start.at_s, now)
    because = ""
    if start.because and start.because not in said:  # of a landing the sentence has told already
        because = f": {localised(clean(start.because, 500), now).removeprefix('an estimate: ')}"
    if start.kind == "start_by":
        return f"Starts by {when} at the latest; this is binding{because}"
    return f"May start about {when}; this is an estimate, not a promise{because}"


def _comparison(explanation: Explanation, mine: Side) -> None:
    level = explanation.level
    place = "at the top of the budget tree" if not level else f"below {clean(level)}"
    line(f"\nDecided {place}; {_METRIC}")
    sides = [("this one", mine), *([("the other", explanation.other)] if explanation.other is not None else [])]
    table([Column("SIDE", 2), *_PARTS], [(who, *_parts(side)) for who, side in sides], "")


_METRIC = "metric = (charged + committed) / due, the smaller comes first"
_PARTS = (
    Column("ALLOCATION"),
    Column("CHARGED", 1, right=True),
    Column("COMMITTED", 1, right=True),
    Column("OWED", 2, right=True),
    Column("BUDGET", 3, right=True),
    Column("DUE", 1, right=True),
    Column("METRIC"),
)


def _parts(side: Side) -> tuple[str, ...]:
    return (
        side.allocation or NOTHING,
        gpu_time(side.occupancy_gpu_s),
        gpu_time(side.commitment_gpu_s),
        gpu_time(side.owed_gpu_s),
        gpu_time(side.budget_gpu_s),
        gpu_time(side.due_gpu_s),
        metric(side.metric),
    )


def print_standing(standing: AllocationExplanation) -> None:
    """Print how an allocation stands among its siblings, level by level."""
    for pool in standing.pools:
        line(clean(pool.sentence, 1000))
        for level in pool.levels:
            line(f"\n{f'Below {clean(level.parent)}' if level.parent else 'At the top'}; {_METRIC}")
            rows = [
                (f"{at}{' ←' if side.allocation == level.path else ''}", *_parts(side))
                for at, side in enumerate(level.siblings, 1)
            ]
            table([Column("#"), *_PARTS], rows, "")


def _threat(explanation: Explanation, known: Mapping[str, Workload], now: float) -> None:
    threat = explanation.threat
    if threat is None or threat.earliest_s is None:
        return
    by = clean(known[threat.by].label) if threat.by in known else threat.by[:8]
    loses = f"; it would lose {gpu_time(threat.loses_gpu_s)} of work" if threat.loses_gpu_s else ""
    when = "now" if threat.earliest_s <= now else f"at {moment(threat.earliest_s, now)}"
    line(f"\nCould have to make room {when} at the earliest, for {by} ({threat.right}){loses}")


def _holders(holders: tuple[HolderView, ...], known: Mapping[str, Workload], now: float) -> None:
    columns = [
        Column("ID"),
        Column("NAME", 2),
        Column("USER", 1),
        Column("ALLOCATION", 1),
        Column("GPUS", right=True),
        Column("NODES", 3),
        Column("PROTECTED UNTIL"),
    ]
    rows = (
        (
            h.workload[:8],
            known[h.workload].label if h.workload in known else NOTHING,
            h.user,
            h.allocation,
            str(h.gpus),
            ", ".join(lease.node for lease in h.leases),
            moment(h.until_s, now) if h.protected else "not protected",
        )
        for h in holders
    )
    table(columns, rows, "")
