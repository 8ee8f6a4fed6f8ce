"""Safe points and `on_preempt` in a program that `gpufair submit` runs: no kernel, so the program saves its own state.

The notice is a file that is there from the moment of the announcement on, followed by SIGTERM. A program that has
safe points leaves at the next one; any other that has registered functions leaves when the signal comes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any, Final, NoReturn

NOTICE_FILE: Final = "GPUFAIR_NOTICE_FILE"
_LIMIT_S: Final = 10.0  # for the functions, where no deadline is known


class Program:
    """What ``runtime.Runtime`` is for a kernel.

    Args:
        notice: Path of the file.
    """

    def __init__(self, notice: str) -> None:
        self._notice = notice
        self._has_points = False
        # Whoever handles SIGTERM himself goes on doing so, and finds the notice at his safe points all the same.
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._told)

    def safe_point(self) -> bool:
        """Leave if a preemption is announced, the registered functions first."""
        self._has_points = True
        if os.path.exists(self._notice):  # noqa: PTH110 - it is asked in loops
            self._leave()
        return False

    def namespace(self) -> dict[str, Any]:
        """The variables of the program."""
        return vars(sys.modules["__main__"])

    def preflight(self, within_s: float) -> Any:
        """There is no session whose variables could be looked at."""
        raise RuntimeError(
            "preflight looks at the variables of a notebook session; a program that `gpufair submit` runs saves its own "
            "state, in the functions that gpufair.on_preempt is given"
        )

    def _told(self, number: int, frame: FrameType | None) -> None:
        # Without a notice it is somebody else's SIGTERM: a stop, which has no patience.
        if not self._has_points or not os.path.exists(self._notice):  # noqa: PTH110
            self._leave()

    def _leave(self) -> NoReturn:
        from gpufair.workload.preemption import call_all  # noqa: PLC0415 - it imports what attaches this

        try:
            with open(self._notice, "rb") as file:
                notice = json.load(file)
            text, left_s = str(notice["text"]), float(notice["deadline_s"]) - time.time()
        except (OSError, ValueError, KeyError, TypeError):
            text, left_s = "It was told to stop.", 2 * _LIMIT_S
        sys.stderr.write(f"gpufair: {text}\n")
        for name, problem in call_all(max(left_s / 2, 0.2)):
            sys.stderr.write(f"gpufair: {name}: {problem}\n")
        raise SystemExit(128 + signal.SIGTERM)
