"""Where the kernel that runs a notebook makes itself known to the functions that the notebook calls."""

from __future__ import annotations

import os
from typing import Any, Protocol

from gpufair.workload.program import NOTICE_FILE, Program


class Runtime(Protocol):
    """What a kernel of gpufair does for the code that it runs."""

    def safe_point(self) -> bool:
        """Take a checkpoint that is due, here and now. Whether one was taken."""

    def namespace(self) -> dict[str, Any]:
        """The variables of the session."""

    def preflight(self, within_s: float) -> Any:
        """Whether, and how fast, the session could be parked."""


_current: list[Runtime] = []  # at most one


def attach(runtime: Runtime) -> None:
    """A kernel is up in this process. Replaces an earlier one."""
    _current[:] = [runtime]


def current() -> Runtime | None:
    """The kernel of this process, or the program that `gpufair submit` runs; None outside of gpufair."""
    if not _current and NOTICE_FILE in os.environ:
        attach(Program(os.environ[NOTICE_FILE]))
    return _current[0] if _current else None
