"""What became of each workload in the record of the last days: its waits, and what was decided about it when and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from gpufair.core import actions as act
from gpufair.core import events as ev
from gpufair.core.errors import GpufairError
from gpufair.core.model import WorkloadSpec
from gpufair.core.units import Instant, WorkloadId
from gpufair.service.storage import codec
from gpufair.service.storage.store import Entry

Moment = tuple[Instant, ev.Event | act.Action]

# The bulk of a journal is time that passes, activity and measurements: they are told from the rest without reading them.
_TOLD: Final = tuple(f'"{kind.__name__}"' for kind in (ev.Submitted, ev.Amended, ev.CheckpointDone))
_NOTHING: Final = "[]"
_KIND_WITHIN: Final = 120  # characters of an event's text


@dataclass(slots=True)
class Wait:
    """From when until when (None: still) a workload waited, with what it owned by then."""

    since: Instant
    until: Instant | None = None
    landing: tuple[Instant, act.GrantLanding] | None = None
    reserve: act.Reserve | None = None
    start: act.Start | None = None

    def lasted(self, now: Instant) -> int:
        """How long, in milliseconds."""
        return (now if self.until is None else self.until) - self.since


@dataclass(slots=True)
class Story:
    """One workload. ``spec`` is None where it was submitted before the record that was read begins."""

    workload: WorkloadId
    spec: WorkloadSpec | None = None
    moments: list[Moment] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)

    @property
    def waiting(self) -> Wait | None:
        """The wait that is not over."""
        return self.waits[-1] if self.waits and self.waits[-1].until is None else None

    def over(self, at: Instant) -> None:
        """It waits no longer."""
        if (wait := self.waiting) is not None:
            wait.until = at


@dataclass(slots=True)
class Week:
    """All that was read, by workload, in the order in which they are first met."""

    stories: dict[WorkloadId, Story] = field(default_factory=dict)
    starts: list[tuple[Instant, WorkloadId]] = field(default_factory=list)
    notices: list[tuple[Instant, act.BeginCheckpoint]] = field(default_factory=list)
    submitted: int = 0

    def take(self, entries: Iterable[Entry]) -> None:
        """Go on with these entries. One that this version cannot read is left out: nothing is decided by a story."""
        for entry in entries:
            head = entry.event[:_KIND_WITHIN]
            if entry.actions == _NOTHING and not any(kind in head for kind in _TOLD):
                continue
            try:
                event, actions = codec.load_event(entry.event), codec.load_actions(entry.actions)
            except GpufairError:
                continue
            at = Instant(entry.at_ms)
            self._happened(at, event)
            for action in actions:
                self._decided(at, action)

    def story(self, workload: WorkloadId) -> Story:
        """What is known of a workload."""
        if workload not in self.stories:
            self.stories[workload] = Story(workload)
        return self.stories[workload]

    def strangers(self) -> list[WorkloadId]:
        """Those whose submission lies before the record that was read."""
        return [story.workload for story in self.stories.values() if story.spec is None]

    def _happened(self, at: Instant, event: ev.Event) -> None:
        match event:
            case ev.Submitted():
                story = self.story(event.workload)
                story.spec = event.spec
                self.submitted += 1
                if not event.withheld:
                    story.waits.append(Wait(at))
            case ev.Amended():
                story = self.story(event.workload)
                if story.spec is not None:
                    story.spec = event.of(story.spec)
                if (wait := story.waiting) is not None:
                    wait.landing = None
            case ev.CheckpointDone():
                story = self.story(event.workload)
            case _:
                return
        story.moments.append((at, event))

    def _decided(self, at: Instant, action: act.Action) -> None:
        story = self.story(action.workload)
        story.moments.append((at, action))
        wait = story.waiting
        match action:
            case act.Start():
                self.starts.append((at, action.workload))
                if wait is not None:
                    wait.until, wait.start = at, action
            case act.Requeue():
                story.waits.append(Wait(at))
            case act.BeginCheckpoint():
                self.notices.append((at, action))
            case act.Park() | act.End():
                story.over(at)
            case act.Reserve() if wait is not None:
                wait.reserve = action
            case act.Unreserve() if wait is not None:
                wait.reserve = None
            case act.GrantLanding() if wait is not None:
                wait.landing = (at if wait.landing is None else wait.landing[0], action)
            case act.DropLanding() if wait is not None:
                wait.landing = None
            case _:
                pass
