"""What a wish would mean for the wait: the same workload with other min_runtimes and in other shapes.

Long protection has its price: it ranks a workload behind, commits budget, and bars it from the debug right and from
gaps. Whoever sees both together asks for what he needs. What is said to start now has been tried on the pass itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gpufair.core import words
from gpufair.core.admission import check_spec
from gpufair.core.errors import GpufairError
from gpufair.core.estimate import estimate
from gpufair.core.facts import Facts
from gpufair.core.model import PreemptReason, Shape, WorkloadSpec
from gpufair.core.queue import position
from gpufair.core.reading import Reading
from gpufair.core.record import Record
from gpufair.core.trial import Trial, asking, could, could_land, promised, trial
from gpufair.core.units import HOUR, MINUTE, GpuMillis, Instant, Millis

MIN_RUNTIMES: Final = tuple(Millis(span) for span in (0, 15 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR))


class Outlook(StrEnum):
    """What would become of a submission."""

    NOW = "now"  # it starts at once
    MAKES_ROOM = "makes room"  # others are told to leave for it at once; it starts when they have
    START_BY = "start by"  # it waits, and a binding start-by time holds
    ESTIMATED = "estimated"  # it waits, for about so long
    UNKNOWN = "unknown"  # it waits, and nobody can say how long
    REFUSED = "refused"  # it would not be admitted


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to ask, and what would come of it.

    Args:
        shape: What is asked for.
        min_runtime: How much protection.
        outlook: What would become of it.
        at: When it would start: exactly, at the latest, or about then.
        right: By which right others would leave for it.
        committed: K, the GPU time that its start promises it.
        of_budget: K as a part of the allocation's budget for the window; None where there is no budget.
        sentence: All of that for people.
    """

    shape: Shape
    min_runtime: Millis
    outlook: Outlook
    at: Instant | None
    right: PreemptReason | None
    committed: GpuMillis
    of_budget: float | None
    sentence: str

    @property
    def at_once(self) -> bool:
        """Whether something would be done for it now."""
        return self.outlook in {Outlook.NOW, Outlook.MAKES_ROOM}


@dataclass(frozen=True, slots=True)
class Coaching:
    """The wish as it is, and other ways to ask: shapes from the asked one down, min_runtimes from the shortest up."""

    asked: Choice
    choices: tuple[Choice, ...]
    advice: str


def coach(
    facts: Facts, spec: WorkloadSpec, min_runtimes: Iterable[Millis] | None, shapes: Iterable[Shape] | None
) -> Coaching:
    """Try a wish and its variants out, without changing anything.

    Args:
        facts: What is so.
        spec: The wish.
        min_runtimes: Which to try; None: the usual ones up to the cap.
        shapes: Which to try; None: the asked one, half of it, all on one node, and one GPU.
    """
    cap = facts.policy.max_min_runtime
    spans = sorted({*((one for one in MIN_RUNTIMES if one <= cap) if min_runtimes is None else min_runtimes)})
    forms = tuple(dict.fromkeys(usual_shapes(facts, spec) if shapes is None else shapes))
    coaching = _Coach(facts, spec)
    asked = coaching.choice(spec.shape, spec.min_runtime)
    choices = tuple(coaching.choice(shape, span) for shape in forms for span in spans)
    return Coaching(asked, choices, _advice(facts, asked, choices))


def usual_shapes(facts: Facts, spec: WorkloadSpec) -> list[Shape]:
    """The asked shape, half of it, all of it on one node if a node is so large, and one GPU."""
    asked = spec.shape
    shapes = [asked]
    if asked.nodes > 1:
        shapes.append(replace(asked, nodes=asked.nodes // 2))
        largest = max((node.node.gpus for pool in spec.pools for node in facts.by_pool.get(pool, ())), default=0)
        shapes.append(replace(asked, nodes=1, gpus_per_node=max(1, min(asked.gpus, largest))))
    elif asked.gpus_per_node > 1:
        shapes.append(replace(asked, gpus_per_node=asked.gpus_per_node // 2))
    if asked.gpus > 1:
        shapes.append(replace(asked, nodes=1, gpus_per_node=1))
    return shapes


class _Coach:
    def __init__(self, facts: Facts, spec: WorkloadSpec) -> None:
        self._facts, self._spec = facts, spec
        self._known: dict[tuple[Shape, Millis], Choice] = {}
        self._ahead: dict[tuple[bool, bool], int] = {}
        self._reading = Reading(facts)
        self._budget = self._reading.shares(spec.pools[0]).standing(spec.allocation).budget if self._has_budget() else None

    def _has_budget(self) -> bool:
        return bool(self._spec.pools) and self._spec.allocation in self._facts.tree

    def choice(self, shape: Shape, min_runtime: Millis) -> Choice:
        """What would come of one way to ask."""
        known = self._known.get((shape, min_runtime))
        if known is None:
            known = self._known[shape, min_runtime] = self._try(
                replace(self._spec, shape=shape, min_runtime=min_runtime)
            )
        return known

    def _try(self, spec: WorkloadSpec) -> Choice:
        try:
            check_spec(spec, self._facts)
        except GpufairError as err:
            return self._of(spec, Outlook.REFUSED, None, None, f"refused: {err}")
        with asking(self._facts, spec) as record:
            found = trial(self._facts, record) if self._may_act(spec) else Trial()
            if found.start is not None:
                return self._of(spec, Outlook.NOW, self._facts.now, None, f"starts now: {found.start.why}")
            if found.landing is not None:
                landing = found.landing
                return self._of(spec, Outlook.START_BY, landing.start_by, PreemptReason.LANDING, f"waits, but {landing.why}")
            if found.reserve is not None:
                return self._making_room(spec, found)
            return self._waiting(spec, record)

    def _may_act(self, spec: WorkloadSpec) -> bool:
        return could(self._reading, spec) or could_land(self._reading, spec)

    def _making_room(self, spec: WorkloadSpec, found: Trial) -> Choice:
        facts = self._facts
        at = found.at(facts.now)
        leaving = words.names(facts.label(notice.workload) for notice in found.notices)
        sentence = f"starts by {words.moment(at or facts.now)}: {leaving} must leave for it at once ({found.right})"
        return self._of(spec, Outlook.MAKES_ROOM, at, found.right, sentence)

    def _waiting(self, spec: WorkloadSpec, record: Record) -> Choice:
        # Neither shape nor protection moves anybody within the queue.
        side = (spec.allocated, bool(record.gpus))
        if side not in self._ahead:
            self._ahead[side] = position(self._facts, record, self._reading.shares) - 1
        guess = estimate(self._facts, record, self._ahead[side], self._reading.forecasts)
        if guess.at is None:
            return self._of(spec, Outlook.UNKNOWN, None, None, f"waits; {guess.basis}")
        sentence = f"waits until about {words.moment(guess.at)}; {guess.basis}"
        return self._of(spec, Outlook.ESTIMATED, guess.at, None, sentence)

    def _of(
        self, spec: WorkloadSpec, outlook: Outlook, at: Instant | None, right: PreemptReason | None, said: str
    ) -> Choice:
        committed = promised(spec)
        part = committed / self._budget if self._budget else None
        cost = f" It commits {words.gpu_time(committed)}" if committed else " It commits nothing"
        of = f", {words.percent(part)} of the budget of {spec.allocation}" if committed and part is not None else ""
        what = f"{words.shape(spec.shape)} with {words.protection(spec.min_runtime)}"
        return Choice(spec.shape, spec.min_runtime, outlook, at, right, committed, part, f"{what} {said}.{cost}{of}.")


def _advice(facts: Facts, asked: Choice, choices: Iterable[Choice]) -> str:
    """One sentence: what to change, if something else is had at once."""
    if asked.at_once or asked.outlook is Outlook.REFUSED:
        return asked.sentence
    better = [one for one in choices if one.at_once]
    whole = [one for one in better if one.shape == asked.shape]
    best = max(whole or better, key=lambda one: (one.min_runtime > 0, one.shape.gpus, one.min_runtime), default=None)
    return best.sentence if best is not None else asked.sentence
