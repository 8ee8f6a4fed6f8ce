"""The cell magic ``%%cpu``: the cell runs in the CPU pool. Kernels of gpufair have it; others: ``%load_ext jupyter_gpufair.cpu``."""

from __future__ import annotations

import sys
from typing import Any

from gpufair.core.errors import GpufairError
from gpufair.cpu import cell as cells


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython, for a lazy magic as well."""

    def cpu(line: str, cell: str) -> Any:
        """Run the cell in the CPU pool, with the variables that it reads; what it assigns comes back.

        A cell that fails, or that is interrupted, changes no variable.
        """
        return run(shell, line, cell)

    shell.register_magic_function(cpu, "cell", "cpu")


def run(shell: Any, line: str, cell: str) -> Any:
    """See ``cpu`` above."""
    from IPython.core.error import UsageError  # noqa: PLC0415 - shown without a traceback

    from gpufair.cpu import pool  # noqa: PLC0415 - Dask takes most of a second

    if line.strip():
        raise UsageError(f"%%cpu takes no words, not {line.strip()!r}")
    try:
        task = cells.send(shell.transform_cell(cell), shell.user_ns, pool.current())
        outcome = task.pool.outcome(task)
    except GpufairError as err:
        raise UsageError(str(err)) from None
    sys.stdout.write(outcome.stdout)
    sys.stderr.write(outcome.stderr)
    if outcome.value is None:
        sys.stderr.write(outcome.trace)
    try:
        return cells.take(outcome, shell.user_ns)
    except GpufairError as err:
        raise UsageError(str(err)) from None
