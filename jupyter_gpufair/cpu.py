"""The cell magic ``%%cpu``: the cell runs in the CPU pool. Kernels of gpufair have it; others: ``%load_ext jupyter_gpufair.cpu``."""

from __future__ import annotations

import functools
import sys
import threading
import traceback
from typing import Any

from gpufair.core.errors import GpufairError
from gpufair.cpu import cell as cells
from gpufair.cpu.errors import NotForThePool, RemoteFailure

_RELEASE = "--release-gpu"
_LEAVES = "gpufair: this cell runs in the CPU pool, and the session gives its GPUs back meanwhile."
_PREEMPTED = "gpufair: this session has to make room; this cell goes on in the CPU pool, and here when the session is back."


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython, for a lazy magic as well."""

    def cpu(line: str, cell: str | None = None) -> Any:
        """Run the cell in the CPU pool, with the variables that it reads; what it assigns comes back.

        --release-gpu: the session gives its GPUs back while it runs, and the next cell waits for new ones. The pool must
        outlive the kernel.

        A cell that fails, or that is interrupted, changes no variable.
        """
        return run(shell, line, cell)

    shell.register_magic_function(cpu, "line_cell", "cpu")


def run(shell: Any, line: str, cell: str | None) -> Any:
    """See ``cpu`` above."""
    from IPython.core.error import UsageError  # noqa: PLC0415 - shown without a traceback

    if not (cell or "").strip():
        raise UsageError("%%cpu stands in the first line of a cell, and what is to run in the pool in the lines below it")
    if line.split() not in ([], [_RELEASE]):
        raise UsageError(f"%%cpu knows {_RELEASE}, not {line.strip()!r}")
    away = getattr(getattr(shell, "kernel", None), "away", None)
    if away is None or not away.possible or threading.current_thread() is not threading.main_thread():
        away = None
    try:
        outcome = _outcome(shell, str(cell), away, release=bool(line.strip()))
        sys.stdout.write(outcome.stdout)
        sys.stderr.write(outcome.stderr)
        if outcome.value is not None:
            return cells.take(outcome, shell.user_ns)
        error = _as_there(outcome)
    except GpufairError as err:
        raise UsageError(str(err)) from None
    except SyntaxError as err:
        raise UsageError("\n" + "".join(traceback.format_exception_only(err)).rstrip()) from None
    raise error


def _as_there(outcome: Any) -> BaseException:
    """What the cell raised. IPython shows the worker's traceback of it: the frames here are ours, and say nothing.

    Raises:
        GpufairError: It is what we have to say about the cell.
    """
    from gpufair.cpu import worker  # noqa: PLC0415 - with Dask

    error = worker.failure(outcome)
    if isinstance(error, GpufairError) and not isinstance(error, RemoteFailure):
        raise error
    shown = f"{outcome.trace.rstrip()}\nOn the worker {outcome.worker}"
    vars(error)["_render_traceback_"] = functools.partial(shown.splitlines)  # which IPython calls; it pickles
    return error


def _outcome(shell: Any, cell: str, away: Any, *, release: bool) -> Any:
    """How the cell ended in the pool; what it waits for survives a move of the session.

    Raises:
        Left: The cell ends here, and is sent again to the kernel that comes after this one.
    """
    from gpufair.cpu import connection  # noqa: PLC0415 - Dask takes most of a second
    from jupyter_gpufair.kernel.away import has_gpus  # noqa: PLC0415 - in other kernels it is not used
    from jupyter_gpufair.kernel.notice import Left  # noqa: PLC0415

    task = None if away is None else away.found
    if task is None:
        there = connection.current()
        if release and not there.lasting:
            raise NotForThePool(
                "another kernel would not find its pool, which ends with this one or was given certificates; call "
                f"gpufair.cpu.connect(), after `gpufair cpu start` if there is no other pool, or leave {_RELEASE} out"
            )
        task = cells.send(shell.transform_cell(cell), shell.user_ns, there)
        if release and away is not None and has_gpus():
            away.leave(task, _LEAVES, release=True)
        if release:
            print("gpufair: there are no GPUs to give back here; the cell runs as without that.", file=sys.stderr)  # noqa: T201

    def look(_done: int) -> None:
        if away is not None and away.due and task.pool.lasting:
            away.leave(task, _PREEMPTED, release=False)

    try:
        outcome = task.pool.outcomes([task], look)[0]
    except Left:
        raise
    except BaseException:
        if away is not None:
            away.over()
        raise
    if away is not None:
        away.over()
    return outcome
