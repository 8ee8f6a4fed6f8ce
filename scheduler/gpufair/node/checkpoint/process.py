"""What a session has beside its variables: working directory, import path, random number generators."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_RANDOM, _NUMPY = "rng:random", "rng:numpy"


def working_directory() -> str:
    """The current directory; empty if it has been deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def generators() -> list[tuple[str, object]]:
    """States of the global random number generators that the process uses, by name."""
    states: list[tuple[str, object]] = [(_RANDOM, random.getstate())]
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        states.append((_NUMPY, numpy_random.get_state()))
    return states


def set_generators(extras: dict[str, Any]) -> None:
    """Take the generators' states out of ``extras`` and set them."""
    if (state := extras.pop(_RANDOM, None)) is not None:
        random.setstate(state)
    if (state := extras.pop(_NUMPY, None)) is not None:
        import numpy as np  # noqa: PLC0415 - only where a saved session used it

        np.random.set_state(state)  # noqa: NPY002 - the global generator is what the user's code uses


def enter(cwd: str, sys_path: Sequence[str]) -> list[str]:
    """Go to the session's directory and make its import path hold here. Before any unpickling: modules load by name.

    Returns: Warnings for what is not on this node.
    """
    warnings = []
    if cwd:
        try:
            os.chdir(cwd)
        except OSError as err:
            here = working_directory()
            warnings.append(
                f"the session's directory {cwd} cannot be entered here ({err.strerror}); it goes on in {here}"
            )
    # Only what the session added, and only what exists: the standard library lies elsewhere on another node.
    known = set(sys.path)
    common = next((i for i, entry in enumerate(sys_path) if entry in known), len(sys_path))
    usable: Callable[[str], bool] = lambda entry: entry not in known and Path(entry).exists()  # noqa: E731
    front = [entry for entry in sys_path[:common] if usable(entry)]
    back = [entry for entry in sys_path[common:] if usable(entry)]
    sys.path[:] = [*front, *sys.path, *dict.fromkeys(back)]
    return warnings


# Threads of these are the kernel's own, or ours; they touch no variable.
_OWN = (
    "ipykernel",
    "IPython",
    "jupyter_client",
    "zmq",
    "tornado",
    "gpufair",
    "jupyter_gpufair",
    "debugpy",
    "pydevd",
    "_pydevd_bundle",
    "fsspec",
)


def user_threads() -> list[str]:
    """Names of the live threads, beside this one, that may change the session's variables."""
    return [
        thread.name
        for thread in threading.enumerate()
        if thread is not threading.current_thread() and thread.is_alive() and not _ours(thread)
    ]


def _ours(thread: threading.Thread) -> bool:
    target: Any = getattr(thread, "_target", None)
    makers = (type(thread).__module__, getattr(target, "__module__", None) or "")
    names = ("gpufair-", "fsspecIO", "pydevd.", "IPythonHistorySavingThread")
    return thread.name.startswith(names) or any(maker.partition(".")[0] in _OWN for maker in makers)
