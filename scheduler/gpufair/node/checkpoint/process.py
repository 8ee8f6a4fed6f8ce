"""What a session has beside its variables: working directory, import path, random number generators."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from gpufair.node.checkpoint.codecs import torch
from gpufair.node.checkpoint.codecs.registry import register_again, registered

_RANDOM, _NUMPY, _TORCH, _CODECS = "rng:random", "rng:numpy", "rng:torch", "codecs"


def working_directory() -> str:
    """The current directory; empty if it has been deleted."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def extras() -> list[tuple[str, object]]:
    """By name: the user's codecs, and the states of the global random number generators that the process uses."""
    found = python_generators()
    if (states := torch.generator_states()) is not None:
        found.append((_TORCH, states))
    # One by one: a codec that cannot be saved itself takes no other with it.
    return found + [(f"{_CODECS}:{name}", function) for name, function in registered().items()]


def python_generators() -> list[tuple[str, object]]:
    """By name: the states of Python's and numpy's global generators."""
    found: list[tuple[str, object]] = [(_RANDOM, random.getstate())]
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        found.append((_NUMPY, numpy_random.get_state()))
    return found


def take_extras(extras: dict[str, Any]) -> None:
    """Take what ``extras`` gave out of these, and have it hold here."""
    for name in [name for name in extras if name.startswith(f"{_CODECS}:")]:
        register_again(name.removeprefix(f"{_CODECS}:"), extras.pop(name))
    if (state := extras.pop(_RANDOM, None)) is not None:
        random.setstate(state)
    if (state := extras.pop(_NUMPY, None)) is not None:
        import_module("numpy").random.set_state(state)
    if (states := extras.pop(_TORCH, None)) is not None:
        torch.set_generator_states(states)


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


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection: among hundreds of thousands of objects that all live, one takes longer than all the rest."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
