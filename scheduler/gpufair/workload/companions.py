"""What a session has outside of its process, and what has to hear of its checkpoints: tasks in the CPU pool.

Whoever keeps such things registers when it is first used, so that a kernel need not know, or load, any of them.
"""

from __future__ import annotations

from typing import Protocol


class Companion(Protocol):
    """None of these may raise, nor take longer than a few seconds: a preemption may be waiting."""

    def before_save(self) -> None:
        """A checkpoint is about to be written: what the variables refer to must be there after a restore."""

    def saved(self) -> None:
        """It is complete, and replaces those before it."""

    def ended(self) -> None:
        """Somebody ends the kernel for good; there will be no restore."""


_registered: list[Companion] = []


def register(companion: Companion) -> None:
    """Once in the life of a process."""
    _registered.append(companion)


def before_save() -> None:
    """See ``Companion``."""
    for one in _registered:
        one.before_save()


def saved() -> None:
    """See ``Companion``."""
    for one in _registered:
        one.saved()


def ended() -> None:
    """See ``Companion``."""
    for one in _registered:
        one.ended()
