"""What the engine needs of a policy: to be told what happens, to decide, and to say when it wants to look again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpufair.core.actions import Action
from gpufair.core.events import Event
from gpufair.core.model import Policy
from gpufair.core.units import Instant


class Decider(Protocol):
    """A scheduler. ``gpufair.core.state.State`` is one.

    It answers ``Submitted``, ``Cancelled``, ``ParkRequested``, ``ResumeRequested``, ``ExtensionRequested``,
    ``ActivityReported``, ``Started``, ``CheckpointDone``, ``Released``, ``Exited``, ``NodeJoined``, ``NodeLost`` and
    ``TimePassed`` with the core's actions; of others it knows nothing and answers with no action.
    """

    def handle(self, event: Event) -> Sequence[Action]:
        """Take an event in and decide. Raises ``GpufairError`` if it is refused; nothing has changed then."""

    def next_wakeup(self) -> Instant | None:
        """When ``TimePassed`` is due if nothing happens before."""

    def forget(self, before: Instant) -> None:
        """Drop what is known of workloads that ended before an instant."""

    @property
    def protected_preemptions(self) -> int:
        """How often somebody was told to leave while protected. Must be 0."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy by its name: how to make one with these options, of which it uses what it knows."""

    name: str
    about: str
    make: Callable[[Policy], Decider]
