"""What is in the way of a pod's next step: how long to pause, and whether that has lasted long enough to be worth a word."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gpufair.service.backends.kubernetes.api import Pause
from gpufair.service.backends.kubernetes.problems import KubernetesProblem

BLIP_S: Final = 2.0  # a trouble that is over by then is not worth a word


class Trouble:
    """Of one pod; it begins with none."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._pause = Pause(0.1, 5.0)
        self._since: float | None = None

    def met(self, problem: KubernetesProblem) -> float:
        """A step has failed. Returns the seconds until the next try."""
        if self._since is None:
            self._since = self._now()
        return self._pause.after(problem)

    @property
    def lasts(self) -> bool:
        """Whether it is no blip any more."""
        return self._since is not None and self._now() - self._since >= BLIP_S

    def over(self) -> None:
        """A step went well."""
        self._pause.reset()
        self._since = None
