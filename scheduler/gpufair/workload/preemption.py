"""Functions to call before a preemption, and places in long code where a checkpoint may be taken."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from gpufair.workload import runtime

Function = TypeVar("Function", bound=Callable[[], object])
_functions: dict[tuple[str, str], Callable[[], object]] = {}


def on_preempt(function: Function) -> Function:
    """Have ``function`` called, without arguments, before the session is saved for a preemption. Works as a decorator.

    It runs in the main thread where no cell runs (or at the safe point that the cell has reached), once for each
    preemption, in the order of registration. It has half of the grace that is left. What it raises costs nothing but a
    line in the list of losses. Whoever registers a function of the same name again (by running its cell again)
    replaces it. Functions of the notebook are registered again after a restore.
    """
    if not callable(function):
        raise TypeError(f"on_preempt takes a function without arguments, not {type(function).__name__}")
    _functions[_key(function)] = function
    runtime.current()  # a program handles SIGTERM from now on
    return function


def safe_point() -> bool:
    """Say that the session may be saved here, in the middle of a cell. Costs less than a microsecond if nothing is due.

    Where a preemption is announced (or somebody asked for a checkpoint) the checkpoint is taken before this returns.
    In a preemption it does not return: the process ends, and the session goes on elsewhere with the variables as
    they are here. The cell is then run again, by its owner or by the restart policy, so write it to go on from its
    variables, or use ``gpufair.resumable``. Local variables of functions are not part of a session.

    A program that `gpufair submit` runs saves its own state: what ``on_preempt`` registered is called, then it exits.

    Returns: True if a checkpoint was taken here and the cell goes on. Always False outside a session of gpufair, in
        another thread than the main one, and while a subshell runs a cell too.
    """
    kernel = runtime.current()
    return kernel is not None and kernel.safe_point()


def registered() -> list[Callable[[], object]]:
    """The functions to call at a preemption, in their order."""
    return list(_functions.values())


class TooSlow(BaseException):
    """Raised inside a function of the user's when its time is over. No ``Exception``, so that it isn't swallowed."""


def call(function: Callable[[], object], limit_s: float) -> str | None:
    """Call a function of the user's in the main thread, for at most ``limit_s``. What went wrong, or None."""
    try:
        with _limited(limit_s):
            function()
    except TooSlow:
        return f"it was stopped after {limit_s:.3g} s: the grace was needed for saving"
    except BaseException as err:  # noqa: BLE001 - the user's code may raise anything
        return f"{type(err).__name__}: {err}"
    return None


def call_all(limit_s: float) -> list[tuple[str, str]]:
    """Call all registered functions, which share ``limit_s``. (name, reason) of those that failed."""
    end = time.monotonic() + limit_s
    failed = []
    for function in registered():
        left = end - time.monotonic()
        problem = call(function, left) if left > 0 else "no time was left for it"
        if problem is not None:
            failed.append((f"on_preempt {name_of(function)}", problem))
    return failed


def name_of(function: Any) -> str:
    """How a function is called in a message."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _key(function: Any) -> tuple[str, str]:
    return str(getattr(function, "__module__", "")), name_of(function)


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Raise ``TooSlow`` here if it takes longer; by SIGINT, because SIGALRM may be the user's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    over, done = threading.Event(), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def stop(number: int, frame: FrameType | None) -> None:
        if over.is_set() and not done.is_set():
            raise TooSlow
        # The user's own interrupt is for a cell, not for this.

    def fire() -> None:
        over.set()
        signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, stop)
    timer = threading.Timer(limit_s, fire)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        done.set()
        timer.cancel()
        timer.join()  # so that a signal that was under way arrives while the handler is ours
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_IGN)
