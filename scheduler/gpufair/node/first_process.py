"""What the first process of a container has to do beside its work: reap orphans, and pass signals on.

The work is done in a child, so that whoever waits for its own children there is never robbed of one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def beside(work: Callable[[], int]) -> int:
    """Do ``work`` in a child; reap whatever ends meanwhile. Call it before there are threads.

    The signals that are passed on are blocked in ``work`` until it unblocks them: none comes before it can take it.

    Returns: What ``work`` returned; where it was killed by a signal, 128 and the signal's number, as shells have it.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = work()
        except BaseException:  # noqa: BLE001  # it ends here, and must not run on as its parent
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
