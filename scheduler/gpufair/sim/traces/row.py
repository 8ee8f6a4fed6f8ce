"""What a trace says about jobs of the past. Nothing in here is invented: what a trace leaves open stays open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from gpufair.core.model import Outcome
from gpufair.core.units import Millis

KINDS: Final = ("", "debug", "session", "batch")

# What schedulers call the ways in which a job can end. Whatever else is written there counts as completed.
_OUTCOMES: Final = MappingProxyType(
    {
        word: outcome
        for outcome, words in (
            (Outcome.FAILED, "failed fail timeout node_fail out_of_memory boot_fail deadline error"),
            (Outcome.CANCELLED, "cancelled canceled killed preempted revoked"),
        )
        for word in words.split()
    }
    | {Outcome.TIMED_OUT.value: Outcome.FAILED}  # in a journal of ours; for the rest of this package, as Slurm's TIMEOUT
)


class Row(NamedTuple):
    """A job of the past. (A tuple, because traces hold millions of them.)

    Args:
        line: Where it stands in its file, counted from 1.
        job_id: Unique in its trace.
        submit: When it was submitted, from the trace's own zero on; >= 0.
        duration: How long it held its GPUs, queueing aside; > 0.
        gpus: All its GPUs together; > 0, and as published: clusters that share GPUs publish fractions of one.
        user: Whose it was; "" if that was not published, as in all fields of text.
        project: Whose budget it was: an account, a virtual cluster, a group.
        kind: "debug", "session", "batch", or "".
        status: How it ended, in the trace's own word, in lower case. See ``outcome``.
        nodes: On how many machines it ran. They need not divide ``gpus``, and may even be more.
        min_runtime: The protection that was declared for it; 0: none, it ran unallocated.
        priority: The more the sooner; its scale is the trace's own.
        resumable: Whether it could go on from a checkpoint.
        gpu_type: The only type of GPU that it asked for or got.
        requested: The time limit that its user gave it.
    """

    line: int
    job_id: str
    submit: Millis
    duration: Millis
    gpus: float
    user: str = ""
    project: str = ""
    kind: str = ""
    status: str = ""
    nodes: int | None = None
    min_runtime: Millis | None = None
    priority: int | None = None
    resumable: bool | None = None
    gpu_type: str = ""
    requested: Millis | None = None

    @property
    def outcome(self) -> Outcome:
        """How it ended. Failed and cancelled jobs held their GPUs as well."""
        return _OUTCOMES.get(self.status, Outcome.COMPLETED)


class BadRow(NamedTuple):
    """A line of which no job could be made, and why not."""

    line: int
    reason: str


@dataclass(frozen=True)
class Trace:
    """A file of jobs, as far as it could be read.

    Args:
        name: What it is called in reports: the name of its file.
        format: As which format it was read.
        rows: Sorted by submission; those of one moment as they stand in the file.
        skipped: The first of the bad rows.
        counts: How many lines were left out, by why: ``bad``, ``never ran``, …; only what occurred.
        epoch_s: Unix seconds of the trace's zero, where it says so. Of times without a zone: as if they were UTC.
        remarks: What else is to be known about it.
    """

    name: str
    format: str
    rows: tuple[Row, ...]
    skipped: tuple[BadRow, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    epoch_s: float | None = None
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What somebody who reads figures made from this trace should know about it, in sentences."""
        notes = [f"{self.name}: {_many(len(self.rows), 'job')} read as {self.format}"]
        left_out = [f"{count:,} {why}" for why, count in self.counts.items() if why != BAD]
        if left_out:
            notes.append(f"{self.name}: beside them {', '.join(left_out)}")
        if bad := self.counts.get(BAD, 0):
            first = "; ".join(f"line {each.line}: {each.reason}" for each in self.skipped[:3])
            notes.append(f"{self.name}: {_many(bad, 'bad row')} skipped ({first}{'; …' if bad > 3 else ''})")
        return (*notes, *(f"{self.name}: {remark}" for remark in self.remarks))


BAD: Final = "bad"
NEVER_RAN: Final = "never ran"
NO_GPUS: Final = "without GPUs"
NO_RUN: Final = "without a known run time"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
