"""Who submits what from now on, and how long what is there already goes on: the past, again.

What is assumed:

- The submissions of the past come again at the same time of the day, as often as the play is longer than the past.
- What was seen whole runs as long as it did. What goes on still runs as long as something of its kind that was seen
  whole and ran longer than it did so far, drawn; with none of that kind, as long again as so far. Who says how long he needs
  his GPUs (``expected``) is believed where that is not over already.
- A user comes back to his session after a thought of somebody's, drawn; one who never ran a cell never does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from gpufair.core.model import HOLDING, Kind, Phase, Policy, WorkloadSpec
from gpufair.core.record import Record
from gpufair.core.state import State
from gpufair.core.units import DAY, HOUR, MINUTE, Instant, Millis, WorkloadId
from gpufair.sim.job import Burst, Job, JobKind
from gpufair.sim.whatif.past import LEAST, Past, Seen

NONE: Final = Past(Instant(0), Instant(0))
_GIB: Final = 2**30
_THOUGHT: Final = Millis(10 * MINUTE)  # where nobody was seen thinking
_BURSTS: Final = 20  # that a session goes on for, at most


@dataclass(frozen=True, slots=True)
class Underway:
    """A workload that is there already: the job that it is taken for, and how far it has come."""

    job: Job
    done: Millis  # of the job's work
    saved: Millis  # of that, what a restore would bring back
    thinks: bool  # its user does: ``job.bursts[0]`` is over, but for the thought


def kind_of(spec: WorkloadSpec, policy: Policy) -> JobKind:
    """As what its owner waits for it."""
    if 0 < spec.min_runtime <= policy.debug_min_runtime and spec.shape.gpus <= policy.debug_gpus:
        return JobKind.DEBUG
    return JobKind.SESSION if spec.kind is Kind.SESSION else JobKind.BATCH


class Lengths:
    """How long things of a kind took in the past, and how long users thought."""

    def __init__(self, past: Past, policy: Policy) -> None:
        self._works: dict[JobKind, list[int]] = {}
        self._bursts: list[Burst] = []
        for one in past.seen.values():
            if one.spec is not None and one.whole:
                self._works.setdefault(kind_of(one.spec, policy), []).append(int(one.work))
            self._bursts += [burst for burst in one.bursts if burst.thought > 0]
        for works in self._works.values():
            works.sort()

    def rest(self, kind: JobKind, so_far: int, rng: Random) -> int:
        """How long something goes on that has worked for ``so_far``."""
        longer = [work for work in self._works.get(kind, ()) if work > so_far]
        return rng.choice(longer) - so_far if longer else max(so_far, int(HOUR))

    def bursts(self, work: int, rng: Random) -> tuple[Burst, ...]:
        """What the user of a session does until he has worked for so long."""
        found: list[Burst] = []
        while work > 0 and len(found) < _BURSTS:
            drawn = rng.choice(self._bursts) if self._bursts else Burst(Millis(work), _THOUGHT)
            found.append(Burst(Millis(min(work, int(drawn.work))), drawn.thought))
            work -= drawn.work
        return tuple(found) or (Burst(LEAST, self.thought(rng)),)

    def thought(self, rng: Random) -> Millis:
        """How long a user thinks."""
        return rng.choice(self._bursts).thought if self._bursts else _THOUGHT


def again(past: Past, policy: Policy, start: Instant, until: Instant, seed: int = 0) -> tuple[Job, ...]:
    """The submissions of the past, again: between ``start`` and ``until``, sorted."""
    lengths = Lengths(past, policy)
    every = Millis(-(-past.span // DAY) * DAY)  # whole days, so that the time of the day is the same
    if not every:
        return ()
    jobs: list[Job] = []
    for workload, one in past.seen.items():
        if one.spec is None or one.submitted is None or (one.outcome is not None and not one.work):
            continue  # it never ran, or its beginning was not seen
        rng = Random(f"{seed} {workload}")
        job = _job(WorkloadId(""), one, lengths, policy, rng)
        jobs += _repeated(job, workload, one.submitted, every, start, until)
    return tuple(sorted(jobs, key=lambda job: (job.submit, job.id)))


def _repeated(
    job: Job, workload: WorkloadId, submitted: Instant, every: Millis, start: Instant, until: Instant
) -> Iterator[Job]:
    at, number = submitted + every, 1
    while at <= until:
        if at > start:
            yield replace(job, id=WorkloadId(f"{workload}~{number}"), submit=Instant(at))
        at, number = at + every, number + 1


def _job(workload: WorkloadId, one: Seen, lengths: Lengths, policy: Policy, rng: Random) -> Job:
    assert one.spec is not None and one.submitted is not None  # noqa: PT018  # the caller knows
    kind = kind_of(one.spec, policy)
    rest = 0 if one.outcome is not None else _rest(one.spec, kind, int(one.work), lengths, rng)
    bursts: tuple[Burst, ...] = ()
    if one.spec.kind is Kind.SESSION:
        bursts = (*one.bursts, *(lengths.bursts(rest, rng) if rest or not one.bursts else ()))
    work = sum(burst.work for burst in bursts) if bursts else max(int(LEAST), int(one.work) + rest)
    return Job(workload, one.submitted, Millis(work), one.spec, kind, bursts=bursts)


def _rest(spec: WorkloadSpec, kind: JobKind, done: int, lengths: Lengths, rng: Random) -> int:
    if spec.expected is not None and spec.expected > done:
        return spec.expected - done
    return max(int(LEAST), lengths.rest(kind, done, rng))


def underway(state: State, past: Past = NONE, seed: int = 0) -> dict[WorkloadId, Underway]:
    """What is there already, by id in order of submission, and how it goes on."""
    lengths = Lengths(past, state.policy)
    live = [one for one in state.facts.records.values() if one.phase is not Phase.ENDED]
    live.sort(key=lambda record: (record.submitted_at, record.id))
    return {record.id: _underway(state, record, past.seen, lengths, seed) for record in live}


def _underway(state: State, record: Record, seen: Mapping[WorkloadId, Seen], lengths: Lengths, seed: int) -> Underway:
    rng, spec = Random(f"{seed} {record.id}"), record.spec
    done = _done(state, record, seen.get(record.id))
    saved = _saved(state, record, done)
    if record.phase not in HOLDING:
        done = saved  # what was not saved is gone
    kind = kind_of(spec, state.policy)
    rest = _rest(spec, kind, done, lengths, rng)
    checkpoint = record.checkpoint
    gib = checkpoint.size_bytes / _GIB if checkpoint is not None else 1.0
    thinks, bursts = False, tuple[Burst, ...]()
    if spec.kind is Kind.SESSION:
        thinks = record.phase is Phase.PARKED or (record.phase in HOLDING and not record.busy and bool(record.starts))
        following = lengths.bursts(rest, rng)
        first = Burst(Millis(done), lengths.thought(rng)) if thinks else following[0]
        if not thinks:
            first, following = Burst(Millis(done + first.work), first.thought), following[1:]
        bursts = (first, *following)
    work = sum(burst.work for burst in bursts) if bursts else done + rest
    job = Job(record.id, record.submitted_at, Millis(work), replace(spec, launch={}), kind, gib, bursts)
    return Underway(job, Millis(done), Millis(saved), thinks)


def _done(state: State, record: Record, seen: Seen | None) -> int:
    """Work so far: as it was seen, or as far as its charges tell."""
    if seen is not None and seen.submitted is not None:
        return int(seen.work)
    if record.spec.allocated and record.gpus:
        return record.charged(state.now) // (record.gpus * record.weight)
    return max(0, state.now - record.held.granted_at) if record.held is not None else 0


def _saved(state: State, record: Record, done: int) -> int:
    checkpoint = record.checkpoint
    if not record.spec.resumable or checkpoint is None:
        return 0
    works = record.phase is Phase.RUNNING and (record.busy or record.spec.kind is Kind.BATCH)
    return max(0, done - (state.now - checkpoint.at)) if works else done
