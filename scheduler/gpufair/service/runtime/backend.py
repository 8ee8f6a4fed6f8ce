"""What the runtime expects of a backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gpufair.core.actions import Action
from gpufair.core.state import State


class Backend(Protocol):
    """Carries decisions out. Outcomes come back as events, through the runtime."""

    def perform(self, actions: Sequence[Action], state: State) -> None:
        """Begin to carry out ``actions``, which are committed. ``state`` is to be read only.

        Called by the runtime after each commit, on its loop: must not block and must not fail. An action that is lost
        on the way (a crash) is found again by comparing the state with what the nodes say they run.
        """
