"""What a virtual agent keeps of each start on its node, whoever's pod that is."""

from __future__ import annotations

from typing import Protocol

from gpufair.wire import Command


class Life(Protocol):
    """One pod, from the wish for it until it is gone."""

    @property
    def workload(self) -> tuple[str, int]:
        """As the protocol of agents names it: workload and incarnation."""

    def begin(self, command: Command) -> None:
        """It is to run this. Twice is once."""

    def welcome(self) -> None:
        """What it is to do is known."""

    def obey(self, command: Command) -> None:
        """A command for what runs in it."""

    def abandon(self) -> None:
        """Nobody wants it here any more: it is to end now."""
