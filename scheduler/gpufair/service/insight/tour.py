"""A tour of the last week: a handful of workloads, and why each waited, ran or was preempted, as it was recorded then.

Nothing is made up and nothing is worked out anew: each line is an event, or a decision with the sentence that it was
journalled with. Of others it tells what the queue shows of them: whose it is, who pays, and the start of the id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core import words
from gpufair.core.model import Kind, PreemptReason, WorkloadSpec
from gpufair.core.units import DAY, SECOND, Instant, WorkloadId
from gpufair.service.insight.week import Story, Wait, Week

SPAN: Final = 7 * DAY
MOST_LINES: Final = 12  # of one step; those in the middle are counted

TERMS: Final[Mapping[str, tuple[str, str]]] = {
    "metric": (
        "what an allocation has had and was promised, over what was due to it; the smaller comes first",
        "docs/policy.md, Order",
    ),
    "landing": ("nodes and a time at which a gang will start, which later arrivals do not move", "docs/policy.md, Landings"),
    "protection": (
        "for its min_runtime, counted from each start, nobody may preempt a workload",
        "docs/policy.md, Preemption",
    ),
    "rank": (
        "an under-served allocation may take the place of an over-served one's work whose protection has ended",
        "docs/policy.md, Preemption",
    ),
    "debug right": (
        "short, small work may take the place of unprotected work that is hardly larger, whatever its rank",
        "docs/policy.md, Preemption",
    ),
    "unallocated": ("free of charge, never protected, first to leave", "docs/policy.md, Terms"),
    "parked": ("a session rests with its variables saved and without GPUs until it is touched", "docs/policy.md, Sessions"),
}
_RIGHTS: Final[Mapping[PreemptReason, str]] = {
    PreemptReason.RANK: "rank",
    PreemptReason.DEBUG: "debug right",
    PreemptReason.UNALLOCATED: "unallocated",
    PreemptReason.LANDING: "landing",
}
_MISSING: Final[Mapping[str, str]] = {
    "own": "Nothing of yours has waited for GPUs or run on them.",
    "wait": "Nobody else has waited for GPUs.",
    "preemption": "Nobody was preempted for somebody else.",
    "landing": "Nothing has owned a landing.",
    "debug": "No debug run has taken somebody's place.",
}


@dataclass(frozen=True, slots=True)
class Record:
    """Which part of the journal was read: from ``since`` until ``now``. ``cut``: more of the week was there."""

    since: Instant
    now: Instant
    cut: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is all of a week."""
        return self.since <= self.now - SPAN


def tour_view(week: Week, record: Record, user: str) -> dict[str, Any]:
    """The tour for ``user``: its steps, what there is none of, and the terms that they use."""
    guide = _Guide(week, record.now, user)
    steps = guide.steps()
    used = {term for step in steps for term in step["terms"]}
    return {
        "since_s": record.since / 1000,
        "until_s": record.now / 1000,
        "whole_week": record.whole,
        "about": _about(week, record),
        "steps": steps,
        "missing": [text for kind, text in _MISSING.items() if kind in guide.missing],
        "terms": {term: {"means": means, "where": where} for term, (means, where) in TERMS.items() if term in used},
    }


def _about(week: Week, record: Record) -> str:
    asked, starts = _plural(week.submitted, "submission"), _plural(len(week.starts), "start")
    counts = f"{asked}, {starts}, {_plural(_preemptions(week), 'preemption')}"
    ago = _long(record.now - record.since)
    if record.cut:
        return f"The last {ago}: {counts}. More of the week is recorded than can be gone through."
    if not record.whole:
        return f"This lab has no week yet: its record begins {ago} ago. Since then: {counts}."
    return f"The last 7 days: {counts}."


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _preemptions(week: Week) -> int:
    return sum(1 for _, notice in week.notices if notice.beneficiary is not None)


class _Guide:
    """Chooses the workloads and tells of them; none is shown twice."""

    def __init__(self, week: Week, now: Instant, user: str) -> None:
        self._week, self._now, self._user = week, now, user
        self._shown: set[WorkloadId] = set()
        self.missing: set[str] = set()  # kinds of which there is nothing, shown already or not

    def steps(self) -> list[dict[str, Any]]:
        """In the order of ``_MISSING``. What is rare is chosen first, so that the longest wait does not take it."""
        order = list(_MISSING)
        found = [self._own(), self._preemption(), self._landing(), self._debug(), self._longest()]
        return sorted((step for step in found if step is not None), key=lambda step: order.index(step["kind"]))

    # -- what is shown --------------------------------------------------------------------------------------------

    def _own(self) -> dict[str, Any] | None:
        found = self._longest_wait("own", lambda story, _: self._is_mine(story))
        return None if found is None else self._wait("own", "Yours", *found, whole=True)

    def _longest(self) -> dict[str, Any] | None:
        found = self._longest_wait("wait", lambda story, _: not self._is_mine(story))
        return None if found is None else self._wait("wait", "The longest wait", *found)

    def _landing(self) -> dict[str, Any] | None:
        found = self._longest_wait("landing", lambda _, wait: wait.landing is not None and wait.start is not None)
        if found is None:
            return None
        story, wait = found
        assert wait.landing is not None
        early = wait.landing[1].start_by - (wait.until or self._now)
        told = f"{_long(early)} before the time it was promised" if early >= SECOND else "by the time it was promised"
        return self._wait("landing", "A landing", story, wait, also=f"it started {told}")

    def _debug(self) -> dict[str, Any] | None:
        found = self._longest_wait(
            "debug", lambda _, wait: wait.start is not None and wait.reserve is not None and wait.reserve.debug
        )
        return None if found is None else self._wait("debug", "A debug run", *found, more=("debug right",))

    def _longest_wait(self, kind: str, fits: Callable[[Story, Wait], bool]) -> tuple[Story, Wait] | None:
        """Of those for GPUs that fit; gangs on several nodes come first where a landing is looked for."""
        chances = [
            (kind == "landing" and story.spec.shape.nodes > 1, wait.lasted(self._now), story, wait)
            for story in self._week.stories.values()
            if story.spec is not None and story.spec.shape.gpus
            for wait in story.waits
            if fits(story, wait)
        ]
        if not chances:
            self.missing.add(kind)
        fresh = (one for one in chances if one[2].workload not in self._shown)
        best = max(fresh, key=lambda one: (*one[:2], one[2].workload), default=None)
        return None if best is None else best[2:]

    def _preemption(self) -> dict[str, Any] | None:
        """The last one, of the reader's own work if any."""
        chances = [
            (self._is_mine(self._week.story(notice.workload)), at, notice)
            for at, notice in self._week.notices
            if notice.beneficiary is not None and self._week.story(notice.workload).spec is not None
        ]
        if not chances:
            self.missing.add("preemption")
        fresh = (one for one in chances if one[2].workload not in self._shown)
        best = max(fresh, key=lambda one: (one[0], one[1], one[2].workload), default=None)
        if best is None:
            return None
        _, at, notice = best
        story = self._week.story(notice.workload)
        begun = max((when for when, one in story.moments if isinstance(one, act.Start) and when <= at), default=at)
        again = min((when for when, one in story.moments if isinstance(one, act.Start) and when > at), default=self._now)
        lines = [*self._told(story, begun, again), *self._start_of(notice.beneficiary, at)]
        lines.sort(key=lambda line: float(line["at_s"]))
        title = f"A preemption: {self._name(notice.workload)} makes room for {self._name(notice.beneficiary)}"
        right = _RIGHTS.get(notice.reason)
        return self._step("preemption", title, story, lines, ("protection", *((right,) if right else ())))

    def _start_of(self, workload: WorkloadId | None, at: Instant) -> Iterator[dict[str, Any]]:
        if workload is None:
            return
        for when, one in self._week.story(workload).moments:
            if when >= at and isinstance(one, act.Start):
                yield _line(when, f"{self._label(workload)} started on {words.places(one.held.leases)}")
                return

    # -- how it is told -------------------------------------------------------------------------------------------

    def _wait(
        self,
        kind: str,
        title: str,
        story: Story,
        wait: Wait,
        *,
        also: str = "",
        more: tuple[str, ...] = (),
        whole: bool = False,
    ) -> dict[str, Any]:
        """A step about a wait; ``whole``: with all that came before and after it."""
        lasted = _long(wait.lasted(self._now))
        said = f"it has waited for {lasted}" if wait.until is None else f"it waited for {lasted}"
        heading = f"{title}: {said}{f', and {also}' if also else ''}"
        end = self._now if wait.until is None else wait.until
        lines = list(self._told(story, Instant(0), self._now) if whole else self._told(story, wait.since, end))
        meanwhile = self._meanwhile(story, wait)
        if meanwhile:
            lines.append(_line(end, meanwhile))
            lines.sort(key=lambda line: float(line["at_s"]))
        spec = story.spec
        terms = ("metric" if spec is not None and spec.allocated else "unallocated", *more)
        landed = ("landing",) if wait.landing is not None else ()
        return self._step(kind, heading, story, lines, tuple(dict.fromkeys((*terms, *landed))))

    def _meanwhile(self, story: Story, wait: Wait) -> str:
        end = self._now if wait.until is None else wait.until
        leaves: Counter[str] = Counter()
        for at, workload in self._week.starts:
            other = self._week.story(workload)
            if wait.since < at < end and workload != story.workload and other.spec is not None and other.spec.shape.gpus:
                leaves[other.spec.allocation] += 1
        if not leaves:
            return ""
        shown = ", ".join(f"{count} of {leaf}" for leaf, count in leaves.most_common(4))
        others = "one other" if leaves.total() == 1 else f"{leaves.total()} others"
        return f"while it waited {others} started on GPUs ({shown})"

    def _step(
        self, kind: str, title: str, story: Story, lines: list[dict[str, Any]], terms: tuple[str, ...]
    ) -> dict[str, Any]:
        self._shown.add(story.workload)
        spec, mine = story.spec, self._is_mine(story)
        assert spec is not None
        if len(lines) > MOST_LINES:
            half = MOST_LINES // 2
            left_out = _line(lines[half]["at_s"] * 1000, f"and {len(lines) - 2 * half} more moments")
            lines = [*lines[:half], left_out, *lines[-half:]]
        return {
            "kind": kind,
            "title": title,
            "workload": story.workload,
            "label": self._label(story.workload),
            "name": _name_of(spec) if mine else "",
            "user": spec.user,
            "allocation": spec.allocation,
            "mine": mine,
            "lines": lines,
            "terms": list(terms),
        }

    def _told(self, story: Story, since: Instant, until: Instant) -> Iterator[dict[str, Any]]:
        for at, moment in story.moments:
            if since <= at <= until and (text := self._text(moment, self._is_mine(story))):
                yield _line(at, text)

    def _text(self, moment: ev.Event | act.Action, mine: bool) -> str:
        """What happened. Why something failed or ended is its owner's."""
        match moment:
            case ev.Submitted():
                spec = moment.spec
                return f"asked for {words.shape(spec.shape)} with {words.protection(spec.min_runtime)}; {spec.allocation} pays"
            case ev.Amended():
                wish = f"{words.shape(moment.shape)} with {words.protection(moment.min_runtime)}"
                return f"asked for {wish} instead; {moment.allocation} pays"
            case ev.CheckpointDone():
                return f"was saved in {words.span(moment.checkpoint.duration)}"
            case act.Reserve():
                return f"GPUs on {words.places(moment.leases)} were kept for it: {moment.why}"
            case act.GrantLanding():
                at = f"{words.places(moment.leases)} at {words.moment(moment.at)}"
                return f"got a landing on {at}: {moment.why}"
            case act.Start():
                end = moment.held.protected_until
                kept = f", protected until {words.moment(end)}" if moment.held.granted else ""
                return f"started on {words.places(moment.held.leases)}{kept}: {moment.why}"
            case act.BeginCheckpoint():
                who = f" for {self._label(moment.beneficiary)}" if moment.beneficiary is not None else ""
                return f"was told to leave by {words.moment(moment.deadline)}{who} ({moment.reason}): {moment.why}"
            case act.Requeue():
                return moment.why if mine else "was queued again"
            case act.Park():
                return moment.why if mine else "was parked"
            case act.Stop():
                return f"was stopped: {moment.why}" if mine else "was stopped"
            case act.End():
                return f"ended ({moment.outcome}): {moment.why}" if mine else f"ended ({moment.outcome})"
            case _:
                return ""

    def _is_mine(self, story: Story) -> bool:
        return story.spec is not None and story.spec.user == self._user

    def _label(self, workload: WorkloadId) -> str:
        """As the queue and the sentences of decisions name it."""
        spec = self._week.story(workload).spec
        if spec is None:
            return workload[:8]
        return f"{spec.user}'s {'session' if spec.kind is Kind.SESSION else 'batch run'} {workload[:8]}"

    def _name(self, workload: WorkloadId | None) -> str:
        return "somebody" if workload is None else self._label(workload)


def _name_of(spec: WorkloadSpec) -> str:
    notebook = spec.launch.get("notebook")
    return spec.name or (notebook.rsplit("/", 1)[-1] if isinstance(notebook, str) else "")


def _line(at: float, text: str) -> dict[str, Any]:
    return {"at_s": at / 1000, "text": text}


def _long(span: int) -> str:
    """A span of time as people say it: its two largest units."""
    units = (("d", DAY), ("h", 3_600_000), ("min", 60_000), ("s", SECOND))
    for at, (name, size) in enumerate(units):
        if span >= size:
            rest = [(more, span % size // finer) for more, finer in units[at + 1 : at + 2]]
            return " ".join([f"{span // size} {name}", *(f"{count} {more}" for more, count in rest if count)])
    return "less than a second"
